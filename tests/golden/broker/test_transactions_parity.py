"""Transactions in partitions: Produce, markers, offsets in transactions, and what readers see; in every version."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraft_protocol.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.golden.broker.batches import batch, produce, record
from tests.golden.broker.pair import START_S, Pair, Side, warm_coordinator

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Build = Callable[[Side], Any]
RETRIABLE = (14, 15, 16, 51)
"""Codes of a coordinator that is not ready: loading, not available, not here, completing the last transaction."""


@pytest.fixture(scope="module", autouse=True)
def _coordinators(servers: tuple[Side, Side]) -> None:
    """Create the topics and both coordinators on both."""
    made = Pair(*servers)
    made.create("x", 4)
    made.create("y", 2)
    made.create("z", 1)
    warm_coordinator(made)


def patiently(side: Side, request: Any, version: int) -> Any:
    """The answer, once the coordinator is ready."""
    deadline = time.monotonic() + START_S
    while True:
        answer = side.ask(request, version)
        codes = [answer.error_code] if hasattr(answer, "error_code") else []
        for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
            codes += [row.partition_error_code for row in topic.results_by_partition]
        if not any(code in RETRIABLE for code in codes) or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)


class Producer:
    """A transactional producer of the same name on both servers."""

    def __init__(self, pair: Pair, name: str) -> None:
        self.pair = pair
        self.name = name
        self.sequences: dict[tuple[str, int], int] = {}
        for side in pair.sides:
            patiently(side, FindCoordinatorRequest(key=name, key_type=1), 3)
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            answer = patiently(side, request, 4)
            assert answer.error_code == 0, (side, answer)
            side.memory[name] = answer.producer_id, answer.producer_epoch
            side.plain(answer.producer_id, "producer_id")

    def id(self, side: Side) -> int:
        return int(side.memory[self.name][0])

    def epoch(self, side: Side) -> int:
        return int(side.memory[self.name][1])

    def add(self, topic: str, *partitions: int) -> None:
        """As producers before transaction.version 2 do."""
        for side in self.pair.sides:
            row = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, list(partitions))
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id(side),
                v3_and_below_producer_epoch=self.epoch(side),
                v3_and_below_topics=[row],
            )
            answer = patiently(side, request, 3)
            assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, answer

    def batch(self, sequence: int, *, epoch: int = 0, transactional: bool = True, count: int = 1) -> Build:
        def made(side: Side) -> bytes:
            return batch(
                *[record()] * count,
                producer_id=self.id(side),
                producer_epoch=self.epoch(side) + epoch,
                base_sequence=sequence,
                transactional=transactional,
            )

        return made

    def produce(self, topic: str, *data: tuple[int, Build], name: str | None = None) -> Build:
        def made(side: Side) -> Any:
            rows = [(index, one(side)) for index, one in data]
            return produce(topic, *rows, transactional_id=name or self.name)(side)

        return made

    def end(self, *, commit: bool, version: int = 4) -> None:
        for side in self.pair.sides:
            request = EndTxnRequest(self.name, self.id(side), self.epoch(side), commit)
            answer = patiently(side, request, version)
            assert answer.error_code == 0, (side, answer)
            if version >= 5:
                side.memory[self.name] = answer.producer_id, answer.producer_epoch

    def markers(self, where: dict[str, list[int]], **fields: Any) -> Build:
        def made(side: Side) -> WriteTxnMarkersRequest:
            topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name, rows) for name, rows in where.items()]
            marker = WriteTxnMarkersRequest.WritableTxnMarker(
                self.id(side),
                self.epoch(side) + fields.get("epoch", 0),
                fields.get("commit", False),
                topics,
                fields.get("coordinator", 0),
                fields.get("transaction_version", 0),
            )
            return WriteTxnMarkersRequest([marker])

        return made


def described(topic: str, *indexes: int) -> DescribeProducersRequest:
    return DescribeProducersRequest([DescribeProducersRequest.TopicRequest(topic, list(indexes))])


def stable(topic: str, *indexes: int) -> ListOffsetsRequest:
    rows = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsRequest.ListOffsetsTopic(topic, rows)]
    )


def settle(pair: Pair, topic: str, *indexes: int) -> None:
    """Wait until the markers of all transactions are written."""
    for side in pair.sides:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            ends = []
            for isolation in (0, 1):
                request = stable(topic, *indexes)
                request.isolation_level = isolation
                rows = side.ask(request, 7).topics[0].partitions
                ends.append([row.offset for row in rows])
            if ends[0] == ends[1]:
                break
            time.sleep(0.02)


def fetched(topic: str, index: int, offset: int = 0, *, isolation: int = 1) -> Build:
    def made(side: Side) -> FetchRequest:
        row = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        return FetchRequest(
            max_wait_ms=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchRequest.FetchTopic(topic=topic, topic_id=side.ids[topic], partitions=[row])],
        )

    return made


def without_records(answer: Any) -> Any:
    """The bytes hold ids of producers and times of markers: only their length is compared."""
    for topic in answer["responses"]:
        for row in topic["partitions"]:
            row["records"] = len(row["records"] or "")
    return answer


def test_transactions_of_producers_that_add_partitions_get_the_same_answers(pair: Pair) -> None:
    one = Producer(pair, "adds")
    one.add("x", 0, 1)
    for version, sequence in ((3, 0), (9, 1), (10, 2), (11, 3)):
        pair.same(one.produce("x", (0, one.batch(sequence)), (1, one.batch(sequence))), version)
    pair.same(described("x", 0, 1))
    pair.same(stable("x", 0, 1), (2, 7))
    pair.same(fetched("x", 0), (4, 12, 17), mask=without_records)
    pair.same(one.produce("x", (0, one.batch(2))), 11, label="a repeated batch")
    pair.same(one.produce("x", (0, one.batch(9))), 11, label="a gap")
    pair.same(one.produce("x", (0, one.batch(4, transactional=False))), 11, label="a plain batch inside")
    pair.same(one.produce("x", (0, one.batch(0, epoch=-1))), 11, label="an epoch of before")
    one.end(commit=False)
    settle(pair, "x", 0, 1)
    pair.same(stable("x", 0, 1), (2, 7))
    pair.same(fetched("x", 0), (4, 12, 17), mask=without_records)
    pair.same(fetched("x", 0, 2), (4, 12), mask=without_records)
    pair.same(fetched("x", 0, isolation=0), (4, 12), mask=without_records)
    pair.same(described("x", 0, 1))
    one.add("x", 0)
    pair.same(one.produce("x", (0, one.batch(4))), 11)
    one.end(commit=True)
    settle(pair, "x", 0)
    pair.same(stable("x", 0), 7)
    pair.same(fetched("x", 0), 12, mask=without_records)
    pair.same(described("x", 0))


def test_refused_batches_get_the_same_errors(pair: Pair) -> None:
    one = Producer(pair, "refused")
    versions = (3, 9, 10, 11)
    pair.same(one.produce("x", (2, one.batch(0))), versions, label="before the transaction")
    one.add("x", 2)
    pair.same(one.produce("x", (3, one.batch(0))), versions, label="a partition that was not added")
    pair.same(one.produce("x", (2, one.batch(0)), (3, one.batch(0))), versions, label="one of two was added")
    pair.same(one.produce("x", (2, one.batch(1)), (9, one.batch(0))), (3, 11), label="an unknown partition")
    pair.same(one.produce("x", (2, one.batch(0, epoch=1))), versions, label="a newer epoch")
    pair.same(one.produce("x", (3, one.batch(0)), name="nobody"), versions, label="an unknown id")
    pair.same(one.produce("x", (3, one.batch(0)), name=""), versions, label="an empty id")
    other = Producer(pair, "refused too")
    pair.same(one.produce("x", (3, other.batch(0))), (3, 11), label="another's producer id")
    pair.same(one.produce("x", (2, one.batch(1)), (3, other.batch(0))), (3, 11), label="two producers")
    one.end(commit=True)


@pytest.mark.parametrize("version", [11, 12])
def test_open_transaction_after_a_newer_epoch_was_refused(pair: Pair, version: int) -> None:
    """Batches of a newer epoch that the coordinator refuses leave a guard, until a batch is appended or a marker."""
    one = Producer(pair, f"overtaken {version}")
    one.add("z", 0)
    pair.same(one.produce("z", (0, one.batch(0))), version)
    pair.same(one.produce("z", (0, one.batch(1))), version)
    pair.same(one.produce("z", (0, one.batch(9, epoch=1))), version, label="a newer epoch with a higher number")
    pair.same(one.produce("z", (0, one.batch(2))), version, label="goes on")
    pair.same(one.produce("z", (0, one.batch(0, epoch=1))), version, label="a newer epoch with a lower number")
    pair.same(one.produce("z", (0, one.batch(3))), version, label="the next batch behind it")
    pair.same(one.produce("z", (0, one.batch(2))), version, label="a repeated batch behind it")
    pair.same(described("z", 0))
    one.end(commit=False)
    settle(pair, "z", 0)
    one.add("z", 0)
    pair.same(one.produce("z", (0, one.batch(3))), version, label="after the marker")
    one.end(commit=True)
    settle(pair, "z", 0)
    pair.same(described("z", 0), settles=True)


def test_transactions_of_producers_with_version_2_get_the_same_answers(pair: Pair) -> None:
    one = Producer(pair, "bumps")
    pair.same(one.produce("y", (0, one.batch(3))), 12, label="does not begin with 0")
    pair.same(one.produce("y", (0, one.batch(0)), (1, one.batch(0))), 12)
    pair.same(one.produce("y", (0, one.batch(1)), (1, one.batch(1))), 13)
    pair.same(described("y", 0, 1))
    one.end(commit=True, version=5)
    pair.same(described("y", 0, 1), settles=True)
    pair.same(one.produce("y", (0, one.batch(2, epoch=-1))), 12, label="the epoch of before")
    for side in pair.sides:  # at once: the last transaction may still be completing
        answer = side.ask(one.produce("y", (0, one.batch(0)))(side), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0, (side, answer)
    one.end(commit=False, version=5)
    settle(pair, "y", 0, 1)
    pair.same(stable("y", 0, 1), 7)
    pair.same(fetched("y", 0), 12, mask=without_records)
    pair.same(described("y", 0, 1), settles=True)


def test_markers_get_the_same_answers(pair: Pair) -> None:
    one = Producer(pair, "marked")
    two = Producer(pair, "marked too")
    for version in (1, 2):
        pair.same(one.markers({"x": [3]}), version, label="nothing is open")
        pair.same(one.markers({"x": [0, 3, 99, -1], "nope": [0], "y": []}, commit=True), version)
    pair.same(WriteTxnMarkersRequest([]), (1, 2))
    pair.same(described("x", 3))
    one.add("x", 3)
    pair.same(one.produce("x", (3, one.batch(0))), 11)
    pair.same(one.markers({"x": [3]}, epoch=-1), (1, 2), label="no epoch")
    pair.same(one.markers({"x": [3]}, transaction_version=2), 2, label="the same epoch")
    pair.same(one.markers({"x": [3]}, epoch=1, coordinator=7, transaction_version=2), 2)
    pair.same(one.markers({"x": [3]}, epoch=1, coordinator=7, transaction_version=2), 2, label="again")
    pair.same(one.markers({"x": [3]}, epoch=1, coordinator=6), (1, 2), label="an older coordinator")
    pair.same(one.markers({"x": [3]}, coordinator=7), (1, 2), label="an older epoch")
    pair.same(stable("x", 3), 7)
    pair.same(fetched("x", 3), 12, mask=without_records)
    pair.same(described("x", 3))
    pair.same(one.produce("x", (3, one.batch(1))), 11, label="behind the marker")
    pair.same(two.markers({"__consumer_offsets": [0, 99]}), (1, 2))


def txn_commit(producer: Producer, topics: dict[str, list[tuple[int, int]]], group: str, **fields: Any) -> Build:
    def made(side: Side) -> TxnOffsetCommitRequest:
        epoch = producer.epoch(side) + fields.get("epoch", 0)
        row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        return TxnOffsetCommitRequest(
            transactional_id=fields.get("name", producer.name),
            group_id=group,
            producer_id=producer.id(side),
            producer_epoch=epoch,
            generation_id=fields.get("generation", -1),
            member_id=fields.get("member", ""),
            group_instance_id=fields.get("instance"),
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name,
                    [row(index, offset, committed_metadata=fields.get("metadata", "m")) for index, offset in rows],
                )
                for name, rows in topics.items()
            ],
        )

    return made


def offsets_of(group: str, *indexes: int, is_stable: bool) -> OffsetFetchRequest:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="x", partition_indexes=list(indexes))]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=is_stable
    )


def add_offsets(pair: Pair, producer: Producer, group: str) -> None:
    for side in pair.sides:
        request = AddOffsetsToTxnRequest(producer.name, producer.id(side), producer.epoch(side), group)
        assert patiently(side, request, 3).error_code == 0


def test_offsets_in_transactions_get_the_same_answers(pair: Pair) -> None:
    one = Producer(pair, "offsets")
    some = {"x": [(0, 5), (1, 6)]}
    pair.same(txn_commit(one, some, "txn-g"), range(5), label="before the transaction")
    add_offsets(pair, one, "txn-g")
    pair.same(txn_commit(one, some, "txn-g"), range(5))
    pair.same(txn_commit(one, {"x": [(0, 5), (99, 1)], "nope": [(0, 1), (1, 1)]}, "txn-g"), range(5))
    pair.same(txn_commit(one, {"nope": [(0, 1)]}, "txn-g"), range(5))
    pair.same(txn_commit(one, {}, "txn-g"), range(5))
    pair.same(txn_commit(one, some, ""), range(5), label="no group")
    pair.same(txn_commit(one, some, "txn-g", metadata="x" * 5000), range(5), label="too much metadata")
    pair.same(txn_commit(one, some, "txn-g", metadata=None), range(5))
    pair.same(txn_commit(one, some, "txn-g", epoch=1), range(5), label="a newer epoch")
    pair.same(txn_commit(one, some, "txn-g", epoch=-1), range(5), label="an older epoch")
    pair.same(txn_commit(one, some, "txn-g", generation=3, member="m"), (3, 4), label="an unknown generation")
    pair.same(txn_commit(one, some, "txn-g", member="m"), (3, 4), label="an unknown member")
    pair.same(txn_commit(one, some, "txn-g", instance="i"), (3, 4), label="an unknown instance")
    pair.same(offsets_of("txn-g", 0, 1, 2, is_stable=True), (8, 9))
    pair.same(offsets_of("txn-g", 0, 1, 2, is_stable=False), (8, 9))
    plain = OffsetCommitRequest.OffsetCommitRequestPartition(1, 9, committed_metadata="plain")
    pair.same(
        OffsetCommitRequest("txn-g", topics=[OffsetCommitRequest.OffsetCommitRequestTopic("x", partitions=[plain])]), 8
    )
    one.end(commit=True)
    pair.same(offsets_of("txn-g", 0, 1, 2, is_stable=True), (8, 9), settles=True)
    add_offsets(pair, one, "txn-g")
    pair.same(txn_commit(one, {"x": [(0, 77)]}, "txn-g"), 4)
    one.end(commit=False)
    pair.same(offsets_of("txn-g", 0, 1, 2, is_stable=True), (8, 9), settles=True)
    pair.same(txn_commit(one, some, "txn-h", generation=1, member="m"), (3, 4), label="an unknown group")
    pair.same(txn_commit(one, some, "txn-g", name="nobody"), range(5), label="an unknown id")


def test_offsets_in_transactions_of_version_2_get_the_same_answers(pair: Pair) -> None:
    one = Producer(pair, "offsets 2")
    pair.same(txn_commit(one, {"x": [(0, 5)]}, "txn-2"), 5)
    pair.same(offsets_of("txn-2", 0, 1, is_stable=True), 9)
    one.end(commit=True, version=5)
    pair.same(offsets_of("txn-2", 0, 1, is_stable=True), 9, settles=True)
    pair.same(txn_commit(one, {"x": [(0, 6)]}, "txn-2", epoch=-1), 5, label="the epoch of before")
