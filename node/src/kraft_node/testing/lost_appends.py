"""A fault: the log refuses the next append of a coordinator, after it said that it has room for it.

By then the state machine has replayed the records, so the coordinator must load again from its log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeShard
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.broker.broker import Broker
    from kraft_node.broker.coordinators.runtime.engine import Runtime
    from kraft_node.testing.cluster_scenario import ClusterScenario
    from kraft_node.testing.machine import SimMachine

ERRORS: Final = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
EVERY_MS: Final = 4_000.0
"""The longest time between two refusals."""


class RefusingLogs:
    """The logs of a shard, whose next append fails."""

    def __init__(self, shard: RuntimeShard[Any], code: ErrorCode) -> None:
        self._shard = shard
        self._code = code
        self._logs = shard.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logs, name)

    def append(self, partition: int, *_: Any) -> NoReturn:
        """Refuse once."""
        self._shard.store = self._logs
        raise KafkaError(self._code, f"the simulation refuses an append to partition {partition}")

    def append_marker(self, partition: int, *_: Any, **__: Any) -> NoReturn:
        """Refuse once."""
        self.append(partition)


class AppendRefusals:
    """Lets appends of coordinators fail now and then, until the faults of the scenario are over."""

    def __init__(
        self, scenario: ClusterScenario, runtimes: Callable[[Broker], Iterable[Runtime[Any]]], share: float
    ) -> None:
        """`runtimes`: the coordinators of a broker. `share`: of the seeds that have this fault."""
        self._scenario = scenario
        self._runtimes = runtimes
        self._rng = random.Random(f"refusals of {scenario.world.seed}")
        if self._rng.random() < share:
            self._later()

    def _later(self) -> None:
        self._scenario.world.at(self._rng.random() * EVERY_MS, self._refuse)

    def _refuse(self) -> None:
        scenario, rng = self._scenario, self._rng
        if scenario.troubles.over:
            return
        for machine in rng.sample(scenario.cluster.brokers, len(scenario.cluster.brokers)):
            shards = self._shards(machine)
            if shards:
                shard = rng.choice(shards)
                shard.store = RefusingLogs(shard, rng.choice(ERRORS))
                scenario.world.note("faults", f"{machine.name} refuses the next append of {shard!r}")
                break
        self._later()

    def _shards(self, machine: SimMachine) -> list[RuntimeShard[Any]]:
        """The machine's coordinators that serve requests and do not refuse yet."""
        broker = None if machine.node is None else machine.node.broker
        runtimes = () if broker is None else self._runtimes(broker)
        shards = [shard for runtime in runtimes for shard in runtime.shards.values()]
        return [one for one in shards if one.phase is Phase.ACTIVE and not isinstance(one.store, RefusingLogs)]
