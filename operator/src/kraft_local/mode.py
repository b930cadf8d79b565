"""The security mode of a local cluster, as on Kubernetes: the memory has its record."""

from __future__ import annotations

from pathlib import Path

from kraft_local.folder import Folder
from kraft_local.resource_file import BadResourceError
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.plan.model.record import Record
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.mode import ModeProblem, has_begun, in_force, mode_problems, present, settled


def mode_of(record: Record) -> str:
    """The mode of a cluster; empty before it has begun."""
    return present(record) if has_begun(record) else ""


def without_issuers(spec: KRaftClusterSpec) -> KRaftClusterSpec:
    """The specification without issuers of cert-manager, which are on Kubernetes only.

    Their listeners have the certificates of the nodes.
    """
    listeners = [
        one.model_copy(update={"certificate": None}) if one.certificate and one.certificate.issuer_ref else one
        for one in spec.listeners
    ]
    return spec.model_copy(update={"listeners": listeners})


def in_mode(file: Path, folder: Folder, record: Record, spec: KRaftClusterSpec, *, stopped: bool) -> Record:
    """The record with the mode in force. Raises BadResourceError if it is unknown, or cannot change now."""
    zookeeper = None if spec.migration is None else spec.migration.zookeeper
    if zookeeper is not None and zookeeper.tls is not None:
        text = "Secrets are on Kubernetes only: set zookeeper.ssl.* with your files in the config of the pool"
        raise BadResourceError(f"{file}: spec.migration.zookeeper.tls: {text}")
    if zookeeper is not None and zookeeper.password_encoder_secret is not None:
        text = "Secrets are on Kubernetes only: set password.encoder.secret in the config of the pool"
        raise BadResourceError(f"{file}: spec.migration.zookeeper.passwordEncoderSecret: {text}")
    if zookeeper is not None and zookeeper.sasl_secret is not None:
        text = "Secrets are on Kubernetes only: set zookeeper.sasl.jaas.config in the config of the pool"
        raise BadResourceError(f"{file}: spec.migration.zookeeper.saslSecret: {text}")
    found = settled(record, spec, remains=folder.remains(), stopped=stopped)
    if isinstance(found, ModeProblem):
        raise BadResourceError(f"{file}: {found.message}")
    wrong = mode_problems(NamedCluster(folder.root.name, "default", "", in_force(spec, found)), spec)
    if wrong:
        raise BadResourceError(*(f"{file}: {line}" for line in wrong))
    return found
