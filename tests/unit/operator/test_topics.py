"""KRaftTopics: the plan, and what it does to a simulated cluster of real nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kraft_node.wire import messages
from kraft_node.wire.api import ApiKey
from kraft_node.wire.codec import decode, encode
from kraft_operator.apply import topics
from kraft_operator.kafka.client import Address
from kraft_operator.plan.topics import BATCH_MAX, OWNED_MAX, TopicPlan, TopicSeen, TopicWish, plan_topics, replicas_of
from tests.kip.cluster import Cluster

SEEN = {"t": TopicSeen("id", 3, 2, {"retention.ms": "5"})}
WISH = TopicWish("t", "t", 3, 2, {"retention.ms": "5"})


def test_what_is_as_wished_is_left_alone() -> None:
    plan = plan_topics([WISH], SEEN, {})
    assert plan.count == 0
    assert plan.states["t"].ready
    assert plan.owned == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"partitions": 5}, {"grow": {"t": 5}}),
        ({"config": {"retention.ms": "6"}}, {"configure": {"t": ({"retention.ms": "6"}, ())}}),
        ({"config": {}}, {"configure": {"t": ({}, ("retention.ms",))}}),
    ],
)
def test_what_differs_is_changed(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    plan = plan_topics([replace(WISH, **changes)], SEEN, {})
    assert {key: getattr(plan, key) for key in expected} == expected
    assert plan.count == 1
    assert plan.states["t"].reason == "Changing"


def test_a_value_that_a_broker_tells_in_other_words_is_the_same() -> None:
    """The resource was never ready, and the value was set again in each pass."""
    there = {"t": replace(SEEN["t"], config={"cleanup.policy": "compact,delete", "preallocate": "true"})}
    wish = replace(WISH, config={"cleanup.policy": "compact, delete", "preallocate": "True"})
    plan = plan_topics([wish], there, {})
    assert plan.count == 0
    assert plan.states["t"].ready


def test_throttles_of_moves_are_not_taken_back() -> None:
    there = {"t": replace(SEEN["t"], config={"retention.ms": "5", "leader.replication.throttled.replicas": "*"})}
    assert plan_topics([WISH], there, {}).count == 0


def test_what_cannot_be_done_is_said_with_what_to_do() -> None:
    plan = plan_topics([replace(WISH, partitions=2)], SEEN, {})
    assert plan.count == 0
    assert plan.states["t"].reason == "TooManyPartitions"
    assert "spec." in plan.states["t"].message


def test_replicas_are_the_planners_business() -> None:
    other = replace(WISH, resource="v", topic="v", replicas=None)
    wishes = [replace(WISH, replicas=3), replace(WISH, resource="u", replicas=1), other]
    assert replicas_of(wishes) == {"t": 3}
    plan = plan_topics(wishes[:1], SEEN, {})
    assert plan.count == 0
    assert plan.states["t"].reason == "ReplicasMove"


def test_one_topic_has_one_resource() -> None:
    plan = plan_topics([replace(WISH, resource="b"), replace(WISH, resource="a")], SEEN, {})
    assert plan.states["a"].ready
    assert plan.states["b"].reason == "TopicTaken"


def test_a_topic_goes_with_its_resource_only_where_that_was_wished_and_only_by_its_id() -> None:
    assert plan_topics([replace(WISH, delete=True)], SEEN, {}).owned == {"t": "id"}
    gone = plan_topics([], SEEN, {"t": "id"})
    assert gone.delete == {"t": "id"}
    assert gone.owned == {"t": "id"}, "remembered until it is gone"
    assert plan_topics([], SEEN, {"t": "other"}) == TopicPlan({}), "somebody has made it anew"
    assert plan_topics([WISH], SEEN, {"t": "id"}).owned == {}, "the policy was changed to Keep"
    assert plan_topics([], {}, {"t": "id"}).owned == {}


def test_batches_are_bounded() -> None:
    wishes = [TopicWish(f"t{i}", f"t{i}", 1) for i in range(BATCH_MAX + 7)]
    plan = plan_topics(wishes, {}, {})
    assert plan.count == BATCH_MAX
    seen = {wish.topic: TopicSeen("id", 1, 1) for wish in plan.create}
    assert plan_topics(wishes, seen, {}).count == 7


def test_no_more_topics_go_with_their_resources_than_a_status_has_room_for() -> None:
    """The status was refused as too long, and no topic was looked after any more."""
    owned = {f"t{i}": "id" for i in range(OWNED_MAX)}
    seen = {topic: TopicSeen("id", 1, 1) for topic in (*owned, "more")}
    wishes = [TopicWish(topic, topic, 1, delete=True) for topic in seen]
    plan = plan_topics(wishes, seen, owned)
    assert plan.owned == owned
    assert [(name, one.reason) for name, one in plan.states.items() if not one.ready] == [("more", "TooManyOwned")]
    fewer = plan_topics([wish for wish in wishes if wish.topic != "t7"], seen, owned)
    assert "more" not in fewer.owned, "t7 is still to be deleted"


# On a cluster


class Simulated:
    """The operator's client, whose bytes are a simulated broker's."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def ask(self, _: Address, api: Any, **fields: Any) -> dict[str, Any]:
        request = decode(getattr(messages, f"{api.name}Request"), api.request.encode(fields), api.version)
        answers: list[Any] = []
        self._cluster.client("b1").ask(ApiKey(api.key), api.version, request, answers.append)
        self._cluster.until(lambda: bool(answers))
        (answer,) = answers
        found: dict[str, Any] = api.response.decode(bytes(encode(answer, api.version)))
        return found


