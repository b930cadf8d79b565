"""A small coordinator over the runtime, and brokers that replicate its partition between them.

The ledger keeps a number by name. Its records are (name, number); None removes the name. Records of a transaction
wait for its marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from kraft_node.broker.coordinators.runtime.engine import Runtime
from kraft_node.broker.coordinators.runtime.machine import (
    NO_PRODUCER_ID,
    NewerRecordError,
    PlannedWrite,
    StoredRecord,
    TransactionalProducer,
)
from kraft_node.broker.coordinators.runtime.shard import RuntimeConfig, RuntimeShard
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch, iter_headers, iter_records
from kraft_protocol.records.control import build_marker
from tests.unit.coordinators.surroundings import Time

Entry: TypeAlias = tuple[str, int | None]

LEDGER = "__ledger"


class Ledger:
    """A state machine of numbers by name."""

    def __init__(self, shard: RuntimeShard[Ledger]) -> None:
        self.shard = shard
        self.numbers: dict[str, int] = {}
        self.pending: dict[int, dict[str, int | None]] = {}
        self.events: list[str] = []
        self.spoiled: str | None = None
        """A name that cannot be replayed."""

    def encode(self, record: Entry, /) -> StoredRecord:
        name, number = record
        return name.encode(), None if number is None else str(number).encode()

    def decode(self, key: Any, value: Any, /) -> Entry:
        name = bytes(key).decode()
        if name.startswith("?"):
            raise NewerRecordError(f"record type {name}")
        return name, None if value is None else int(bytes(value))

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: Entry, /) -> None:
        name, number = record
        if name == self.spoiled:
            raise RuntimeError(f"{name} cannot be replayed")
        if producer_id != NO_PRODUCER_ID:
            self.pending.setdefault(producer_id, {})[name] = number
        else:
            self._put(name, number)

    def _put(self, name: str, number: int | None) -> None:
        if number is None:
            self.numbers.pop(name, None)
        else:
            self.numbers[name] = number

    def end_transaction(self, offset: int, producer_id: int, producer_epoch: int, /, *, commit: bool) -> None:
        for name, number in self.pending.pop(producer_id, {}).items():
            if commit:
                self._put(name, number)

    def complete_load(self) -> Iterator[None]:
        """Nothing: `replay` has done all."""
        return iter(())

    def committed_to(self, high_watermark: int, /) -> None:
        self.events.append(f"committed to {high_watermark}")

    def loaded(self) -> None:
        self.events.append("loaded")

    def unloaded(self) -> None:
        self.events.append("unloaded")

    @property
    def state(self) -> tuple[dict[str, int], dict[int, dict[str, int | None]]]:
        return dict(self.numbers), {key: dict(value) for key, value in self.pending.items()}


class Replicas:
    """One partition's log on several brokers. The high watermark is what `replicate` has copied to all that live."""

    def __init__(self, brokers: Sequence[int], time: Time) -> None:
        self.time = time
        self.logs = {broker: BrokerLog(self, broker) for broker in brokers}
        self.leader = -1
        self.epoch = -1
        self.max_bytes = 1_000
        self.cut_off: set[int] = set()
        """Brokers that neither copy nor hear of elections."""

    def elect(self, broker: int) -> int:
        """Make `broker` the leader of the next epoch; it must have everything that is committed."""
        log = self.logs[broker]
        committed = max(other.high_watermark_ for other in self.logs.values())
        assert log.end >= committed, "the new leader was not in sync"
        self.leader = broker
        self.epoch += 1
        for other in self.logs.values():
            if other.broker not in self.cut_off:
                other.led_epoch = self.epoch if other is log else -1
                if other is not log:
                    other.waiting = []
        return self.epoch

    def replicate(self) -> None:
        """Copy the leader's log to all that are not cut off, and move the high watermark."""
        leader = self.logs[self.leader]
        for other in self.logs.values():
            if other is not leader and other.broker not in self.cut_off:
                other.batches = list(leader.batches)
                other.end = leader.end
                other.high_watermark_ = max(other.high_watermark_, leader.high_watermark_)
        leader.committed_to(leader.end)

    def compact(self) -> None:
        """Keep the latest committed record of each name, on every broker; transactional batches and markers stay."""
        for log in self.logs.values():
            latest: dict[bytes, int] = {}
            for header, batch in log.decoded():
                if header.producer_id < 0 and header.next_offset <= log.high_watermark_:
                    for record in iter_records(batch):
                        latest[bytes(record.key or b"")] = record.offset
            kept = []
            for header, batch in log.decoded():
                if header.producer_id >= 0 or header.next_offset > log.high_watermark_:
                    kept.append(batch)
                    continue
                records = [r for r in iter_records(batch) if latest[bytes(r.key or b"")] == r.offset]
                if records:
                    kept.append(
                        build_batch(
                            records,
                            base_offset=header.base_offset,
                            leader_epoch=header.partition_leader_epoch,
                            last_offset=header.last_offset,
                        )
                    )
            log.batches = kept


