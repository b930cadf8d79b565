"""Raft drivers that the bytes of the protocol join in memory."""

from __future__ import annotations

from typing import Any

from kraft_node.metadata.log_batches import snapshot_header_batch
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.membership.voter_history import encode_voters
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_node.server.quorum.driver import RaftDriver
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.records.control import ControlType
from kraft_protocol.wire import codec, messages, stored
from kraft_protocol.wire.api import API
from tests.unit.server.quorum.raft_world import MemoryStorage, World, append

IDS = (1, 2, 3)
OBSERVER = 101
PORTS = {1: 9091, 2: 9092, 3: 9093}
MOVED = 9193
SUPPORTED = messages.ApiVersionsResponse(
    supported_features=[messages.ApiVersionsResponse.SupportedFeatureKey("kraft.version", 0, 1)]
)


class Member:
    """One process: a driver on a storage that survives it."""

    def __init__(self, quorum: Quorum, node_id: int, *, dynamic: bool = False) -> None:
        self.quorum = quorum
        self.id = node_id
        self.port = PORTS.get(node_id, -1)
        self.storage = MemoryStorage()
        self.dynamic = dynamic
        self.driver: RaftDriver | None = None
        self.is_silent = False
        self.leaders: list[tuple[int, int]] = []
        self.voters: tuple[int, ...] = IDS
        """In its configuration."""
        self.first_voters: tuple[int, ...] = ()
        """Of a dynamic quorum: those that formatting wrote down."""

    def start(self, *, guards_empty_disk: bool = True) -> None:
        self.make(guards_empty_disk=guards_empty_disk)
        assert self.driver is not None
        self.driver.start()

    def make(self, *, guards_empty_disk: bool = True) -> None:
        """The driver, not started yet."""
        self.is_silent = False
        voters = VoterSet(Voter(ReplicaKey(i), {"CONTROLLER": ("localhost", PORTS[i])}) for i in self.voters)
        self.driver = RaftDriver(
            self.quorum.world,  # type: ignore[arg-type]
            self.storage,  # type: ignore[arg-type]
            local=ReplicaKey(self.id, Uuid(bytes([self.id]) * 16)),
            voters=VoterSet([]) if self.dynamic else voters,
            cluster_id="cluster",
            policy=SnapshotPolicy(max_new_record_bytes=2_000),
            bootstrap_servers=[("localhost", PORTS[2])] if self.dynamic else [],
            peers=self.find,
            guards_empty_disk=guards_empty_disk,
        )
        if self.first_voters:
            self.driver.own = Voter(self.driver.local, {"CONTROLLER": ("localhost", self.port)})
            key = [ReplicaKey(i, Uuid(bytes([i]) * 16)) for i in self.first_voters]
            stated = encode_voters(VoterSet(Voter(k, {"CONTROLLER": ("localhost", PORTS[k.id])}) for k in key))
            version = codec.encode(stored.KRaftVersionRecord(version=0, k_raft_version=1), 0)
            controls = [(ControlType.KRAFT_VERSION, version), (ControlType.KRAFT_VOTERS, stated)]
            self.storage.files[SnapshotId(0, 0)] = snapshot_header_batch(0, 0, 0, controls)
        self.driver.on_leader_changed.append(lambda leader, epoch: self.leaders.append((leader, epoch)))

    def find(self, node_id: int) -> Any:
        assert self.driver is not None
        where = self.driver.peers.endpoint_of(node_id)
        return None if where is None else Way(self.quorum, self, where[1])

    def stop(self, *, reported: bool = True) -> None:
        """End the process; its peers learn that connections closed, or not."""
        driver, self.driver = self.driver, None
        assert driver is not None
        driver.fail = lambda _what, _error: None  # type: ignore[method-assign]
        driver.failed = True
        self.storage.crash()
        self.is_silent = not reported
        for other in self.quorum.members.values():
            if reported and other.driver is not None:
                self.quorum.world.call_soon(other.driver.disconnected, self.id)


class Way:
    """A channel from one member to a port: requests and responses are encoded and decoded."""

    def __init__(self, quorum: Quorum, sender: Member, port: int) -> None:
        self.quorum = quorum
        self.sender = sender
        self.port = port

    def send(self, request: Any, version: int | None, done: Any, timeout_ms: int) -> None:
        spec = API[request.SCHEMA.api_key]
        highest = min(spec.max_version, self.quorum.newest.get(type(request).__name__, 99))
        if version is not None and version > highest:
            self.quorum.world.call_soon(done, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
            return
        data = codec.encode(request, highest)
        target = next((m for m in self.quorum.members.values() if m.port == self.port), None)
        asker = self.sender.driver

        def answered(response: Any) -> None:
            back = codec.decode(spec.response, codec.encode(response, highest), highest)
            if self.sender.driver is asker:
                self.quorum.world.call_later(1, done, back)

        def deliver() -> None:
            if target is None:
                done(ConnectionRefusedError(f"localhost:{self.port}: refused"))
                return
            if target.is_silent:
                self.quorum.world.call_later(timeout_ms, done, TimeoutError("silent"))
                return
            if target.driver is None:
                done(ConnectionRefusedError(f"localhost:{self.port}: refused"))
                if asker is not None:
                    asker.disconnected(target.id)
                return
            if isinstance(request, messages.ApiVersionsRequest):
                answered(SUPPORTED)  # in a node, the listener answers
                return
            ctx = Context(request.SCHEMA.api_key, highest, answered)
            response = target.driver._handle(ctx, codec.decode(spec.request, data, highest))  # type: ignore[arg-type]
            if response is not None:
                answered(response)

        self.quorum.world.call_later(1, deliver)


class Context:
    def __init__(self, key: int, version: int, answered: Any) -> None:
        self.api_version = version
        self.api_key = key
        self.listener = "CONTROLLER"
        self.respond = answered


class Quorum:
    def __init__(self, ids: tuple[int, ...] = IDS) -> None:
        self.world = World()
        self.newest: dict[str, int] = {}
        self.members = {node_id: Member(self, node_id) for node_id in ids}

    def start(self) -> Quorum:
        for member in self.members.values():
            member.start()
        self.world.run(500)
        return self

    def leader(self) -> Member:
        (found,) = {
            m.driver.leader_id for m in self.members.values() if m.driver is not None and m.driver.leader_id >= 0
        }
        return self.members[found]

    def append(self, *numbers: int) -> None:
        driver = self.leader().driver
        assert driver is not None
        append(driver, [topic(number) for number in numbers])
        self.world.run(100)

    def images(self) -> dict[int, int]:
        """The number of topics that each running member knows."""
        return {m.id: len(m.driver.image.topics) for m in self.members.values() if m.driver is not None}


def topic(number: int) -> stored.TopicRecord:
    return stored.TopicRecord(name=f"t{number}", topic_id=Uuid(number.to_bytes(16, "big")))