class Operator:
    """What the reconciler does with topics, without Kubernetes."""

    def __init__(self) -> None:
        self.cluster = Cluster(1, 3)
        self.client: Any = Simulated(self.cluster)
        self.owned: dict[str, str] = {}
        self.refused: dict[str, str] = {}

    def settle(self, *resources: dict[str, Any]) -> dict[str, bool]:
        """Passes until nothing is left to do; who is ready."""
        wanted, _ = topics.wishes(
            [
                {"metadata": {"name": name}, "spec": {"cluster": "c", **spec}}
                for one in resources
                for name, spec in one.items()
            ],
            "c",
        )
        for _ in range(10):
            seen = asyncio.run(self._look(wanted))
            plan = plan_topics(wanted, seen, self.owned)
            self.owned = plan.owned
            if plan.count == 0:
                break
            self.refused = asyncio.run(topics.carry_out(self.client, Address("b1", 1), plan))
            self.cluster.rest(500)
        self.seen = seen
        return {name: state.ready for name, state in plan.states.items()}

    async def _look(self, wanted: list[TopicWish]) -> dict[str, TopicSeen]:
        names = sorted({*self.owned, *(wish.topic for wish in wanted)})
        return await topics.look(self.client, Address("b1", 1), names)


def test_topics_are_made_changed_and_deleted() -> None:
    operator = Operator()
    many = {f"t{i}": {"partitions": 2, "replicas": 3} for i in range(20)}
    one = {"mine": {"partitions": 1, "replicas": 1, "config": {"retention.ms": "5"}, "deletionPolicy": "Delete"}}
    ready = operator.settle(many, one)
    assert all(ready.values())
    assert operator.seen["mine"].config == {"retention.ms": "5"}
    assert (operator.seen["t3"].partitions, operator.seen["t3"].replicas) == (2, 3)
    assert operator.owned == {"mine": operator.seen["mine"].id}

    one["mine"] |= {"partitions": 4, "config": {"cleanup.policy": "compact"}}
    assert all(operator.settle(many, one).values())
    assert operator.seen["mine"].partitions == 4
    assert operator.seen["mine"].config == {"cleanup.policy": "compact"}

    operator.settle({name: spec for name, spec in many.items() if name != "t3"})
    assert operator.owned == {}
    assert asyncio.run(topics.look(operator.client, Address("b1", 1), ["mine", "t3"])).keys() == {"t3"}, "t3 was kept"


def test_what_the_cluster_refuses_is_told() -> None:
    operator = Operator()
    ready = operator.settle(
        {"t": {"partitions": 1, "replicas": 7}, "u": {"partitions": 1, "config": {"no.such.key": "1"}}}
    )
    assert ready == {"t": False, "u": False}
    assert set(operator.refused) == {"t", "u"}
    assert "7" in operator.refused["t"]
    assert "no.such.key" in operator.refused["u"]


def test_a_name_that_no_topic_can_have_holds_up_no_other() -> None:
    """A resource's name may be longer than a topic's: it was asked for with all others, which waited for ever."""
    operator = Operator()
    name = "t" * 250
    ready = operator.settle({name: {"partitions": 1}, "u": {"partitions": 1}})
    assert ready == {name: False, "u": True}
    assert set(operator.refused) == {name}


def test_a_resource_that_is_not_understood_is_told_so() -> None:
    found, wrong = topics.wishes([{"metadata": {"name": "t"}, "spec": {"cluster": "c", "partitions": 0}}], "c")
    assert found == []
    assert wrong["t"].reason == "NotUnderstood"
    other, none = topics.wishes([{"metadata": {"name": "t"}, "spec": {"cluster": "other", "partitions": 1}}], "c")
    assert (other, none) == ([], {})


def test_the_status_keeps_the_time_of_the_last_change() -> None:
    resource: dict[str, Any] = {"metadata": {"name": "t", "generation": 2}}
    state = plan_topics([WISH], SEEN, {}).states["t"]
    first = topics.status(state, SEEN["t"], resource, "2026-01-01T00:00:00Z")
    again = topics.status(state, SEEN["t"], {**resource, "status": first}, "2027-01-01T00:00:00Z")
    assert again == first
    assert first["topicId"] == "id"
