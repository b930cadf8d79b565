"""Fetch in every version: reads, waits and refusals; sessions; and the requests about offsets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.records.compression import Compression
from kraft_protocol.wire.messages import (
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tests.golden.broker.batches import WHEN, batch, produce, record
from tests.golden.broker.pair import Pair, Side, uuid

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Build = Callable[[Side], Any]


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("f", 3)
    made.create("f.trimmed")
    made.create("f.emptied")
    made.create("f.times")
    made.create("f.producers")
    for side in made.sides:
        for n in range(6):
            many = [record(b"v%d" % n * 20, at=WHEN + n * 10), record(b"w", at=WHEN + n * 10 - 3)]
            side.ask(produce("f", (0, batch(*many, compression=list(Compression)[n % 5])))(side), 9)
            for topic in ("f.trimmed", "f.emptied"):
                side.ask(produce(topic, (0, batch(*many)))(side), 9)
        side.ask(produce("f", (1, batch(record(b"x" * 5000))))(side), 9)
        for at in (5, 9, 7, 9, 3, 12, 12, 1):
            side.ask(produce("f.times", (0, batch(record(at=WHEN + at))))(side), 9)
        row = DeleteRecordsRequest.DeleteRecordsPartition(0, 4)
        trim = DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic("f.trimmed", [row])], 5000)
        side.ask(trim, 2)


def wanted(index: int = 0, offset: int = 0, size: int = 1 << 20, **fields: Any) -> Any:
    return FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size, **fields)


def fetch(*rows: Any, topic: str = "f", topic_id: Any = None, **fields: Any) -> Build:
    """A fetch of one topic, answered at once by default."""

    def made(side: Side) -> FetchRequest:
        known = side.ids.get(topic, uuid(7)) if topic_id is None else topic_id
        topics = [FetchRequest.FetchTopic(topic=topic, topic_id=known, partitions=list(rows))] if rows else []
        values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "topics": topics} | fields
        return FetchRequest(**values)

    return made


def test_reads_return_the_same_records(pair: Pair) -> None:
    pair.same(fetch(wanted()))
    pair.same(fetch(wanted(0), wanted(1), wanted(2)), ordered=True)
    for offset in (1, 2, 5, 11, 12):
        pair.same(fetch(wanted(0, offset)), (4, 11, 18), label=f"from {offset}")
    for isolation in (0, 1, 2, -1):
        pair.same(fetch(wanted(), isolation_level=isolation))


def test_bounds_of_sizes_return_the_same_records(pair: Pair) -> None:
    for size in (0, 1, 50, 61, 100, 150, 200, 300, -1, -(2**31)):
        pair.same(fetch(wanted(0, size=size)), (4, 12, 18), label=f"partition bytes {size}")
        pair.same(fetch(wanted(0, 3, size=size), wanted(1)), (4, 12, 18), label=f"partition bytes {size}")
    for size in (0, 1, 100, 300, -1, 2**31 - 1):
        pair.same(fetch(wanted(0), wanted(1), max_bytes=size), (4, 12, 18), label=f"max bytes {size}", ordered=True)
        pair.same(fetch(wanted(2), wanted(1), wanted(0), max_bytes=size), (4, 18), label=f"max {size}", ordered=True)


def test_offsets_out_of_range_get_the_same_error(pair: Pair) -> None:
    for offset in (13, 100, -1, -2, 2**63 - 1, -(2**63)):
        pair.same(fetch(wanted(0, offset)), (4, 11, 12, 18), label=f"offset {offset}")
    for offset in (0, 3, 4, 5, 12, 13):
        pair.same(fetch(wanted(0, offset), topic="f.trimmed"), (4, 12, 18), label=f"trimmed, offset {offset}")


def test_unknown_partitions_get_the_same_error(pair: Pair) -> None:
    for index in (3, -1, 2**31 - 1):
        pair.same(fetch(wanted(index)))
        pair.same(fetch(wanted(index), wanted(0)), (4, 12, 13, 18))
    pair.same(fetch(wanted(), topic="nope"))
    pair.same(fetch(wanted(), topic="bad/name"))
    pair.same(fetch(wanted(), topic=""))
    pair.same(fetch(wanted(), topic_id=ZERO_UUID))
    pair.same(fetch(wanted(), topic_id=uuid(9)), (12, 13, 15, 18))
    pair.same(fetch())
    pair.same(fetch(wanted(), wanted()), (4, 12, 18))
    pair.same(fetch(wanted(0, 0), wanted(0, 4)), (4, 12, 18))


def test_leader_epochs_get_the_same_answers(pair: Pair) -> None:
    for epoch in (0, 1, 5, -1, -2):
        pair.same(fetch(wanted(0, current_leader_epoch=epoch)), label=f"current epoch {epoch}")
        pair.same(fetch(wanted(0, 3, current_leader_epoch=epoch)), (9, 12, 16, 18), label=f"current epoch {epoch}")
    for last in (0, 1, -1, -2):
        for offset in (0, 4, 12, 13, 20):
            pair.same(
                fetch(wanted(0, offset, last_fetched_epoch=last)), (12, 13, 18), label=f"fetched {last}, {offset}"
            )


def test_fetches_of_followers_get_the_same_answers(pair: Pair) -> None:
    for replica in (-2, -3):
        pair.same(fetch(wanted(), replica_id=replica), (4, 9, 12, 14), label=f"replica {replica}")
        for epoch in (-1, 5):
            state = FetchRequest.ReplicaState(replica, epoch)
            pair.same(fetch(wanted(), replica_state=state), (15, 16, 17, 18), label=f"replica {replica}")
    pair.same(fetch(wanted(), cluster_id="nonsense"), (12, 18))
    pair.same(fetch(wanted(), rack_id="rack"), (11, 18))


def test_fetches_wait_under_the_same_conditions(pair: Pair) -> None:
    for asked in (
        fetch(wanted(0, 12), max_wait_ms=150, min_bytes=1),
        fetch(wanted(0, 0), max_wait_ms=150, min_bytes=100_000),
        fetch(wanted(0, 100), max_wait_ms=3000, min_bytes=1),
        fetch(wanted(0, 12), max_wait_ms=-1, min_bytes=1),
        fetch(wanted(0, 12), max_wait_ms=3000, min_bytes=0),
        fetch(wanted(0, 12), max_wait_ms=3000, min_bytes=-1),
        fetch(wanted(7), max_wait_ms=3000, min_bytes=1),
        fetch(wanted(), topic_id=uuid(9), max_wait_ms=150, min_bytes=1),
        fetch(wanted(0, 12, current_leader_epoch=9), max_wait_ms=3000, min_bytes=1),
        fetch(max_wait_ms=3000, min_bytes=1),
        fetch(wanted(0, 0, 100), max_wait_ms=3000, min_bytes=50),
    ):
        pair.same(asked, (4, 12, 13))

        def waited(side: Side, asked: Build = asked) -> bool:
            start = time.monotonic()
            side.ask(asked(side), 13)
            return time.monotonic() - start > 0.1

        pair.check("waited", waited)


def session(name: str, epoch: int, *rows: Any, forget: list[int] | None = None, **fields: Any) -> Build:
    """A request in the session that the side stored under `name`."""

    def made(side: Side) -> FetchRequest:
        gone = [FetchRequest.ForgottenTopic("f", side.ids["f"], forget)] if forget else []
        return fetch(  # type: ignore[no-any-return]
            *rows, session_id=side.memory.get(name, 0), session_epoch=epoch, forgotten_topics_data=gone, **fields
        )(side)

    return made


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_sessions_get_the_same_answers(pair: Pair, version: int) -> None:
    def remember(answers: tuple[Any, Any], name: str = "session") -> None:
        for side, answer in zip(pair.sides, answers, strict=True):
            side.memory[name] = answer.session_id

    remember(pair.same(fetch(wanted(0, 4), wanted(1, 1), wanted(2), session_epoch=0), version))
    assert all(side.memory["session"] for side in pair.sides)
    pair.same(session("session", 1), version, label="incremental", ordered=True)
    pair.same(session("session", 2, wanted(0, 12)), version, label="moved on")
    pair.same(session("session", 3), version, label="nothing new")
    pair.same(session("session", 4, wanted(0, 0, 100)), version, label="moved back")
    pair.same(session("session", 5, forget=[0, 1]), version, label="forgotten")
    pair.same(session("session", 6, wanted(7)), version, label="unknown partition")
    pair.same(session("session", 7), version, label="unknown partition again")
    pair.same(session("session", 8, forget=[7]), version, label="unknown partition forgotten")
    pair.same(session("session", 9, wanted(2, 50)), version, label="out of range")
    pair.same(session("session", 10), version, label="out of range again")
    pair.same(session("session", 9), version, label="epoch behind")
    pair.same(session("session", 99), version, label="epoch ahead")
    pair.same(session("session", 11, wanted(2, 0), forget=[2]), version, label="added and forgotten")
    pair.same(session("session", 12, wanted(0)), version, label="after it")
    pair.same(session("session", -1), version, label="closed, empty")
    pair.same(session("session", 13), version, label="after its end")
    remember(pair.same(fetch(wanted(0), session_epoch=0), version))
    pair.same(session("session", 0, wanted(1)), version, label="begun anew")
    pair.same(session("session", 1), version, label="the old one")
    remember(pair.same(fetch(wanted(0), session_epoch=0), version))
    pair.same(session("session", -1, wanted(1)), version, label="closed with a full fetch")
    for epoch in (1, 0, -1, -2, -5):
        pair.same(session("none", epoch, wanted(0)), version, label=f"no session, epoch {epoch}")
        pair.same(
            fetch(wanted(0), session_id=123, session_epoch=epoch), version, label=f"unknown session, epoch {epoch}"
        )
    remember(pair.same(fetch(wanted(0, 12), session_epoch=0, topic="f"), version))
    other = 13 if version < 13 else 12
    pair.same(session("session", 1), other, label="names and ids mixed")


@pytest.mark.parametrize("version", [7, 12, 18])
def test_full_requests_forget_nothing(pair: Pair, version: int) -> None:
    for epoch in (-1, 0):
        pair.same(session("none", epoch, wanted(0), wanted(1), forget=[0]), version, label=f"epoch {epoch}")
        pair.same(session("none", epoch, forget=[0]), version, label=f"epoch {epoch}, nothing else")


@pytest.mark.parametrize("version", [7, 12, 18])
def test_a_session_may_begin_without_partitions(pair: Pair, version: int) -> None:
    for side, answer in zip(pair.sides, pair.same(fetch(session_epoch=0), version), strict=True):
        assert answer.session_id
        side.memory["empty"] = answer.session_id
    pair.same(session("empty", 1, wanted(0, 4)), version, label="the first partition")
    pair.same(session("empty", 2, forget=[0]), version, label="none is left")
    pair.same(session("empty", 3, wanted(0)), version, label="after its end")


@pytest.mark.parametrize("limit", [0, 1])
def test_a_session_with_small_limits_goes_on(pair: Pair, limit: int) -> None:
    """The limit of a response does not hold for its first batch."""
    first = pair.same(fetch(wanted(0), session_epoch=0, max_bytes=limit), 12)
    for side, answer in zip(pair.sides, first, strict=True):
        side.memory["small"] = answer.session_id
    for epoch, offset in ((1, 2), (2, 4), (3, 6), (4, 12)):
        pair.same(session("small", epoch, wanted(0, offset), max_bytes=limit), 12, label=f"offset {offset}")


def test_incomplete_and_diverging_rows_name_no_aborted_transactions(pair: Pair) -> None:
    """Kafka's answers have null there, or an empty list if nothing is to be read."""
    for size in (0, 1, 60, 1 << 20):
        pair.same(fetch(wanted(0), wanted(1, 0, size), isolation_level=1), (4, 12, 18), label=f"size {size}")
    pair.same(fetch(wanted(0, 20, last_fetched_epoch=0), isolation_level=1), (12, 18))


