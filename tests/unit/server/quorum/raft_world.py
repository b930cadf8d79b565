"""A world for one raft driver: a disk in memory that forgets unflushed writes, a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.storage import SnapshotFile
from kraft_node.server.faults import FaultHandler
from kraft_node.server.quorum.driver import RaftDriver
from kraft_protocol.ids import Uuid
from kraft_protocol.records.batch import check_crc, iter_headers
from tests.stopped_time import StoppedTime

DIRECTORY = Uuid(b"D" * 16)


class World(StoppedTime):
    """Clock, scheduler, randomness and background of an `Env`; disk and net are not needed."""

    def __init__(self) -> None:
        super().__init__(now=1000)
        self.jobs: list[tuple[str, Callable[[], object], Callable[[Any], None]]] = []
        self.clock = self.scheduler = self.rng = self.background = self
        self.disk = self.net = None

    def randrange(self, stop: int) -> int:
        return stop // 2

    def random_bytes(self, count: int) -> bytes:
        return b"r" * count

    def submit(self, lane: str, work: Callable[[], object], done: Callable[[Any], None]) -> None:
        self.jobs.append((lane, work, done))

    def run_job(self) -> None:
        _, work, done = self.jobs.pop(0)
        try:
            result: object = work()
        except OSError as e:
            result = e
        done(result)

    def run(self, duration_ms: int = 0) -> None:
        """Run everything that is due within `duration_ms`, background jobs at once."""
        end = self.now + duration_ms
        while self.jobs or self.step(end):
            while self.jobs:
                self.run_job()
        self.now = end


class MemoryStorage:
    """The storage of `raft.storage.MetadataStorage` in memory; `crash()` loses unflushed data."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.durable: list[bytes] = []
        self.start_offset = 0
        self.state = QuorumState()
        self.files: dict[SnapshotId, bytes] = {}
        self.bootstrap: list[bytes] = []
        self.error: OSError | None = None
        self.reads = 0

    def _headers(self) -> list[Any]:
        return [next(iter_headers(batch)) for batch in self.batches]

    @property
    def end_offset(self) -> int:
        return self._headers()[-1].next_offset if self.batches else self.start_offset

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.batches))

    def epochs(self) -> list[tuple[int, int]]:
        found: dict[int, int] = {}
        for header in self._headers():
            found.setdefault(header.partition_leader_epoch, max(header.base_offset, self.start_offset))
        return list(found.items())

    def append(self, batches: Sequence[bytes]) -> None:
        for batch in batches:
            for header in iter_headers(batch):
                assert header.base_offset == self.end_offset
                self.batches.append(bytes(batch[header.position : header.position + header.length]))

    def read(self, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        found = b""
        for batch, header in zip(self.batches, self._headers(), strict=True):
            if header.next_offset > offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return found

    def truncate(self, offset: int) -> None:
        while self.batches and self._headers()[-1].base_offset >= offset:
            self.batches.pop()

    def begin_flush(self) -> Callable[[], object]:
        written = list(self.batches)

        def work() -> None:
            if self.error is not None:
                raise self.error
            self.durable = written

        return work

    def delete_before(self, offset: int) -> int:
        self.batches = [b for b, h in zip(self.batches, self._headers(), strict=True) if h.next_offset > offset]
        self.start_offset = offset
        return offset

    def reset_to(self, offset: int) -> None:
        self.batches = []
        self.start_offset = offset

    @property
    def has_quorum_state(self) -> bool:
        return self.state != QuorumState()

    def load_quorum_state(self) -> QuorumState:
        return self.state

    def begin_save_quorum_state(
        self, state: QuorumState, kraft_version: int, voter_ids: Sequence[int]
    ) -> Callable[[], object]:
        def work() -> None:
            self.state = state

        return work

    def snapshots(self) -> list[SnapshotFile]:
        return [SnapshotFile(key, len(data), 0) for key, data in sorted(self.files.items())]

    def snapshot_batches(self, snapshot: SnapshotId) -> Iterator[memoryview]:
        data = memoryview(self.files[snapshot])
        for header in iter_headers(data):
            check_crc(data, header)
        yield data

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        return self.files[snapshot][position : position + max_bytes]

    def create_snapshot(self, snapshot: SnapshotId) -> _Writer:
        return _Writer(self, snapshot)

    def remove_snapshot(self, snapshot: SnapshotId) -> None:
        del self.files[snapshot]

    def bootstrap_records(self) -> list[bytes]:
        return self.bootstrap

    def close(self) -> None:
        pass

    def crash(self) -> None:
        self.batches = list(self.durable)


class _Writer:
    def __init__(self, storage: MemoryStorage, snapshot: SnapshotId) -> None:
        self._storage = storage
        self._snapshot = snapshot
        self._data = b""

    def append(self, data: bytes) -> None:
        self._data += data

    def begin_finish(self) -> Callable[[], object]:
        def work() -> None:
            self._storage.files[self._snapshot] = self._data

        return work

    def abandon(self) -> None:
        self._data = b""


class Node:
    """A driver in its world, with the calls of its hooks."""

    def __init__(self, storage: MemoryStorage | None = None, world: World | None = None, **settings: Any) -> None:
        self.world = world or World()
        self.storage = storage or MemoryStorage()
        self.reported: list[Any] = []
        self.driver = RaftDriver(
            self.world,  # type: ignore[arg-type]
            self.storage,
            local=ReplicaKey(1, DIRECTORY),
            voters=VoterSet([Voter(ReplicaKey(1), {"CONTROLLER": ("localhost", 9093)})]),
            cluster_id="cluster",
            **settings,
        )
        driver = self.driver
        driver.on_commit.append(lambda offset: self.reported.append(("commit", offset)))
        driver.on_leader.append(lambda epoch: self.reported.append(("leader", epoch)))
        driver.on_lost_leadership.append(lambda epoch: self.reported.append(("lost", epoch)))
        driver.faults = FaultHandler(lambda reason: self.reported.append(("fatal", reason)))

    def start(self) -> Node:
        self.driver.start()
        self.world.run()
        return self


def append(driver: RaftDriver, records: Sequence[Any], *, atomic: bool = True) -> int:
    """Append as the leader's controller does; returns the offset of the last record."""
    prepared = driver.prepare(driver.epoch, records, atomic=atomic)
    driver.schedule(prepared)
    return prepared.last_offset


class Context:
    """Replaces a RequestContext."""

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.listener = "CONTROLLER"
        self.answers: list[Any] = []

    def respond(self, message: Any) -> None:
        self.answers.append(message)
