"""The law `settled` of consumer groups: who must own what, by the newest metadata.

Seed 60067 of the scenario `whole` with rare paths broke it: a broker forwarded a request for one more partition again,
and the request took effect after its client had given up. The group owned the new partition, and the law was wrong.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.broker.coordinators.group.consumer.changes import CurrentChange, MemberChange
from kraft_node.broker.coordinators.group.consumer.group import FIRST_EPOCH, ConsumerGroup
from kraft_node.broker.coordinators.group.consumer.member import Current, MemberData
from kraft_node.metadata.partitions import PartitionState
from kraft_node.metadata.topics import Topics
from kraft_node.testing.groups import clients
from kraft_node.testing.groups.clients import GroupClients
from kraft_protocol.ids import Uuid

GROUP, MEMBER = "pure", "a"
TOPIC, DELETED, OTHER = (Uuid(bytes([number] * 16)) for number in (7, 8, 9))


def _topics(count: int) -> Topics:
    topics = Topics()
    for topic_id, name, partitions in ((TOPIC, "t", count), (OTHER, "other", 5)):
        topics.create(topic_id, name)
        for number in range(partitions):
            topics.put_partition(topic_id, number, PartitionState((1,), (1,), 1, 0, 0))
    return topics


def _why(monkeypatch: pytest.MonkeyPatch, *, exist: int, known: int, owned: dict[Uuid, tuple[int, ...]]) -> str | None:
    """The verdict about a stable group; the operator knows `known` partitions of the topic, and `exist` exist."""
    group = ConsumerGroup(GROUP)
    group.apply(MemberChange(GROUP, MEMBER, MemberData(MEMBER, names=frozenset(("t",)))))
    group.apply(CurrentChange(GROUP, MEMBER, Current(FIRST_EPOCH, assigned=owned)))
    shard = SimpleNamespace(machine=SimpleNamespace(consumers={GROUP: group}, groups={}))
    monkeypatch.setattr(clients, "coordinating", lambda *_: shard)
    scenario: Any = SimpleNamespace(
        troubles=SimpleNamespace(_newest_image=lambda: SimpleNamespace(topics=_topics(exist))),
        laws=SimpleNamespace(newest_epoch=None),
        cluster=SimpleNamespace(brokers=[None]),
    )
    members = GroupClients(scenario, {"t": known}, "t")
    members.ownerships[GROUP] = None  # type: ignore[assignment]  # only the name counts here
    return members.unstable()


def test_a_partition_that_was_added_after_its_operator_gave_up_is_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _why(monkeypatch, exist=3, known=2, owned={TOPIC: (0, 1, 2)}) is None


def test_a_partition_that_was_added_after_its_operator_gave_up_needs_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    why = _why(monkeypatch, exist=3, known=2, owned={TOPIC: (0, 1)})
    assert why == "the members of pure lack ['t-2'], and own [], which do not exist"


def test_a_partition_of_a_deleted_topic_does_not_count_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    why = _why(monkeypatch, exist=2, known=2, owned={TOPIC: (0,), DELETED: (1,)})
    assert why == "the members of pure lack ['t-1'], and own ['CAgICAgICAgICAgICAgICA-1'], which do not exist"


def test_metadata_that_lacks_a_partition_is_not_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    why = _why(monkeypatch, exist=1, known=2, owned={TOPIC: (0,)})
    assert why == "the metadata has 1 of 2 partitions"