def test_partitions_of_a_session_take_turns(pair: Pair) -> None:
    """If two partitions have more than fits, ours continues with the partition that has waited longer."""

    def indexes(answer: Any) -> list[int]:
        return [p.partition_index for t in answer.responses for p in t.partitions if len(p.records)]

    for side in pair.sides:
        side.memory["turns"] = side.ask(fetch(wanted(0, 12), wanted(1), session_epoch=0)(side), 12).session_id
    for epoch in (1, 2):
        pair.same(session("turns", epoch), 12)
    back = session("turns", 3, wanted(0, 0, 100), max_bytes=5000)
    pair.differs("session-order", back, 12, kafka=lambda a: indexes(a) == [0], ours=lambda a: indexes(a) == [1])


def list_offsets(*timestamps: int, topic: str = "f", index: int = 0, **fields: Any) -> ListOffsetsRequest:
    epoch = fields.pop("epoch", -1)
    rows = [
        ListOffsetsRequest.ListOffsetsPartition(index + n if len(timestamps) > 1 else index, epoch, timestamp)
        for n, timestamp in enumerate(timestamps)
    ]
    values: dict[str, Any] = {"replica_id": -1, "timeout_ms": 5000} | fields
    return ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(topic, rows)], **values)


def largest(answer: Any) -> tuple[int, int]:
    """The offset and timestamp of the only partition in an answer."""
    found = answer.topics[0].partitions[0]
    return found.offset, found.timestamp


