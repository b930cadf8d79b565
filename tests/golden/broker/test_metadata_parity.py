"""Metadata, DescribeTopicPartitions and DescribeCluster in every version."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire.messages import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from tests.golden.broker.pair import Asked, Pair, Side, uuid

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Row = MetadataRequest.MetadataRequestTopic
Page = DescribeTopicPartitionsRequest


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("meta.one", 1)
    made.create("meta.three", 3)


def metadata(*names: str | None, auto: bool = False, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[Row(name=name) for name in names], allow_auto_topic_creation=auto, **fields)


def by_id(name: str, with_name: str | None = None) -> Asked:
    return lambda side: MetadataRequest(
        topics=[Row(topic_id=side.ids[name], name=with_name)], allow_auto_topic_creation=False
    )


def ours_only(answer: Any) -> Any:
    """The answer without topics of other tests."""
    return {**answer, "topics": [t for t in answer["topics"] if str(t["name"]).startswith("meta")]}


def test_answers_to_metadata_match(pair: Pair) -> None:
    pair.same(MetadataRequest(topics=None, allow_auto_topic_creation=False), mask=ours_only, settles=True)
    pair.same(metadata(), mask=ours_only)
    pair.same(metadata("meta.one", "meta.three"))
    pair.same(metadata("meta.one", "meta.one"))
    pair.same(metadata("meta.nope", "meta.one"))
    pair.same(metadata("", ".", "..", "a/b", "x" * 250, "meta.ok"), ordered=False)
    pair.same(metadata("ü"))
    for fields in ({"include_topic_authorized_operations": True}, {"include_cluster_authorized_operations": True}):
        pair.same(metadata("meta.one", "meta.nope", **fields))
    pair.same(metadata("__consumer_offsets"), 12)


def test_answers_to_metadata_by_id_match(pair: Pair) -> None:
    pair.same(by_id("meta.one"))
    pair.same(by_id("meta.one", "meta.one"))
    pair.same(by_id("meta.one", "meta.three"))
    for topic_id in (uuid(9), ZERO_UUID, Uuid(b"\0" * 15 + b"\1")):
        pair.same(MetadataRequest(topics=[Row(topic_id=topic_id, name=None)], allow_auto_topic_creation=False))
        pair.same(MetadataRequest(topics=[Row(topic_id=topic_id, name="meta.one")], allow_auto_topic_creation=False))
    pair.same(
        lambda side: MetadataRequest(
            topics=[Row(topic_id=side.ids["meta.one"], name=None), Row(topic_id=uuid(3), name=None)],
            allow_auto_topic_creation=False,
        )
    )
    pair.same(
        lambda side: MetadataRequest(
            topics=[Row(topic_id=side.ids["meta.one"], name=None), Row(name="meta.three")],
            allow_auto_topic_creation=False,
        )
    )


def test_metadata_creates_the_same_topics(pair: Pair) -> None:
    for version in (0, 1, 4, 9, 13):
        pair.same(metadata(f"meta.auto.{version}", auto=True), version)
    pair.same(metadata("bad/name", auto=True), (0, 4, 13))
    pair.same(metadata("__cluster_metadata", auto=True), (1, 4, 13))
    pair.same(metadata("meta_one", auto=True), (4, 13))  # collides with meta.one

    def settled(side: Side) -> Any:
        names = [f"meta.auto.{version}" for version in (0, 1, 4, 9, 13)]
        for _ in range(200):
            time.sleep(0.02)
            answer = side.ask(metadata(*names), 12)
            if all(t.error_code == 0 and all(p.error_code == 0 for p in t.partitions) for t in answer.topics):
                break
        for topic in answer.topics:
            side.learn_topic(topic.name, topic.topic_id)
        return side.plain(answer)

    pair.check("created topics", settled)
    pair.same(metadata("meta_one"), 12)


def test_metadata_creates_the_same_topics_of_coordinators(pair: Pair) -> None:
    names = ("__transaction_state", "__share_group_state")
    for name in names:
        pair.same(metadata(name, auto=True), 12)

    def settled(side: Side) -> Any:
        for _ in range(600):
            answer = side.ask(metadata(*names), 12)
            if all(t.error_code == 0 and all(p.error_code == 0 for p in t.partitions) for t in answer.topics):
                break
            time.sleep(0.1)
        for topic in answer.topics:
            side.learn_topic(topic.name, topic.topic_id)
        return side.plain(answer)

    pair.check("topics of coordinators", settled)
    pair.same(DescribeConfigsRequest([DescribeConfigsRequest.DescribeConfigsResource(2, name, None) for name in names]))


def page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Page:
    return Page(
        topics=[Page.TopicRequest(name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Page.Cursor(*cursor),
    )


def test_answers_to_describe_topic_partitions_match(pair: Pair) -> None:
    names = ("meta.three", "meta.one", "meta.nope")
    pair.same(page(*names), ordered=True)
    for limit in (1, 2, 3, 4, 5, 0, -1, -5, 2**31 - 1):
        pair.same(page(*names, limit=limit), ordered=True)
    for cursor in (
        ("meta.one", 0), ("meta.one", 1), ("meta.one", 5), ("meta.three", 0), ("meta.three", 1), ("meta.three", 3),
        ("meta.three", 9), ("meta.three", -1), ("meta.p", 0), ("meta.p", 2), ("a", 0), ("zzz", 0), ("", 0),
        ("meta.nope", 1), ("bad/name", 0),
    ):  # fmt: skip
        pair.same(page(*names, cursor=cursor), ordered=True)
        pair.same(page(*names, cursor=cursor, limit=2), ordered=True)
    pair.same(page("meta.one", "meta.one"), ordered=True)
    pair.differs(
        "empty-topic-name", page("", "meta.one"),
        kafka=lambda a: {t.error_code for t in a.topics} == {-1},
        ours=lambda a: [t.error_code for t in a.topics] == [17, 0],
    )  # fmt: skip
    for wrong in ("a/b",), ("x" * 250,), ("..", "a/b"):
        pair.same(page(*wrong), ordered=True)
    pair.same(page("__consumer_offsets"), ordered=True)
    for side in pair.sides:
        assert side.ask(page(), 0).topics
    for cursor in (("meta.three", 1), ("meta.three", 7), ("meta.t", 1)):
        pair.same(page(limit=2, cursor=cursor), ordered=True)


def test_answers_to_describe_cluster_match(pair: Pair) -> None:
    pair.same(DescribeClusterRequest())
    pair.same(DescribeClusterRequest(include_cluster_authorized_operations=True))
    pair.same(DescribeClusterRequest(include_fenced_brokers=True))
    for endpoint in (0, 1, 2, 3, -1):
        pair.same(DescribeClusterRequest(endpoint_type=endpoint))
