"""Checks that pods of nodes only use service accounts, Secrets and claims that an administrator has allowed.

The author of a KRaftCluster may lack the right to read Secrets, but a container could pass on any Secret that it gets.
The operator reads no Secret and edits no grant. An administrator allows:

- a service account by the label `kraftcluster.io/nodes: allowed`,
- a Secret by the `secrets` of the pool's service account, or of the account `kraft-node` if the pool names no account,
- a claim by the label `kraftcluster.io/nodes: allowed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.pools import NodePool
from kraft_operator.api.template import EnvVar, ExtraVolume
from kraft_operator.kube.client import Api
from kraft_operator.specs.cluster import MANAGED_BY, MANAGER, NamedCluster

ACCOUNT: Final = "kraft-node"
"""The service account that lists the Secrets of pools without a service account. No pod runs as it."""
ALLOWED: Final = f"{GROUP}/nodes"
"""The label of a service account or a claim that node pools may use: `allowed`."""
_NO_VOLUME: Final[Mapping[str, Any]] = {}


class NotGrantedError(Exception):
    """A node pool or a pipeline uses something that no administrator has allowed. Programs read `reason`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def secret_grant(account: str, namespace: str, secret: str) -> str:
    """The command that allows a Secret to the pods of a service account."""
    return f"kubectl patch serviceaccount {account} -n {namespace}" + f' -p \'{{"secrets": [{{"name": "{secret}"}}]}}\''


async def check_pool(api: Api, cluster: NamedCluster, pool: NodePool) -> None:
    """Check the grants of a pool. A template without names of objects costs no request.

    Raises NotGrantedError, and ApiError if the API server does not answer.
    """
    await _check_pool(api, cluster.namespace, pool, [*secrets(pool), *_of_migration(cluster, pool)])


def _of_migration(cluster: NamedCluster, pool: NodePool) -> Iterable[tuple[str, str]]:
    """Yield the Secrets of a migration, which controllers get."""
    if cluster.spec.migration is None or "controller" not in pool.roles:
        return
    zookeeper = cluster.spec.migration.zookeeper
    if zookeeper.tls is not None:
        yield "spec.migration.zookeeper.tls", zookeeper.tls.secret_name
    if zookeeper.password_encoder_secret is not None:
        yield "spec.migration.zookeeper.passwordEncoderSecret", zookeeper.password_encoder_secret
    if zookeeper.sasl_secret is not None:
        yield "spec.migration.zookeeper.saslSecret", zookeeper.sasl_secret


async def _check_pool(api: Api, namespace: str, pool: NodePool, asked: list[tuple[str, str]]) -> None:
    name = pool.pod.service_account_name
    where = f"nodePools {pool.name}"
    if name is not None or asked:
        account = await api.get("ServiceAccount", namespace, name or ACCOUNT)
        if name is not None and not _is_allowed(account):
            text = f"{where}: pod.serviceAccountName names {name}, which node pools may not use"
            grant = f"kubectl label serviceaccount {name} -n {namespace} {ALLOWED}=allowed"
            raise NotGrantedError("ServiceAccountNotAllowed", f"{text}: an administrator allows it by {grant}")
        granted = {one["name"] for one in (account or {}).get("secrets", ())}
        for field, secret in asked:
            if secret not in granted:
                grant = secret_grant(name or ACCOUNT, namespace, secret)
                text = f"{where}: {field} names the Secret {secret}, which node pools of this namespace may not use"
                raise NotGrantedError("SecretNotAllowed", f"{text}: an administrator allows it by {grant}")
    for volume in pool.pod.volumes:
        claim = (volume.persistent_volume_claim or _NO_VOLUME).get("claimName")
        if claim is not None:
            _check_claim(await api.get("PersistentVolumeClaim", namespace, str(claim)), str(claim), namespace)


def secrets(pool: NodePool) -> Iterable[tuple[str, str]]:
    """Yield the field and the name of each Secret that a pod of the pool would get."""
    template = pool.pod
    yield from _of_env("pod.env", template.env)
    for sidecar in template.sidecars:
        yield from _of_env(f"pod.sidecars {sidecar.name} env", sidecar.env)
    for volume in template.volumes:
        yield from _of_volume(volume)


def _of_env(field: str, env: Iterable[EnvVar]) -> Iterable[tuple[str, str]]:
    for one in env:
        if one.value_from is not None and one.value_from.secret_key_ref is not None:
            yield f"{field} {one.name}", one.value_from.secret_key_ref.name


def _of_volume(volume: ExtraVolume) -> Iterable[tuple[str, str]]:
    field = f"pod.volumes {volume.name}"
    if volume.secret is not None:
        yield field, str(volume.secret.get("secretName", ""))
    for source in (volume.projected or _NO_VOLUME).get("sources", ()):
        if "secret" in source:
            yield field, str(source["secret"].get("name", ""))


def _is_allowed(one: Mapping[str, Any] | None) -> bool:
    return one is not None and one["metadata"].get("labels", {}).get(ALLOWED) == "allowed"


def _check_claim(claim: Mapping[str, Any] | None, name: str, namespace: str) -> None:
    if claim is not None and claim["metadata"].get("labels", {}).get(MANAGED_BY) == MANAGER:
        text = f"the claim {name} is a node's or a pipeline's: it cannot be an extra volume; name another claim"
        raise NotGrantedError("ClaimNotAllowed", text)
    if not _is_allowed(claim):
        text = f"node pools may not mount the claim {name}"
        grant = f"kubectl label pvc {name} -n {namespace} {ALLOWED}=allowed"
        raise NotGrantedError("ClaimNotAllowed", f"{text}: an administrator creates it, and allows it by {grant}")
