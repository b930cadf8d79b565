"""Fetching through the handler: immediate answers, waits and wake-ups, and omissions of a session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.broker.handlers.fetch import FetchHandler
from kraft_node.broker.metadata_cache import MetadataCache
from kraft_node.metadata.image import MetadataImage
from kraft_node.partition.manager import ReplicaManager
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import stored
from kraft_protocol.wire.messages import FetchRequest
from tests.unit.broker.memory import MemoryLog
from tests.unit.broker.world import Client, Loop, broker_records, make_env, replay, topic_id, topic_records

CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


class Rig:
    """A broker's fetch path over logs in memory."""

    def __init__(self, **config: str) -> None:
        self.loop = Loop()
        self.client = Client()
        self.image = MetadataImage()
        self.logs: dict[tuple[str, int], MemoryLog] = {}
        self.deleted: list[tuple[str, int]] = []
        env = make_env(self.loop)
        self.replicas = ReplicaManager(env, 1, self.image, self._open, self._delete)  # type: ignore[arg-type]
        settings = BrokerConfig(NodeConfig.parse(CONFIG, config))
        self.fence: Any = SimpleNamespace(fenced=False)
        quotas: Any = SimpleNamespace(is_active=False)
        self.fetches = FetchHandler(env, settings, self.replicas, MetadataCache(self.image), quotas, self.fence)
        self.commit(broker_records(1, 2))

    def _open(self, topic: str, index: int, id_: bytes, _state: Any) -> MemoryLog:
        if (topic, index) not in self.logs or self.logs[topic, index].topic_id != id_:
            self.logs[topic, index] = MemoryLog(id_, SimpleNamespace(min_insync_replicas=1, delete=True))
        return self.logs[topic, index]

    def _delete(self, topic: str, index: int, _id: bytes) -> None:
        self.deleted.append((topic, index))

    def commit(self, records: list[Any]) -> None:
        self.replicas.apply(replay(self.image, records))

    def append(self, topic: str, index: int = 0, size: int = 10) -> int:
        batch = build_batch([(None, b"x" * size)], timestamp=5)
        self.replicas.leader(topic, index).append(batch, 1, 0)
        return len(batch)

    def fetch(self, *wanted: tuple[Any, int, int], version: int = 12, **fields: Any) -> Any:
        """Fetch (topic, partition, offset)s; returns the response, or None while it waits."""
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[])
        for name, value in fields.items():
            setattr(request, name, value)
        for topic, index, offset in wanted:
            row = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            by_id = isinstance(topic, bytes)
            request.topics.append(
                FetchRequest.FetchTopic(
                    topic="" if by_id else topic, topic_id=topic if by_id else bytes(16), partitions=[row]
                )
            )
        return self.fetches(self.client.context(1, version), request)

    def session(self, *wanted: tuple[Any, int, int], **fields: Any) -> Any:
        """Open a session with the present partitions."""
        answer = self.fetch(*wanted, session_epoch=0, max_wait_ms=0, **fields)
        assert answer.session_id > 0
        return answer


def rows(response: Any) -> dict[tuple[Any, int], Any]:
    return {(t.topic or t.topic_id, p.partition_index): p for t in response.responses for p in t.partitions}


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.commit(topic_records("a", 1, 3) + topic_records("b", 2, 1))
    return rig


def test_available_records_are_returned_at_once(rig: Rig) -> None:
    size = rig.append("a")
    row = rows(rig.fetch(("a", 0, 0)))["a", 0]
    assert (row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset) == (0, 1, 1, 0)
    assert len(row.records) == size
    assert row.preferred_read_replica == -1
    assert row.aborted_transactions is None


def test_a_fetch_waits_until_something_is_appended(rig: Rig) -> None:
    assert rig.fetch(("a", 0, 0), ("a", 1, 0)) is None
    rig.loop.run(300)
    rig.append("a", 1)
    assert rig.client.answers == []  # answered on the loop's next turn, with all appends of this turn
    rig.append("a", 0)
    rig.loop.run()
    answer = rows(rig.client.answers[0])
    assert [len(answer[key].records) > 0 for key in (("a", 0), ("a", 1))] == [True, True]
    assert not rig.fetches.waiting
    rig.loop.run(1000)
    assert len(rig.client.answers) == 1
    assert rig.replicas.leader("a", 0).watchers is None


