"""Spark's executors as pods (`engine.mode: kubernetes`): what Spark in the driver is told, and what the driver may do.

The driver asks the API server for pods. The account that it does so with, and its rights, are not made here: whoever
wants executors in a namespace grants them there (`deploy/executors.yaml`), so that the operator has nothing to grant.
Executors are owned by the driver's pod, are hardened as it is, and have no token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from kraft_operator.api.pipelines import KafkaTableSpec, PipelineSpec

if TYPE_CHECKING:
    from kraft_operator.pipelines.manifests import Pipeline

ACCOUNT: Final = "kraft-pipeline-executors"
TEMPLATE: Final = "executor.yaml"
DEFAULTS: Final = "spark-defaults.conf"
ROLE: Final = "spark-role"
"""Spark's own label; that of executors is `executor`."""
SCRATCH: Final = "spark-local-dir-1"
"""A volume of this name is where Spark puts what it spills, instead of one of its own."""

Object = dict[str, Any]


def wanted(spec: PipelineSpec) -> bool:
    """Whether there are any."""
    return isinstance(spec, KafkaTableSpec) and spec.engine.mode == "kubernetes"


def is_executor(pod: Object) -> bool:
    """Of the pods of a pipeline."""
    return bool(pod["metadata"].get("labels", {}).get(ROLE) == "executor")


def files(one: Pipeline, driver: Object, folder: str) -> dict[str, str]:
    """What Spark in the driver's pod reads in `folder`."""
    return {DEFAULTS: _defaults(one, folder), TEMPLATE: _template(driver)}


def _defaults(one: Pipeline, folder: str) -> str:
    values = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": one.namespace,
        "spark.kubernetes.container.image": one.image,
        "spark.kubernetes.container.image.pullPolicy": one.spec.driver.image_pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{folder}/{TEMPLATE}",
        # The driver is found by its address, and executors are its pod's: they go with it.
        "spark.driver.host": "${env:POD_IP}",
        "spark.kubernetes.driver.pod.name": "${env:POD_NAME}",
        # The driver is ready once it has read the topics: executors do not wait for that.
        "spark.kubernetes.driver.service.publishNotReadyAddresses": "true",
        # Tasks are programs: nobody else shall send or read them.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        # Without these it would want rights over claims, config maps and services.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _template(driver: Object) -> str:
    """An executor's pod is the driver's: where and with what rights it runs, and what it sees; without its files."""
    spec = {key: value for key, value in driver["spec"].items() if key != "terminationGracePeriodSeconds"}
    (container,) = spec["containers"]
    executor = {
        "name": "executor",
        "args": ["kraft-pipeline"],  # Spark adds `executor`, and the image with its policy
        **{key: container[key] for key in ("env", "securityContext")},
        "volumeMounts": _seen(container["volumeMounts"]),
    }
    spec |= {"containers": [executor], "volumes": _seen(spec["volumes"])}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": driver["metadata"]["labels"]}, "spec": spec}
    return yaml.safe_dump(pod, sort_keys=False)


def _seen(volumes: list[Object]) -> list[Object]:
    names = {"tmp": SCRATCH}
    return [{**one, "name": names.get(one["name"], one["name"])} for one in volumes if one["name"] != "config"]


def drive(pod: Object, folder: str) -> None:
    """Let the driver's pod have executors; `folder` has the files."""
    (container,) = pod["spec"]["containers"]
    container["env"] += [
        {"name": "SPARK_CONF_DIR", "value": folder},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    pod["spec"] |= {"serviceAccountName": ACCOUNT, "automountServiceAccountToken": True}
