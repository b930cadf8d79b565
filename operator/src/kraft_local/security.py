"""Certificates of a local cluster, as on Kubernetes: each Secret is a folder, `security/NAME`.

A folder is a link that is exchanged at once, so its files always belong together. The user's own authority
(`secretName`) is a folder beside the others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from kraft_local.folder import Folder, Memory
from kraft_local.ports import CONTROLLER, HOST, key
from kraft_operator.api.security import NODES_LISTENER
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.steps import Plan
from kraft_operator.security.authorities import Proof, State
from kraft_operator.security.certificates import CertificateError
from kraft_operator.security.client import OperatorTls, ask_nodes
from kraft_operator.security.keeper import Kept, ending, keep
from kraft_operator.security.listeners import OwnCertificate, UnusableError
from kraft_operator.security.names import CLUSTER, NODE, listener_of, subject
from kraft_operator.security.wanted import needs_of
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.issuers import secret_of
from kraft_operator.specs.security import authentication, has_own_certificate, has_tls, own_certificates
from kraft_protocol.client.aio import Address
from kraft_protocol.client.security import ClientSecurity

HOSTS = frozenset({HOST, "127.0.0.1", "::1"})


class FolderStore:
    """The `Store` of a local cluster. Only the user can read the files."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.secrets: dict[str, str] = {}
        """The folder of each listener with a certificate of its own."""

    async def read(self, name: str) -> Mapping[str, str] | None:
        """The files of a folder by name; None if it does not exist. Raises OSError if they cannot be read."""
        there = self._folder.security(name)
        if not there.exists():
            if there.is_symlink():
                raise OSError(f"{there}: the folder that it links to is missing: restore it")
            return None
        return {path.name: path.read_text() for path in sorted(there.iterdir())}

    given = read

    async def certificate(self, listener: str) -> Mapping[str, str] | None:
        """The files of a listener's own certificate; None if they do not exist.

        Raises OSError, and UnusableError if a file is not text.
        """
        try:
            return await self.read(self.secrets[listener])
        except UnicodeDecodeError:
            raise UnusableError("ListenerCertificateNotValid", "one of its files is not text") from None

    async def write(self, name: str, data: Mapping[str, str]) -> None:
        """Replace a folder by one with these files, which are durable when this returns. Raises OSError."""
        link = self._folder.security(name)
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        former = link.resolve() if link.is_symlink() else None
        made = link.parent / f".{name}.{uuid.uuid4().hex}"
        made.mkdir(mode=0o700)
        for file, text in data.items():
            _write(made / file, text)
        beside = made.with_suffix(".link")
        beside.symlink_to(made.name)
        beside.replace(link)
        _flush(link.parent)
        if former is not None:
            shutil.rmtree(former, ignore_errors=True)


def own_listeners(cluster: NamedCluster, brokers: Collection[int]) -> dict[str, OwnCertificate]:
    """The listeners with certificates of their own. Clients reach all of them by one name."""
    needed = {i: [frozenset({HOST})] for i in brokers}
    return {one.name: OwnCertificate(secret_of(cluster, one), needed) for one in own_certificates(cluster)}


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LocalSecurity:
    """The certificates of one local cluster, and the supervisor's own for its client."""

    def __init__(self, folder: Folder, memory: Memory, show: Callable[[str], None]) -> None:
        self._folder = folder
        self._store = FolderStore(folder)
        self._memory = memory
        self._show = show
        self.client = ClientSecurity()
        """The security of the supervisor's client. It follows the specification."""
        self.kept = Kept()

    async def keep(self, cluster: NamedCluster, annotations: Mapping[str, str], running: Collection[int]) -> None:
        """Issue, renew and remove certificates, as the file requires. `running`: nodes with a process. Raises OSError.

        The record in the memory gets the authorities; the caller writes it.
        """
        self.kept = Kept()
        if not cluster.secure:
            self.client.tls = None
            return
        if not isinstance(self.client.tls, OperatorTls):
            self.client.tls = OperatorTls(cluster.name, cluster.namespace)
        now, record = datetime.now(UTC), self._memory.record

        async def prove(name: str, state: State) -> Proof:
            role = subject(NODE, cluster.name, cluster.namespace)
            trusting = {i: self._trusting(cluster, i, name) for i in running}
            return await ask_nodes(name, state, trusting, {i: self._encrypted(cluster, i) for i in running}, role, now)

        hosts = {node.id: HOSTS for node in record.nodes}
        own = own_listeners(cluster, [node.id for node in record.nodes if node.broker])
        self._store.secrets = {name: one.secret for name, one in own.items()}
        retained = {i: self._listeners_of(i) for i in running}
        needs = needs_of(cluster, annotations, hosts, record.authorities, own, retained)
        self.kept = await (
            ending(self._store, needs, now) if cluster.spec.paused else keep(self._store, needs, now, prove)
        )
        for line in [*self.kept.done, *self.kept.refused]:
            self._show(line)
        if CLUSTER in self.kept.states:
            with contextlib.suppress(CertificateError):  # of an expired authority, which is reported
                self.client.tls.use(self.kept.states[CLUSTER], now)
        known = tuple(sorted({**dict(record.authorities), **self.kept.fingerprints}.items()))
        self._memory.record = replace(record, authorities=known)

    def report(self, plan: Plan) -> Plan:
        """Add what the certificates wait for, and their problems. A node starts once its certificate exists."""
        plan.waits += self.kept.waits
        for reason, message in self.kept.problems:
            plan.block(reason, message)
        if self.client.tls is not None:
            early = [step for step in plan.steps if isinstance(step, do.CreatePod) and not self._has_files(step.node)]
            plan.steps = [step for step in plan.steps if step not in early]
            plan.waits += [f"certificate of node {step.node}" for step in early]
        return plan

    def _listeners_of(self, node_id: int) -> list[str]:
        """The listeners with files of their own, which a running node may read."""
        files = self._folder.tls(node_id)
        found = [listener_of(path.name) for path in files.iterdir()] if files.exists() else []
        return [name for name in found if name is not None]

    def _has_files(self, node_id: int) -> bool:
        return self._folder.tls(node_id).exists()

    def _trusting(self, cluster: NamedCluster, node_id: int, name: str) -> list[Address]:
        """The listeners of a node that authenticate clients by an authority."""
        if name == CLUSTER:
            return self._addresses(node_id, [CONTROLLER, NODES_LISTENER])
        listeners = cluster.spec.listeners
        return self._addresses(node_id, [one.name for one in listeners if authentication(cluster, one) == "MutualTls"])

    def _encrypted(self, cluster: NamedCluster, node_id: int) -> list[Address]:
        encrypted = [one for one in cluster.listeners if has_tls(cluster, one)]
        listeners = [one.name for one in encrypted if not has_own_certificate(cluster, one)]
        return self._addresses(node_id, [CONTROLLER, *listeners])

    def _addresses(self, node_id: int, listeners: Collection[str]) -> list[Address]:
        ports = (self._memory.ports.get(key(node_id, listener)) for listener in listeners)
        return [Address(HOST, port) for port in ports if port is not None]
