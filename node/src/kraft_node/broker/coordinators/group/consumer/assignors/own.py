"""Own assignors, which an administrator installs: loads their classes, calls them and checks their results.

`group.consumer.assignors` names them as `module:Class`, among `uniform` and `range`. The class needs no base class:

    name                     a text: clients choose the assignor by it (`group.remote.assignor`)
    assign(members, topics)  the partitions of each member: {member id: {topic: numbers of partitions}}

`members` are `GroupMember` by id, `topics` are `GroupTopic` by name: copies, which an assignor may keep or change. It
runs in a thread of its own, so it must not use state that other threads change (`consumer.own_targets`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.consumer.assignors.spec import Target
    from kraft_protocol.ids import Uuid

SEPARATOR: Final = ":"


class AssignorError(Exception):
    """An assignor cannot be loaded, has failed, or its result cannot be used."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of the group, as an own assignor gets it."""

    member_id: str
    instance_id: str | None
    """Of a static member (`group.instance.id`)."""
    rack: str | None
    """`client.rack`"""
    topics: frozenset[str]
    """The subscribed topics that exist."""
    partitions: Mapping[str, frozenset[int]]
    """Its part of the latest assignment, by topic."""


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A subscribed topic, as an own assignor gets it."""

    partitions: int
    """The number of its partitions."""
    racks: tuple[frozenset[str], ...]
    """The racks of the replicas of each partition."""


class OwnAssignor(NamedTuple):
    """A loaded own assignor."""

    name: str
    assign: Any
    """The method of the class. Its result must be checked."""


class AssignorTask(NamedTuple):
    """The input of one run, independent of the node's state."""

    assignor: OwnAssignor
    epoch: int
    """The epoch of the group."""
    members: Mapping[str, GroupMember]
    topics: Mapping[str, GroupTopic]
    ids: Mapping[str, Uuid]
    """The ids of the topics."""

    def run(self) -> dict[str, Target]:
        """The new target of each member. Raises AssignorError."""
        try:
            result = self.assignor.assign(dict(self.members), dict(self.topics))
        except Exception as error:
            raise AssignorError(f"{type(error).__name__}: {error}") from error
        return checked(self, result)


def load(text: str) -> OwnAssignor:
    """The assignor of `module:Class`. Raises AssignorError."""
    module, _, name = text.partition(SEPARATOR)
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:  # code that is not ours may raise anything
        raise AssignorError(f"{text} cannot be loaded: {type(error).__name__}: {error}") from error
    label = getattr(made, "name", None)
    if not isinstance(label, str) or not label.strip():
        raise AssignorError(f"{text} needs an attribute `name` with a text that is not empty, not {label!r}")
    if not callable(getattr(made, "assign", None)):
        raise AssignorError(f"{text} needs a method `assign(members, topics)`")
    return OwnAssignor(label, made.assign)


def checked(task: AssignorTask, result: object) -> dict[str, Target]:
    """The result as targets. Raises AssignorError for anything that must not reach a group.

    A partition has at most one owner, which subscribes to its topic. Members that the result leaves out get nothing.
    """
    if not isinstance(result, Mapping):
        raise AssignorError(f"the result is {type(result).__name__}, not a mapping by member id")
    owners: dict[tuple[str, int], str] = {}
    targets: dict[str, Target] = {member_id: {} for member_id in task.members}
    for member_id, parts in result.items():
        member = task.members.get(member_id)
        if member is None:
            raise AssignorError(f"{member_id!r} is not a member of the group")
        if not isinstance(parts, Mapping):
            raise AssignorError(f"member {member_id} has {type(parts).__name__}, not a mapping by topic")
        target: dict[Uuid, frozenset[int]] = {}
        for topic, numbers in parts.items():
            if topic not in member.topics:
                raise AssignorError(f"member {member_id} gets topic {topic!r}, to which it does not subscribe")
            found = _numbers(numbers, topic, task.topics[topic].partitions)
            for number in found:
                other = owners.setdefault((topic, number), member_id)
                if other != member_id:
                    raise AssignorError(f"partition {topic}-{number} has two owners: {other} and {member_id}")
            if found:
                target[task.ids[topic]] = found
        targets[member_id] = target
    return targets


def _numbers(numbers: Any, topic: str, count: int) -> frozenset[int]:
    try:
        found = frozenset(numbers)
    except TypeError as error:
        raise AssignorError(f"the partitions of {topic} are {numbers!r:.100}, not numbers") from error
    for number in found:
        if type(number) is not int or not 0 <= number < count:
            raise AssignorError(f"topic {topic} has {count} partitions, no partition {number!r:.100}")
    return found
