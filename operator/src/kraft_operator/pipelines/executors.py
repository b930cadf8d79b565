"""Spark's executors as pods (`engine.mode: kubernetes`): the configuration of Spark in the driver, and its rights.

The driver creates pods through the API server. An administrator creates its service account and the rights in the
namespace (`deploy/executors.yaml`), so the operator needs no right to grant them. The driver's pod owns its executors.
Executors are hardened like the driver and have no token.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from kraft_operator.api.pipelines import KafkaTableSpec, PipelineSpec, RunSpec

ACCOUNT: Final = "kraft-pipeline-executors"
TEMPLATE: Final = "executor.yaml"
DEFAULTS: Final = "spark-defaults.conf"
ROLE: Final = "spark-role"
"""Spark's own label of pods. Executors have the value `executor`."""
SCRATCH: Final = "spark-local-dir-1"
"""Spark spills to a volume of this name instead of creating its own."""

Object = dict[str, Any]


def wanted(spec: PipelineSpec) -> bool:
    """Whether the specification requests executors as pods."""
    return isinstance(spec, KafkaTableSpec | RunSpec) and spec.engine.mode == "kubernetes"


def is_executor(pod: Object) -> bool:
    """Whether a pod of a pipeline is an executor."""
    return bool(pod["metadata"].get("labels", {}).get(ROLE) == "executor")


def files(driver: Object, namespace: str, folder: str) -> dict[str, str]:
    """The files that Spark in the driver's pod reads from `folder`: text by file name."""
    return {DEFAULTS: _defaults(driver, namespace, folder), TEMPLATE: _template(driver)}


def _defaults(driver: Object, namespace: str, folder: str) -> str:
    (container,) = driver["spec"]["containers"]
    values = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": container["image"],
        "spark.kubernetes.container.image.pullPolicy": container["imagePullPolicy"],
        "spark.kubernetes.executor.podTemplateFile": f"{folder}/{TEMPLATE}",
        # Executors find the driver by its address. The driver's pod owns them, so they are deleted with it.
        "spark.driver.host": "${env:POD_IP}",
        "spark.kubernetes.driver.pod.name": "${env:POD_NAME}",
        # The driver becomes ready once it has read the topics. Executors must reach it before.
        "spark.kubernetes.driver.service.publishNotReadyAddresses": "true",
        # Tasks are programs, so other pods must not send or read them.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        # Without these settings, Spark would need rights over claims, config maps and services.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _template(driver: Object) -> str:
    """The pod template of executors: the driver's placement, security context and volumes, without its files."""
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
    """Change the driver's pod so that it can create executors. `folder` is where its `files` are mounted."""
    (container,) = pod["spec"]["containers"]
    container["env"] += [
        {"name": "SPARK_CONF_DIR", "value": folder},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    pod["spec"] |= {"serviceAccountName": ACCOUNT, "automountServiceAccountToken": True}
