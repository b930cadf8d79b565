"""A log in memory with the subset that partitions need, so that thousands of sessions and waits can be tested."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft_node.base.env import ColdRead
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import read_header


class Epochs:
    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []

    def assign(self, epoch: int, start: int) -> None:
        self.starts.append((epoch, start))

    @property
    def latest_epoch(self) -> int:
        return self.starts[-1][0] if self.starts else -1

    def epoch_at(self, offset: int) -> int:
        return max((epoch for epoch, start in self.starts if start <= offset), default=-1)

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        found = max((e for e, _ in self.starts if e <= epoch), default=-1)
        later = [start for e, start in self.starts if e > found]
        return (found, min(later, default=log_end)) if found >= 0 else (-1, -1)


class MemoryLog:
    """Whole batches in a list."""

    name = "memory-0"
    unsettled = None
    truncations = 0
    dir = SimpleNamespace(budget=SimpleNamespace(left=1))

    def __init__(self, topic_id: bytes, config: Any) -> None:
        self.topic_id = topic_id
        self.config = config
        self.cold_reads = 0
        self.batches: list[tuple[int, int, bytes]] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.held_stable: int | None = None
        self.leader_epochs = Epochs()

    @property
    def settled_end(self) -> int:
        return self.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark if self.held_stable is None else min(self.held_stable, self.high_watermark)

    def append_as_leader(
        self,
        records: Any,
        leader_epoch: int,
        now_ms: int,
        *,
        internal: bool = False,
        checked: int | None = None,
        guard: Any = None,
    ) -> Any:
        data = bytearray(records)
        header = read_header(data)
        base = self.end_offset
        data[0:8] = base.to_bytes(8, "big")
        self.end_offset = base + header.last_offset_delta + 1
        self.batches.append((base, self.end_offset, bytes(data)))
        return SimpleNamespace(
            base_offset=base, last_offset=self.end_offset - 1, log_append_time_ms=-1, log_start_offset=self.start_offset
        )

    def append_as_follower(self, records: Any, leader_epoch: int | None = None, rolls_max: int | None = None) -> int:
        header = read_header(records)
        self.batches.append((self.end_offset, header.next_offset, bytes(records)))
        self.end_offset = header.next_offset
        return header.length

    def read(
        self, offset: int, max_bytes: int, *, min_one: bool = True, limit_offset: int | None = None, waits: bool = True
    ) -> Any:
        if self.cold_reads and not waits:
            self.cold_reads -= 1
            raise ColdRead("/none/t-0/0.log", 0, 100)
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} of {self.start_offset}..{self.end_offset}")
        limit = self.end_offset if limit_offset is None else limit_offset
        out = b""
        for _, end, data in self.batches:
            if end > offset and end <= limit and (len(out) + len(data) <= max_bytes or (min_one and not out)):
                out += data
            elif end > offset:
                break
        return SimpleNamespace(records=out, first_batch_incomplete=False)

    def aborted_within(self, _found: SimpleNamespace, *, waits: bool = True) -> list[tuple[int, int]]:
        return []

    def delete_records(self, before: int, at_once: int | None = None) -> None:
        self.start_offset = before
