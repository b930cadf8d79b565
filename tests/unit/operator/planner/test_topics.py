"""KRaftTopics: the plan, and its effects on a simulated cluster of real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kraft_operator.apply import topics
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model.record import Claim
from kraft_operator.plan.topics import (
    BATCH_MAX,
    CLAIMS_MAX,
    INTERNAL,
    DeclaredTopics,
    DesiredTopic,
    TopicPlan,
    TopicSeen,
    TopicsSeen,
    TopicState,
    plan_topics,
    replicas_of,
)
from kraft_operator.protocol import VERSIONS
from kraft_protocol.client.aio import Address, UnreachableError
from kraft_protocol.wire import messages
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.codec import decode, encode
from tests.kip.cluster import Cluster

THERE = TopicSeen("id", 3, 2, {"retention.ms": "5"})
DESIRED = DesiredTopic("t", "t", 3, 2, {"retention.ms": "5"}, topic_id="id", uid="u")
CLAIM = Claim("t", "id", "t", "u")
DEFAULTS = {"partitions": 1, "config": {}, "deletionPolicy": "Keep"}
"""As the API server fills them in, where its definition has these fields."""


def _plan(
    *desired_topics: DesiredTopic,
    there: TopicSeen | None = THERE,
    claims: Mapping[str, Claim] | None = None,
    **declared: Any,
) -> TopicPlan:
    seen = TopicsSeen({} if there is None else {"t": there}, complete=True)
    return plan_topics(DeclaredTopics(tuple(desired_topics), **declared), seen, claims or {})


def _resource(name: str, spec: dict[str, Any], uid: str = "u", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "generation": 2}, "spec": spec, "status": status}


def test_a_topic_that_matches_is_left_alone() -> None:
    plan = _plan(DESIRED)
    assert plan.count == 0
    assert plan.states["t"].ready
    assert plan.claims == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"partitions": 5}, {"grow": {"t": 5}}),
        ({"config": {"retention.ms": "6"}}, {"configure": {"t": ({"retention.ms": "6"}, ())}}),
        (
            {"config": {}, "managed": frozenset({"retention.ms", "gone"})},
            {"configure": {"t": ({}, ("retention.ms",))}},
        ),
    ],
)
def test_a_topic_that_differs_is_changed(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    plan = _plan(replace(DESIRED, **changes))
    assert {key: getattr(plan, key) for key in expected} == expected
    assert plan.count == 1
    assert plan.states["t"].reason == "Changing"


def test_a_value_of_a_topic_in_other_notation_is_not_set_again() -> None:
    """The resource was never ready, and the value was set again in each pass."""
    there = replace(THERE, config={"cleanup.policy": "compact,delete", "preallocate": "true"})
    plan = _plan(replace(DESIRED, config={"cleanup.policy": "compact, delete", "preallocate": "True"}), there=there)
    assert plan.count == 0
    assert plan.states["t"].ready


def test_configurations_that_the_resource_did_not_set_stay() -> None:
    """An adopted topic lost `cleanup.policy=compact`, and a topic lost the throttles of its moves."""
    there = replace(THERE, config={"retention.ms": "5", "cleanup.policy": "compact"})
    adopting = replace(DESIRED, topic_id="", adopt=True)
    plan = _plan(adopting, there=there)
    assert plan.count == 0
    assert plan.states["t"].managed == ("retention.ms",)
    assert _plan(replace(adopting, config={}), there=there).count == 0


def test_an_impossible_change_is_reported_with_the_remedy() -> None:
    plan = _plan(replace(DESIRED, partitions=2))
    assert plan.count == 0
    assert plan.states["t"].reason == "TooManyPartitions"
    assert "spec." in plan.states["t"].message


def test_replicas_are_left_to_the_planner() -> None:
    other = replace(DESIRED, resource="v", topic="v", replicas=None)
    not_its_own = replace(DESIRED, resource="u", replicas=1, topic_id="")
    desired_topics = [replace(DESIRED, replicas=3), not_its_own, other]
    assert replicas_of(desired_topics) == {"t": 3}
    plan = _plan(desired_topics[0])
    assert plan.count == 0
    assert plan.states["t"].reason == "ReplicasMove"


# Ownership of a topic


def test_of_two_resources_the_owner_of_the_topic_keeps_it() -> None:
    """A new resource with a name that sorts first took over the topic of an older resource, and its configuration."""
    late = replace(DESIRED, resource="a", uid="v", topic_id="", created="2026-02-01T00:00:00Z", config={})
    plan = _plan(late, replace(DESIRED, created="2026-03-01T00:00:00Z"))
    assert (plan.states["t"].ready, plan.states["a"].reason) == (True, "TopicTaken")
    assert "KRaftTopic t's" in plan.states["a"].message
    assert plan.count == 0
    fresh = _plan(late, replace(DESIRED, topic_id="", created="2026-01-01T00:00:00Z"), there=None)
    assert [desired.resource for desired in fresh.create] == ["t"]
    assert fresh.states["a"].reason == "TopicTaken"


def test_an_existing_topic_is_adopted_only_on_request() -> None:
    foreign = replace(DESIRED, topic_id="", delete=True, partitions=5, config={"cleanup.policy": "delete"})
    plan = _plan(foreign)
    assert (plan.count, plan.claims, plan.states["t"].reason) == (0, {}, "TopicExists")
    assert "spec.adopt" in plan.states["t"].message
    adopted = _plan(replace(foreign, adopt=True))
    assert adopted.grow == {"t": 5}
    assert adopted.claims == {"t": CLAIM}
    made_anew = _plan(replace(DESIRED, topic_id="other", delete=True))
    assert (made_anew.claims, made_anew.states["t"].reason) == ({}, "TopicExists"), "somebody has made another since"
    assert _plan(replace(foreign, creating=True)).claims == {"t": CLAIM}, "its own, made before a crash"


@pytest.mark.parametrize("topic", sorted(INTERNAL))
def test_internal_topics_are_refused_even_for_adoption(topic: str) -> None:
    """`cleanup.policy=compact` was removed from __consumer_offsets, and Delete destroyed all committed offsets."""
    desired = replace(DESIRED, topic=topic, adopt=True, delete=True, config={}, managed=frozenset({"cleanup.policy"}))
    there = {topic: TopicSeen("id", 3, 2, {"cleanup.policy": "compact"})}
    claims = {topic: Claim(topic, "id", "t", "u")}
    plan = plan_topics(DeclaredTopics((desired,), there=frozenset({("t", "u")})), TopicsSeen(there), claims)
    assert (plan.count, plan.states["t"].reason) == (0, "InternalTopic")
    gone = plan_topics(DeclaredTopics(), TopicsSeen(there), claims)
    assert (gone.count, gone.claims) == (0, {}), "a claim of an older operator deletes nothing"
    internal = {"t": replace(THERE, internal=True)}
    assert plan_topics(DeclaredTopics((DESIRED,)), TopicsSeen(internal), {}).states["t"].reason == "InternalTopic"


# When a topic is deleted


def test_a_topic_is_deleted_with_its_resource_only_by_policy_and_id() -> None:
    assert _plan(replace(DESIRED, delete=True)).claims == {"t": CLAIM}
    gone = _plan(claims={"t": CLAIM})
    assert gone.delete == {"t": CLAIM}
    assert gone.claims == {"t": CLAIM}, "remembered until it is gone"
    assert _plan(claims={"t": replace(CLAIM, id="other")}) == TopicPlan({}), "somebody has made it anew"
    assert _plan(DESIRED, claims={"t": CLAIM}).claims == {}, "the policy was changed to Keep"
    assert _plan(there=None, claims={"t": CLAIM}).claims == {}


SKEWS = {
    "a later policy": {"cluster": "c", **DEFAULTS, "deletionPolicy": "Retain"},
    "too many partitions for this version": {"cluster": "c", **DEFAULTS, "partitions": 200_000},
    "spec.cluster is pruned": DEFAULTS,
    "spec.config is pruned": {"cluster": "c", "partitions": 1, "deletionPolicy": "Delete"},
    "spec.partitions is pruned": {"cluster": "c", "config": {}, "deletionPolicy": "Delete"},
    "spec.deletionPolicy is pruned": {"cluster": "c", "partitions": 1, "config": {}},
    "everything is pruned": {},
    "another type": {"cluster": ["c"], **DEFAULTS},
}


@pytest.mark.parametrize("skew", SKEWS)
def test_an_invalid_resource_keeps_its_topic_and_names_the_reason(skew: str) -> None:
    """With a CRD that is newer or older than the operator, the topic was deleted with its data within 8 s."""
    one = _resource("t", SKEWS[skew], topicId="id")
    declared, states = topics.declared([one], "c", [CLAIM])
    assert states["t"].reason == "NotUnderstood"
    assert "spec." in states["t"].message
    assert "pydantic" not in states["t"].message
    plan = plan_topics(declared, TopicsSeen({"t": THERE}), {"t": CLAIM})
    assert (plan.count, plan.claims) == (0, {"t": CLAIM})
    reported = topics.status(states["t"], one, "2026-01-01T00:00:00Z")
    assert reported["topicId"] == "id", "which topic it has stays in its status"


def test_invalid_values_are_named_with_the_expected_ones() -> None:
    spec = {"cluster": "c", **DEFAULTS, "deletionPolicy": "Retain", "partitions": 200_000}
    text = topics.declared([_resource("t", spec)], "c")[1]["t"].message
    assert "spec.partitions: 200000 is not valid: at most 100000 is expected" in text
    assert "spec.deletionPolicy: \"Retain\" is not valid: 'Keep' or 'Delete' is expected" in text
    assert "CustomResourceDefinitions" in text


def test_a_field_of_a_later_version_is_ignored() -> None:
    declared, states = topics.declared([_resource("t", {"cluster": "c", **DEFAULTS, "later": 1})], "c")
    assert ([desired.resource for desired in declared.desired_topics], states) == (["t"], {})


def test_a_topic_is_kept_while_its_resource_exists_anywhere() -> None:
    elsewhere = _resource("t", {"cluster": "other", **DEFAULTS})
    declared, _ = topics.declared([elsewhere], "c", [CLAIM])
    assert plan_topics(declared, TopicsSeen({"t": THERE}), {"t": CLAIM}).delete == {}
    leaving = _resource("t", {"cluster": "c", **DEFAULTS})
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    declared, _ = topics.declared([leaving], "c", [CLAIM])
    assert plan_topics(declared, TopicsSeen({"t": THERE}), {"t": CLAIM}).delete == {}
    another = _resource("x", {"cluster": "c", **DEFAULTS}, uid="v")
    declared, _ = topics.declared([another], "c", [CLAIM])
    assert plan_topics(declared, TopicsSeen({"t": THERE}), {"t": CLAIM}).delete == {"t": CLAIM}


def test_a_reapplied_resource_adopts_the_topic_of_its_predecessor() -> None:
    again = replace(DESIRED, uid="v", topic_id="", delete=True)
    plan = _plan(again, claims={"t": CLAIM}, there=replace(THERE, id="id"))
    assert (plan.delete, plan.claims) == ({}, {"t": replace(CLAIM, uid="v")})
    declared, _ = topics.declared([_resource("t", {"cluster": "c", **DEFAULTS, "partitions": 0}, uid="v")], "c")
    kept = plan_topics(declared, TopicsSeen({"t": THERE}), {"t": CLAIM})
    assert (kept.delete, kept.claims) == ({}, {"t": CLAIM}), "not understood: it may mean this topic"


def test_a_topic_whose_resource_is_not_recorded_is_kept() -> None:
    old = Claim("t", "id")
    plan = _plan(claims={"t": old})
    assert (plan.delete, plan.claims, plan.kept) == ({}, {}, {"t": old})
    assert _plan(replace(DESIRED, delete=True), claims={"t": old}).claims == {"t": CLAIM}, "it names it by now"


def test_a_topic_that_another_resource_wants_is_kept() -> None:
    other = replace(DESIRED, resource="x", uid="v", topic_id="")
    plan = _plan(other, claims={"t": CLAIM})
    assert (plan.delete, plan.claims, plan.kept) == ({}, {}, {"t": CLAIM})
    assert plan.states["x"].reason == "TopicExists"


def test_invisible_topics_are_neither_created_changed_nor_forgotten() -> None:
    """The operator took them as missing: it asked to create them, and forgot its claims."""
    seen = TopicsSeen({}, {"t": "the operator may not see the topic t"})
    plan = plan_topics(DeclaredTopics((replace(DESIRED, delete=True),)), seen, {"t": CLAIM})
    assert (plan.count, plan.claims, plan.states["t"].reason) == (0, {"t": CLAIM}, "NotVisible")
    assert plan_topics(DeclaredTopics(), seen, {"t": CLAIM}).claims == {"t": CLAIM}


def test_batches_are_bounded() -> None:
    desired_topics = tuple(DesiredTopic(f"t{i}", f"t{i}", 1) for i in range(BATCH_MAX + 7))
    plan = plan_topics(DeclaredTopics(desired_topics), TopicsSeen(), {})
    assert plan.count == BATCH_MAX
    made = {desired.topic for desired in plan.create}
    after = tuple(replace(desired, creating=desired.topic in made) for desired in desired_topics)
    seen = {topic: TopicSeen("id", 1, 1) for topic in made}
    assert plan_topics(DeclaredTopics(after), TopicsSeen(seen), {}).count == 7


def test_owned_topics_are_limited_to_the_room_in_a_status() -> None:
    """The status was refused as too long, and all topics were unmanaged."""
    claims = {f"t{i}": Claim(f"t{i}", "id", f"t{i}") for i in range(CLAIMS_MAX)}
    seen = {topic: TopicSeen("id", 1, 1) for topic in (*claims, "more")}
    desired_topics = [DesiredTopic(topic, topic, 1, delete=True, topic_id="id") for topic in seen]
    plan = plan_topics(DeclaredTopics(tuple(desired_topics)), TopicsSeen(seen), claims)
    assert plan.claims == claims
    assert [(name, one.reason) for name, one in plan.states.items() if not one.ready] == [("more", "TooManyOwned")]
    fewer = tuple(desired for desired in desired_topics if desired.topic != "t7")
    claimed = plan_topics(DeclaredTopics(fewer), TopicsSeen(seen), claims).claims
    assert "more" not in claimed, "t7 is still to be deleted"


# On a cluster


class Simulated:
    """The operator's client; its bytes go to a simulated broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def request(self, _: Address, request: Any) -> Any:
        key = ApiKey(request.SCHEMA.api_key)
        answers: list[Any] = []
        self._cluster.client("b1").request(key, VERSIONS[key], request, answers.append)
        self._cluster.until(lambda: bool(answers))
        (answer,) = answers
        return decode(type(answer), bytes(encode(answer, VERSIONS[key])), VERSIONS[key])