def test_answers_to_list_offsets_match(pair: Pair) -> None:
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0, WHEN, WHEN + 25, WHEN + 47, WHEN + 50, WHEN + 51, 2**62):
        for topic in ("f", "f.trimmed", "f.times"):
            pair.same(list_offsets(timestamp, topic=topic), label=f"{timestamp} of {topic}")
    for at in range(14):
        pair.same(list_offsets(WHEN + at, topic="f.times"), (1, 4, 11), label=f"+{at}")
    pair.same(list_offsets(-3, index=2))
    pair.same(list_offsets(WHEN, index=2))
    for isolation in (0, 1, 2, -1):
        pair.same(list_offsets(-1, -2, isolation_level=isolation))
        pair.same(list_offsets(-3, isolation_level=isolation))
        pair.same(list_offsets(WHEN + 20, isolation_level=isolation))
    for epoch in (0, 1, -2):
        pair.same(list_offsets(-1, epoch=epoch))
        pair.same(list_offsets(WHEN + 3, epoch=epoch))
    for replica in (-2, 0, 1, 5, -3):
        pair.same(list_offsets(-1, replica_id=replica))
        pair.same(list_offsets(-1, index=9, replica_id=replica))
    for index in (9, -1):
        pair.same(list_offsets(-1, index=index))
    pair.same(list_offsets(-1, topic="nope"))
    pair.same(list_offsets(-1, topic="bad/name"))
    pair.same(ListOffsetsRequest(replica_id=-1))
    row = ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)
    twice = [ListOffsetsRequest.ListOffsetsTopic("f", [row, ListOffsetsRequest.ListOffsetsPartition(0, -1, -2)])]
    pair.same(ListOffsetsRequest(replica_id=-1, topics=twice))


