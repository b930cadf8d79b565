"""What `clusterRef` of a pipeline leads to: the address of a listener that its credentials fit.

Credentials are in the Secret of a KRaftUser (`security.user`). Its properties have everything that a client needs:
password or certificate, and what the client trusts. The operator reads no Secret.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.listeners import Listener
from kraft_operator.api.pipelines import (
    PROPERTIES,
    SECURITY_FOLDER,
    KafkaMetadataArchiveSpec,
    KafkaTableSpec,
    PipelineSpec,
)
from kraft_operator.api.problems import VERSIONS, problems
from kraft_operator.api.user import KRaftUserSpec
from kraft_operator.kube.client import Api
from kraft_operator.observe.objects import condition_of
from kraft_operator.specs.client_config import CONTROLLERS_FILE
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.mode import spelled_out
from kraft_operator.specs.security import authentication, has_tls
from kraft_operator.specs.user_access import bootstrap, fitting_listener, missing_listener

PROTOCOL: Final = "security.protocol"
CONTROLLERS_CLOSED: Final = (
    "the controllers of KRaftCluster {} admit only certificates of the cluster's authority: name a KRaftUser with"
    " controllers: true in security.user, or a file with such a certificate in security.controllerPropertiesFile"
)
SECURITY_OF_ARCHIVE: Final = {
    "propertiesFile": f"{SECURITY_FOLDER}/{PROPERTIES}",
    "controllerPropertiesFile": f"{SECURITY_FOLDER}/{CONTROLLERS_FILE}",
}
"""The files of a user's Secret."""
Object = dict[str, Any]


class UnreachableClusterError(Exception):
    """A pipeline cannot connect to the cluster of its `clusterRef`. Programs read `reason`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def resolved(api: Api, namespace: str, spec: PipelineSpec) -> Object:
    """Resolve `clusterRef` to fields of the specification; empty without it.

    Raises UnreachableClusterError, and ApiError if the API server does not answer.
    """
    if spec.cluster_ref is None:
        return {}
    resource = await api.get("KRaftCluster", namespace, spec.cluster_ref)
    if resource is None:
        text = f"KRaftCluster {spec.cluster_ref} does not exist in {namespace}"
        raise UnreachableClusterError("ClusterNotFound", text)
    cluster = _named(resource, namespace)
    name = None if spec.security is None else spec.security.user
    user = None if name is None else await _user(api, cluster, name)
    listener = _internal(cluster, spec) if user is None else user.listener
    found: Object = {"bootstrapServers": bootstrap(cluster, listener)}
    if isinstance(spec, KafkaMetadataArchiveSpec) and not _names_controllers_file(spec):
        if user is not None and user.controllers:
            found["security"] = SECURITY_OF_ARCHIVE
        elif cluster.secure:
            raise UnreachableClusterError("ControllersClosed", CONTROLLERS_CLOSED.format(cluster.name))
    return found


def _named(resource: Object, namespace: str) -> NamedCluster:
    """The cluster with its present security mode. Raises UnreachableClusterError while the mode is unknown."""
    metadata = resource["metadata"]
    try:
        spec = KRaftClusterSpec.model_validate(resource["spec"], extra="ignore")
    except ValidationError as error:
        text = f"KRaftCluster {metadata['name']}: {'; '.join(problems(error))}{VERSIONS}"
        raise UnreachableClusterError("NotUnderstood", text) from None
    mode = resource.get("status", {}).get("security")
    if not mode:  # a specification without `security` has TLS or not: the cluster's first pass decides it
        degraded = condition_of(resource, "Degraded")
        why = degraded.get("message") if degraded.get("status") == "True" else None
        text = f"KRaftCluster {metadata['name']} is not ready: {why or 'the operator has not begun it yet'}"
        raise UnreachableClusterError("ClusterNotReady", text)
    return NamedCluster(metadata["name"], namespace, metadata["uid"], spelled_out(spec, mode))


def _names_controllers_file(spec: KafkaMetadataArchiveSpec) -> bool:
    return spec.security is not None and spec.security.controller_properties_file is not None


def _internal(cluster: NamedCluster, spec: PipelineSpec) -> Listener:
    """The first internal listener; without credentials, the first that needs none."""
    found = [one for one in cluster.spec.listeners if one.type == "Internal"]
    if spec.security is None and not _has_protocol(spec):
        found = [one for one in found if not has_tls(cluster, one) and authentication(cluster, one) == "Anonymous"]
        if not found:
            text = f"every internal listener of KRaftCluster {cluster.name} has TLS or authenticates clients"
            raise UnreachableClusterError("CredentialsMissing", f"{text}: name a KRaftUser in security.user")
    if not found:
        text = f"KRaftCluster {cluster.name} has no internal listener"
        advice = "name a KRaftUser in security.user, or set bootstrapServers instead of clusterRef"
        raise UnreachableClusterError("NoListener", f"{text}: {advice}")
    return found[0]


def _has_protocol(spec: PipelineSpec) -> bool:
    """Whether a table has options of a secured connection that need no Secret."""
    options = spec.kafka if isinstance(spec, KafkaTableSpec) else {}
    return any(option.lower().removeprefix("kafka.") == PROTOCOL for option in options)


class _User(NamedTuple):
    """A KRaftUser whose Secret exists."""

    listener: Listener
    """The listener in its client configuration."""
    controllers: bool


async def _user(api: Api, cluster: NamedCluster, name: str) -> _User:
    """A KRaftUser of the cluster. Raises UnreachableClusterError."""
    resource = await api.get("KRaftUser", cluster.namespace, name)
    if resource is None:
        text = f"security.user: KRaftUser {name} does not exist in {cluster.namespace}"
        raise UnreachableClusterError("UserNotFound", text)
    try:
        spec = KRaftUserSpec.model_validate(resource["spec"], extra="ignore")
    except ValidationError as error:
        text = f"KRaftUser {name}: {'; '.join(problems(error))}{VERSIONS}"
        raise UnreachableClusterError("NotUnderstood", text) from None
    if spec.cluster != cluster.name:
        text = f"security.user: KRaftUser {name} is a user of KRaftCluster {spec.cluster}, not of {cluster.name}"
        raise UnreachableClusterError("UserOfAnotherCluster", text)
    listener = fitting_listener(cluster, spec)
    if listener is None:
        raise UnreachableClusterError("NoListener", f"KRaftUser {name}: {missing_listener(cluster, spec)}")
    status = resource.get("status", {})
    if not status.get("secret"):
        why = condition_of(resource, "Ready").get("message") or "the operator has not made its credentials yet"
        raise UnreachableClusterError("UserNotReady", f"security.user: KRaftUser {name} has no Secret: {why}")
    if spec.controllers and status.get("observedGeneration") != resource["metadata"].get("generation"):
        text = f"security.user: the operator has not added the certificate for controllers to KRaftUser {name} yet"
        raise UnreachableClusterError("UserNotReady", text)
    return _User(listener, bool(spec.controllers))