class Complete(MetadataSource):
    """A source whose brokers have applied all metadata."""

    async def is_complete(self, node: int) -> bool:
        return True


class Operator:
    """The reconciler's work on topics, without Kubernetes."""

    def __init__(self) -> None:
        self.cluster = Cluster(1, 3)
        self.client: Any = Simulated(self.cluster)
        self.source = Complete(self.client, {1: Address("b1", 1)})
        self.claims: dict[str, Claim] = {}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.resources: list[dict[str, Any]] = []
        self.announced: list[str] = []

    def settle(self, *resources: dict[str, Any]) -> dict[str, bool]:
        """Run passes until no work is left; returns the ready topics."""
        specs = {name: {"cluster": "c", **DEFAULTS, **spec} for one in resources for name, spec in one.items()}
        for _ in range(10):
            self.resources = [_resource(name, spec, **self.statuses.get(name, {})) for name, spec in specs.items()]
            declared, states = topics.declared(self.resources, "c", self.claims.values())
            asyncio.run(self.report_states(states))
            again = asyncio.run(topics.TopicPass(self.source, self).run(declared, self.claims))
            self.cluster.rest(500)
            if not again:
                break
        return {name: self.statuses[name]["conditions"][0]["status"] == "True" for name in specs}

    def look(self, *names: str) -> TopicsSeen:
        return asyncio.run(topics.look(self.client, Address("b1", 1), names))

    def message(self, name: str) -> str:
        return str(self.statuses[name]["conditions"][0]["message"])

    async def remember(self, claims: Mapping[str, Claim]) -> None:
        self.claims = dict(claims)

    async def report_states(self, states: Mapping[str, TopicState]) -> None:
        for one in self.resources:
            name = one["metadata"]["name"]
            if name in states:
                self.statuses[name] = topics.status(states[name], one, "2026-01-01T00:00:00Z")

    async def gone(self, claims: Collection[Claim]) -> set[str]:
        self.announced += [claim.topic for claim in claims]
        return {claim.topic for claim in claims}

    async def kept(self, claims: Collection[Claim]) -> None:
        self.announced += [f"kept {claim.topic}" for claim in claims]


