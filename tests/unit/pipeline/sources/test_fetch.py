"""Reading a range from leaders that move, logs with holes, and deleted topics: against a scripted broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kraft_pipeline.codec import Decoder
from kraft_protocol.client import fetch
from kraft_protocol.client.cluster import Settings
from kraft_protocol.client.errors import BrokerError, ClientError, DataLossError
from kraft_protocol.client.fetch import Range, fetch_range
from kraft_protocol.client.requests import FetchAnswer, PartitionInfo, TopicInfo, read_fetch
from kraft_protocol.records.batch import NewRecord, build_batch
from kraft_protocol.records.control import build_marker
from kraft_protocol.wire.codec import decode, encode
from kraft_protocol.wire.messages import FetchResponse

OLD, NEW = b"o" * 16, b"n" * 16


def answer(records: bytes = b"", error: int = 0, end: int = 0) -> FetchAnswer:
    return FetchAnswer(error, end, end, 0, [], memoryview(records))


def batch(first: int, *offsets: int, last: int | None = None) -> bytes:
    records = [NewRecord(None, b"%d" % offset, 5, (), offset) for offset in offsets]
    return build_batch(records, base_offset=first, last_offset=last)


def marker(offset: int) -> bytes:
    return build_marker(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=5, base_offset=offset
    )


class Broker:
    """A cluster and its connections in one: its answer to the n-th Fetch, and its topic at that moment."""

    def __init__(self, answers: Sequence[FetchAnswer], topics: Callable[[int], bytes | None] = lambda _: OLD) -> None:
        self.settings = Settings("a:1", retry_s=0.2)
        self.asked: list[tuple[int, int]] = []
        """Node and offset of each Fetch."""
        self.waiting = 0
        self._answers, self._topics = list(answers), topics
        self._reported: TopicInfo | None = None
        self._node = 0
        self.cut = 0

    # what a fetcher needs of a cluster
    def topics(self, names: Any) -> None:
        topic_id = self._topics(len(self.asked))
        leader = PartitionInfo(0, len(self.asked), 0)  # another leader at each failure
        self._reported = None if topic_id is None else TopicInfo(0, "t", topic_id, False, {0: leader})

    def topic(self, name: str) -> TopicInfo:
        if self._reported is None:
            raise BrokerError(3, name)
        return self._reported

    def leader(self, name: str, partition: int) -> int:
        return self.topic(name).partitions[partition].leader

    def epoch(self, name: str, partition: int) -> int:
        return self.topic(name).partitions[partition].leader_epoch

    def find_truncations(self, read: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(read, self.cut)

    def connection(self, node: int) -> Broker:
        self._node = node
        return self

    def drop(self, connection: Broker) -> None:
        self.waiting = 0

    # what it needs of a connection
    def send(self, offset: int) -> None:
        self.asked.append((self._node, offset))
        self.waiting = 1

    def receive(self) -> FetchAnswer:
        self.waiting = 0
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of requests, and the content of answers."""
    monkeypatch.setattr(fetch.m, "fetch", lambda topic_id, partition, offset, *_, **__: offset)
    monkeypatch.setattr(fetch.m, "read_fetch", lambda found: found)


def offsets(broker: Any, start: int, end: int, epoch: int = -1, **options: Any) -> list[int]:
    decoder = Decoder("t", 0, ["offset"])
    chunks = fetch_range(broker, Range("t", OLD, 0, start, end, epoch), **options)
    return [o for c in chunks for b in decoder.decode(c.records, c.offset, c.end) for o in b["offset"].to_pylist()]


def test_holes_in_a_log_are_passed() -> None:
    """Only markers, compacted records, an empty batch, and a batch that reaches beyond the end."""
    broker = Broker(
        [
            answer(marker(0) + marker(1)),
            answer(batch(2, 3, 5, last=9) + batch(10, last=19)),
            answer(batch(40, 41, 43)),
        ]
    )
    assert offsets(broker, 0, 42) == [3, 5, 41]
    assert [offset for _, offset in broker.asked] == [0, 2, 20]


def test_a_partial_batch_is_fetched_again() -> None:
    second = batch(2, 2, 3)
    broker = Broker([answer(batch(0, 0, 1) + second[:-1]), answer(second)])
    assert offsets(broker, 0, 4) == [0, 1, 2, 3]


def test_the_next_leader_continues_at_the_same_offset() -> None:
    broker = Broker([answer(batch(0, 0, 1)), answer(error=6), answer(batch(2, 2, 3)), answer(batch(4, 4))])
    assert offsets(broker, 0, 5) == [0, 1, 2, 3, 4]
    assert broker.asked == [(0, 0), (0, 2), (2, 2), (2, 4)]