def test_a_fetch_without_new_records_is_answered_after_its_wait(rig: Rig) -> None:
    assert rig.fetch(("a", 0, 0)) is None
    rig.loop.run(499)
    assert rig.client.answers == []
    rig.loop.run(1)
    row = rows(rig.client.answers[0])["a", 0]
    assert (row.error_code, bytes(row.records)) == (0, b"")
    assert rig.replicas.leader("a", 0).watchers is None


def test_min_bytes_are_collected_over_partitions_and_appends(rig: Rig) -> None:
    size = rig.append("a", 0)
    assert rig.fetch(("a", 0, 0), ("b", 0, 0), min_bytes=3 * size, max_wait_ms=10_000) is None
    rig.append("b", 0)
    rig.loop.run()
    assert rig.client.answers == []
    rig.append("b", 0)
    rig.loop.run()
    answer = rows(rig.client.answers[0])
    assert [len(row.records) // size for row in answer.values()] == [1, 2]


def test_bytes_of_a_partition_add_up_over_appends(rig: Rig) -> None:
    size = rig.append("a", 0)
    assert rig.fetch(("a", 0, 0), min_bytes=3 * size, max_wait_ms=10_000) is None
    rig.append("a", 0)
    rig.append("a", 0)
    rig.loop.run()
    assert len(rows(rig.client.answers[0])["a", 0].records) == 3 * size


def test_a_fetch_without_a_wait_is_answered_at_once(rig: Rig) -> None:
    assert rows(rig.fetch(("a", 0, 0), max_wait_ms=0))["a", 0].high_watermark == 0
    assert rows(rig.fetch(("a", 0, 0), min_bytes=0))["a", 0].high_watermark == 0


def test_the_first_batch_is_returned_even_if_it_exceeds_the_limit(rig: Rig) -> None:
    large = rig.append("a", 0, size=5000)
    rig.append("a", 1)
    answer = rows(rig.fetch(("a", 0, 0), ("a", 1, 0), max_bytes=100))
    assert len(answer["a", 0].records) == large
    assert bytes(answer["a", 1].records) == b""
    assert answer["a", 1].high_watermark == 1


def test_errors_are_answered_at_once(rig: Rig) -> None:
    row = rows(rig.fetch(("a", 0, 7)))["a", 0]
    assert (row.error_code, row.high_watermark, bytes(row.records)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")
    rig.commit(topic_records("c", 3, leader=2, isr=(2, 1)))
    assert rows(rig.fetch(("c", 0, 0), version=10))["c", 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_consumers_that_know_racks_read_from_followers(rig: Rig) -> None:
    rig.commit(topic_records("c", 3, leader=2, isr=(2, 1)))
    assert rig.fetch(("c", 0, 0), version=12) is None
    partition = rig.replicas.hosted("c", 0)
    partition.append_fetched(build_batch([(None, b"x")], timestamp=5))
    partition.follow_leader(0, 0, 0)
    rig.loop.run()
    assert not rig.client.answers
    partition.follow_leader(1, 0, 61)
    rig.loop.run()
    row = rows(rig.client.answers[0])["c", 0]
    assert (row.high_watermark, bool(row.records)) == (1, True)


def test_an_unknown_topic_is_answered_at_once_only_if_no_other_waits(rig: Rig) -> None:
    assert rows(rig.fetch(("zzz", 0, 0)))["zzz", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = topic_id(99)
    assert rows(rig.fetch((unknown, 0, 0), version=13))[unknown, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert rig.fetch(("zzz", 0, 0), ("a", 0, 0)) is None
    rig.loop.run(500)
    assert rows(rig.client.answers[0])["zzz", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_epochs_are_checked_before_leadership(rig: Rig) -> None:
    rig.commit(topic_records("c", 3, leader=2, isr=(2, 1), epoch=5))

    def code(epoch: int) -> int:
        request = FetchRequest(
            max_wait_ms=0,
            topics=[
                FetchRequest.FetchTopic(topic="c", partitions=[FetchRequest.FetchPartition(current_leader_epoch=epoch)])
            ],
        )
        return rows(rig.fetches(rig.client.context(1, 10), request))["c", 0].error_code

    assert code(4) == ErrorCode.FENCED_LEADER_EPOCH
    assert code(6) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert code(5) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_sent_to_a_follower_is_answered_with_the_leader(rig: Rig) -> None:
    rig.commit(topic_records("c", 3, leader=2, isr=(2,), epoch=5))
    for replica_id, endpoints in ((-1, [(2, "host2", 9092)]), (2, [])):  # followers know the brokers' addresses
        response = rig.fetch((topic_id(3), 0, 0), version=16, replica_id=replica_id)
        row = rows(response)[topic_id(3), 0]
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 5)
        assert [(n.node_id, n.host, n.port) for n in response.node_endpoints] == endpoints


def test_a_diverging_log_is_answered_with_the_common_end(rig: Rig) -> None:
    rig.append("a", 0)
    change = stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=1)
    rig.commit([change])
    rig.append("a", 0)

    def fetch(offset: int, epoch: int) -> Any:
        row = FetchRequest.FetchPartition(fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="a", partitions=[row])]
        )
        return rows(rig.fetches(rig.client.context(1, 12), request))["a", 0]

    parted = fetch(2, 0)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset, bytes(parted.records)) == (0, 1, b"")
    assert fetch(1, 0).diverging_epoch is None
    assert fetch(1, 1).diverging_epoch is None


def test_read_committed_waits_at_the_last_stable_offset_until_it_moves(rig: Rig) -> None:
    rig.append("a", 0)
    log = rig.logs["a", 0]
    log.held_stable = 0
    assert rig.fetch(("a", 0, 0), isolation_level=1) is None
    rig.append("a", 0)
    rig.loop.run()
    assert rig.client.answers == []
    log.held_stable = None
    rig.append("a", 0)
    rig.loop.run()
    row = rows(rig.client.answers[0])["a", 0]
    assert row.last_stable_offset == row.high_watermark == 3
    assert row.aborted_transactions == []
    assert row.records


def test_only_replicated_records_are_read_by_consumers(rig: Rig) -> None:
    rig.commit(topic_records("r", 9, isr=(1, 2)))
    rig.append("r")
    assert rig.fetch(("r", 0, 0)) is None
    rig.replicas.leader("r", 0).follower_fetched(2, -1, 1, 0)
    rig.loop.run()
    assert rows(rig.client.answers[0])["r", 0].high_watermark == 1
    assert rows(rig.fetch(("r", 0, 0), replica_id=-3))["r", 0].records


def test_a_debugging_consumer_reads_only_below_the_high_watermark(rig: Rig) -> None:
    """As in Apache Kafka, it may read from followers, and nothing beyond the high watermark."""
    rig.commit(topic_records("r", 9, isr=(1, 2)))
    rig.append("r")
    assert not rows(rig.fetch(("r", 0, 0), replica_id=-2, max_wait_ms=0))["r", 0].records


# --- sessions ---


def test_a_session_omits_unchanged_partitions(rig: Rig) -> None:
    rig.append("a", 0)
    first = rig.session(("a", 0, 0), ("a", 1, 0), ("b", 0, 0))
    assert len(rows(first)) == 3
    id_ = first.session_id
    rig.append("a", 1)
    second = rig.fetch(("a", 0, 1), session_id=id_, session_epoch=1)
    assert {key: len(row.records) > 0 for key, row in rows(second).items()} == {("a", 1): True}
    # The reader did not advance: it gets the same records again.
    third = rig.fetch(session_id=id_, session_epoch=2)
    assert list(rows(third)) == [("a", 1)]
    assert rig.fetch(("a", 1, 1), session_id=id_, session_epoch=3) is None
    rig.loop.run(500)
    assert rig.client.answers[0].responses == []
    assert rig.client.answers[0].session_id == id_


def test_an_incremental_fetch_reads_only_changed_partitions(rig: Rig) -> None:
    rig.commit(topic_records("wide", 5, 200))
    id_ = rig.session(*(("wide", i, 0) for i in range(200))).session_id
    assert rig.fetch(session_id=id_, session_epoch=1) is None
    read: list[int] = []
    plain = MemoryLog.read
    try:
        MemoryLog.read = lambda self, *args, **kw: (read.append(1), plain(self, *args, **kw))[1]  # type: ignore[method-assign]
        rig.append("wide", 123)
        rig.loop.run()
    finally:
        MemoryLog.read = plain  # type: ignore[method-assign]
    assert list(rows(rig.client.answers[0])) == [("wide", 123)]
    assert len(read) == 1


def test_a_new_high_watermark_is_returned_but_wakes_no_fetch(rig: Rig) -> None:
    rig.commit(topic_records("r", 9, isr=(1, 2)))
    id_ = rig.session(("r", 0, 0), replica_id=-3).session_id
    rig.append("r")
    got = rig.fetch(session_id=id_, session_epoch=1, replica_id=-3, max_wait_ms=0)
    assert rows(got)["r", 0].high_watermark == 0
    assert rig.fetch(("r", 0, 1), session_id=id_, session_epoch=2, replica_id=-3, max_wait_ms=0).responses == []
    rig.replicas.leader("r", 0).follower_fetched(2, -1, 1, 0)
    row = rows(rig.fetch(session_id=id_, session_epoch=3, replica_id=-3, max_wait_ms=0))["r", 0]
    assert (row.high_watermark, bytes(row.records)) == (1, b"")


def test_partitions_take_turns_if_the_response_is_too_small(rig: Rig) -> None:
    id_ = rig.session(*(("a", i, 0) for i in range(3))).session_id
    for index in range(3):
        rig.append("a", index)
        rig.append("a", index)
    turns = []
    for epoch in range(1, 7):
        answer = rig.fetch(session_id=id_, session_epoch=epoch, max_bytes=1)
        turns.append([key[1] for key, row in rows(answer).items() if row.records])
    assert turns == [[0], [1], [2], [0], [1], [2]]


def test_forgotten_partitions_are_not_read(rig: Rig) -> None:
    id_ = rig.session(("a", 0, 0), ("a", 1, 0)).session_id
    rig.append("a", 0)
    forgotten = [FetchRequest.ForgottenTopic(topic="a", partitions=[0])]
    assert rig.fetch(session_id=id_, session_epoch=1, forgotten_topics_data=forgotten) is None
    rig.append("a", 0)
    rig.loop.run()
    assert rig.client.answers == []
    rig.append("a", 1)
    rig.loop.run()
    assert list(rows(rig.client.answers[0])) == [("a", 1)]


def test_a_session_without_partitions_ends(rig: Rig) -> None:
    id_ = rig.session(("a", 0, 0)).session_id
    forgotten = [FetchRequest.ForgottenTopic(topic="a", partitions=[0])]
    assert rig.fetch(session_id=id_, session_epoch=1, forgotten_topics_data=forgotten).session_id == 0
    again = rig.fetch(session_id=id_, session_epoch=2)
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_errors_are_the_whole_answer(rig: Rig) -> None:
    id_ = rig.session(("a", 0, 0)).session_id
    wrong = rig.fetch(session_id=id_, session_epoch=9)
    assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    by_id = rig.fetch((topic_id(1), 0, 0), session_id=id_, session_epoch=1, version=13)
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_fetch_closes_the_session_that_it_names(rig: Rig) -> None:
    id_ = rig.session(("a", 0, 0)).session_id
    other = rig.fetch(("a", 0, 0), session_id=id_, session_epoch=0, max_wait_ms=0)
    assert other.session_id not in (0, id_)
    rig.fetch(("a", 0, 0), session_id=other.session_id, session_epoch=-1, max_wait_ms=0)
    assert len(rig.fetches.sessions) == 0


def test_a_newer_fetch_of_a_session_ends_the_older(rig: Rig) -> None:
    id_ = rig.session(("a", 0, 0)).session_id
    assert rig.fetch(session_id=id_, session_epoch=1) is None
    assert rig.fetch(session_id=id_, session_epoch=2) is None
    assert [answer.error_code for answer in rig.client.answers] == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    rig.append("a")
    rig.loop.run(500)
    assert len(rig.client.answers) == 2
    assert rows(rig.client.answers[1])["a", 0].records


def test_errors_are_repeated_in_every_response(rig: Rig) -> None:
    id_ = rig.session(("a", 0, 0), ("zzz", 0, 0)).session_id
    for epoch in (1, 2):
        answer = rig.fetch(session_id=id_, session_epoch=epoch, max_wait_ms=0)
        assert {key: row.error_code for key, row in rows(answer).items()} == {
            ("zzz", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
    rig.commit(topic_records("zzz", 44))
    row = rows(rig.fetch(session_id=id_, session_epoch=3, max_wait_ms=0))["zzz", 0]
    assert (row.error_code, row.high_watermark) == (0, 0)


def test_a_deleted_topic_wakes_its_readers(rig: Rig) -> None:
    id_ = rig.session(("a", 0, 0)).session_id
    assert rig.fetch(session_id=id_, session_epoch=1) is None
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1))])
    rig.loop.run()
    assert rows(rig.client.answers[0])["a", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [d for d in rig.deleted if d[0] == "a"] == [("a", 0), ("a", 1), ("a", 2)]


def test_a_moved_log_start_is_returned(rig: Rig) -> None:
    rig.append("a")
    id_ = rig.session(("a", 0, 1)).session_id
    rig.replicas.leader("a", 0).delete_records(1)
    row = rows(rig.fetch(session_id=id_, session_epoch=1, max_wait_ms=0))["a", 0]
    assert row.log_start_offset == 1


def test_sessions_by_topic_id_ignore_a_new_topic_with_the_name(rig: Rig) -> None:
    id_ = rig.session((topic_id(1), 0, 0), version=13).session_id
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1)), *topic_records("a", 50)])
    rig.append("a")
    answer = rig.fetch(session_id=id_, session_epoch=1, version=13)
    row = rows(answer)[topic_id(1), 0]
    assert (row.error_code, row.records) == (ErrorCode.INCONSISTENT_TOPIC_ID, b"")


