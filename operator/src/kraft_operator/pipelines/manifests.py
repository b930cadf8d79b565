"""The objects of one pipeline, as plain dictionaries. Pure functions.

Pods are hardened like the pods of nodes. They do not run as root, can only write to volumes, and have no token for the
API server. Only a driver with executors has a token.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.api.pipeline_driver import DriverVolume
from kraft_operator.api.pipelines import (
    REGISTRIES,
    SECURITY_FOLDER,
    PipelineSpec,
    RunSpec,
    given,
    registries,
)
from kraft_operator.pipelines import executors, grants
from kraft_operator.pipelines.kinds import Kind
from kraft_operator.specs.cluster import MANAGER, digest
from kraft_operator.specs.network import MANAGER_APP, PIPELINE_APP, PIPELINES_CLUSTER
from kraft_operator.specs.pods import placement
from kraft_operator.specs.template import container_security, pod_security

KIND: Final = f"{GROUP}/kind"
GENERATED: Final = f"{GROUP}/specification"
"""On a pod: the digest of the files that it was started with."""
HTTP_PORT: Final = 9404
CONFIG: Final = "/etc/kraft"
FILE: Final = "pipeline.yaml"
ATTEMPTS_MAX: Final = 3
"""The most attempts of a run that fails. A run that finds damage has not failed."""
FOUND_EXIT: Final = 1
"""Exit code of `kraft-pipeline scrub run` if it finds damage. A retry would only find it again."""
GRACE_S: Final = 120
"""Grace period in seconds, in which a driver finishes its batch."""
HISTORY: Final = 3

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One resource, with everything needed to build its objects."""

    kind: Kind
    name: str
    namespace: str
    uid: str
    spec: PipelineSpec
    image: str
    resolved: Mapping[str, Any]
    """The fields of the specification that `clusterRef` resolves to."""

    @property
    def object_name(self) -> str:
        """The name of its objects, or the prefix of their names."""
        return f"{self.name}-{self.kind.suffix}"

    @property
    def selector(self) -> dict[str, str]:
        """The labels that select its objects."""
        return {"app.kubernetes.io/name": PIPELINE_APP, "app.kubernetes.io/instance": self.name, KIND: self.kind.name}

    def metadata(self, name: str, *, owned: bool = True) -> Object:
        """The metadata of an object; `owned` makes the resource its owner."""
        labels = {**self.selector, "app.kubernetes.io/managed-by": MANAGER}
        if self.spec.cluster_ref is not None:
            labels[PIPELINES_CLUSTER] = self.spec.cluster_ref
        found: Object = {"name": name, "namespace": self.namespace, "labels": labels}
        if owned:
            owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": self.kind.name, "name": self.name, "uid": self.uid}
            found["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": False}]
        return found

    def document(self) -> Object:
        """The YAML that `kraft-pipeline` reads."""
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": self.kind.name,
            "metadata": {"name": self.name},
            "spec": {**given(self.spec), **self.resolved},
        }


def objects(one: Pipeline) -> list[Object]:
    """All objects of a pipeline in the order of creation; the workload is the last."""
    pod, files = _pod(one), {FILE: yaml.safe_dump(one.document(), sort_keys=False)}
    if executors.wanted(one.spec):
        files |= executors.files(pod, one.namespace, CONFIG)
        executors.drive(pod, CONFIG)
    (container,) = pod["spec"]["containers"]
    container["env"] += _secrets(one.spec)
    pod["metadata"]["annotations"] = {**one.spec.driver.annotations, GENERATED: digest(files)}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": one.metadata(one.object_name),
        "data": files,
    }
    return [config, *claims(one), network_policy(one), workload(one, pod)]


def _secrets(spec: PipelineSpec) -> list[Object]:
    """Environment variables from Secrets, which the driver's file refers to."""
    return [
        {"name": REGISTRIES[section], "valueFrom": {"secretKeyRef": registry.password_secret.model_dump()}}
        for section, registry in registries(spec).items()
        if registry.password_secret is not None
    ]