class BrokerLog:
    """`PartitionLogs` of one broker, for partition 0. It may believe that it leads when another broker does."""

    def __init__(self, replicas: Replicas, broker: int) -> None:
        self.replicas = replicas
        self.broker = broker
        self.batches: list[bytes] = []
        self.end = 0
        self.high_watermark_ = 0
        self.led_epoch = -1
        self.fail: ErrorCode | None = None
        self.fail_append: ErrorCode | None = None
        """Like `fail`, but `room` does not notice."""
        self.fail_late: ErrorCode | None = None
        """Like `fail`, but the log has the records nevertheless."""
        self.waiting: list[tuple[int, Callable[[], None], Callable[[], None]]] = []

    def decoded(self) -> list[tuple[Any, bytes]]:
        return [(next(iter(iter_headers(batch))), batch) for batch in self.batches]

    def committed_to(self, offset: int) -> None:
        self.high_watermark_ = max(self.high_watermark_, offset)
        due = [done for end, done, _ in self.waiting if end <= offset]
        self.waiting = [one for one in self.waiting if one[0] > offset]
        for done in due:
            done()

    def _check(self, leader_epoch: int | None = None) -> None:
        if self.led_epoch < 0 or leader_epoch not in {None, self.led_epoch}:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker} is in epoch {self.led_epoch}")

    def room(self, partition: int, leader_epoch: int) -> int:
        self._check(leader_epoch)
        if self.fail is not None:
            raise KafkaError(self.fail, "as the test wants it")
        return self.replicas.max_bytes

    def append(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[StoredRecord],
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> int:
        if self.fail_append is not None:
            raise KafkaError(self.fail_append, "as the test wants it")
        batch = build_batch(
            records,
            base_offset=self.end,
            leader_epoch=leader_epoch,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            base_sequence=-1 if producer is None else 0,
            transactional=producer is not None,
        )
        if len(batch) > self.room(partition, leader_epoch):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes")
        return self.add(batch)

    def append_marker(
        self,
        partition: int,
        leader_epoch: int,
        producer: TransactionalProducer,
        now_ms: int,
        *,
        commit: bool,
        coordinator_epoch: int,
    ) -> int:
        self.room(partition, leader_epoch)
        return self.add(
            build_marker(
                commit=commit,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=now_ms,
                base_offset=self.end,
                leader_epoch=leader_epoch,
            )
        )

    def add(self, batch: bytes) -> int:
        """Put a batch at the end of the log."""
        base = self.end
        (header,) = iter_headers(batch)
        self.batches.append(batch)
        self.end = base + header.last_offset_delta + 1
        if self.fail_late is not None:
            raise KafkaError(self.fail_late, "as the test wants it")
        if self.replicas.leader == self.broker and len(self.replicas.logs) == 1:
            self.committed_to(self.end)
        return base

    def start_offset(self, partition: int) -> int:
        self._check()
        return 0

    def end_offset(self, partition: int) -> int:
        self._check()
        return self.end

    def high_watermark(self, partition: int) -> int:
        self._check()
        return self.high_watermark_

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        self._check()
        out = b""
        for header, batch in self.decoded():
            if header.next_offset <= offset:
                continue
            if out and len(out) + len(batch) > max_bytes:
                break
            out += batch
        return out

    def when_committed(self, partition: int, offset: int, done: Callable[[], None], closed: Callable[[], None]) -> None:
        self._check()
        if self.high_watermark_ >= offset:
            done()
        else:
            self.waiting.append((offset, done, closed))

    def open_again(self) -> None:
        """Close the log and open it again: it stays as it is, and nobody waits for it."""
        waiting, self.waiting = self.waiting, []
        for _, _, closed in waiting:
            closed()


class Answers(list[Any]):
    """What the callers of operations got, in order."""

    def __call__(self, answer: Any) -> None:
        self.append(answer if not isinstance(answer, KafkaError) else answer.code)


class Broker:
    """A runtime of ledgers on one broker."""

    def __init__(self, log: BrokerLog, *, linger_ms: int = 0, commit_timeout_ms: int = 5_000) -> None:
        self.log = log
        self.time = log.replicas.time
        self.answers = Answers()
        self.machines: list[Ledger] = []
        self.runtime: Runtime[Ledger] = Runtime(
            RuntimeConfig(LEDGER, commit_timeout_ms, linger_ms),
            clock=self.time,
            scheduler=self.time,
            store=log,
            make=self._make,
            partitions=lambda: 1,
        )

    def _make(self, shard: RuntimeShard[Ledger]) -> Ledger:
        self.machines.append(Ledger(shard))
        return self.machines[-1]

    @property
    def shard(self) -> RuntimeShard[Ledger]:
        return self.runtime.shards[0]

    @property
    def ledger(self) -> Ledger:
        return self.shard.machine

    @property
    def latest(self) -> Ledger:
        """The state machine that was made last, also after it was unloaded."""
        return self.machines[-1]

    def lead(self) -> Broker:
        """Be elected, and load."""
        self.runtime.on_leader(0, self.log.replicas.elect(self.log.broker))
        self.settle()
        return self

    def settle(self) -> None:
        """Let all turns of the loop pass that are due now."""
        for _ in range(100):
            self.time.advance()

    def put(self, *entries: Entry, answer: Any = "ok", **how: Any) -> None:
        """Write the entries as one operation."""
        self.runtime.write(0, lambda _: PlannedWrite(entries, answer, **how), self.answers)

    def add(self, name: str, number: int) -> None:
        """Add to a number: the operation depends on earlier writes."""

        def operation(ledger: Ledger) -> PlannedWrite[Entry, int]:
            total = ledger.numbers.get(name, 0) + number
            return PlannedWrite([(name, total)], total)

        self.runtime.write(0, operation, self.answers)

    def get(self, name: str) -> None:
        """Read a number that is committed."""
        self.runtime.read(0, lambda ledger: ledger.numbers.get(name), self.answers)


def alone(**how: Any) -> Broker:
    """A broker that is the only replica, and leads."""
    return Broker(Replicas([1], Time()).logs[1], **how).lead()


def three(**how: Any) -> tuple[Replicas, Broker, Broker, Broker]:
    """Three brokers, of which the first leads."""
    replicas = Replicas([1, 2, 3], Time())
    first, second, third = (Broker(log, **how) for log in replicas.logs.values())
    first.lead()
    return replicas, first, second, third