@pytest.mark.parametrize("times", [[-1], [-1, -1], [-1, -5], [-5], [-5, -7]])
def test_the_largest_time_of_records_without_times_is_the_first_of_them(pair: Pair, times: list[int]) -> None:
    topic = "f.untimed" + "".join(map(str, times))
    pair.create(topic)
    pair.same(list_offsets(-3, topic=topic), 7, label="empty")
    for _ in range(2):
        pair.same(produce(topic, (0, batch(*[record(at=at) for at in times]))), 12)
    for timestamp in (-3, -1, -2, 0):
        pair.same(list_offsets(timestamp, topic=topic), 7)
    pair.same(delete_records(topic, (0, 1)), 2)
    pair.same(list_offsets(-2, topic=topic), 7)


def test_answers_to_offsets_for_leader_epochs_match(pair: Pair) -> None:
    def asked(topic: str, index: int, current: int, epoch: int, replica: int = -1) -> OffsetForLeaderEpochRequest:
        row = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(index, current, epoch)
        topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic, [row])]
        return OffsetForLeaderEpochRequest(replica_id=replica, topics=topics)

    for epoch in (0, 1, 5, -1, -2):
        for current in (-1, 0, 1, -2):
            pair.same(asked("f", 0, current, epoch))
    pair.same(asked("f", 2, -1, 0))
    pair.same(asked("f", 9, -1, 0))
    pair.same(asked("nope", 0, -1, 0))
    for replica in (-2, 1, 7, -3):
        pair.same(asked("f", 0, -1, 0, replica))


