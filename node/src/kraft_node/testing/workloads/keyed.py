"""Clients of a compacted topic: a read from its start finds the last value of each key.

The topic has `flush.messages=1`, so a power loss takes no acknowledged record. Law `latest`: for each key, a read
finds the last acknowledged write or a later write. A key may be missing only if `delete.retention.ms` of a later
tombstone is over.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.workloads.acks_law import AcksLaw
from kraft_node.testing.workloads.fetching import FETCH_VERSION, LEADER_GONE, NO_SESSION
from kraft_node.testing.workloads.producer import RETRIABLE
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch, check_batch, iter_headers, iter_records, whole_batches
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

TOPIC: Final = "keyed"
KEYS: Final = 8
TOMBSTONE_SHARE: Final = 0.3
READ_SHARE: Final = 0.15
PRODUCE_VERSION: Final = 9
BYTES: Final = 4096
UNKNOWN: Final = -1


def topic_configs(rng: random.Random) -> dict[str, str]:
    """Small segments that are compacted continuously."""
    return {
        "cleanup.policy": "compact",
        "flush.messages": "1",
        "internal.segment.bytes": str(rng.choice((400, 1000))),
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": str(rng.choice((0, 1500, 60_000))),
    }


@dataclass
class Write:
    """One record that was sent; its offset is UNKNOWN until it is acknowledged."""

    value: bytes | None
    sent_ms: float
    offset: int = UNKNOWN


class Keyed:
    """One client that writes and reads, never both at once."""

    def __init__(
        self, cluster: SimCluster, checker: Checker, name: str, seed: str, retention_ms: int, topic: str = TOPIC
    ) -> None:
        self.partition = (topic, 0)
        self.session = ClusterSession(cluster, name)
        self.checker = checker
        self.stopping = False
        self.retention_ms = retention_ms
        self._acks_law = AcksLaw(cluster, checker)
        self._rng = random.Random(seed)
        self._writes: dict[bytes, list[Write]] = {}
        self._last: dict[bytes, Write] = {}
        """By key: the acknowledged write with the highest offset."""
        self._number = 0

    async def run(self) -> None:
        """Write or read, never both at once, until stopped; each read is judged."""
        while not self.stopping:
            if self._rng.random() < READ_SHARE:
                await self.read()
            else:
                await self._write()
            await self.session.sleep(self._rng.random() * 60)

    async def _write(self) -> None:
        """Write one batch of some keys."""
        rng = self._rng
        keys = [b"%d" % key for key in sorted(rng.sample(range(KEYS), rng.randint(1, 3)))]
        leader = await self.session.leader(*self.partition)
        pairs: list[tuple[bytes, bytes | None]] = []
        for key in keys:
            self._number += 1
            value = None if rng.random() < TOMBSTONE_SHARE else b"%d" % self._number + b"." * rng.choice((0, 60))
            pairs.append((key, value))
        await self._send(leader, pairs)

    async def write_surely(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write one batch, retrying until it is acknowledged."""
        while not await self._send(await self.session.leader(*self.partition), pairs):
            await self.session.sleep(PAUSE_MS)

    async def _send(self, leader: int, pairs: Sequence[tuple[bytes, bytes | None]]) -> bool:
        """Send a batch. Returns whether it was acknowledged; without a response the outcome is unknown."""
        session, world = self.session, self.session.world
        writes = [Write(value, world.now_ms) for _, value in pairs]
        for (key, _), write in zip(pairs, writes, strict=True):
            self._writes.setdefault(key, []).append(write)
        compression = self._rng.choice((0, 0, 1))
        raw = build_batch(pairs, timestamp=START_WALL_MS + int(world.now_ms), compression=compression)
        data = m.ProduceRequest.PartitionProduceData(index=0, records=raw)
        of_topic = m.ProduceRequest.TopicProduceData(name=self.partition[0], partition_data=[data])
        request = m.ProduceRequest(acks=-1, timeout_ms=2000, topic_data=[of_topic])
        process = self._acks_law.process_of(leader)
        answer = await session.request(leader, ApiKey.PRODUCE, PRODUCE_VERSION, request)
        if answer is None:
            session.forget_leader(*self.partition)
            return False
        row = answer.responses[0].partition_responses[0]
        if row.error_code != ErrorCode.NONE:
            session.expect(row.error_code, *sorted(RETRIABLE), what=f"produce to {self.partition[0]}")
            session.forget_leader(*self.partition)
            return False
        self._acks_law.acknowledged(process, self.partition, row.base_offset + len(pairs))
        for number, ((key, _), write) in enumerate(zip(pairs, writes, strict=True)):
            write.offset = row.base_offset + number
            self._last[key] = write
        return True

    async def read(self) -> None:
        """Read the log from its start to its end, and judge the result."""
        await self.found()

    async def found(self) -> Container[bytes]:
        """Like `read`; returns the keys found."""
        acknowledged = dict(self._last)
        found: dict[bytes, tuple[int, bytes | None]] = {}
        position, end = 0, -1
        while end < 0 or position < end:
            data = await self._fetch(position)
            if data is None:
                if self.stopping and end < 0:
                    return ()
                continue
            end = data.high_watermark if end < 0 else end
            before = position
            for header in iter_headers(data.records or b""):
                check_batch(data.records, header.position)
                for record in iter_records(data.records, header):
                    assert record.key is not None, "law: every record of this topic has a key"
                    found[record.key] = record.offset, record.value
                position = header.next_offset
            if position == before and position < end:
                self.checker.broken("latest", self.partition, f"nothing is read at {position}, the log ends at {end}")
                return ()
        self._judge(acknowledged, found)
        return found

    async def _fetch(self, position: int) -> Any:
        session = self.session
        leader = await session.leader(*self.partition)
        row = m.FetchRequest.FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=BYTES)
        request = m.FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=BYTES,
            session_epoch=NO_SESSION,
            topics=[m.FetchRequest.FetchTopic(topic=self.partition[0], partitions=[row])],
        )
        answer = await session.request(leader, ApiKey.FETCH, FETCH_VERSION, request)
        if answer is not None and not answer.error_code:
            data = answer.responses[0].partitions[0]
            if data.error_code != ErrorCode.NONE:
                session.expect(data.error_code, *LEADER_GONE, what=f"fetch of {self.partition[0]}")
            elif self._acks_law.leads(leader, self.partition):
                return _whole(data)  # a follower may answer, too, but its high watermark may be older
        session.forget_leader(*self.partition)
        await session.sleep(PAUSE_MS)
        return None

    def _judge(self, acknowledged: dict[bytes, Write], found: dict[bytes, tuple[int, bytes | None]]) -> None:
        now_ms = self.session.world.now_ms
        for key, writes in self._writes.items():
            last = acknowledged.get(key)
            least = UNKNOWN if last is None else last.offset
            if key not in found:
                tombstones = [write for write in writes if write.value is None and not 0 <= write.offset < least]
                if last is not None and not any(now_ms >= each.sent_ms + self.retention_ms for each in tombstones):
                    self._broken(key, f"is missing; offset {least} was acknowledged with {last.value!r}")
                continue
            offset, value = found[key]
            if offset < least:
                self._broken(key, f"was read last at {offset}; offset {least} was acknowledged")
            elif not any(write.value == value and write.offset in (UNKNOWN, offset) for write in writes):
                self._broken(key, f"has {value!r} at {offset}, which was not written there")

    def _broken(self, key: bytes, text: str) -> None:
        self.checker.broken("latest", self.partition, f"{self.session.name}: key {key!r} {text}")


def _whole(data: Any) -> Any:
    """Drop a batch that is cut off at the end."""
    data.records = bytes(whole_batches(data.records or b""))
    return data
