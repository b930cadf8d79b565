"""Produce to very many partitions: logs are opened and batches appended in turns of the loop, in order."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.broker.handlers.produce import APPENDED_AT_ONCE, OPENED_AT_ONCE
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import ProduceRequest
from tests.unit.broker.producing.test_producing import Rig, batch, rows
from tests.unit.broker.world import topic_records

COUNT = 2 * APPENDED_AT_ONCE


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.commit(topic_records("a", 1, COUNT))
    return made


def ask(rig: Rig, indexes: Any, acks: int = -1) -> Any:
    data = [ProduceRequest.PartitionProduceData(index, batch()) for index in indexes]
    topics = [ProduceRequest.TopicProduceData(name="a", topic_id=bytes(16), partition_data=data)]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    return rig.handler(rig.client.context(0, 12, "test"), request)


def test_logs_that_are_not_open_are_opened_in_turns(rig: Rig) -> None:
    assert ask(rig, range(COUNT)) is None
    assert len(rig.logs) == OPENED_AT_ONCE
    assert not rig.client.answers
    rig.loop.turn()
    assert OPENED_AT_ONCE < len(rig.logs) < COUNT
    rig.loop.run()
    (response,) = rig.client.answers
    found = rows(response)
    assert list(found) == [("a", index) for index in range(COUNT)]
    assert {(row.error_code, row.base_offset) for row in found.values()} == {(0, 0)}
    assert all(log.end_offset == 1 for log in rig.logs.values())


def test_few_logs_are_opened_at_once(rig: Rig) -> None:
    assert ask(rig, range(OPENED_AT_ONCE)) is not None


def test_very_many_batches_for_open_logs_are_appended_in_turns(rig: Rig) -> None:
    ask(rig, range(COUNT))
    rig.loop.run()
    rig.client.answers.clear()
    assert ask(rig, range(COUNT)) is None
    assert sum(log.end_offset == 2 for log in rig.logs.values()) == APPENDED_AT_ONCE
    rig.loop.run()
    assert {row.base_offset for row in rows(rig.client.answers[0]).values()} == {1}


def test_errors_of_later_partitions_are_reported_for_them(rig: Rig) -> None:
    assert ask(rig, [*range(OPENED_AT_ONCE), COUNT, 9, COUNT + 1]) is None
    rig.loop.run()
    found = rows(rig.client.answers[0])
    assert found["a", COUNT].error_code == found["a", COUNT + 1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found["a", 9].error_code == 0


def test_batches_of_a_partition_that_is_named_twice_stay_in_order(rig: Rig) -> None:
    assert ask(rig, [*range(COUNT), *range(COUNT)]) is None
    rig.loop.run()
    offsets = [row.base_offset for topic in rig.client.answers[0].responses for row in topic.partition_responses]
    assert offsets == [0] * COUNT + [1] * COUNT


def test_a_connection_handles_no_other_request_during_a_large_produce(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(rig.client, "bar", lambda: reported.append("bar"))
    monkeypatch.setattr(rig.client, "unbar", lambda: reported.append("unbar"))
    ask(rig, range(COUNT), acks=0)
    assert reported == ["bar"]
    rig.loop.run()
    assert reported == ["bar", "unbar"]
    assert not rig.client.closed