def test_answers_to_init_producer_id_match(pair: Pair) -> None:
    pair.same(InitProducerIdRequest(transaction_timeout_ms=1000), range(6))
    for producer_id, epoch in ((5, 0), (5, -1), (-1, 3), (2**40, 32767)):
        pair.same(
            InitProducerIdRequest(transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch), (3, 4, 5)
        )
    pair.same(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), range(6))
    for timeout in (0, -1, 2**31 - 1):
        pair.same(InitProducerIdRequest(transaction_timeout_ms=timeout), range(6))


def delete_records(topic: str, *rows: tuple[int, int]) -> DeleteRecordsRequest:
    made = [DeleteRecordsRequest.DeleteRecordsPartition(index, offset) for index, offset in rows]
    return DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic(topic, made)], 5000)


def test_answers_to_delete_records_match(pair: Pair) -> None:
    for offset in (0, 4, 2, 5, 13, -2, -5, 2**62, 6, -1, -1):
        pair.same(delete_records("f.emptied", (0, offset)), label=f"up to {offset}")
        pair.same(list_offsets(-2, topic="f.emptied"), 7)
    pair.same(delete_records("f.emptied", (7, 0)))
    pair.same(delete_records("nope", (0, 0)))
    pair.same(delete_records("f.emptied", (-1, 0)))
    pair.differs(
        "largest-timestamp-of-deleted-records",
        list_offsets(-3, topic="f.emptied"),
        (7, 11),
        kafka=lambda a: largest(a) == (10, WHEN + 50),
        ours=lambda a: largest(a) == (-1, -1),
    )
    pair.same(DeleteRecordsRequest())
    pair.same(delete_records("f.emptied"))
    pair.same(delete_records("__consumer_offsets", (0, 0)))


def test_times_before_the_first_segment_left_find_its_first_record(pair: Pair) -> None:
    """Kafka looks into segments that were deleted but not removed yet, and finds nothing."""
    pair.create("times.segments", internal_segment_bytes="300")
    for n in range(4):
        pair.same(produce("times.segments", (0, batch(record(b"v" * 150, at=WHEN + n)))), 12)
    pair.same(list_offsets(WHEN, topic="times.segments"), 7, label="before")
    pair.same(delete_records("times.segments", (0, 2)), 2)
    pair.differs(
        "times-of-deleted-segments",
        list_offsets(WHEN, topic="times.segments"),
        (7, 11),
        kafka=lambda a: largest(a) == (-1, -1),
        ours=lambda a: largest(a) == (2, WHEN + 2),
    )
    pair.same(list_offsets(WHEN + 3, topic="times.segments"), 7, label="in a segment that is left")


def named_f(answer: Any) -> Any:
    """Only the topics of this test."""
    for result in answer["results"]:
        result["topics"] = [t for t in result["topics"] if t["name"].startswith("f")]
    return answer


def test_answers_to_describe_log_dirs_match(pair: Pair) -> None:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    pair.same(DescribeLogDirsRequest(topics=None), mask=named_f)
    pair.same(DescribeLogDirsRequest(topics=[]), mask=named_f)
    pair.same(DescribeLogDirsRequest(topics=[topic("f", [0, 1]), topic("f.trimmed", [0])]))
    pair.same(DescribeLogDirsRequest(topics=[topic("f", [9]), topic("nope", [0])]))


def test_answers_to_describe_producers_match(pair: Pair) -> None:
    def asked(topic: str, *indexes: int) -> DescribeProducersRequest:
        return DescribeProducersRequest([DescribeProducersRequest.TopicRequest(topic, list(indexes))])

    for side in pair.sides:
        producer = side.ask(InitProducerIdRequest(transaction_timeout_ms=1000), 4).producer_id
        for sequence in (0, 2):
            data = batch(record(), record(at=WHEN + 9), producer_id=producer, producer_epoch=0, base_sequence=sequence)
            side.ask(produce("f.producers", (0, data))(side), 9)
        side.plain(producer, "producer_id")
    pair.same(asked("f.producers", 0))
    pair.same(asked("f.producers", 0, 1, -1))
    pair.same(asked("f", 0))
    pair.same(asked("nope", 0))
    pair.same(asked("bad/name", 0))
    pair.same(DescribeProducersRequest())
