"""What happens to a cluster of the operator: requests of administrators, and faults, drawn from the seed.

A request is an edit of the resource, an annotation, or an eviction. Faults are those of nodes, of the network, of the
API server and of the operator's own process. Often a node dies while a request is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import METADATA_VERSIONS
from kraft_node.testing.fault_injector import FaultInjector
from kraft_node.testing.machine import SimMachine
from kraft_node.testing.net import DELAY_MAX_MS
from kraft_operator.evictions import MARK
from kraft_operator.specs.planner_input import REPLACE

if TYPE_CHECKING:
    from tests.sim.operator.nodes.life import OperatedScenario

PAUSE_MS: Final = 12_000.0
"""The mean pause between two events of the story."""
EVENTS: Final = (6, 14)
REQUESTS: Final = 0.4
"""The share of requests among the events of the story."""
STRUCK, STRUCK_MAX_MS = 0.7, 40_000.0
"""The share of requests during which a node dies, and when it does at the latest."""


class Troubles(FaultInjector):
    """Requests to the operator and faults, one after another."""

    over = False
    rotten: SimMachine | None = None

    def __init__(self, scenario: OperatedScenario, only: Collection[str]) -> None:
        super().__init__(scenario.cluster, scenario.checker)
        self._only = only
        self.scenario = scenario
        self.rng = Random(f"troubles of {self.world.seed}")

    def play(self) -> None:
        """Begin with a request, so that every seed has one; then draw."""
        rng = self.rng
        self._ask_something()
        for _ in range(rng.randint(*EVENTS)):
            self.world.run(self._broken, rng.expovariate(1 / PAUSE_MS))
            if self._broken():
                return
            if rng.random() < REQUESTS:
                self._ask_something()
            else:
                self._do(rng.choice(self.faults))

    def _ask_something(self) -> None:
        """A request; often a node dies while it is carried out."""
        self._do(self.rng.choice(self.requests))
        if self.rng.random() < STRUCK:
            self.world.at(self.rng.uniform(0.0, STRUCK_MAX_MS), self._strike)

    def _strike(self) -> None:
        if not self.over:
            self._do(self._kill)

    def _do(self, event: Callable[[], None]) -> None:
        self.done.append(event.__name__.strip("_"))
        self.world.note("troubles", self.done[-1].replace("_", " "))
        event()

    def heal(self) -> None:
        """End all faults; kubelets start what is down."""
        self.over = True
        self.world.note("troubles", "all faults end")
        self.cluster.network.delay_ms = DELAY_MAX_MS
        self.cluster.network.heal()
        self.scenario.api.faults, self.scenario.api.slow_until = False, 0.0
        for machine in self.cluster.machines:
            machine.cancel_death()

    # Requests

    @property
    def requests(self) -> list[Callable[[], None]]:
        """What administrators request."""
        found = [self._image, self._image, self._config, self._dynamic_config, self._replace, self._replace,
                 self._new_id, self._brokers, self._controllers, self._apply_anew, self._metadata_version,
                 self._dynamic_quorum, self._drain]  # fmt: skip
        return [one for one in found if not self._only or one.__name__.strip("_") in self._only]

    @property
    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.scenario.resource["spec"]
        return spec

    def _edited(self) -> None:
        self.scenario.resource["metadata"]["generation"] += 1

    def _image(self) -> None:
        self._spec["image"] = f"x/y:{self.rng.randrange(10**6)}"
        self._edited()

    def _config(self) -> None:
        self._spec["config"]["queued.max.requests"] = str(self.rng.randrange(500, 600))
        self._edited()

    def _dynamic_config(self) -> None:
        self._spec["config"]["log.retention.ms"] = str(10**9 + self.rng.randrange(10**6))
        self._edited()

    def _replace(self) -> None:
        self._ask("EmptyDisk")

    def _new_id(self) -> None:
        self._ask("NewId")

    def _ask(self, by: str) -> None:
        """Request a replacement by an annotation, of a node that runs."""
        machine, name = self.rng.choice(self.cluster.machines), f"r{self.rng.randrange(10**6)}"
        node_id = machine.config.node_id
        self.scenario.api.asked[node_id].add(name)
        annotations = self.scenario.resource["metadata"].setdefault("annotations", {})
        annotations[REPLACE + name] = f"{node_id} {by}"
        self.world.note("troubles", f"{by} of node {node_id}")

    def _brokers(self) -> None:
        self._spec["replicas"] = self.rng.choice((3, 4, 5))
        self._edited()

    def _controllers(self) -> None:
        (pool,) = [pool for pool in self._spec["nodePools"] if pool["name"] == "controllers"]
        pool["replicas"] = self.rng.choice((3, 5))
        self._edited()

    def _metadata_version(self) -> None:
        """Raise the metadata.version, in steps if a seed draws this again."""
        names = [one.name for one in METADATA_VERSIONS]
        now = names.index(self._spec["metadataVersion"])
        self._spec["metadataVersion"] = self.rng.choice(names[now:])
        self._edited()

    def _dynamic_quorum(self) -> None:
        """Turn a static quorum into a dynamic one."""
        self._spec.setdefault("quorum", {})["mode"] = "Dynamic"
        self._edited()

    def _drain(self) -> None:
        """Evict two pods, as the webhook marks them: the gates must let each restart."""
        pods = [one for (kind, *_), one in sorted(self.scenario.api.objects.items()) if kind == "Pod"]
        for one in self.rng.sample(pods, min(2, len(pods))):
            one["metadata"].setdefault("annotations", {})[MARK] = "asked"
            one["metadata"]["resourceVersion"] = f"evicted-{self.world.events}-{one['metadata']['name']}"

    def _apply_anew(self) -> None:
        self.scenario.api.apply_anew(self._spec)

    # Faults

    @property
    def faults(self) -> list[Callable[[], None]]:
        """What may happen at any time."""
        return [self._kill, self._kill, self._kill, self._kill_two, self._hang, self._hang, self._isolate,
                self._cut_pair, self._cut_operator, self._break_connections, self._slow_network, self._slow_api,
                self._operator_dies, self._operator_dies, self._operator_hangs]  # fmt: skip

    def _any(self) -> SimMachine:
        return self.rng.choice(self.cluster.machines)

    def _kill(self) -> None:
        self._any().kill()

    def _kill_two(self) -> None:
        for machine in self.rng.sample(self.cluster.machines, 2):
            machine.kill()

    def _hang(self) -> None:
        self._any().blocked(self.rng.choice((300.0, 1_500.0, 6_000.0)))

    def _isolate(self) -> None:
        machine = self._any()
        for other in self.cluster.machines:
            if other is not machine:
                self.cluster.network.cut(machine.name, other.name)
        self._heal_later()

    def _cut_pair(self) -> None:
        one, other = self.rng.sample(self.cluster.machines, 2)
        self.cluster.network.cut(one.name, other.name)
        self._heal_later()

    def _cut_operator(self) -> None:
        for machine in self.cluster.machines:
            if self.rng.random() < 0.5:
                self.cluster.network.cut("operator", machine.name)
        self._heal_later()

    def _heal_later(self) -> None:
        self.world.at(self.rng.choice((1_000.0, 5_000.0, 20_000.0)), self.cluster.network.heal)

    def _break_connections(self) -> None:
        self.cluster.network.break_some(0.5)

    def _slow_network(self) -> None:
        self.cluster.network.delay_ms = self.rng.choice((3.0, 50.0, 300.0))

    def _slow_api(self) -> None:
        api = self.scenario.api
        api.slow_until = api.time() + self.rng.uniform(5, 60)

    def _operator_dies(self) -> None:
        self.scenario.restart_operator()

    def _operator_hangs(self) -> None:
        host = self.scenario.operator.host
        host.paused_until_ms = self.world.now_ms + self.rng.choice((1_000.0, 6_000.0, 20_000.0))
