"""A consumer group (KIP-848) of 500 members on 2,000 partitions: join, idle, and the leave of one member."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.clients import asking, frames
from bench.clients.crowd import Crowd
from bench.clients.group_members import Members
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.scenarios.transactions import SECTION
from bench.servers.process import cpu_s
from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import ConsumerGroupDescribeRequest
from tests.compat.targets import Target

MEMBERS, PARTITIONS = 500, 2_000
IDLE_S = 12.0
"""Seconds per round; one minute in total."""
TOPIC = "shared"
JOINED = "500 members (KIP-848) on 2,000 partitions: join until stable"
IDLE_CPU = "500 members (KIP-848) on 2,000 partitions: processor while stable"
LEFT = "one of 500 members (KIP-848) leaves until stable"
MOVED = "one of 500 members (KIP-848) leaves: partitions with a new owner"


@contextmanager
def groups(step: Step) -> Iterator[Life]:
    """Each round has a group of its own, which is empty in the end."""
    members, partitions = step.size((MEMBERS, PARTITIONS), (10, 40))
    numbers = itertools.count()
    with step.started() as target:
        asking.create(target, [TOPIC], partitions)
        asking.until_accepted(target, frames.produce(TOPIC, 0, frames.batch(1, 10)), TOPIC)

        asking.until_coordinated(target, "group", frames.GROUP)

        def one_round(idle_s: float) -> Measured:
            return _round(target, f"group{next(numbers)}", members, partitions, idle_s)

        warm = _warmed(step, one_round)
        yield Life(lambda: one_round(step.size(IDLE_S, 1.0)), warm)


def _warmed(step: Step, one_round: Callable[[float], Any]) -> dict[str, Any]:
    """Whole rounds for the protocol's time: the work of a group has no figure per second."""
    is_compiled = step.server.kind == "kafka"
    seconds = step.size(steady.WARM_S if is_compiled else steady.READY_S, 0)
    begun = time.monotonic()
    rounds: list[float] = []
    while not rounds or time.monotonic() - begun < seconds:
        rounds.append(one_round(1.0).figures[JOINED])
    return {"together_s": round(time.monotonic() - begun, 1), "series": rounds}


def _round(target: Target, group: str, count: int, partitions: int, idle_s: float) -> Measured:
    crowd = Crowd()
    try:
        members = Members(crowd, target.port, group, TOPIC, count)
        begun = time.monotonic()
        members.join()
        crowd.until("a stable group", lambda: members.are_stable(partitions))
        figures: Figures = {JOINED: time.monotonic() - begun}
        _check_described(target, group, count)
        spent, begun = cpu_s(target), time.monotonic()
        crowd.run(idle_s)
        figures[IDLE_CPU] = (cpu_s(target) - spent) / (time.monotonic() - begun)
        figures |= _one_leaves(members, partitions)
        members.remove(members.all)
    finally:
        crowd.close()
    return Measured(figures)


def _one_leaves(members: Members, partitions: int) -> Figures:
    before = members.owners()
    begun = time.monotonic()
    members.remove(members.all[:1])
    members.crowd.until("a stable group", lambda: members.are_stable(partitions))
    took = time.monotonic() - begun
    after = members.owners()
    return {LEFT: took, MOVED: sum(before[partition] is not after[partition] for partition in after)}


def _check_described(target: Target, group: str, count: int) -> None:
    """The server agrees. Raises AssertionError if it does not."""
    with NodeClient("127.0.0.1", target.port, 60) as client:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        found = client.request(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0]
    assert (found.error_code, found.group_state) == (0, "Stable"), f"{group} is {found.group_state}"
    assert len(found.members) == count, f"{group} has {len(found.members)} members"


SCENARIOS = [
    Scenario(
        "groups",
        SECTION,
        (
            Row(JOINED, "s", False, 0.5),
            Row(IDLE_CPU, "cores", False, 0.3, absolute=True),
            Row(LEFT, "s", False),
            Row(MOVED, "partitions", False, float(PARTITIONS // MEMBERS), absolute=True),
        ),
        None,
        10,
        live=groups,
        apart=True,
    ),
]