def test_a_session_gets_kafkas_errors_for_deleted_and_recreated_topics(rig: Rig) -> None:
    id_ = rig.session((topic_id(1), 0, 0), (topic_id(1), 2, 0), (topic_id(77), 0, 0), version=13).session_id
    epoch = 0

    def codes() -> list[ErrorCode]:
        nonlocal epoch
        epoch += 1
        answer = rows(rig.fetch(session_id=id_, session_epoch=epoch, version=13, max_wait_ms=0))
        return [ErrorCode(answer[key].error_code) for key in ((topic_id(1), 0), (topic_id(1), 2), (topic_id(77), 0))]

    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1))])
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    never_known = ErrorCode.UNKNOWN_TOPIC_ID
    assert codes() == [gone, gone, never_known]
    rig.commit(topic_records("a", 50))
    assert codes() == [ErrorCode.INCONSISTENT_TOPIC_ID, gone, never_known]


def test_without_free_slots_fetches_are_full() -> None:
    rig = Rig(**{"max.incremental.fetch.session.cache.slots": "1"})
    rig.commit(topic_records("a", 1))
    assert rig.session(("a", 0, 0)).session_id
    assert rig.fetch(("a", 0, 0), session_epoch=0, max_wait_ms=0).session_id == 0


def test_an_append_after_a_wake_up_costs_nothing_for_idle_readers(rig: Rig) -> None:
    for _ in range(20):
        rig.session(("a", 0, 0))
    partition = rig.replicas.leader("a", 0)
    assert len(partition.watchers or ()) == 20
    rig.append("a")
    rig.loop.run()
    assert not partition.watchers


