"""Events aggregate: equal events count up, and many events that differ in their words become one."""

from __future__ import annotations

import asyncio
from typing import Any

from kraft_operator import events
from kraft_operator.events import COMBINED, SIMILAR_MAX, Events
from kraft_operator.kube.client import ApiError
from tests.unit.operator.fake_kubernetes import FakeApi

CLUSTER = {"kind": "KRaftCluster", "metadata": {"name": "c", "namespace": "n", "uid": "u"}}


class World:
    def __init__(self) -> None:
        self.api, self.now = FakeApi(), 0.0
        self.events = Events(self.api, "test", lambda: self.now)  # type: ignore[arg-type]

    def tell(
        self, *messages: str, resource: dict[str, Any] = CLUSTER, reason: str = "StepFailed", combine: bool = True
    ) -> None:
        async def main() -> None:
            for message in messages:
                await self.events.emit(resource, "Warning", reason, message, combine=combine)

        asyncio.run(main())

    @property
    def reported(self) -> list[tuple[str, int]]:
        found = [one for (kind, *_), one in self.api.objects.items() if kind == "Event"]
        return [(one["message"], one["count"]) for one in found]


def test_the_same_event_counts_up() -> None:
    world = World()
    world.tell("a", "a", "b", "a")
    assert sorted(world.reported) == [("a", 3), ("b", 1)]
    other = {"kind": "KRaftCluster", "metadata": {"name": "d", "namespace": "n", "uid": "v"}}
    world.tell("a", resource=other)
    world.tell("a", reason="Other")
    assert len(world.reported) == 4


def test_a_deleted_or_old_event_is_created_again() -> None:
    world = World()
    world.tell("a")
    world.api.objects.clear()
    world.tell("a")
    assert world.reported == [("a", 1)]
    world.now = events.SAME_S + 1
    world.tell("a")
    assert world.reported == [("a", 1), ("a", 1)], "the API server is about to forget the first one"


def test_many_different_events_are_combined() -> None:
    world = World()
    world.tell(*(f"took {number} ms" for number in range(100)))
    assert len(world.reported) == SIMILAR_MAX + 1
    combined = [one for one in world.reported if one[0].startswith(COMBINED)]
    assert combined == [(f"{COMBINED}took 99 ms", 90)]
    world.now = events.SIMILAR_S + 1
    world.tell("later")
    assert ("later", 1) in world.reported


def test_events_about_lost_data_stay_apart() -> None:
    """More than ten topics were deleted within ten minutes, and one event named only the last."""
    world = World()
    world.tell(*(f"topic {number} is deleted" for number in range(30)), combine=False)
    assert len(world.reported) == 30


def test_a_refused_event_is_tried_again() -> None:
    world = World()
    world.api.before = lambda *_: ApiError(403, "Forbidden", "no")
    world.tell("a", "a")
    world.api.before = lambda *_: None
    world.tell("a")
    assert world.reported == [("a", 1)]


def test_the_number_of_remembered_events_is_bounded() -> None:
    world = World()
    for number in range(events.KNOWN_MAX + 50):
        resource = {"metadata": {"name": "c", "namespace": "n", "uid": str(number)}}
        world.tell("a", resource=resource)
        world.api.objects.clear()
    assert len(world.events._known) == events.KNOWN_MAX
