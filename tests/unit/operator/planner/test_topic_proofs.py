"""Topics that a lagging broker does not show: claims and configurations are kept until a proof."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kraft_operator.apply import topics
from kraft_operator.plan.topics import DeclaredTopics, TopicSeen, TopicsSeen, plan_topics, unseen
from tests.unit.operator.planner.test_topics import CLAIM, DEFAULTS, DESIRED, THERE, Operator, _resource


@pytest.mark.parametrize("there", [{}, {"t": replace(THERE, id="former")}], ids=["not seen", "a former topic"])
def test_a_view_without_a_proof_ends_no_claim(there: dict[str, TopicSeen]) -> None:
    """A broker that lags did not show a topic, its claim ended, and the topic outlived its resource."""
    for declared in (DeclaredTopics(), DeclaredTopics((DESIRED,), there=frozenset({("t", "u")}))):
        plan = plan_topics(declared, TopicsSeen(there), {"t": CLAIM})
        assert plan.claims == {"t": CLAIM}
        assert not plan.delete
        assert plan_topics(declared, TopicsSeen(there, complete=True), {"t": CLAIM}).claims == {}


def test_a_configuration_that_is_removed_before_it_is_seen_is_reset_later() -> None:
    changed = replace(DESIRED, config={}, managed=frozenset({"retention.ms"}))
    lagging = TopicsSeen({"t": replace(THERE, config={})})
    declared = DeclaredTopics((changed,))
    assert unseen(declared, (), lagging)
    assert plan_topics(declared, lagging, {}).states["t"].managed == ("retention.ms",)
    plan = plan_topics(declared, TopicsSeen({"t": THERE}), {})
    assert plan.configure == {"t": ({}, ("retention.ms",))}
    assert not unseen(declared, (), TopicsSeen({"t": THERE}))
    assert plan_topics(declared, replace(lagging, complete=True), {}).states["t"].managed == ()


def test_a_topic_that_is_deleted_before_it_is_seen_has_a_claim() -> None:
    operator = Operator()
    specs = {"cluster": "c", **DEFAULTS, "deletionPolicy": "Delete"}
    operator.resources = [_resource("quick", specs)]
    declared, _ = topics.declared(operator.resources, "c")
    asyncio.run(topics.TopicPass(operator.source, operator).run(declared, {}))
    assert operator.claims["quick"].resource == "quick"
    operator.cluster.rest(500)
    operator.settle()
    assert operator.look("quick").there == {}
    assert operator.claims == {}
