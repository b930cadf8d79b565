"""Requests for very much data: bounded work a step, and costs in proportion to the request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from kraft_node.base import turns
from kraft_node.base.config import describe
from kraft_node.base.config.resources import GROUP_RESOURCE, TOPIC_RESOURCE
from kraft_node.base.long_answers import INLINE_STEPS
from kraft_node.base.turns import Turns
from kraft_node.broker.authorization import groups, topics
from kraft_node.broker.authorization.gate import Gate
from kraft_node.broker.authorization.metadata import TOPICS_A_STEP as TOPICS_JUDGED
from kraft_node.broker.authorization.metadata import metadata
from kraft_node.broker.handlers.list_config_resources import NAMES_A_STEP, list_config_resources
from kraft_node.broker.handlers.metadata import TOPICS_A_STEP
from kraft_node.broker.pieces import RESOURCES_MAX, in_pieces
from kraft_node.security.authorizer import Authorizer
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    DescribeConfigsRequest,
    ListConfigResourcesRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from tests.unit.broker.requests import test_admin, test_metadata
from tests.unit.broker.world import topic_records
from tests.unit.server.connections.fakes import World

Resource = DescribeConfigsRequest.DescribeConfigsResource
DENIED = 5_000
CALLS_A_TOPIC = 60


def calls(function: Callable[[], Any]) -> int:
    """The number of calls of Python functions that `function` makes, including resumed generators."""
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose configuration has been assembled so far."""
    seen: list[str] = []
    real = describe.describe_topic

    def counted(*args: Any) -> Any:
        seen.append("topic")
        return real(*args)

    monkeypatch.setattr(describe, "describe_topic", counted)
    return seen


def ask_for(resources: list[Any]) -> Any:
    """The listener's answer to a request for that many resources."""
    rig = test_admin.Rig()
    handlers = in_pieces(rig.turns, {ApiKey.DESCRIBE_CONFIGS: rig.describe_configs})
    request = DescribeConfigsRequest(resources=resources)
    assert handlers[ApiKey.DESCRIBE_CONFIGS](rig.client.context(32, 4), request) is None
    rig.loop.run()
    return rig.client.answers.pop()


def test_a_topic_named_many_times_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = described(monkeypatch)
    response = ask_for([Resource(TOPIC_RESOURCE, "a", None) for _ in range(20_000)])
    assert [result.resource_name for result in response.results] == ["a"]
    assert len(seen) == 1


def test_many_topics_are_described_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = test_admin.Rig()
    world = World({})
    rig.turns = Turns(world.env)
    seen = described(monkeypatch)
    resources = [Resource(TOPIC_RESOURCE, "a", [f"key{i}"]) for i in range(100)]
    ctx = rig.client.context(32, 4)
    assert rig.describe_configs(ctx, DescribeConfigsRequest(resources=resources)) is None
    assert len(seen) < INLINE_STEPS
    world.scheduler.run()
    assert len(rig.client.answers[0].results) == len(seen) == 100


def test_more_resources_than_an_answer_has_room_for_are_refused() -> None:
    response = ask_for([Resource(TOPIC_RESOURCE, f"t{i}", None) for i in range(RESOURCES_MAX + 1)])
    assert {result.error_code for result in response.results} == {ErrorCode.INVALID_REQUEST}


