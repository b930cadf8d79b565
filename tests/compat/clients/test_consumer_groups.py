"""Consumers of KIP-848's protocol (`group.protocol=consumer`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.compat.targets import Target

CLIENT = "confluent-kafka (consumer protocol)"
WAIT_S = 60.0

Parts = set[tuple[str, int]]


class Member:
    """A consumer with its assignment."""

    def __init__(self, cluster: Target, group: str, topics: list[str], **settings: Any) -> None:
        from confluent_kafka import Consumer

        self.assigned: Parts = set()
        self.messages: list[Any] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.consumer.subscribe(topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def _assign(self, _consumer: Any, parts: list[Any]) -> None:
        self.consumer.incremental_assign(parts)
        self.assigned |= {(p.topic, p.partition) for p in parts}

    def _revoke(self, _consumer: Any, parts: list[Any]) -> None:
        self.consumer.incremental_unassign(parts)
        self.assigned -= {(p.topic, p.partition) for p in parts}

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            self.messages.append(message)


@contextmanager
def members(cluster: Target, group: str, topics: list[str], *settings: dict[str, Any]) -> Iterator[list[Member]]:
    made = [Member(cluster, group, topics, **one) for one in settings]
    try:
        yield made
    finally:
        for member in made:
            member.consumer.close()


def until(condition: Callable[[], bool], *polled: Member) -> None:
    """Poll the members until the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, [m.assigned for m in polled]
        for member in polled:
            member.poll()


def shared(count: int, topic: str, *all_members: Member) -> bool:
    """Whether the members have all partitions, each once, and as evenly as possible."""
    parts = [m.assigned for m in all_members]
    sizes = [len(p) for p in parts]
    whole = {(topic, i) for i in range(count)}
    return set().union(*parts) == whole and sum(sizes) == count and max(sizes) - min(sizes) <= 1


def create(cluster: Target, partitions: int, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(30)


def produce(cluster: Target, topic: str, partitions: int, each: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(partitions):
        for i in range(each):
            producer.produce(topic, f"{partition}/{i}", partition=partition)
    assert producer.flush(30) == 0


class TestConfluentConsumerGroups:
    """librdkafka 2.x through confluent-kafka."""

    def test_a_member_reads_commits_and_goes_on(self, cluster: Target, name: str) -> None:
        create(cluster, 3, name)
        produce(cluster, name, 3, 10)
        with members(cluster, name, [name], {}) as (one,):
            until(lambda: len(one.messages) == 30, one)
            one.consumer.commit(asynchronous=False)
        produce(cluster, name, 3, 1)
        with members(cluster, name, [name], {}) as (one,):
            until(lambda: len(one.messages) == 3, one)
            assert {m.offset() for m in one.messages} == {10}

    def test_three_members_share_and_a_leaver_hands_over(self, cluster: Target, name: str) -> None:
        create(cluster, 7, name)
        with members(cluster, name, [name], {}, {}, {}) as (a, b, c):
            until(lambda: shared(7, name, a, b, c), a, b, c)
            before = a.assigned | b.assigned
            c.consumer.close()
            c.assigned.clear()
            until(lambda: shared(7, name, a, b), a, b)
            assert before <= a.assigned | b.assigned

    def test_a_static_member_comes_back_to_its_partitions(self, cluster: Target, name: str) -> None:
        create(cluster, 4, name)
        with members(cluster, name, [name], {"group.instance.id": "a"}, {"group.instance.id": "b"}) as (a, b):
            until(lambda: shared(4, name, a, b), a, b)
            before, kept = set(a.assigned), set(b.assigned)
            a.consumer.close()
            with members(cluster, name, [name], {"group.instance.id": "a"}) as (again,):
                until(lambda: again.assigned == before, again, b)
                assert b.assigned == kept

    def test_a_pattern_finds_topics_that_are_made_later(self, cluster: Target, name: str) -> None:
        create(cluster, 2, f"{name}-1")
        with members(cluster, name, [f"^{name}-.*"], {}) as (one,):
            until(lambda: one.assigned == {(f"{name}-1", 0), (f"{name}-1", 1)}, one)
            create(cluster, 1, f"{name}-2")
            until(lambda: (f"{name}-2", 0) in one.assigned, one)

    def test_the_administrator_sees_groups_of_both_protocols(self, cluster: Target, name: str) -> None:
        from confluent_kafka import ConsumerGroupState, ConsumerGroupType
        from confluent_kafka.admin import AdminClient

        create(cluster, 2, name)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        with members(cluster, name, [name], {"client.id": "seen"}) as (one,):
            until(lambda: len(one.assigned) == 2, one)
            listed = {g.group_id: g for g in admin.list_consumer_groups().result(30).valid}
            assert listed[name].type == ConsumerGroupType.CONSUMER
            assert listed[name].state == ConsumerGroupState.STABLE
            described = admin.describe_consumer_groups([name])[name].result(30)
            assert described.state == ConsumerGroupState.STABLE
            assert described.partition_assignor == "uniform"
            (member,) = described.members
            assert member.client_id == "seen"
            assert {(p.topic, p.partition) for p in member.assignment.topic_partitions} == one.assigned
        admin.delete_consumer_groups([name])[name].result(30)
        assert name not in {g.group_id for g in admin.list_consumer_groups().result(30).valid}


def test_members_go_on_after_a_restart_of_the_node(make_target: Callable[..., Target]) -> None:
    target = make_target("kraftcluster").start()
    create(target, 4, "t")
    with members(target, "g", ["t"], {}, {}) as (a, b):
        until(lambda: shared(4, "t", a, b), a, b)
        before = set(a.assigned)
        produce(target, "t", 4, 2)
        until(lambda: len(a.messages) + len(b.messages) == 8, a, b)
        a.consumer.commit(asynchronous=False)
        target.stop()
        target.start()
        produce(target, "t", 4, 1)
        until(lambda: len(a.messages) + len(b.messages) == 12, a, b)
        assert a.assigned == before, "nobody was rebalanced"
        a.consumer.commit(asynchronous=False)