def claims(one: Pipeline) -> list[Object]:
    """The claims to create. They have no owner, so that tables outlive their resource."""
    found = []
    for volume in one.spec.driver.volumes:
        if volume.size is None:
            continue
        spec: Object = {"accessModes": [volume.access_mode], "resources": {"requests": {"storage": volume.size}}}
        if volume.storage_class is not None:
            spec["storageClassName"] = volume.storage_class
        metadata = one.metadata(claim_name(one, volume), owned=False)
        found.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return found


def claim_name(one: Pipeline, volume: DriverVolume) -> str:
    """The name of a volume's claim, existing or to be created."""
    return volume.claim_name or f"{one.object_name}-{volume.name}"


def network_policy(one: Pipeline) -> Object:
    """Permit traffic from its own pods and the operator to all ports, and from all pods to the HTTP port (metrics)."""
    operator = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": MANAGER_APP}}, "namespaceSelector": {}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": one.metadata(one.object_name),
        "spec": {
            "podSelector": {"matchLabels": one.selector},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": one.selector}}, operator]},
                {"ports": [{"port": HTTP_PORT}]},
            ],
        },
    }


# Workloads


def workload(one: Pipeline, pod: Object) -> Object:
    """A Deployment with one pod for a table; a CronJob for a schedule; else a Job for each specification."""
    if not isinstance(one.spec, RunSpec):
        return _deployment(one, pod)
    job = _job(pod)
    if one.spec.schedule is None:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": one.metadata(f"{one.object_name}-{digest(job)}"),
            "spec": {**job, "suspend": one.spec.paused},
        }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": one.metadata(one.object_name),
        "spec": {
            "schedule": one.spec.schedule,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "suspend": one.spec.paused,
            "successfulJobsHistoryLimit": HISTORY,
            "failedJobsHistoryLimit": HISTORY,
            "jobTemplate": {"metadata": {"labels": one.metadata("")["labels"]}, "spec": job},
        },
    }


def _deployment(one: Pipeline, pod: Object) -> Object:
    (container,) = pod["spec"]["containers"]
    container["args"] += ["--json", "--http", str(HTTP_PORT)]
    container["ports"] = [{"name": "http", "containerPort": HTTP_PORT}]
    container["readinessProbe"] = {"httpGet": {"path": "/readyz", "port": HTTP_PORT}, "periodSeconds": 2}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": one.metadata(one.object_name),
        "spec": {
            "replicas": 0 if one.spec.paused else 1,
            # Two writers at once are safe but useless.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": one.selector},
            "template": pod,
        },
    }


def _job(pod: Object) -> Object:
    pod["spec"]["restartPolicy"] = "Never"
    found = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FOUND_EXIT]}}
    return {"backoffLimit": ATTEMPTS_MAX - 1, "podFailurePolicy": {"rules": [found]}, "template": pod}


def _pod(one: Pipeline) -> Object:
    driver, security = one.spec.driver, one.spec.security
    secret = [security.mounted] if security is not None and security.mounted is not None else []
    container = {
        "name": "driver",
        "image": one.image,
        "imagePullPolicy": driver.image_pull_policy,
        # The image starts an init process that forwards signals. `command` would replace it.
        "args": ["kraft-pipeline", *one.kind.command, f"{CONFIG}/{FILE}"],
        "env": copy.deepcopy(driver.env),
        "resources": driver.resources.model_dump(),
        "securityContext": container_security(),
        # The status shows the last line of the log as the reason of a failure.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  (an emptyDir of the pod's own)
            *({"name": f"volume-{volume.name}", "mountPath": volume.mount_path} for volume in driver.volumes),
            *({"name": "security", "mountPath": SECURITY_FOLDER, "readOnly": True} for _ in secret),
        ],
    }
    spec: Object = {
        "serviceAccountName": grants.ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": one.object_name}},
            {"name": "tmp", "emptyDir": {"sizeLimit": driver.scratch}},
            *(
                {"name": f"volume-{volume.name}", "persistentVolumeClaim": {"claimName": claim_name(one, volume)}}
                for volume in driver.volumes
            ),
            *({"name": "security", "secret": {"secretName": name, "defaultMode": 0o440}} for name in secret),
        ],
    }
    spec |= placement(driver, driver.image_pull_secrets)
    labels = {**driver.labels, **one.metadata("")["labels"]}
    return {"metadata": {"labels": labels}, "spec": spec}