def test_metadata_of_many_names_is_answered_in_turns() -> None:
    rig = test_metadata.Rig()
    world = World({})
    rig.turns = rig.handler.turns = Turns(world.env)
    names = ["a", *(f"missing-{i}" for i in range(5_000)), "b"]
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    at_once = calls(lambda: rig.handler(rig.client.context(3, 9), request))
    assert at_once < 40 * INLINE_STEPS * TOPICS_A_STEP
    assert not rig.client.answers
    world.scheduler.run()
    (response,) = rig.client.answers
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert len(codes) == len(names)
    assert (codes["a"], codes["b"], codes["missing-7"]) == (0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_metadata_of_all_topics_omits_topics_deleted_between_turns() -> None:
    rig = test_metadata.Rig()
    world = World({})
    rig.turns = rig.handler.turns = Turns(world.env)
    more = [record for i in range(1_000) for record in topic_records(f"more-{i}", 100 + i)]
    test_metadata.replay(rig.image, more)
    assert rig.handler(rig.client.context(3, 9), MetadataRequest(topics=None)) is None
    gone = test_metadata.stored.RemoveTopicRecord(topic_id=test_metadata.topic_id(1_099))
    test_metadata.replay(rig.image, [gone])
    world.scheduler.run()
    (response,) = rig.client.answers
    assert len(response.topics) == 2 + 999


def test_the_names_of_very_many_resources_are_listed_in_turns() -> None:
    rig = test_metadata.Rig()
    world = World({})
    rig.turns = rig.handler.turns = Turns(world.env)
    count = 2 * INLINE_STEPS * NAMES_A_STEP
    more = [record for i in range(count) for record in topic_records(f"more-{i}", 100 + i)]
    test_metadata.replay(rig.image, more)
    request = ListConfigResourcesRequest(resource_types=[TOPIC_RESOURCE, GROUP_RESOURCE])
    assert list_config_resources(rig.turns, rig.metadata_cache, rig.client.context(74, 1), request) is None
    assert not rig.client.answers
    world.scheduler.run()
    (response,) = rig.client.answers
    assert len(response.config_resources) == 2 + count


def test_the_long_answer_of_a_disconnected_client_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = test_admin.Rig()
    world = World({})
    rig.turns = Turns(world.env)
    seen = described(monkeypatch)
    resources = [Resource(TOPIC_RESOURCE, "a", [f"key{i}"]) for i in range(100)]
    rig.describe_configs(rig.client.context(32, 4), DescribeConfigsRequest(resources=resources))
    rig.client.closed = True
    world.scheduler.run()
    assert len(seen) < INLINE_STEPS
    assert not rig.client.answers


class OpenGroups(Gate):
    """An authorization that permits all groups."""

    def require_group(self, *_: Any) -> None: ...


class Denier:
    """An authorization that denies Describe on every topic."""

    def __init__(self) -> None:
        self.rig = test_metadata.Rig()
        authorizer = Authorizer()
        authorizer.completed()
        self.gate = OpenGroups(authorizer, self.rig.image, self.rig.turns, self.rig.config)

    def ctx(self) -> Any:
        return self.rig.client.context(0, 7)


def test_denied_topics_cost_a_bounded_number_of_calls() -> None:
    denier = Denier()
    asked = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=f"t{i}", partitions=[]) for i in range(DENIED)],
    )
    answers: list[Any] = []

    def ask() -> None:
        handler = lambda ctx, request: ListOffsetsResponse(topics=[])  # noqa: E731
        answers.append(topics.list_offsets(denier.gate, handler, denier.ctx(), asked))

    assert calls(ask) < CALLS_A_TOPIC * DENIED
    assert len(answers[0].topics) == DENIED


def test_denied_topics_of_offset_delete_are_not_compared() -> None:
    denier = Denier()
    compared = 0
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic

    class Named(topic):  # type: ignore[misc, valid-type]
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = None  # type: ignore[assignment]

    named = [Named(name=f"t{i}", partitions=[]) for i in range(DENIED)]
    request = OffsetDeleteRequest(group_id="g", topics=named)
    response = groups.offset_delete(
        denier.gate, lambda ctx, request: OffsetDeleteResponse(topics=[]), denier.ctx(), request
    )
    assert len(response.topics) == DENIED
    assert compared == 0


def test_permissions_for_all_topics_are_checked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "STEPS_A_TURN", 1)
    rig = test_metadata.Rig()
    world = World({})
    rig.turns = rig.handler.turns = Turns(world.env)
    more = [record for i in range(2_000) for record in topic_records(f"more-{i}", 100 + i)]
    test_metadata.replay(rig.image, more)

    class Judge(Authorizer):
        judged = 0

        def allows(self, ctx: Any, operation: Any, resource_type: Any, name: str = "", **_: Any) -> bool:
            Judge.judged += 1
            return not name.endswith("7")

    gate = Gate(Judge(), rig.image, rig.turns, rig.config)
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert metadata(gate, rig.handler, rig.client.context(3, 9), request) is None
    most = 0
    while world.scheduler.soon:
        before = Judge.judged
        soon, world.scheduler.soon = world.scheduler.soon, []
        for function, args in soon:
            function(*args)
        most = max(most, Judge.judged - before)
    assert most <= TOPICS_JUDGED * 15
    (response,) = rig.client.answers
    assert len(response.topics) == 2 + 1_800
    assert {topic.topic_authorized_operations for topic in response.topics} == {0b110111111000}
