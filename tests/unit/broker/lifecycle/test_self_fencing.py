"""KIP-343: a broker without contact to a controller refuses clients, finishes accepted requests, and returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_node.broker.self_fencing import SelfFence, timeout_of
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored
from kraft_protocol.wire.api import ApiKey
from tests.unit.broker.lifecycle.rig import Rig
from tests.unit.broker.world import Loop, broker_records, topic_id, topic_records

SESSION_MS = 9_000


def test_the_timeout_is_longer_than_the_controllers() -> None:
    assert timeout_of("", SESSION_MS) == 18_000
    assert timeout_of("0", SESSION_MS) == 0
    assert timeout_of("9001", SESSION_MS) == 9_001
    with pytest.raises(ValueError, match=r"longer than broker\.session\.timeout\.ms=9000"):
        timeout_of("9000", SESSION_MS)


def test_a_broker_fences_itself_without_heartbeats_and_recovers_with_them() -> None:
    loop = Loop()
    fence = SelfFence(loop, loop, 1000)
    seen: list[bool] = []
    fence.on_change = lambda: seen.append(fence.fenced)
    loop.run(5000)
    assert not fence.fenced, "a broker that has never been acknowledged has nothing to refuse yet"
    fence.acknowledged()
    loop.run(900)
    fence.acknowledged()
    loop.run(999)
    assert not fence.fenced
    loop.run(1)
    assert (fence.fenced, fence.times) == (True, 1)
    fence.acknowledged()
    assert not fence.fenced
    loop.run(1000)
    assert seen == [True, False, True]
    fence.close()
    assert loop.pending == 0


def test_without_a_timeout_a_broker_never_fences_itself() -> None:
    loop = Loop()
    fence = SelfFence(loop, loop, 0)
    fence.acknowledged()
    loop.run(10**9)
    assert not fence.fenced


def _fetch(rig: Rig, **fields: Any) -> Any:
    row = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = m.FetchRequest(max_wait_ms=0, topics=[m.FetchRequest.FetchTopic(topic="a", partitions=[row])])
    for name, value in fields.items():
        setattr(request, name, value)
    return rig.call(ApiKey.FETCH, 12, request).responses[0].partitions[0]


def test_clients_are_refused_and_followers_are_not(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(broker_records(2) + topic_records("a", 1, isr=(1, 2)))
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), isr=[1])])
    rig.broker.fence.acknowledged()
    assert rig.produce("a").error_code == 0
    rig.loop.run(18_000)
    assert not rig.broker.ready
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        rig.produce("a")
    assert _fetch(rig).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert _fetch(rig, replica_id=2).records, "what was accepted can still be replicated"
    rig.broker.fence.acknowledged()
    assert rig.produce("a").error_code == 0
    assert _fetch(rig).error_code == 0
