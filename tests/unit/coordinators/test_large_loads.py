"""Loads of very many offsets: tombstones, transactions, compaction and elections in the midst of them.

Every day with 20,000 commits, with 1,000,000 by `pytest -m slow` (two minutes).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import pytest

from kraft_node.base.env import Env
from kraft_node.base.turns import Turns
from kraft_node.broker.coordinators.group.config import GroupConfig
from kraft_node.broker.coordinators.group.coordinator import GroupCoordinator
from kraft_node.broker.coordinators.group.offsets import CommittedOffset
from kraft_node.broker.coordinators.group.records import OffsetChange, encode_change
from kraft_node.broker.coordinators.runtime.loader import RECORDS_A_TURN
from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeShard
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch, iter_headers, iter_records
from kraft_protocol.records.control import build_marker
from tests.unit.coordinators.harness import OFFSETS, Agreement, Clients, Lane, Node, Topics
from tests.unit.coordinators.runtime.ledger import BrokerLog, Replicas
from tests.unit.coordinators.surroundings import Numbers, Time

GROUPS = 50
BATCH = 500
TOMBSTONE_SHARE, TRANSACTION_SHARE = 0.1, 0.05
Place = tuple[str, str, int]


class IndexedLog(BrokerLog):
    """A log that finds an offset at once."""

    _indexed: list[bytes] | None = None
    _bases: list[int]

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        if self._indexed is not self.batches or len(self._bases) != len(self.batches):
            self._indexed = self.batches
            self._bases = [next(iter(iter_headers(batch))).base_offset for batch in self.batches]
        self._check()
        place = max(bisect_right(self._bases, offset) - 1, 0)
        out = b""
        for batch in self.batches[place:]:
            if next(iter(iter_headers(batch))).next_offset <= offset:
                continue
            if out and len(out) + len(batch) > max_bytes:
                break
            out += batch
        return out


class Coordinator(Clients):
    """A group coordinator on one broker's log."""

    def __init__(self, log: BrokerLog, topics: Topics) -> None:
        self.time = log.replicas.time
        self.topics = topics
        self.log = log
        self.coordinator = GroupCoordinator(
            clock=self.time,
            scheduler=self.time,
            rng=Numbers(),
            store=log,
            cluster=topics,
            config=GroupConfig(append_linger_ms=0),
            turns=Turns(Env(self.time, self.time, *[None] * 4)),  # type: ignore[arg-type]
            background=Lane(),
            transactions=Agreement(),
        )

    @property
    def shard(self) -> RuntimeShard[Any]:
        return self.coordinator.runtime.shards[0]

    def send(self, request: Any, version: int, client_id: str = "c") -> Any:
        return Node.send(self, request, version, client_id)  # type: ignore[arg-type]

    def elect(self) -> None:
        self.coordinator.on_leader(0, self.log.replicas.elect(self.log.broker))

    def load(self, until: int | None = None) -> int:
        """Let the load go on, to its end or for some turns. Returns the number of turns."""
        turns = 0
        while self.shard.phase is Phase.LOADING and turns != until:
            _, _, handle = self.time._queue.pop(0)
            if not handle.cancelled:
                handle.function(*handle.args)
                turns += 1
        return turns

    @property
    def offsets(self) -> dict[Place, int]:
        """The committed offsets in memory."""
        groups = self.shard.machine.offsets.groups
        return {
            (group, topic, partition): value.offset
            for group, topics in groups.items()
            for topic, rows in topics.items()
            for partition, value in rows.items()
        }


def result(commit: Any) -> ErrorCode:
    """The answer to a commit of one offset."""
    return ErrorCode(commit.response.topics[0].partitions[0].error_code)


