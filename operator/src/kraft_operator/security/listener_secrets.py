"""Certificates of listeners on Kubernetes: Secrets of users, and Certificates of cert-manager.

A Secret of a user needs the label of an administrator, because the author of a KRaftCluster may have no right to read
Secrets. A Secret of cert-manager is read only if its Certificate is the operator's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.listeners import Listener
from kraft_operator.apply.objects import marked, same
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.security.listeners import PendingError, UnusableError
from kraft_operator.specs.cluster import INSTANCE, MANAGED_BY, MANAGER, NamedCluster
from kraft_operator.specs.issuers import LISTENER, NAMED_BY, certificate, issued_listeners, secret_of
from kraft_operator.specs.security import own_certificates

GRANT: Final = f"{GROUP}/certificate"
"""The label of a Secret that a listener may name: `allowed`."""
KIND: Final = "Certificate"
PATIENCE: Final = timedelta(minutes=5)
"""How long a new Certificate may wait for its issuer before that is reported."""
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404

Object = dict[str, Any]


class ListenerSecrets:
    """The certificates of the listeners of one cluster, for one pass."""

    def __init__(self, api: Api, cluster: NamedCluster, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._api = api
        self._cluster = cluster
        self._clock = clock
        self._issued: dict[str, Object] = {}
        """Certificates by name."""
        self._refused: dict[str, UnusableError | PendingError] = {}
        """By listener: why its certificate cannot be requested."""

    async def request(self, hosts: Mapping[str, Collection[str]], *, leftovers: bool) -> None:
        """Apply the Certificates of all listeners that name an issuer, and delete those of other listeners.

        `hosts` are the names by listener. `leftovers`: Certificates of former listeners may exist. Raises ApiError for
        failures that may pass.
        """
        wanted = issued_listeners(self._cluster)
        if not (wanted or leftovers):
            return
        mine = f"{INSTANCE}={self._cluster.name},{MANAGED_BY}={MANAGER}"
        try:
            found = await self._api.list(KIND, self._cluster.namespace, mine)
        except ApiError as error:
            if error.status not in {FORBIDDEN, NOT_FOUND}:
                raise
            self._refused |= {one.name: UnusableError("IssuerNotUsable", _unavailable(error)) for one in wanted}
            return
        self._issued = {one["metadata"]["name"]: one for one in found if LISTENER in one["metadata"].get("labels", {})}
        for one in wanted:
            try:
                await self._request(one, hosts.get(one.name, ()))
            except (UnusableError, PendingError) as refusal:
                self._refused[one.name] = refusal
            except ApiError as error:
                if not error.lasting:
                    raise
                text = f"the API server refuses the Certificate ({error})"
                self._refused[one.name] = UnusableError("IssuerNotUsable", text)
        names = {secret_of(self._cluster, one) for one in wanted}
        for name, there in self._issued.items():
            if name not in names and self._owners(there) == {self._cluster.uid}:
                await self._api.delete(KIND, self._cluster.namespace, name, there["metadata"]["uid"])

    async def _request(self, listener: Listener, hosts: Collection[str]) -> None:
        name = secret_of(self._cluster, listener)
        there = self._issued.get(name)
        if there is None:
            await self._check_free(name)
        elif "deletionTimestamp" in there["metadata"] or not self._owners(there) <= {self._cluster.uid}:
            raise PendingError(f"Certificate {name} belongs to a deleted KRaftCluster and is not gone yet")
        if not hosts:
            raise PendingError("no address outside is known yet")
        wanted = marked(certificate(self._cluster, listener, hosts))
        if not same(wanted, there):
            self._issued[name] = await self._api.apply(wanted)

    async def _check_free(self, name: str) -> None:
        """Raise UnusableError if others have a Certificate or a Secret with this name, which would be overwritten."""
        namespace = self._cluster.namespace
        if await self._api.get(KIND, namespace, name) is not None:
            raise UnusableError("InTheWay", f"Certificate {name} is not of this cluster: rename or delete it")
        secret = await self._api.get("Secret", namespace, name)
        if secret is not None and secret["metadata"].get("annotations", {}).get(NAMED_BY) != name:
            raise UnusableError("InTheWay", f"Secret {name} is not of cert-manager: rename or delete it")

    @staticmethod
    def _owners(one: Object) -> set[str]:
        return {owner["uid"] for owner in one["metadata"].get("ownerReferences", ())}

    async def read(self, name: str) -> Object | None:
        """The Secret of a listener; None if it does not exist. Raises ApiError, UnusableError and PendingError."""
        listener = next(one for one in own_certificates(self._cluster) if one.name == name)
        if name in self._refused:
            raise self._refused[name]
        secret = secret_of(self._cluster, listener)
        there = await self._api.get("Secret", self._cluster.namespace, secret)
        assert listener.certificate is not None
        if listener.certificate.issuer_ref is None:
            if there is not None and there["metadata"].get("labels", {}).get(GRANT) != "allowed":
                text = f"an administrator must label it {GRANT}=allowed"
                raise UnusableError("ListenerCertificateNotAllowed", text)
            return there
        if there is None or there["metadata"].get("annotations", {}).get(NAMED_BY) != secret:
            raise self._not_issued(self._issued[secret])
        return there

    def _not_issued(self, certificate: Object) -> UnusableError | PendingError:
        conditions = certificate.get("status", {}).get("conditions", ())
        ready: Object = next((one for one in conditions if one.get("type") == "Ready"), {})
        why = ready.get("message") or "cert-manager does not report on it"
        text = f"Certificate {certificate['metadata']['name']} is not issued yet: {why}"
        made = certificate["metadata"].get("creationTimestamp")
        is_new = made is None or self._clock() - datetime.fromisoformat(made) < PATIENCE
        return PendingError(text) if is_new else UnusableError("ListenerCertificateMissing", text)


def _unavailable(error: ApiError) -> str:
    if error.status == NOT_FOUND:
        return "this Kubernetes does not know Certificates: install cert-manager, or name a Secret instead of an issuer"
    return f"the operator has no right to Certificates: install it with rbac.certificates=true ({error})"
