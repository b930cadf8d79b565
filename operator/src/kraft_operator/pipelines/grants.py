"""Checks that a pipeline only uses Secrets and claims of its namespace that an administrator has allowed.

The author of a KafkaTable may lack the right to read Secrets, but a driver could pass on any Secret that it gets. The
service account of pipelines is the grant: it has no rights and no token, and its `secrets` list the Secrets that
pipelines may name. A label allows a claim. The operator reads no Secret, and edits neither the list nor the label.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.pipelines import PipelineSpec, registries
from kraft_operator.apply.grants import NotGrantedError, secret_grant
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.specs.cluster import MANAGED_BY, MANAGER
from kraft_operator.specs.network import PIPELINE_APP

ACCOUNT: Final = "kraft-pipeline"
"""The service account of all pipeline pods of a namespace."""
ALLOWED: Final = f"{GROUP}/pipelines"
"""The label of a claim that pipelines may mount: `allowed`."""
SOURCES: Final = frozenset({"configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"})
"""The permitted sources (`valueFrom`) of environment variables."""
CONFLICT: Final = 409


async def check(api: Api, namespace: str, spec: PipelineSpec) -> None:
    """Check the grants of a pipeline; create the service account if it is missing.

    Raises NotGrantedError, and ApiError if the API server refuses or does not answer.
    """
    account = await api.get("ServiceAccount", namespace, ACCOUNT) or await _create_account(api, namespace)
    allowed = {one["name"] for one in account.get("secrets", ())}
    for where, secret in secrets(spec):
        if secret not in allowed:
            grant = secret_grant(ACCOUNT, namespace, secret)
            text = f"{where} names the Secret {secret}, which pipelines of this namespace may not use"
            raise NotGrantedError("SecretNotAllowed", f"{text}: an administrator allows it by {grant}")
    for volume in spec.driver.volumes:
        if volume.claim_name is not None:
            _check_claim(await api.get("PersistentVolumeClaim", namespace, volume.claim_name), volume.claim_name)


def secrets(spec: PipelineSpec) -> Iterable[tuple[str, str]]:
    """Yield the field and the name of each Secret that the driver would read.

    Raises NotGrantedError for unknown fields, because they may name a Secret.
    """
    if spec.security is not None and spec.security.mounted is not None:
        yield "security.secret" if spec.security.user is None else "security.user", spec.security.mounted
    for section, registry in registries(spec).items():
        if registry.password_secret is not None:
            yield f"{section}.registry.passwordSecret", registry.password_secret.name
    for variable in spec.driver.env:
        where = f"driver.env {variable.get('name')}"
        source = variable.get("valueFrom") or {}
        unknown = sorted(source.keys() - SOURCES)
        if unknown or variable.keys() - {"name", "value", "valueFrom"}:
            text = f"{where}: {', '.join(unknown) or 'a field'} is not known to this operator"
            raise NotGrantedError("NotUnderstood", f"{text}: use value, or valueFrom with {', '.join(sorted(SOURCES))}")
        if "secretKeyRef" in source:
            yield where, str(source["secretKeyRef"].get("name", ""))


def _check_claim(claim: dict[str, Any] | None, name: str) -> None:
    if claim is None:
        text = (
            f"claim {name} does not exist: create it with the label {ALLOWED}=allowed, or set size instead of claimName"
        )
        raise NotGrantedError("ClaimNotFound", text)
    labels = claim["metadata"].get("labels", {})
    if labels.get(MANAGED_BY) == MANAGER and labels.get("app.kubernetes.io/name") != PIPELINE_APP:
        text = f"claim {name} belongs to a node: a pipeline that mounts it could read and change a broker's log"
        raise NotGrantedError("ClaimNotAllowed", text)
    if labels.get(ALLOWED) != "allowed":
        text = f"pipelines may not mount claim {name}: an administrator allows it by kubectl label pvc {name}"
        raise NotGrantedError("ClaimNotAllowed", f"{text} {ALLOWED}=allowed")


async def _create_account(api: Api, namespace: str) -> dict[str, Any]:
    """Create the service account without rights and Secrets. An administrator adds Secrets."""
    labels = {MANAGED_BY: MANAGER, "app.kubernetes.io/name": PIPELINE_APP}
    metadata = {"name": ACCOUNT, "namespace": namespace, "labels": labels}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    try:
        return await api.create({**account, "automountServiceAccountToken": False})
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        return await api.get("ServiceAccount", namespace, ACCOUNT) or account