def test_delete_records_is_bounded_by_the_high_watermark(rig: Rig) -> None:
    rig.append("a")
    partition = rig.replicas.leader("a", 0)
    with pytest.raises(KafkaError) as error:
        partition.delete_records(2)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records(-1) == 1


def test_fetches_of_disconnected_clients_free_their_places(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("waiting", "handler"):
        target = "kraft_node.broker.fetch.waiting" if module == "waiting" else "kraft_node.broker.handlers.fetch"
        monkeypatch.setattr(f"{target}.WAITING_MAX", 2)
    gone, rig.client = rig.client, Client()
    assert rig.fetch(("a", 0, 0)) is None
    rig.client = gone
    assert rig.fetch(("a", 0, 0)) is None
    assert rig.fetch(("a", 0, 0)) is not None  # no room: answered at once
    gone.closed = True
    rig.client = Client()
    rig.loop.run(400)
    assert rig.fetch(("a", 0, 0)) is not None  # checked a moment ago
    rig.loop.now_ms += 1000
    assert rig.fetch(("a", 0, 0)) is None
    assert len(rig.fetches.waiting) == 2


def test_the_end_of_a_transaction_wakes_a_fetch_that_needs_more_than_its_marker(rig: Rig) -> None:
    """The marker has few bytes, the records before it have many: the fetch waited for its whole time."""
    rig.append("a")
    log = rig.logs["a", 0]
    log.held_stable = 0
    size = rig.append("a")
    assert rig.fetch(("a", 0, 0), isolation_level=1, min_bytes=2 * size) is None
    size = rig.append("a", size=1)
    log.held_stable = None
    rig.append("a", size=1)
    rig.loop.run()
    (answer,) = rig.client.answers
    assert rows(answer)["a", 0].records
