"""Brokers that reach no controller: ours refuses clients after a while (KIP-343), Apache Kafka's keeps serving."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import CreateTopicsRequest, ProduceRequest
from tests.compat.members import Members, wait_for
from tests.golden.broker.pair import Pair, Side

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("fencing-parity")]

OURS, KAFKAS = 101, 102
TOPICS = {OURS: "ours", KAFKAS: "kafkas"}


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """One controller and a broker of each kind; leases last one second, so two seconds are enough for ours."""
    leases = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "300"}
    made = Members(tmp_path, ("kraftcluster",), ("kraftcluster", "apache"), overrides=leases)
    try:
        yield made.start()
    finally:
        made.stop()


def produce(side: Side) -> Any:
    batch = build_batch([(None, b"x")], timestamp=1_700_000_000_000)
    rows = [ProduceRequest.PartitionProduceData(0, batch)]
    name = TOPICS[int(side.target.overrides["node.id"])]
    return ProduceRequest(None, 1, 10_000, [ProduceRequest.TopicProduceData(name=name, partition_data=rows)])


def code_of(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_broker_without_controllers_refuses_clients(members: Members) -> None:
    wait_for("both brokers", lambda: members.unfenced(OURS) == members.unfenced(KAFKAS) == {OURS, KAFKAS})
    for broker, name in TOPICS.items():
        assignment = [CreateTopicsRequest.CreatableReplicaAssignment(0, [broker])]
        topic = CreateTopicsRequest.CreatableTopic(name, -1, -1, assignment)
        answer = members.ask(OURS, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0
    ours, kafka = Side("ours", members.nodes[OURS]), Side("Kafka", members.nodes[KAFKAS])
    try:
        for side in (ours, kafka):
            wait_for(f"{side} leads", lambda s=side: code_of(s.ask(produce(s), 9)) == 0)
        controller = members.nodes[1].process
        assert controller is not None
        controller.send_signal(signal.SIGSTOP)
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        wait_for("ours has fenced itself", lambda: code_of(ours.ask(produce(ours), 9)) == refused)
        pair = Pair(kafka, ours)
        pair.differs(
            "self-fencing",
            produce,
            9,
            kafka=lambda answer: code_of(answer) == 0,
            ours=lambda answer: code_of(answer) == refused,
        )
        pair.verdict()
        controller.send_signal(signal.SIGCONT)
        wait_for("ours serves again", lambda: code_of(ours.ask(produce(ours), 9)) == 0)
    finally:
        for side in (ours, kafka):
            side.close()