class History:
    """Random commits, and what they leave."""

    def __init__(self, count: int) -> None:
        self._rng = random.Random(count)
        self._width = max(count // GROUPS // 4, 1)
        self.offsets: dict[Place, int] = {}
        self._end = 0

    def batches(self, count: int) -> Iterator[bytes]:
        """Batches with `count` commits; some of them remove an offset, some batches belong to transactions."""
        rng = self._rng
        for number in range(0, count, BATCH):
            is_transactional = rng.random() < TRANSACTION_SHARE
            records, changes = [], {}
            for offset in range(number, min(number + BATCH, count)):
                place = f"g{rng.randrange(GROUPS)}", "t", rng.randrange(self._width)
                removes = not is_transactional and rng.random() < TOMBSTONE_SHARE
                value = None if removes else CommittedOffset(offset, -1, "", 0)
                records.append(encode_change(OffsetChange(*place, value)))
                changes[place] = None if removes else offset
            if not is_transactional:
                yield self._batch(records)
                self._apply(changes)
                continue
            producer_id, commit = 1000 + number, rng.random() < 0.5
            yield self._batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
            yield self._marker(producer_id, commit=commit)
            if commit:
                self._apply(changes)

    def _batch(self, records: list[Any], **how: Any) -> bytes:
        base, self._end = self._end, self._end + len(records)
        return build_batch(records, base_offset=base, **how)

    def _marker(self, producer_id: int, *, commit: bool) -> bytes:
        base, self._end = self._end, self._end + 1
        return build_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=base,
            leader_epoch=0,
        )

    def _apply(self, changes: dict[Place, int | None]) -> None:
        for place, offset in changes.items():
            if offset is None:
                self.offsets.pop(place, None)
            else:
                self.offsets[place] = offset


def compact(replicas: Replicas, below: int) -> int:
    """Keep the latest record of each key below an offset, on every broker; transactions and markers stay.

    Returns the number of records that were removed.
    """
    batches = replicas.logs[1].batches
    decoded = [(next(iter(iter_headers(batch))), batch) for batch in batches]
    latest: dict[bytes, int] = {}
    for header, batch in decoded:
        if header.producer_id < 0 and header.next_offset <= below:
            latest.update((bytes(record.key or b""), record.offset) for record in iter_records(batch))
    kept, removed = [], 0
    for header, batch in decoded:
        if header.producer_id >= 0 or header.next_offset > below:
            kept.append(batch)
            continue
        before = list(iter_records(batch))
        records = [record for record in before if latest[bytes(record.key or b"")] == record.offset]
        removed += len(before) - len(records)
        if records:
            kept.append(build_batch(records, base_offset=header.base_offset, last_offset=header.last_offset))
    for log in replicas.logs.values():
        log.batches = kept
    return removed


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_elections_and_compaction_during_large_loads(count: int) -> None:
    replicas, topics = Replicas([1, 2, 3], Time()), Topics(t=1)
    replicas.max_bytes = 1_000_000
    replicas.logs = {number: IndexedLog(replicas, number) for number in (1, 2, 3)}
    history = History(count)
    batches = list(history.batches(count))
    end = next(iter(iter_headers(batches[-1]))).next_offset
    for log in replicas.logs.values():
        log.batches, log.end, log.high_watermark_ = batches, end, end
    first, second, third = (Coordinator(log, topics) for log in replicas.logs.values())
    turns = count // RECORDS_A_TURN

    # The second broker leads and loads; compaction removes what it has read, and what it has not.
    second.elect()
    assert second.load(turns // 3) == turns // 3
    assert compact(replicas, end * 3 // 4) > count // 8
    second.load(turns // 10)
    assert second.shard.phase is Phase.LOADING

    # In the midst of that the third broker leads. The second one does not notice, and ends its load.
    replicas.cut_off = {2}
    third.elect()
    assert third.load(turns // 10) == turns // 10
    second.load()
    assert compact(replicas, end) > 0
    third.load()
    assert second.shard.phase is third.shard.phase is Phase.ACTIVE
    assert third.offsets == history.offsets
    assert second.offsets == history.offsets

    # Two coordinators of one partition: only one can have a commit acknowledged.
    lost, kept = (node.commit({("t", 0): value}, group="g0") for node, value in ((second, 7), (third, 8)))
    replicas.replicate()
    assert result(kept) is ErrorCode.NONE
    assert not lost.answered
    second.time.advance(5_000)
    assert result(lost) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "no replica has it"
    history.offsets["g0", "t", 0] = 8

    # The second broker is back as a follower; then the first one loads, and has what the third one has.
    replicas.cut_off = set()
    replicas.replicate()
    second.coordinator.on_resign(0)
    third.coordinator.on_resign(0)
    first.elect()
    loaded = first.load()
    assert first.offsets == history.offsets
    assert loaded < turns, "compaction has removed records"
    assert topics.created == []
    assert OFFSETS in topics.counts