def test_topics_are_made_changed_and_deleted() -> None:
    operator = Operator()
    many = {f"t{i}": {"partitions": 2, "replicas": 3} for i in range(20)}
    one = {"mine": {"partitions": 1, "replicas": 1, "config": {"retention.ms": "5"}, "deletionPolicy": "Delete"}}
    assert all(operator.settle(many, one).values())
    seen = operator.look("mine", "t3").there
    assert seen["mine"].config == {"retention.ms": "5"}
    assert (seen["t3"].partitions, seen["t3"].replicas) == (2, 3)
    assert operator.claims == {"mine": Claim("mine", seen["mine"].id, "mine", "u")}

    one["mine"] |= {"partitions": 4, "config": {"cleanup.policy": "compact"}}
    assert all(operator.settle(many, one).values())
    seen = operator.look("mine").there
    assert (seen["mine"].partitions, seen["mine"].config) == (4, {"cleanup.policy": "compact"})

    operator.settle({name: spec for name, spec in many.items() if name != "t3"})
    assert operator.claims == {}
    assert operator.announced == ["mine"], "before it was deleted"
    assert operator.look("mine", "t3").there.keys() == {"t3"}, "t3 was kept"


def test_an_adopted_topic_keeps_configurations_that_the_resource_does_not_set() -> None:
    operator = Operator()
    operator.settle({"t": {"config": {"cleanup.policy": "compact"}}})
    operator.statuses.clear()  # somebody else created it
    desired = {"t": {"config": {"retention.ms": "5"}, "partitions": 2, "deletionPolicy": "Delete"}}
    assert operator.settle(desired) == {"t": False}
    assert "spec.adopt" in operator.message("t")
    assert (operator.look("t").there["t"].partitions, operator.claims) == (1, {})
    operator.settle({})
    assert "t" in operator.look("t").there
    desired["t"] |= {"adopt": True}
    assert operator.settle(desired) == {"t": True}
    there = operator.look("t").there["t"]
    assert (there.partitions, there.config) == (2, {"cleanup.policy": "compact", "retention.ms": "5"})
    desired["t"] |= {"config": {}}
    operator.settle(desired)
    assert operator.look("t").there["t"].config == {"cleanup.policy": "compact"}, "what it had set is taken back"


