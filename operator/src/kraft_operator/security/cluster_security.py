"""Certificates on Kubernetes: the Secrets and the ConfigMap of a cluster, and what a pass does with them.

`prepare` gives the operator's client its certificate, before the nodes are observed. `keep` issues, renews and removes
certificates, before each plan. A Secret that cannot be read ends the pass: unknown is not absent.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.template import NODE_CONTAINER
from kraft_operator.apply.kubernetes import InTheWayError, NotYetError
from kraft_operator.kube.client import Api
from kraft_operator.observe.cluster import Found, ListedObjects
from kraft_operator.plan.model.record import Record
from kraft_operator.security.authorities import Proof, State
from kraft_operator.security.certificates import CertificateError
from kraft_operator.security.client import OperatorTls, ask_nodes
from kraft_operator.security.keeper import Kept, NotOursError, ending, keep, seen
from kraft_operator.security.listener_secrets import ListenerSecrets
from kraft_operator.security.listeners import OwnCertificate, UnusableError
from kraft_operator.security.names import CLIENTS, CLUSTER, NODE, TRUST, authority_name, listener_of, subject
from kraft_operator.security.wanted import needs_of
from kraft_operator.specs.cluster import INSTANCE, MANAGED_BY, MANAGER, NamedCluster
from kraft_operator.specs.issuers import hosts_requested, issued_listeners, names_needed, secret_of
from kraft_operator.specs.security import (
    CERTIFICATES,
    authentication,
    has_own_certificate,
    has_tls,
    names,
    own_certificates,
)
from kraft_operator.specs.storage import owned
from kraft_protocol.client.aio import Address
from kraft_protocol.client.security import ClientSecurity

APP: Final = "kraftcluster-tls"
"""The label `app.kubernetes.io/name` of Secrets and of the ConfigMap."""
GRANT: Final = f"{GROUP}/authority"
"""The label of a Secret that `spec.security` may name: `allowed`. Its author may have no right to read Secrets."""

AUTHORITIES: Final = frozenset({authority_name(CLUSTER), authority_name(CLIENTS)})
NODE_FILES: Final = re.compile(r"[0-9]+-tls")
"""The names of the Secrets of nodes, without the cluster's name."""

Object = dict[str, Any]


