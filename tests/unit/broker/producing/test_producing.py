"""Producing through the handler: acks, refusals, errors for each partition, and waiting for in-sync replicas."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.broker.handlers.produce import ProduceHandler
from kraft_node.broker.metadata_cache import MetadataCache
from kraft_node.broker.transactions.verifier import Verifier
from kraft_node.log.waiting.write_budget import AppendLater
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import stored
from kraft_protocol.wire.codec import decode, encode
from kraft_protocol.wire.messages import ProduceRequest, ProduceResponse
from tests.unit.broker.fetching import test_fetching
from tests.unit.broker.memory import MemoryLog
from tests.unit.broker.world import Controller, make_env, topic_id, topic_records


class Rig(test_fetching.Rig):
    """The produce path over logs in memory."""

    def __init__(self) -> None:
        super().__init__()
        config = BrokerConfig(NodeConfig.parse(test_fetching.CONFIG))
        self.coordinators: dict[int, Controller] = {}
        self.verifier = Verifier(
            self.image, config, self.loop, lambda node, _lane: self.coordinators.get(node), -1, lambda *_: {}
        )
        self.handler = ProduceHandler(
            make_env(self.loop), self.replicas, MetadataCache(self.image), self.fence, self.verifier
        )

    def produce(
        self, *batches: tuple[Any, int, bytes | None], acks: int = -1, version: int = 12, client_id: str = "test"
    ) -> Any:
        """The response as a client of `version` decodes it; None before it is sent."""
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[])
        for topic, index, records in batches:
            by_id = isinstance(topic, bytes)
            request.topic_data.append(
                ProduceRequest.TopicProduceData(
                    name="" if by_id else topic,
                    topic_id=topic if by_id else bytes(16),
                    partition_data=[ProduceRequest.PartitionProduceData(index, records)],
                )
            )
        request = decode(ProduceRequest, encode(request, version), version)
        return self.seen(self.handler(self.client.context(0, version, client_id), request), version)

    def seen(self, response: Any, version: int) -> Any:
        return None if response is None else decode(ProduceResponse, encode(response, version), version)


def rows(response: Any) -> dict[tuple[Any, int], Any]:
    return {(t.name or t.topic_id, p.index): p for t in response.responses for p in t.partition_responses}


def batch(count: int = 1, **fields: Any) -> bytes:
    return build_batch([(None, b"v")] * count, timestamp=5, **fields)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.commit(
        topic_records("a", 1, 2) + topic_records("r", 2, isr=(1, 2)) + topic_records("c", 3, leader=2, isr=(2, 1))
    )
    return rig


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_offsets_are_answered_in_every_version(rig: Rig, version: int, acks: int) -> None:
    name: Any = topic_id(1) if version >= 13 else "a"
    assert rows(rig.produce((name, 0, batch(3)), version=version, acks=acks))[name, 0].base_offset == 0
    row = rows(rig.produce((name, 0, batch(2)), (name, 1, batch()), version=version, acks=acks))
    assert (row[name, 0].error_code, row[name, 0].base_offset) == (0, 3)
    assert (row[name, 1].error_code, row[name, 1].base_offset) == (0, 0)
    assert row[name, 0].log_append_time_ms == -1
    assert row[name, 0].log_start_offset == (0 if version >= 5 else -1)


def test_acks_0_is_never_answered_and_a_failure_ends_the_connection(rig: Rig) -> None:
    assert rig.produce(("a", 0, batch()), acks=0) is None
    assert rig.client.answers == [None]
    assert not rig.client.closed
    assert rig.logs["a", 0].end_offset == 1
    assert rig.produce(("zzz", 0, batch()), acks=0) is None
    assert rig.client.closed


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_invalid_acks_touch_no_log(rig: Rig, acks: int) -> None:
    row = rows(rig.produce(("a", 0, batch()), acks=acks))["a", 0]
    assert (row.error_code, row.base_offset, row.log_start_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1, -1)
    assert ("a", 0) not in rig.logs


def test_errors_are_reported_for_each_partition(rig: Rig) -> None:
    answer = rows(rig.produce(("a", 0, batch()), ("zzz", 0, batch()), ("a", 9, batch()), ("c", 0, batch())))
    assert {key: row.error_code for key, row in answer.items()} == {
        ("a", 0): 0,
        ("zzz", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("c", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    unknown = topic_id(77)
    assert rows(rig.produce((unknown, 0, batch()), version=13))[unknown, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_produce_sent_to_a_follower_is_answered_with_the_leader(rig: Rig) -> None:
    response = rig.produce(("c", 0, batch()), version=10)
    assert rows(response)["c", 0].current_leader.leader_id == 2
    assert [(n.node_id, n.host) for n in response.node_endpoints] == [(2, "host2")]
    assert rig.produce(("c", 0, batch()), version=9).node_endpoints == []


def corrupt_magic() -> bytes:
    bad = bytearray(batch())
    bad[16] = 1
    return bytes(bad)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"short", ErrorCode.INVALID_RECORD),
        (batch()[:40], ErrorCode.INVALID_RECORD),
        (batch() + bytes(20), ErrorCode.CORRUPT_MESSAGE),
        (batch()[:8] + bytes(4) + batch()[12:], ErrorCode.CORRUPT_MESSAGE),
        (corrupt_magic(), ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch(control=True), ErrorCode.INVALID_RECORD),
        (
            batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_anything_but_a_single_batch_is_refused(rig: Rig, records: bytes | None, code: ErrorCode) -> None:
    row = rows(rig.produce(("a", 0, records)))["a", 0]
    assert (row.error_code, row.base_offset) == (code, -1)
    assert ("a", 0) not in rig.logs or rig.logs["a", 0].end_offset == 0


def test_a_few_bytes_after_the_batch_are_ignored(rig: Rig) -> None:
    row = rows(rig.produce(("a", 0, batch() + b"abc")))["a", 0]
    assert (row.error_code, row.base_offset) == (0, 0)


def test_zstd_is_refused_from_clients_that_do_not_know_it(rig: Rig) -> None:
    zstd = batch(compression=4)
    assert rows(rig.produce(("a", 0, zstd), version=6))["a", 0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert rows(rig.produce(("a", 0, zstd), version=7))["a", 0].error_code == 0


def test_internal_topics_are_written_by_the_admin_client_only(rig: Rig) -> None:
    rig.commit(topic_records("__consumer_offsets", 8))
    row = rows(rig.produce(("__consumer_offsets", 0, batch())))["__consumer_offsets", 0]
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (
        rows(rig.produce(("__consumer_offsets", 0, batch()), client_id="__admin_client"))[
            "__consumer_offsets", 0
        ].error_code
        == 0
    )


def test_an_isr_below_the_minimum_refuses_only_acks_all(rig: Rig) -> None:
    rig.replicas.leader("r", 0).log.config.min_insync_replicas = 2
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(2), isr=[1])])
    assert rows(rig.produce(("r", 0, batch())))["r", 0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert rows(rig.produce(("r", 0, batch()), acks=1))["r", 0].error_code == 0


def test_the_minimum_isr_is_at_most_the_number_of_replicas(rig: Rig) -> None:
    rig.replicas.leader("a", 0).log.config.min_insync_replicas = 3
    assert rows(rig.produce(("a", 0, batch())))["a", 0].error_code == 0


def test_acks_all_waits_for_the_isr(rig: Rig) -> None:
    assert rig.produce(("r", 0, batch(2)), ("a", 0, batch())) is None
    partition = rig.replicas.leader("r", 0)
    partition.follower_fetched(2, -1, 1, 0)
    assert rig.client.answers == []
    partition.follower_fetched(2, -1, 2, 0)
    answer = rows(rig.client.answers[0])
    assert [(row.error_code, row.base_offset) for row in answer.values()] == [(0, 0), (0, 0)]
    rig.loop.run(5000)
    assert len(rig.client.answers) == 1
    assert rows(rig.produce(("r", 0, batch()), acks=1))["r", 0].base_offset == 2


def test_acks_all_times_out(rig: Rig) -> None:
    assert rig.produce(("r", 0, batch())) is None
    rig.loop.run(999)
    assert rig.client.answers == []
    rig.loop.run(1)
    assert rows(rig.client.answers[0])["r", 0].error_code == ErrorCode.REQUEST_TIMED_OUT
    rig.replicas.leader("r", 0).follower_fetched(2, -1, 1, 0)
    assert len(rig.client.answers) == 1
    assert not rig.handler.waiting


def test_nothing_is_acknowledged_below_the_minimum_isr(rig: Rig) -> None:
    rig.replicas.leader("r", 0).log.config.min_insync_replicas = 2
    assert rig.produce(("r", 0, batch())) is None
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(2), isr=[1])])
    assert not rig.client.answers, "KIP-966: the high watermark stands still"
    rig.loop.run(1000)
    assert rows(rig.client.answers[0])["r", 0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_an_isr_that_shrinks_to_the_leader_replicates_at_once(rig: Rig) -> None:
    assert rig.produce(("r", 0, batch())) is None
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(2), isr=[1])])
    assert rows(rig.client.answers[0])["r", 0].error_code == 0


def test_losing_leadership_ends_the_wait(rig: Rig) -> None:
    assert rig.produce(("r", 0, batch())) is None
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(2), leader=2)])
    assert rows(rig.client.answers[0])["r", 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("leads_again", [False, True])
def test_truncated_records_of_a_waiting_request_are_not_acknowledged(
    rig: Rig, acks: int, leads_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other records at their offsets were replicated, and counted for them."""
    waiting: list[Callable[[], None]] = []
    budget = SimpleNamespace(wait=lambda _size, done: waiting.append(done))
    full = rig.replicas.leader("a", 0).log
    with monkeypatch.context() as patch:
        patch.setattr(full, "append_as_leader", lambda *_a, **_k: _raise(AppendLater("a-0", budget)))
        monkeypatch.setattr(MemoryLog, "settled_end", 0)  # a flush is under way
        assert rig.produce(("r", 0, batch()), ("a", 0, batch()), acks=acks) is None
    log = rig.logs["r", 0]
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(2), leader=2)])
    log.batches.clear()
    log.end_offset, log.truncations = 0, 1
    log.append_as_follower(batch(2, leader_epoch=1))
    if leads_again:
        rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(2), leader=1)])
    log.high_watermark = 2
    monkeypatch.setattr(MemoryLog, "settled_end", 2)
    waiting.pop()()
    answer = rows(rig.seen(rig.client.answers.pop(), 12))
    assert answer["a", 0].error_code == 0
    assert answer["r", 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _raise(error: Exception) -> None:
    raise error


def test_deleting_the_topic_ends_the_wait(rig: Rig) -> None:
    assert rig.produce(("r", 0, batch())) is None
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(2))])
    assert rows(rig.client.answers[0])["r", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_new_leader_epoch_is_recorded_before_its_first_append(rig: Rig) -> None:
    rig.produce(("a", 0, batch(4)))
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=1)])
    assert rig.logs["a", 0].leader_epochs.starts == [(0, 0), (1, 4)]
