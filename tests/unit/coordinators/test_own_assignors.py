"""Assignors of the operator's own choice: how they are loaded and run, and what becomes of bad ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_node.base.config.errors import ConfigError
from kraft_node.broker.coordinators.group.config import GroupConfig
from kraft_node.broker.coordinators.group.consumer.assignors.own import AssignorError, OwnAssignor, load
from kraft_node.broker.coordinators.group.consumer.own_targets import LIMIT_MS, RETRY_MS
from kraft_protocol.errors import ErrorCode
from tests.unit.coordinators.harness import Node, Topics, subscription

INTERVAL_MS = 1_000
MODULE = "assignors_of_the_test"


class Everything:
    """Gives all to the member with the least id."""

    name = "everything"

    def assign(self, members: Any, topics: Any) -> Any:
        first = min(members)
        return {first: {topic: range(topics[topic].partitions) for topic in members[first].topics}}


class Programmed:
    """Returns, or raises, what the test has set."""

    name = "programmed"

    def __init__(self) -> None:
        self.result: Any = {}
        self.seen: list[tuple[Any, Any]] = []

    def assign(self, members: Any, topics: Any) -> Any:
        self.seen.append((members, topics))
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def node_with(assignor: Any, **topics: int) -> Node:
    """A node whose groups use the assignor, unless a member prefers `uniform`."""
    own = {assignor.name: OwnAssignor(assignor.name, assignor.assign)}
    return Node(Topics(**(topics or {"t": 4})), consumer_assignors=(assignor.name, "uniform"), own_assignors=own)


@pytest.fixture
def programmed() -> Programmed:
    return Programmed()


def owned(node: Node) -> dict[str, list[int]]:
    """The target of each member, on topic `t`."""
    found = {}
    for member in node.consumer_group().members:
        rows = member.target_assignment.topic_partitions
        found[member.member_id] = [number for row in rows for number in row.partitions]
    return found


def in_module(monkeypatch: pytest.MonkeyPatch, **content: Any) -> None:
    module = ModuleType(MODULE)
    for name, value in content.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, MODULE, module)


class Settings:
    """The settings of a server.properties with this one key."""

    def __init__(self, assignors: list[str]) -> None:
        self.assignors = assignors

    def int(self, _name: str, /) -> int:
        return 1

    def list(self, _name: str, /) -> list[str]:
        return self.assignors

    def string(self, _name: str, /) -> str:
        return "bidirectional"


# -- loading


def test_the_key_names_assignors_of_both_kinds_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    in_module(monkeypatch, Everything=Everything)
    kafkas = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    config = GroupConfig.from_config(Settings([f"{MODULE}:Everything", kafkas, "uniform", "range"]))
    assert config.consumer_assignors == ("everything", "range", "uniform")
    assert list(config.own_assignors) == ["everything"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["no.such.module:Class"], "ModuleNotFoundError"),
        ([f"{MODULE}:Missing"], "AttributeError"),
        ([f"{MODULE}:Raises"], "it is broken"),
        ([f"{MODULE}:Nameless"], "needs an attribute `name`"),
        ([f"{MODULE}:Mute"], "needs a method `assign"),
        ([f"{MODULE}:Uniform"], "the name uniform, which is taken"),
        ([f"{MODULE}:Everything", f"{MODULE}:Again"], "the name everything, which is taken"),
        (["com.example.Assignor"], "an assignor of your own as module:Class"),
        ([], "is empty"),
    ],
)
def test_an_assignor_that_cannot_be_used_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, names: list[str], words: str
) -> None:
    def raises() -> None:
        raise RuntimeError("it is broken")

    in_module(
        monkeypatch,
        Everything=Everything,
        Again=type("Again", (Everything,), {}),
        Uniform=type("Uniform", (Everything,), {"name": "uniform"}),
        Nameless=type("Nameless", (Everything,), {"name": " "}),
        Mute=type("Mute", (), {"name": "mute"}),
        Raises=raises,
    )
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors") as caught:
        GroupConfig.from_config(Settings(names))
    assert words in str(caught.value)


def test_a_loaded_assignor_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    in_module(monkeypatch, Everything=Everything)
    assert load(f"{MODULE}:Everything").name == "everything"
    with pytest.raises(AssignorError):
        load(MODULE)


# -- good assignors


def test_the_target_comes_with_the_end_of_the_run() -> None:
    node = node_with(Everything())
    joined = node.beat("a", 0, "t")
    assert node.assigned(joined) == {}
    assert node.consumer_group().group_state == "Assigning"
    assert node.assigned(node.beat("a", joined.response.member_epoch)) is None, "it waits"
    assert node.lane.finish() == 1, "one run at a time"
    assert node.assigned(node.beat("a", joined.response.member_epoch)) == {"t": [0, 1, 2, 3]}
    group = node.consumer_group()
    assert (group.group_state, group.assignor_name) == ("Stable", "everything")
    assert group.assignment_epoch == group.group_epoch


def test_the_target_survives_a_restart() -> None:
    node = node_with(Everything())
    node.beat("a", 0, "t")
    node.lane.finish()
    before = node.consumer_group()
    node.restart()
    assert owned(node) == {"a": [0, 1, 2, 3]}
    assert node.consumer_group().assignment_epoch == before.assignment_epoch
    assert node.lane.jobs == []


def test_an_assignor_sees_members_and_topics(programmed: Programmed) -> None:
    node = node_with(programmed, t=2, u=1)
    node.topics.racks["t"] = [["r1", "r2"], ["r3"]]
    node.beat("a", 0, "t", "gone", rack_id="r1", instance_id="i")
    programmed.result = {"a": {"t": [1]}}
    node.lane.finish()
    node.wait(INTERVAL_MS)
    node.beat("b", 0, "t", "u")
    node.lane.finish()
    members, topics = programmed.seen[-1]
    assert {name: (topic.partitions, topic.racks) for name, topic in topics.items()} == {
        "t": (2, (frozenset(("r1", "r2")), frozenset(("r3",)))),
        "u": (1, (frozenset(),)),
    }
    a, b = members["a"], members["b"]
    assert (a.member_id, a.instance_id, a.rack, a.topics, a.partitions) == (
        "a", "i", "r1", frozenset(("t",)), {"t": frozenset((1,))}
    )  # fmt: skip
    assert (b.member_id, b.instance_id, b.rack, b.topics, b.partitions) == ("b", None, None, frozenset("tu"), {})


def test_votes_choose_between_own_and_built_in_assignors() -> None:
    node = node_with(Everything())
    node.beat("a", 0, "t", server_assignor="uniform")
    assert node.lane.jobs == []
    assert owned(node) == {"a": [0, 1, 2, 3]}
    assert node.beat("b", 0, "t", server_assignor="other").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    node.beat("b", 0, "t", group="h", server_assignor="everything")
    assert node.lane.finish() == 1


def test_a_classic_member_of_a_consumer_group_begins_a_run() -> None:
    node = node_with(Everything())
    node.beat("a", 0, "t")
    node.lane.finish()
    node.wait(INTERVAL_MS)
    joined = node.join(member="c", protocols={"range": subscription("t")})
    assert joined.error is ErrorCode.NONE
    assert node.lane.finish() == 1


def test_a_member_that_has_left_meanwhile_gets_nothing(programmed: Programmed) -> None:
    node = node_with(programmed)
    node.beat("a", 0, "t")
    node.lane.finish()
    node.wait(INTERVAL_MS)
    node.beat("b", 0, "t")
    programmed.result = {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}
    node.beat("b", -1)
    node.lane.finish()
    assert owned(node) == {"a": [0, 1]}
    node.wait(INTERVAL_MS)
    programmed.result = {"a": {"t": range(4)}}
    node.beat("a", 0, "t")
    assert node.lane.finish() == 1, "the group has moved on"
    assert owned(node) == {"a": [0, 1, 2, 3]}


def test_a_static_member_that_came_back_meanwhile_keeps_its_partitions(programmed: Programmed) -> None:
    """The run does not know its new id, so its result could give a partition two owners."""
    node = node_with(programmed)
    node.beat("a", 0, "t", instance_id="i")
    programmed.result = {"a": {"t": [0, 1, 2, 3]}}
    node.lane.finish()
    epoch = node.beat("a", 0, "t", instance_id="i").response.member_epoch
    node.wait(INTERVAL_MS)
    node.beat("b", 0, "t")
    node.beat("a", -2, instance_id="i")
    node.beat("again", 0, "t", instance_id="i")
    programmed.result = {"a": {"t": []}, "b": {"t": [0, 1, 2, 3]}}
    assert node.lane.finish() == 1
    assert owned(node) == {"again": [0, 1, 2, 3], "b": []}
    node.beat("again", epoch)
    assert set(programmed.seen[-1][0]) == {"a", "b"}
    assert len(node.lane.jobs) == 1, "the next heartbeat begins another run"


# -- bad assignors


BAD: dict[str, Any] = {
    "an exception": ValueError("no idea"),
    "no mapping": [("a", {})],
    "none": None,
    "an unknown member": {"z": {"t": [0]}},
    "a list of partitions": {"a": [0, 1]},
    "an unknown topic": {"a": {"nope": [0]}},
    "a topic without subscription": {"a": {"u": [0]}},
    "a partition beyond the topic": {"a": {"t": [4]}},
    "a negative partition": {"a": {"t": [-1]}},
    "a truth": {"a": {"t": [True]}},
    "a text": {"a": {"t": "0"}},
    "a number": {"a": {"t": 0}},
    "lists of lists": {"a": {"t": [[0]]}},
    "two owners": {"a": {"t": [0, 1]}, "b": {"t": [1]}},
    "an unhashable member": {frozenset(): {}},
    "the end of the process": SystemExit("no"),
}


@pytest.mark.parametrize("result", BAD.values(), ids=BAD)
def test_a_bad_result_damages_no_group(programmed: Programmed, result: Any) -> None:
    node = node_with(programmed, t=4, u=1)
    node.beat("a", 0, "t")
    programmed.result = {"a": {"t": [0, 1, 2, 3]}}
    node.lane.finish()
    epoch = node.beat("a", 0, "t").response.member_epoch
    node.wait(INTERVAL_MS)
    programmed.result = result
    assert node.beat("b", 0, "t").error is ErrorCode.NONE
    node.lane.finish()
    assert node.coordinator.services.assignor_failures == 1
    assert owned(node) == {"a": [0, 1, 2, 3], "b": []}
    assert node.beat("a", epoch).error is ErrorCode.NONE, "it goes on"
    for member in ("b", "c"):
        refused = node.beat(member, 0, "t")
        assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "Assignor programmed failed: " in refused.response.error_message
    assert node.lane.jobs == [], "no other run yet"

    programmed.result = {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}
    node.wait(RETRY_MS)
    node.beat("b", 0, "t")
    assert node.lane.finish() == 1
    assert owned(node) == {"a": [0, 1], "b": [2, 3]}
    assert node.coordinator.services.assignor_failures == 1


def test_a_run_without_end_fails_and_no_other_begins_meanwhile(programmed: Programmed) -> None:
    node = node_with(programmed)
    programmed.result = {"a": {"t": [0]}}
    node.beat("a", 0, "t")
    node.wait(LIMIT_MS)
    refused = node.beat("a", 0, "t")
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "has not returned within 30 s" in refused.response.error_message
    node.wait(RETRY_MS)
    node.beat("a", 0, "t")
    assert "an earlier run has not returned yet" in node.beat("a", 0, "t").response.error_message
    assert node.coordinator.services.assignor_failures == 2
    assert node.lane.finish() == 1, "the first run returns at last"
    assert owned(node) == {"a": []}, "too late to count"
    node.wait(RETRY_MS)
    node.beat("a", 0, "t")
    assert node.lane.finish() == 1
    assert owned(node) == {"a": [0]}


def test_a_run_that_ends_in_time_is_not_too_late(programmed: Programmed) -> None:
    node = node_with(programmed)
    programmed.result = {"a": {"t": [0]}}
    node.beat("a", 0, "t")
    node.wait(LIMIT_MS - 1)
    node.lane.finish()
    node.wait(1)
    assert node.coordinator.services.assignor_failures == 0
    assert owned(node) == {"a": [0]}


def test_a_run_for_a_group_that_was_loaded_again_has_no_effect(programmed: Programmed) -> None:
    node = node_with(programmed)
    programmed.result = {"a": {"t": [0]}}
    node.beat("a", 0, "t")
    node.restart()
    end = node.logs.end_offset(0)
    node.lane.finish()
    assert node.logs.end_offset(0) == end
    assert owned(node) == {"a": []}
    node.beat("a", 0, "t")
    node.lane.finish()
    assert owned(node) == {"a": [0]}


# -- the guide


def example() -> Any:
    """The assignor in docs/how-to/own-assignor.md."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "own-assignor.md").read_text()
    content: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], content)
    return content["ByRack"]()


def test_the_assignor_of_the_guide_follows_racks() -> None:
    node = node_with(example())
    node.topics.racks["t"] = [["r1"], ["r2"], ["r1", "r3"], ["r4"]]
    node.beat("a", 0, "t", rack_id="r1")
    node.lane.finish()
    node.wait(INTERVAL_MS)
    node.beat("b", 0, "t", rack_id="r2")
    node.lane.finish()
    assert owned(node) == {"a": [0, 2], "b": [1, 3]}
    assert node.coordinator.services.assignor_failures == 0
