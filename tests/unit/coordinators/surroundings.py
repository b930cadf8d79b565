"""The surroundings of a coordinator in a test: time that moves on command, and logs in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from kraft_node.broker.coordinators.runtime.machine import StoredRecord, TransactionalProducer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch, iter_headers
from kraft_protocol.records.control import build_marker
from tests.stopped_time import StoppedTime

Time = StoppedTime


class Numbers:
    """Randomness that counts upwards."""

    def __init__(self) -> None:
        self._next = itertools.count(1)

    def random_bytes(self, count: int) -> bytes:
        return next(self._next).to_bytes(count, "big")

    def randrange(self, stop: int) -> int:
        return next(self._next) % stop


class Logs:
    """Logs in memory. `hold` keeps the high watermark back, `fail` makes appends fail; `fail_append` does so although
    there seemed to be room."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, bytes]]] = {}
        self.ends: dict[int, int] = {}
        self.marks: dict[int, int] = {}
        self.hold = False
        self.max_bytes = 1_000_000
        self.fail: ErrorCode | None = None
        self.fail_append: ErrorCode | None = None
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []

    def room(self, partition: int, leader_epoch: int) -> int:
        if self.fail is not None:
            raise KafkaError(self.fail, "as the test wants it")
        return self.max_bytes

    def append(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[StoredRecord],
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> int:
        if (code := self.fail or self.fail_append) is not None:
            raise KafkaError(code, "as the test wants it")
        base = self.ends.get(partition, 0)
        batch = build_batch(
            records,
            base_offset=base,
            timestamp=now_ms,
            leader_epoch=leader_epoch,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            base_sequence=-1 if producer is None else 0,
            transactional=producer is not None,
        )
        if len(batch) > self.max_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes")
        self.append_raw(partition, batch)
        return base

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
        if self.fail is not None:
            raise KafkaError(self.fail, "as the test wants it")
        base = self.ends.get(partition, 0)
        marker = build_marker(
            commit=commit,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
            base_offset=base,
            leader_epoch=leader_epoch,
        )
        self.append_raw(partition, marker)
        return base

    def append_raw(self, partition: int, batch: bytes) -> None:
        """Append a batch unchanged, with its own base offset."""
        (header,) = iter_headers(batch)
        self.batches.setdefault(partition, []).append((header.base_offset, batch))
        self.ends[partition] = header.next_offset
        if not self.hold:
            self.commit()

    def commit(self) -> None:
        """Raise the high watermark to the end of all logs."""
        self.marks.update(self.ends)
        due = [w for w in self._waiting if self.marks.get(w[0], 0) >= w[1]]
        self._waiting = [w for w in self._waiting if w not in due]
        for _, _, done in due:
            done()

    def start_offset(self, partition: int) -> int:
        return 0

    def end_offset(self, partition: int) -> int:
        return self.ends.get(partition, 0)

    def high_watermark(self, partition: int) -> int:
        return self.marks.get(partition, 0)

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        out = b""
        for base, batch in self.batches.get(partition, []):
            (header,) = iter_headers(batch)
            if header.next_offset <= offset:
                continue
            if out and len(out) + len(batch) > max_bytes:
                break
            assert base <= self.ends[partition]
            out += batch
        return out

    def when_committed(
        self, partition: int, offset: int, done: Callable[[], None], _closed: Callable[[], None]
    ) -> None:
        if self.marks.get(partition, 0) >= offset:
            done()
        else:
            self._waiting.append((partition, offset, done))
