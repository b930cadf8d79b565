"""The folder of a local cluster, `.kraft/NAME`, and its files.

    lock            held by the cluster's only supervisor
    cluster.json    the memory: record, ports, the specification in force; durable before anything relies on it
    requests.json   requests of the command line beyond the file: replacements, restarts, pauses
    status.json     the resource with its status, as the last pass saw it
    security/NAME/  authorities, keys and certificates of nodes, trusted certificates (with TLS)
    users/NAME/     credentials and client configurations of users
    nodes/ID/       server.properties, node.log, format.log, process.json, lock, disk-N/VOLUME/

Beside the folder is `ports.lock`, which a supervisor holds while it assigns ports.

Only the supervisor writes `cluster.json`. The command line writes `requests.json` under a lock of its own.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraft_local.processes import Lock
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.plan.model.record import Record
from kraft_operator.security.names import node_name
from kraft_operator.specs.remembered import record_of, remembered

Ports = dict[str, int]
"""`NODE/LISTENER` -> port."""


@dataclass(slots=True)
class Memory:
    """The state that must survive a restart of the supervisor."""

    record: Record = field(default_factory=Record)
    ports: Ports = field(default_factory=dict)
    accepted: dict[str, Any] | None = None
    """The specification in force. Rules about changes compare the next one with it."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Annotations of the file in force."""
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The specifications of its KRaftTopics, by name."""
    topic_states: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Their statuses."""
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Its KRaftUsers by name: `spec` and `annotations`."""
    user_states: dict[str, dict[str, Any]] = field(default_factory=dict)
    user_claims: list[dict[str, Any]] = field(default_factory=list)
    generation: int = 0
    uid: str = ""
    offset: int = 0
    """The offset of all ports from the ports in the file."""


@dataclass(slots=True)
class Requests:
    """Requests of the command line."""

    annotations: dict[str, str] = field(default_factory=dict)
    replacements: list[dict[str, Any]] = field(default_factory=list)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    """KRaftUsers beyond the file, by name: `spec` and `annotations`."""
    rotations: dict[str, str] = field(default_factory=dict)
    """The last requested rotation of users, by name."""
    paused: bool = False
    hibernated: bool = False


class Folder:
    """The files of one cluster."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = Lock(root / "lock")

    # Paths

    def node(self, node_id: int) -> Path:
        """The folder of a node."""
        return self.root / "nodes" / str(node_id)

    def disk(self, node_id: int, disk: int) -> Path:
        """The folder of a node's disk with this number."""
        return self.node(node_id) / f"disk-{disk}"

    def security(self, name: str) -> Path:
        """The folder of a stored authority, of a node's certificate or of the trusted certificates."""
        return self.root / "security" / name

    def tls(self, node_id: int) -> Path:
        """The folder with a node's key and certificate, and the certificates that it trusts."""
        return self.security(node_name(node_id))

    def user(self, name: str) -> Path:
        """The folder with the credentials and the client configurations of a KRaftUser."""
        return self.root / "users" / name

    def log(self, node_id: int) -> Path:
        """The file with the standard output of a node."""
        return self.node(node_id) / "node.log"

    def supervisor_log(self) -> Path:
        """The file with the log of a detached supervisor."""
        return self.root / "supervisor.log"

    def node_ids(self) -> list[int]:
        """The ids of all present and former nodes with a folder."""
        there = self.root / "nodes"
        return sorted(int(path.name) for path in there.iterdir() if path.name.isdecimal()) if there.is_dir() else []

    def remains(self) -> bool:
        """Whether a node has a formatted disk."""
        return any(self.root.glob("nodes/*/disk-*/formatted-for"))

    @contextmanager
    def giving_ports(self) -> Iterator[set[int]]:
        """The ports of running neighbour clusters, under the lock that lets one cluster at a time assign ports."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root.parent / "ports.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            others = [Folder(path.parent) for path in self.root.parent.glob("*/cluster.json")]
            driven = [one for one in others if one.root != self.root and one.lock.holder() is not None]
            yield {port for one in driven for port in one.memory().ports.values()}

    # Memory, requests and status

    def exists(self) -> bool:
        """Whether a cluster was created here."""
        return (self.root / "cluster.json").exists()

    def memory(self) -> Memory:
        """The memory of the supervisor, from `cluster.json`; empty for a new cluster."""
        found = _read(self.root / "cluster.json")
        if found is None:
            return Memory()
        record = record_of(KRaftClusterStatus.model_validate(found.pop("record")))
        return Memory(record=record, **found)

    def remember(self, memory: Memory) -> None:
        """Write the memory. It is durable when this returns."""
        values = {
            "record": remembered(memory.record),
            "ports": memory.ports,
            "accepted": memory.accepted,
            "annotations": memory.annotations,
            "topics": memory.topics,
            "topic_states": memory.topic_states,
            "users": memory.users,
            "user_states": memory.user_states,
            "user_claims": memory.user_claims,
            "generation": memory.generation,
            "uid": memory.uid,
            "offset": memory.offset,
        }
        _write(self.root / "cluster.json", values, durable=True)

    def requests(self) -> Requests:
        """The requests of the command line; empty without requests."""
        return Requests(**(_read(self.root / "requests.json") or {}))

    @contextmanager
    def changing_requests(self) -> Iterator[Requests]:
        """The requests, to be changed. They are written if the block ends without an error."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "requests.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            requests = self.requests()
            yield requests
            values = {name: getattr(requests, name) for name in Requests.__slots__}
            _write(self.root / "requests.json", values, durable=True)

    def status(self) -> dict[str, Any] | None:
        """The resource with its status, from the last pass; None before the first."""
        return _read(self.root / "status.json")

    def write_status(self, document: Mapping[str, Any]) -> None:
        """Write the status. It is only informative, so the write does not wait for the disk."""
        _write(self.root / "status.json", document, durable=False)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def _write(path: Path, values: Mapping[str, Any], *, durable: bool) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    with beside.open("w") as file:
        json.dump(values, file, indent=1)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    beside.replace(path)
    if durable:
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def stamp(path: Path) -> object:
    """A value that differs once the file has changed; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def fresh_id() -> str:
    """An id for a new cluster, in Kafka's form. It begins with no hyphen, because programs take it as an argument."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
