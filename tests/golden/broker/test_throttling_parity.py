"""Clients over their quotas: both servers give the same answers, throttle for the same time, and stop reading.

The quota is a byte a second, and a hundred thousand bytes are requested at once. The throttle time is hours, so a
second more on a loaded machine does not matter.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from kraft_protocol.wire.messages import (
    AlterClientQuotasRequest,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
)
from tests.golden.broker.batches import batch, produce, record
from tests.golden.broker.pair import SILENT, Pair, Side, frame

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Topic = CreateTopicsRequest.CreatableTopic
MANY = batch(record(b"x" * 100_000))
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("q")


def read(side: Side) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="q", topic_id=side.ids["q"], partitions=[wanted])
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])


ANY_CLIENT = ("client-id", None)
USER = ("user", "ANONYMOUS")
MUTATIONS = "controller_mutation_rate"


def limit(key: str, rate: float | None, *entity: tuple[str, str | None]) -> AlterClientQuotasRequest:
    """Set or remove a quota of an entity."""
    parts = [AlterClientQuotasRequest.EntityData(kind, name) for kind, name in entity]
    op = AlterClientQuotasRequest.OpData(key, rate or 0.0, rate is None)
    return AlterClientQuotasRequest([AlterClientQuotasRequest.EntryData(parts, [op])])


def limited(pair: Pair, key: str, rate: float | None, *entity: tuple[str, str | None]) -> None:
    """Wait until both enforce the quota; connections are new, because servers do not read from throttled ones."""
    for side in pair.sides:
        side.close()
    pair.same(limit(key, rate, *entity), 1)
    time.sleep(2)  # until Kafka's publisher has informed its quota manager; nothing shows when


def mutations(name: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest([Topic(name=name, num_partitions=partitions, replication_factor=1)], 30_000)


def until_gone(side: Side, name: str) -> None:
    """Delete a topic as soon as the quota permits it."""
    deadline = time.monotonic() + 60
    while side.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5).responses[0].error_code == 89:
        assert time.monotonic() < deadline, side
        side.close()
        time.sleep(0.2)


def without_ids(answer: Any) -> Any:
    for topic in answer.get("topics", ()):
        topic["topic_id"] = None
    return answer


def throttled_alike(pair: Pair, asked: Any, version: int, client_id: str = "parity") -> tuple[int, int]:
    """Check that both answer the same, with throttle times that differ by less than a minute.

    At 0.01 mutations a second, a second of delay is worth up to a minute. All other throttle times here are hours. Then
    neither server reads on: the next request over that connection stays unanswered.
    """
    times = [answer.throttle_time_ms for answer in pair.same(asked, version, mask=without_ids, client_id=client_id)]
    assert abs(times[0] - times[1]) <= 60_000, times
    for side in pair.sides:
        if times[0] > 60_000:
            side.send(frame(ApiVersionsRequest(), 0))
            assert side.exchange(b"", 0.5) == SILENT, side
        side.close()
    return times[0], times[1]


def test_controller_mutations_are_throttled_alike(pair: Pair) -> None:
    """A client that has used up its rate (KIP-599): strict and older versions, all three requests."""
    try:
        limited(pair, MUTATIONS, 0.01, ANY_CLIENT)
        throttled_alike(pair, mutations("m.1", 50), 7)  # the bucket was full: 0.11 partitions
        throttled_alike(pair, mutations("m.2", 5), 7)
        throttled_alike(pair, mutations("m.2", 5), 6)
        throttled_alike(pair, mutations("m.3", 5), 5)
        two = CreateTopicsRequest([*mutations("m.4", 1).topics, *mutations("m.1", 1).topics], 30_000)
        throttled_alike(pair, two, 7)
        throttled_alike(pair, CreateTopicsRequest(two.topics, 30_000, validate_only=True), 7)
        more = CreatePartitionsRequest([CreatePartitionsRequest.CreatePartitionsTopic("m.1", 60, None)], 30_000)
        throttled_alike(pair, more, 3)
        throttled_alike(pair, more, 2)
        gone = DeleteTopicsRequest(topic_names=["m.1", "m.9"], timeout_ms=30_000)
        throttled_alike(pair, gone, 5)
        throttled_alike(pair, gone, 4)
        throttled_alike(pair, mutations("m.5", 1), 7, client_id="others")  # with its own bucket
        throttled_alike(pair, mutations("m.6", 1), 7, client_id="others")
        # it precedes any client's quota, and counts all clients of the user together
        limited(pair, MUTATIONS, 0.02, USER)
        throttled_alike(pair, mutations("m.7", 1), 7, client_id="others")
        throttled_alike(pair, mutations("m.8", 1), 7, client_id="yet others")
        limited(pair, MUTATIONS, 1000.0, USER, ("client-id", "others"))
        throttled_alike(pair, mutations("m.8", 1), 7, client_id="others")
    finally:
        for side in pair.sides:
            side.close()
        for entity in ((ANY_CLIENT,), (USER,), (USER, ("client-id", "others"))):
            pair.same(limit(MUTATIONS, None, *entity), 1)
        for side in pair.sides:  # the later tests compare the remaining topics
            for number in range(1, 10):
                until_gone(side, f"m.{number}")


def test_written_bytes_are_throttled_alike(pair: Pair) -> None:
    """Each client's bucket counts, and then the user's, whose limit has precedence (KIP-13)."""
    write, key = produce("q", (0, MANY)), "producer_byte_rate"
    try:
        limited(pair, key, 1.0, ANY_CLIENT)
        first = throttled_alike(pair, write, 9, client_id="writer")
        assert first[0] == first[1] > 24 * HOUR_MS
        assert throttled_alike(pair, write, 13, client_id="writer")[0] > 1.9 * first[0]
        assert throttled_alike(pair, write, 9, client_id="others") == first  # a name of the same length
        throttled_alike(pair, write, 3, client_id="others")
        limited(pair, key, 2.0, USER)
        assert throttled_alike(pair, write, 9, client_id="writer")[0] < first[0]
        throttled_alike(pair, write, 9, client_id="others")
        limited(pair, key, 1e9, USER, ("client-id", "writer"))
        assert throttled_alike(pair, write, 9, client_id="writer") == (0, 0)
    finally:
        for entity in ((ANY_CLIENT,), (USER,), (USER, ("client-id", "writer"))):
            limited(pair, key, None, *entity)


def test_read_bytes_are_throttled_alike(pair: Pair) -> None:
    """A client over its rate gets no records, only the throttle time (KIP-219)."""
    key = "consumer_byte_rate"
    pair.same(produce("q", (0, MANY)), 9)
    try:
        limited(pair, key, 1.0, ANY_CLIENT)
        first = throttled_alike(pair, read, 12, client_id="reader")
        assert first[0] == first[1] > 24 * HOUR_MS
        throttled_alike(pair, read, 17, client_id="reader")
        throttled_alike(pair, read, 4, client_id="reader")
        throttled_alike(pair, read, 11, client_id="others")
    finally:
        limited(pair, key, None, ANY_CLIENT)