def test_a_connection_that_breaks_ahead_of_the_caller_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request that is sent ahead failed the task, though another leader had the records."""
    broker = Broker([answer(batch(0, 0, 1)), answer(batch(2, 2, 3))])
    send, receive = broker.send, broker.receive
    broken = [True]

    def sent(offset: int) -> None:
        send(offset)  # a request that fails counts as in flight, too
        if offset == 2 and broken:
            raise BrokenPipeError("gone")

    def received() -> FetchAnswer:
        if broken and broker.asked[-1][1] == 2:
            broken.clear()
            raise ConnectionResetError("gone")
        return receive()

    monkeypatch.setattr(broker, "send", sent)
    monkeypatch.setattr(broker, "receive", received)
    assert offsets(broker, 0, 4) == [0, 1, 2, 3]
    assert broker.asked == [(0, 0), (0, 2), (2, 2)]


def test_a_recreated_topic_is_a_data_loss() -> None:
    def broker() -> Broker:
        return Broker([answer(batch(0, 0, 1)), answer(error=100)], lambda fetches: NEW if fetches else OLD)

    with pytest.raises(DataLossError, match="the topic has been deleted and another topic has its name now"):
        offsets(broker(), 0, 4)
    assert offsets(broker(), 0, 4, fail_on_data_loss=False) == [0, 1]


def test_a_deleted_topic_is_an_error_or_the_end() -> None:
    def broker() -> Broker:
        return Broker([answer(batch(0, 0, 1)), answer(error=100)], lambda fetches: None if fetches else OLD)

    with pytest.raises(ClientError, match=r"t: UNKNOWN_TOPIC_OR_PARTITION \(3\) \(tried for 0.2 s\)"):
        offsets(broker(), 0, 4)
    assert offsets(broker(), 0, 4, fail_on_data_loss=False) == [0, 1]


def test_a_log_that_ends_before_the_range_is_an_error() -> None:
    broken = [answer(batch(0, 0, 1)), answer(end=2)]
    with pytest.raises(ClientError, match=r"nothing comes from offset 2 on: the high watermark is 2 \(tried for 0.2 s"):
        offsets(Broker(broken), 0, 4)
    assert offsets(Broker(broken), 0, 4, fail_on_data_loss=False) == [0, 1]
    slow = Broker([answer(batch(0, 0, 1)), answer(end=2), answer(batch(2, 2, 3))])
    assert offsets(slow, 0, 4) == [0, 1, 2, 3]


def test_a_client_beyond_its_quota_waits() -> None:
    """The answer names no topic; that is neither a permanent error nor the end of the log."""
    throttled = read_fetch(decode(FetchResponse, encode(FetchResponse(throttle_time_ms=100), 13), 13))
    assert offsets(Broker([throttled, throttled, answer(batch(0, 0, 1))]), 0, 2) == [0, 1]
    with pytest.raises(ClientError, match="THROTTLING_QUOTA_EXCEEDED"):
        offsets(Broker([throttled]), 0, 2, fail_on_data_loss=False)


def test_a_permanent_error_is_not_a_data_loss() -> None:
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        offsets(Broker([answer(error=29)]), 0, 4, fail_on_data_loss=False)
    with pytest.raises(ClientError, match="NOT_LEADER_OR_FOLLOWER"):
        offsets(Broker([answer(error=6)]), 0, 4, fail_on_data_loss=False)


def test_a_stale_leader_is_not_read_past_the_divergence() -> None:
    """The range was planned with a leader of epoch 3; this one has epoch 0, and other records from offset 2 on."""
    broker = Broker([answer(batch(0, 0, 1) + batch(2, 2, 3))])
    broker.cut = 2
    with pytest.raises(DataLossError, match="an unclean election has truncated the log at offset 2"):
        offsets(broker, 0, 4, 3)
    assert offsets(broker, 0, 4, 3, fail_on_data_loss=False) == [0, 1]
    asked = len(broker.asked)
    assert offsets(broker, 3, 4, 3, fail_on_data_loss=False) == []
    assert len(broker.asked) == asked


class Racked(Broker):
    """Node 0 leads and names node 7 to clients of rack `r`; each node has its own answers."""

    def __init__(self, leader: Sequence[FetchAnswer], follower: Sequence[FetchAnswer | OSError]) -> None:
        super().__init__([])
        self.settings = Settings("a:1", retry_s=0.2, rack="r")
        self.racks = list[str]()
        self._of = {0: list(leader), 7: list(follower)}

    def topics(self, names: Any) -> None:
        self._reported = TopicInfo(0, "t", OLD, False, {0: PartitionInfo(0, 0, 0)})

    def send(self, asked: Any) -> None:
        offset, rack = asked
        self.racks.append(rack)
        super().send(offset)

    def receive(self) -> FetchAnswer:
        self.waiting = 0
        found = self._of[self._node].pop(0)
        if isinstance(found, OSError):
            raise found
        return found


@pytest.fixture
def with_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.m, "fetch", lambda topic_id, partition, offset, *_, rack, **__: (offset, rack))


ELSEWHERE = FetchAnswer(0, 4, 4, 0, [], memoryview(b""), 7)


@pytest.mark.usefixtures("with_racks")
def test_the_replica_that_the_leader_names_serves_the_range() -> None:
    broker = Racked([ELSEWHERE], [answer(batch(0, 0, 1)), answer(batch(2, 2, 3))])
    assert offsets(broker, 0, 4) == [0, 1, 2, 3]
    assert broker.asked == [(0, 0), (7, 0), (7, 2)]
    assert broker.racks[0] == "r"


@pytest.mark.usefixtures("with_racks")
@pytest.mark.parametrize(
    "failure",
    [answer(error=1), answer(error=78), answer(error=29), answer(), ConnectionResetError("gone")],
    ids=["out-of-range", "not-available", "unauthorized", "lags", "dies"],
)
def test_a_failing_or_lagging_replica_loses_no_record(failure: Any) -> None:
    """Only the leader tells what is lost, and it must not send the client back to that replica at once."""
    broker = Racked([ELSEWHERE, answer(batch(2, 2, 3))], [answer(batch(0, 0, 1)), failure])
    assert offsets(broker, 0, 4) == [0, 1, 2, 3]
    assert broker.asked == [(0, 0), (7, 0), (7, 2), (0, 2)]
    assert broker.racks[-1] == ""


@pytest.mark.usefixtures("with_racks")
def test_a_client_without_a_rack_stays_with_the_leader() -> None:
    broker = Racked([ELSEWHERE._replace(records=memoryview(batch(0, 0, 1)))], [])
    broker.settings = Settings("a:1", retry_s=0.2)
    assert offsets(broker, 0, 2) == [0, 1]