def test_a_topic_created_before_a_crash_is_recognized() -> None:
    """`carry_out` dies after the request; the next operator finds a topic that no status names."""
    operator = Operator()
    create = topics.carry_out

    async def and_die(*words: Any) -> Any:
        await create(*words)
        raise UnreachableError("the operator dies")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "carry_out", and_die)
        with pytest.raises(UnreachableError):
            operator.settle({"t": {"partitions": 1}})
    operator.cluster.rest(500)
    assert operator.settle({"t": {"partitions": 1}}) == {"t": True}


def test_an_operator_recognizes_its_topics_under_an_older_definition() -> None:
    """Helm upgrades the operator and keeps the definitions: the API server drops fields that they lack."""

    class Old(Operator):
        async def report_states(self, states: Mapping[str, TopicState]) -> None:
            await super().report_states(states)
            for status in self.statuses.values():
                status.pop("creating", None)
                status.pop("managedConfig", None)

    operator = Old()
    assert operator.settle({"t": {"config": {"retention.ms": "5"}}}) == {"t": True}
    assert operator.settle({"t": {"config": {"retention.ms": "6"}, "partitions": 2}}) == {"t": True}
    assert operator.look("t").there["t"].config == {"retention.ms": "6"}


def test_refusals_of_the_cluster_are_reported() -> None:
    operator = Operator()
    ready = operator.settle({"t": {"replicas": 7}, "u": {"config": {"no.such.key": "1"}}})
    assert ready == {"t": False, "u": False}
    assert "7" in operator.message("t")
    assert "no.such.key" in operator.message("u")
    assert not operator.statuses["t"]["creating"], "a topic that somebody makes now is not its own"