class SecretStore:
    """The `Store` of one cluster, for one pass. Writes fail if another writer has changed the object since."""

    def __init__(self, api: Api, cluster: NamedCluster) -> None:
        self._api = api
        self._cluster = cluster
        self._there: dict[str, Object] = {}
        self.listeners = ListenerSecrets(api, cluster)

    async def load(self) -> None:
        """Read all objects. Raises ApiError."""
        selector = f"{INSTANCE}={self._cluster.name},app.kubernetes.io/name={APP}"
        found = await self._api.list("Secret", self._cluster.namespace, selector)
        self._there = {one["metadata"]["name"]: one for one in found}

    def _name(self, logical: str) -> str:
        return f"{self._cluster.name}-{logical}"

    async def read(self, name: str) -> Mapping[str, str] | None:
        """The entries of a Secret or ConfigMap; None if it does not exist.

        If another owner has the object, raises InTheWayError for an authority, else NotOursError. Also raises ApiError,
        NotYetError and CertificateError.
        """
        there = await self._find(name)
        if there is None:
            return None
        metadata = there["metadata"]
        if not self._is_ours(there):
            error = InTheWayError(_kind(name), metadata["name"])
            raise error if name in AUTHORITIES else NotOursError(str(error))
        if "deletionTimestamp" in metadata or not _owners_of(there) <= {self._cluster.uid}:
            raise NotYetError(f"{_kind(name)} {metadata['name']} belongs to a deleted KRaftCluster and is not gone yet")
        return _texts(there) if _kind(name) == "Secret" else dict(there.get("data", {}))

    async def _find(self, name: str) -> Object | None:
        """An object of any owner, by its name: a missing label does not make it absent. Raises ApiError."""
        full = self._name(name)
        if full not in self._there:
            found = await self._api.get(_kind(name), self._cluster.namespace, full)
            if found is None:
                return None
            self._there[full] = found
        return self._there[full]

    def _is_ours(self, one: Object) -> bool:
        labels = one["metadata"].get("labels", {})
        labelled = (labels.get(INSTANCE), labels.get(MANAGED_BY)) == (self._cluster.name, MANAGER)
        return labelled or self._cluster.uid in _owners_of(one)

    async def given(self, secret: str) -> Mapping[str, str] | None:
        """The entries of a Secret of the user; None if it does not exist. Raises ApiError and CertificateError."""
        there = await self._api.get("Secret", self._cluster.namespace, secret)
        if there is None:
            return None
        if there["metadata"].get("labels", {}).get(GRANT) != "allowed":
            raise CertificateError(f"an administrator must label it {GRANT}=allowed")
        return _texts(there)

    async def certificate(self, listener: str) -> Mapping[str, str] | None:
        """The entries of the Secret of a listener's own certificate; None if it does not exist.

        Raises ApiError, UnusableError and PendingError.
        """
        there = await self.listeners.read(listener)
        try:
            return None if there is None else _texts(there)
        except CertificateError as error:
            raise UnusableError("ListenerCertificateNotValid", str(error)) from None

    @property
    def has_listener_files(self) -> bool:
        """Whether a node has a file for a listener with a certificate of its own, also of a former one."""
        return any(listener_of(file) for one in self._there.values() for file in one.get("data", {}))

    async def write(self, name: str, data: Mapping[str, str]) -> None:
        """Replace a Secret or ConfigMap as it was last read. Raises ApiError, 409 if another writer has changed it."""
        full, kind = self._name(name), _kind(name)
        texts = dict(data) if kind == "ConfigMap" else {key: _encoded(text) for key, text in data.items()}
        there = self._there.get(full)
        if there is None:
            body = {"apiVersion": "v1", "kind": kind, "metadata": self._metadata(name), "data": texts}
            self._there[full] = await self._api.create(body | ({"type": "Opaque"} if kind == "Secret" else {}))
            return
        gone = dict.fromkeys(key for key in there.get("data", {}) if key not in texts)
        version = {"resourceVersion": there["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "data": {**texts, **gone}}
        self._there[full] = await self._api.patch(kind, self._cluster.namespace, full, patch)

    async def own(self) -> None:
        """Let authorities outlive the resource as volumes do. All other objects are deleted with it. Raises ApiError.

        Objects that outlived a former resource of this name (`--cascade=orphan`) get this one as their owner.
        """
        for full, there in list(self._there.items()):
            name, metadata = full.removeprefix(f"{self._cluster.name}-"), there["metadata"]
            if not (name in {*AUTHORITIES, TRUST} or NODE_FILES.fullmatch(name)) or not self._is_ours(there):
                continue
            if "deletionTimestamp" in metadata or not _owners_of(there) <= {self._cluster.uid}:
                continue  # it is being deleted with its resource
            wanted = self._metadata(name)
            owners, labels = wanted.get("ownerReferences", []), wanted["labels"]
            if (
                metadata.get("ownerReferences", []) != owners
                or not labels.items() <= metadata.get("labels", {}).items()
            ):
                version = {"resourceVersion": metadata["resourceVersion"]}
                patch = {"metadata": {**version, "ownerReferences": owners, "labels": labels}}
                self._there[full] = await self._api.patch(_kind(name), self._cluster.namespace, full, patch)

    async def drop(self, nodes: set[str]) -> None:
        """Delete the certificates of nodes that are not among `nodes`. Raises ApiError."""
        for full, one in list(self._there.items()):
            logical = full.removeprefix(f"{self._cluster.name}-")
            if self._cluster.uid in _owners_of(one) and NODE_FILES.fullmatch(logical) and logical not in nodes:
                await self._api.delete("Secret", self._cluster.namespace, full, one["metadata"]["uid"])
                del self._there[full]

    def _metadata(self, name: str) -> Object:
        labels = {INSTANCE: self._cluster.name, MANAGED_BY: MANAGER, "app.kubernetes.io/name": APP}
        found: Object = {"name": self._name(name), "namespace": self._cluster.namespace, "labels": labels}
        owners = self._owners(name)
        return {**found, "ownerReferences": owners} if owners else found

    def _owners(self, name: str) -> list[Object]:
        """The owner of a Secret, so that Kubernetes deletes it with the cluster.

        If a volume outlives the cluster, authorities have no owner: the record, which stays too, names them.
        """
        stays = name in AUTHORITIES
        return [] if stays and not all(map(owned, self._cluster.spec.node_pools)) else self._cluster.owner()


def _owners_of(one: Object) -> set[str]:
    return {owner["uid"] for owner in one["metadata"].get("ownerReferences", ())}


def _kind(logical: str) -> str:
    return "ConfigMap" if logical == TRUST else "Secret"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _texts(secret: Mapping[str, Any]) -> dict[str, str]:
    """The entries of a Secret. Raises CertificateError if one is not text."""
    try:
        return {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
    except (binascii.Error, UnicodeDecodeError):
        raise CertificateError(f"Secret {secret['metadata']['name']} has an entry that is not text") from None


class ClusterSecurity:
    """The certificates of one cluster, and of the operator's client. It is kept between passes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.names: dict[str, str] = {}
        """The host of each node by the address of its pod."""
        self.client = ClientSecurity(names=self.names)
        self._store: SecretStore | None = None

    async def prepare(self, cluster: NamedCluster) -> None:
        """Read the Secrets, and give the client its certificate. Raises ApiError."""
        self._store = None
        if not cluster.secure:
            self.client.tls = None
            return
        if not isinstance(self.client.tls, OperatorTls):
            self.client.tls = OperatorTls(cluster.name, cluster.namespace)
        self._store = SecretStore(self._api, cluster)
        await self._store.load()
        self._take((await seen(self._store)).states)

    def _take(self, states: Mapping[str, State]) -> None:
        if CLUSTER in states and isinstance(self.client.tls, OperatorTls):
            with contextlib.suppress(CertificateError):  # of an expired authority; `keep` reports it
                self.client.tls.use(states[CLUSTER], datetime.now(UTC))

    async def keep(
        self,
        cluster: NamedCluster,
        annotations: Mapping[str, str],
        record: Record,
        found: Found | None,
        listed: ListedObjects,
    ) -> Kept:
        """Issue, renew and remove certificates, as the resource requires. Raises ApiError, InTheWayError, NotYetError.

        A paused cluster gets no certificate. A problem names those that end.
        """
        if self._store is None:
            return Kept()
        now = datetime.now(UTC)
        if cluster.spec.paused:
            needs = needs_of(cluster, annotations, {node.id: () for node in record.nodes}, record.authorities)
            with contextlib.suppress(NotYetError):
                return Kept(problems=(await ending(self._store, needs, now)).problems)
            return Kept()

        async def prove(name: str, state: State) -> Proof:
            silent = [i for i in listed.pods if found is None or not _answers(found, i)]
            if silent:
                text = f"node {silent[0]} is not ready"
                return Proof(text, text)
            role = subject(NODE, cluster.name, cluster.namespace)
            trusting, presenting = _addresses(cluster, listed, name)
            return await ask_nodes(name, state, trusting, presenting, role, now)

        brokers = [node.id for node in record.nodes if node.broker]
        hosts = {
            node.id: names(cluster, node.id, node.broker, outside_of(cluster, node.id, brokers, listed))
            for node in record.nodes
        }
        own = own_listeners(cluster, record, listed)
        requested = {one.name: hosts_requested(one, own[one.name].needed.values()) for one in issued_listeners(cluster)}
        await self._store.listeners.request(requested, leftovers=self._store.has_listener_files)
        needs = needs_of(cluster, annotations, hosts, record.authorities, own, retained_by(listed))
        kept = await keep(self._store, needs, now, prove)
        self._take(kept.states)
        await self._store.own()
        await self._store.drop({f"{node.id}-tls" for node in record.nodes} | {f"{i}-tls" for i in listed.pods})
        return kept


def _answers(found: Found, node_id: int) -> bool:
    pod = found.kube.pods.get(node_id)
    return pod is not None and pod.running and pod.ready


def _addresses(
    cluster: NamedCluster, listed: ListedObjects, name: str
) -> tuple[dict[int, list[Address]], dict[int, list[Address]]]:
    """By node: listeners that authenticate clients by the authority `name`, and those with the node's certificate."""
    trusting: dict[int, list[Address]] = {}
    presenting: dict[int, list[Address]] = {}
    clients = {one.port for one in cluster.spec.listeners if authentication(cluster, one) == "MutualTls"}
    encrypted = {
        one.port for one in cluster.spec.listeners if has_tls(cluster, one) and not has_own_certificate(cluster, one)
    }
    ours = {one.port for one in cluster.spec.listeners}
    for node_id, pod in listed.pods.items():
        address = pod.get("status", {}).get("podIP", "")
        container = next(one for one in pod["spec"]["containers"] if one["name"] == NODE_CONTAINER)
        ports = {one["containerPort"] for one in container["ports"] if one["name"] != "metrics"}
        asked = ports & clients if name == CLIENTS else ports - ours
        trusting[node_id] = [Address(address, port) for port in sorted(asked)]
        presenting[node_id] = [Address(address, port) for port in sorted((ports - ours) | (ports & encrypted))]
    return trusting, presenting


def own_listeners(cluster: NamedCluster, record: Record, listed: ListedObjects) -> dict[str, OwnCertificate]:
    """The listeners with certificates of their own, with the names that clients use for each broker."""

    def machine(node_id: int) -> str:
        return str(listed.pods.get(node_id, {}).get("status", {}).get("hostIP", ""))

    brokers = [node.id for node in record.nodes if node.broker]
    return {
        one.name: OwnCertificate(
            secret_of(cluster, one),
            {i: names_needed(cluster, one, i, listed.addresses, machine(i)) for i in brokers},
        )
        for one in own_certificates(cluster)
    }


def retained_by(listed: ListedObjects) -> dict[int, list[str]]:
    """By node: the listeners whose files its pod reads. The specification may have changed since the pod started."""
    found = {i: pod["metadata"].get("annotations", {}).get(CERTIFICATES, "") for i, pod in listed.pods.items()}
    return {i: text.split(",") for i, text in found.items() if text}


def outside_of(cluster: NamedCluster, node_id: int, brokers: Iterable[int], listed: ListedObjects) -> set[str]:
    """Hosts and addresses outside of Kubernetes by which clients reach a broker, as far as they are known.

    The port of the first connection is open on each machine, and leads to any broker: `brokers` are all of them.
    """
    found: set[str] = set()
    for listener in cluster.external:
        for service in (cluster.external_service(node_id, listener.name), f"{cluster.name}-{listener.name}"):
            found |= listed.addresses.get(service, frozenset())
    by_machine = any(one.type == "NodePort" and not one.host for one in cluster.external)
    if by_machine:
        found |= {host for i in brokers if (host := listed.pods.get(i, {}).get("status", {}).get("hostIP"))}
    return found
