"""Expensive requests: answered as Apache Kafka answers them, up to the bounds in docs/differences.md."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.config.resources import TOPIC_RESOURCE
from kraft_node.broker.pieces import ROWS
from kraft_node.log.validate import DECOMPRESSED_PER_MESSAGE_BYTE, INLINE_RECORDS
from kraft_protocol.records.compression import Compression
from kraft_protocol.records.shapes import HEADERS_MAX
from kraft_protocol.wire.messages import DescribeConfigsRequest, MetadataRequest
from tests.golden.broker.batches import WHEN, altered, batch, produce, record, stored
from tests.golden.broker.conftest import SETTINGS
from tests.golden.broker.pair import Pair, Side

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Resource = DescribeConfigsRequest.DescribeConfigsResource
MANY = INLINE_RECORDS + 500
PLAIN_MAX = int(SETTINGS["message.max.bytes"]) * DECOMPRESSED_PER_MESSAGE_BYTE


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("costs", cleanup_policy="compact")
    made.create("costs.plain")
    made.create("costs.unlike", cleanup_policy="compact")


def code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_batches_of_many_records_get_the_same_answers(pair: Pair, codec: Compression) -> None:
    records = [record(b"") for _ in range(MANY)]
    good = batch(*records, compression=codec)
    pair.same(produce("costs", (0, good)), 9)
    pair.same(produce("costs", (0, altered(good, max_timestamp=WHEN - 1))), 9, label="a wrong largest timestamp")
    pair.same(produce("costs.plain", (0, altered(good, max_timestamp=WHEN - 1))), 9, label="on a plain topic")
    records[MANY - 3] = records[7] = record(b"", None)
    pair.same(produce("costs", (0, batch(*records, compression=codec))), 9, label="records without a key")
    for topic in ("costs", "costs.plain"):
        pair.check(f"{codec.name}: {topic}", lambda side, topic=topic: stored(side, topic).hex())  # type: ignore[misc]


def test_compression_bombs_get_the_same_answers(pair: Pair) -> None:
    for codec in (Compression.GZIP, Compression.ZSTD):
        below = batch(record(bytes(PLAIN_MAX - 1000)), compression=codec)
        assert len(below) < int(SETTINGS["message.max.bytes"])
        pair.same(produce("costs", (0, below)), 9, label=f"{codec.name}: just below")
        bomb = batch(record(bytes(PLAIN_MAX + 1)), compression=codec)
        pair.differs(
            "bombs", produce("costs.unlike", (0, bomb)), 9, kafka=lambda a: not code(a), ours=lambda a: code(a) == 10
        )


def test_records_of_many_headers_get_the_same_answers(pair: Pair) -> None:
    pair.same(produce("costs", (0, batch(record(headers=[("h", b"")] * HEADERS_MAX)))), 9)
    more = batch(record(headers=[("h", b"")] * (HEADERS_MAX + 1)))
    pair.differs(
        "many-headers", produce("costs.unlike", (0, more)), 9, kafka=lambda a: not code(a), ours=lambda a: code(a) == 87
    )


def test_metadata_of_many_names_gets_the_same_answers(pair: Pair) -> None:
    names = ["costs", *(f"costs.missing.{i}" for i in range(3000)), "costs.plain"]
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    pair.same(MetadataRequest(topics=topics, allow_auto_topic_creation=False), (4, 9))


def test_configurations_of_many_resources_get_the_same_answers(pair: Pair) -> None:
    some = [Resource(TOPIC_RESOURCE, "costs", [key]) for key in ("cleanup.policy", "retention.ms", "segment.ms")]
    pair.same(
        DescribeConfigsRequest(resources=[*some, *(Resource(TOPIC_RESOURCE, f"no.{i}", None) for i in range(50))]), 4
    )
    pair.same(DescribeConfigsRequest(resources=[some[0]] * ROWS), 4)
    pair.differs(
        "resource-twice",
        DescribeConfigsRequest(resources=[some[0]] * (ROWS + 1)),
        4,
        kafka=lambda a: len(a.results) == ROWS + 1,
        ours=lambda a: len(a.results) == 1,
    )
    many = DescribeConfigsRequest(resources=[Resource(TOPIC_RESOURCE, f"no.{i}", []) for i in range(20_001)])
    pair.differs(
        "very-many-resources",
        many,
        4,
        kafka=lambda a: {r.error_code for r in a.results} == {3},
        ours=lambda a: {r.error_code for r in a.results} == {42},
    )