def test_an_impossible_topic_name_does_not_block_others() -> None:
    """A resource's name may be longer than a topic's: it was requested with all others, which waited without end."""
    operator = Operator()
    name = "t" * 250
    assert operator.settle({name: {"partitions": 1}, "u": {"partitions": 1}}) == {name: False, "u": True}


def test_topics_of_another_cluster_are_ignored() -> None:
    operator = Operator()
    with pytest.raises(UnreachableError, match="belongs to cluster"):
        asyncio.run(topics.look(operator.client, Address("b1", 1), ["t"], "another"))


def test_a_topic_with_a_hidden_configuration_is_hidden() -> None:
    """DescribeConfigs was refused, and the topic counted as missing."""
    operator = Operator()
    operator.settle({"t": {}})
    ask = operator.client.request

    async def denied(where: Address, request: Any) -> Any:
        answer = await ask(where, request)
        if isinstance(answer, messages.DescribeConfigsResponse):
            for one in answer.results:
                one.error_code, one.configs = 29, []
        return answer

    operator.client.request = denied
    seen = operator.look("t")
    assert seen.there == {}
    assert "DescribeConfigs" in seen.hidden["t"]


def test_the_status_keeps_the_time_of_the_last_change() -> None:
    resource: dict[str, Any] = {"metadata": {"name": "t", "generation": 2}}
    state = _plan(DESIRED).states["t"]
    first = topics.status(state, resource, "2026-01-01T00:00:00Z")
    again = topics.status(state, {**resource, "status": first}, "2027-01-01T00:00:00Z")
    assert again == first
    assert first["topicId"] == "id"
