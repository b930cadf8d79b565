"""Static members of a classic group (KIP-345), whose processes restart without leaving.

A process that restarts joins with its instance id and no member id, gets another member id, and fences the former one.
In some seeds two processes have one instance id at a time, so that each fences the other. The laws of groups hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.workloads.consumer import Consumer, Rejoin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

GROUP: Final = "static"
RESTARTS: Final = 0.08
"""The probability of a restart after a round of fetches."""
DOUBLE_SHARE: Final = 0.3
"""Share of the seeds with two processes of one instance id."""


class StaticConsumer(Consumer):
    """A process with an instance id."""

    def __init__(
        self,
        cluster: SimCluster,
        checker: Checker,
        name: str,
        topics: dict[str, int],
        rng: Random,
        *,
        instance_id: str,
    ) -> None:
        super().__init__(cluster, checker, name, GROUP, topics, sessions=rng.random() < 0.5)
        self.instance_id = instance_id
        self._restarts = rng

    async def _work(self) -> None:
        await super()._work()
        if not self.stopping and self._restarts.random() < RESTARTS:
            raise Rejoin("restarts")


def make_statics(cluster: SimCluster, checker: Checker, counts: Mapping[str, int], rng: Random) -> list[StaticConsumer]:
    """Two or three members."""
    count = rng.randint(2, 3)
    instances = [f"instance{number}" for number in range(count)]
    if rng.random() < DOUBLE_SHARE:
        instances[-1] = instances[0]
    return [
        StaticConsumer(cluster, checker, f"s{number}", dict(counts), rng, instance_id=instance)
        for number, instance in enumerate(instances)
    ]


__all__ = ["GROUP", "StaticConsumer", "make_statics"]
