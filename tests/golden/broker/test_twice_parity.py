"""A topic that a request names twice, with other partitions or the same ones: the rows of the answer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire.messages import (
    DeleteRecordsRequest,
    DescribeProducersRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tests.golden.broker.pair import Pair, Side

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

SECOND = pytest.mark.parametrize("second", [1, 0], ids=["another partition", "the same partition"])


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    Pair(*servers).create("t.t", 2)
    row = ListOffsetsRequest.ListOffsetsPartition
    asked = ListOffsetsRequest(
        -1, topics=[ListOffsetsRequest.ListOffsetsTopic("t.t", [row(0, -1, -1), row(1, -1, -1)])]
    )
    for side in servers:
        end = time.monotonic() + 60
        while any(found.error_code for found in side.ask(asked, 7).topics[0].partitions):
            assert time.monotonic() < end
            time.sleep(0.1)


def produce(second: int) -> ProduceRequest:
    topic, row = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    topics = [
        topic("t.t", partition_data=[row(index, build_batch([(None, b"%d" % at)], timestamp=1))])
        for at, index in enumerate((0, second))
    ]
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)


def test_a_repeated_topic_gets_the_same_answer(pair: Pair) -> None:
    asked = produce(1)
    asked.topic_data[0].partition_data = []
    pair.same(asked, 9, label="produce")


def fetch(second: int, **session: Any) -> FetchRequest:
    topic, row = FetchRequest.FetchTopic, FetchRequest.FetchPartition
    topics = [
        topic("t.t", partitions=[row(index, fetch_offset=0, partition_max_bytes=1 << 20)]) for index in (0, second)
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, **session)


@SECOND
def test_repeated_topics_of_produce_and_fetch_get_the_same_answers(pair: Pair, second: int) -> None:
    if second:  # the same partition is the row `partition-twice`
        pair.same(produce(second), 9, label="produce")
    pair.same(fetch(second), (4, 11), label="fetch")
    pair.same(fetch(second, session_id=0, session_epoch=-1), 11, label="fetch without a session")


@SECOND
def test_repeated_topics_of_offsets_get_the_same_answers(pair: Pair, second: int) -> None:
    def asked(topic: Any, rows: tuple[Any, Any]) -> list[Any]:
        return [topic("t.t", [row]) for row in rows]

    one = ListOffsetsRequest.ListOffsetsPartition
    rows = one(0, timestamp=-1), one(second, timestamp=-2)
    made_list = ListOffsetsRequest(replica_id=-1, topics=asked(ListOffsetsRequest.ListOffsetsTopic, rows))
    pair.same(made_list, (1, 7), label="ListOffsets")
    epoch = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    made = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=asked(
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic,
            (epoch(0, current_leader_epoch=-1, leader_epoch=0), epoch(second, current_leader_epoch=-1, leader_epoch=5)),
        ),
    )
    pair.same(made, (2, 4), label="OffsetForLeaderEpoch")
    delete = DeleteRecordsRequest.DeleteRecordsPartition
    made_delete = DeleteRecordsRequest(
        asked(DeleteRecordsRequest.DeleteRecordsTopic, (delete(0, offset=0), delete(second, offset=99))), 5000
    )
    pair.same(made_delete, (0, 2), label="DeleteRecords")
    producers = [DescribeProducersRequest.TopicRequest("t.t", [index]) for index in (0, second)]
    pair.same(DescribeProducersRequest(producers), label="DescribeProducers")


@SECOND
def test_repeated_topics_of_commits_get_the_same_answers(pair: Pair, second: int) -> None:
    commit = OffsetCommitRequest.OffsetCommitRequestPartition
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    topics = [topic("t.t", partitions=[commit(index, 5 + at)]) for at, index in enumerate((0, second))]
    pair.same(OffsetCommitRequest(group_id=f"twice{second}", topics=topics), (2, 8), label="OffsetCommit")
    old = OffsetFetchRequest.OffsetFetchRequestTopic
    rows = [old("t.t", [index]) for index in (0, second)]
    pair.same(OffsetFetchRequest(group_id=f"twice{second}", topics=rows), (1, 7), label="OffsetFetch")


def test_repeated_topics_of_metadata_get_the_same_answers(pair: Pair) -> None:
    topic = MetadataRequest.MetadataRequestTopic
    pair.same(MetadataRequest([topic(name="t.t"), topic(name="t.t")]), (4, 9), label="Metadata")
