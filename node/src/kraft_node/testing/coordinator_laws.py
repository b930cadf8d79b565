"""Laws of coordinators: their state equals the state in the log, on any broker.

- `coordinators`   the state of a coordinator after a load, and in the end, equals the state that a new coordinator
  loads from its log; in the end also from the log of any other replica
- `offsets`        the coordinator in the latest leader epoch has every acknowledged commit of an offset

The law `offsets` of the clients sees less: a consumer that goes on commits more, and so hides what was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.broker.coordinators.runtime.loader import Loader
from kraft_node.broker.coordinators.runtime.measures import RuntimeMeasures
from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeShard
from kraft_node.broker.coordinators.transaction.states import NO_EPOCH, NO_PRODUCER_ID
from kraft_protocol.errors import KafkaError
from kraft_protocol.records.batch import whole_batches

if TYPE_CHECKING:
    from kraft_node.broker.broker import Broker
    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_node.broker.coordinators.runtime.engine import Runtime
    from kraft_node.broker.coordinators.transaction.machine import TransactionMachine
    from kraft_node.partition.partition import Partition
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimMachine


States: TypeAlias = "Callable[[Any, Any], tuple[Any, Any]]"
"""Gives the comparable states of two state machines: one that was just loaded, and one in use."""


def runtimes(broker: Broker) -> list[tuple[Runtime[Any], States]]:
    """The coordinators of a broker, each with the function that extracts what a load must restore."""
    return [(broker.groups.runtime, of_groups), (broker.transactions.runtime, of_transactions)]


def _state_of_groups(shard: Shard) -> Any:
    """Offsets, consumer groups, groups of other types. A classic group may be ahead of the log in memory."""
    consumers = {
        name: (group.epoch, group.metadata_hash, group.target_epoch, group.members, group.current, group.targets)
        for name, group in shard.consumers.items()
    }
    pending = {producer_id: keys for producer_id, keys in shard.offsets.pending.items() if keys}
    return (
        shard.offsets.groups,
        pending,
        consumers,
        {name: (group.kind, group.keys) for name, group in shard.foreign.items()},
    )


def of_groups(loaded: Shard, live: Shard) -> tuple[Any, Any]:
    """Offsets, pending offsets, and groups of both machines, for `States`; equal if the load restored everything."""
    return _state_of_groups(loaded), _state_of_groups(live)


def of_transactions(loaded: TransactionMachine, live: TransactionMachine) -> tuple[Any, Any]:
    """Without transactional ids that are being written, which change in memory with the commit.

    `last_epoch` is never stored; the fields in tags are not stored at transaction.version 0.
    """
    written = {found.name for found in live.transactions.all() if found.pending is not None}
    stored = {found.name: found.values for found in loaded.transactions.all() if found.name not in written}
    known = {found.name: found.values for found in live.transactions.all() if found.name not in written}
    for name, values in known.items():
        known[name] = values._replace(last_epoch=NO_EPOCH)
        found = stored.get(name)
        if found is not None and found._replace(**_UNTAGGED) == found:
            known[name] = known[name]._replace(**_UNTAGGED)
    return (stored,), (known,)


_UNTAGGED: Final[dict[str, Any]] = {
    "previous_producer_id": NO_PRODUCER_ID,
    "next_producer_id": NO_PRODUCER_ID,
    "client_version": 0,
}
"""The values of a record without tags."""


class _AtOnce:
    """A scheduler that runs a load to its end."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()

    def call_soon(self, function: Callable[..., None], *args: Any) -> _AtOnce:
        self._calls.append(lambda: function(*args))
        return self

    def call_later(self, _delay_ms: float, function: Callable[..., None], *args: Any) -> _AtOnce:
        return self.call_soon(function, *args)

    def cancel(self) -> None:
        """A load cancels nothing."""

    def run(self, until: list[Any]) -> None:
        while self._calls and not until:
            self._calls.popleft()()


class _LogOf:
    """The part of `PartitionLogs` that a load reads, on one replica's log, up to `end`."""

    def __init__(self, replica: Partition, end: int) -> None:
        self._log = replica.log
        self._end = end

    def start_offset(self, _partition: int) -> int:
        return int(self._log.start_offset)

    def end_offset(self, _partition: int) -> int:
        return self._end

    def high_watermark(self, _partition: int) -> int:
        return min(int(self._log.high_watermark), self._end)

    def read(self, _partition: int, offset: int, max_bytes: int) -> bytes:
        found = self._log.read(offset, max_bytes, limit_offset=self._end).records
        return bytes(whole_batches(found if isinstance(found, bytes) else found.read(), with_junk=True))


class CoordinatorLaws:
    """Watches the coordinators of a cluster."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.compared = 0
        """Loads that were compared with a coordinator's memory."""
        self._seen: dict[tuple[str, str, int], RuntimeShard[Any]] = {}
        """By machine, topic and partition: the shard that was compared after its load."""

    def watch(self, machine: SimMachine, newest_epoch: Callable[[Partition], int]) -> None:
        """Compare each coordinator of the machine once, soon after its load; look for the acknowledged commits.

        `newest_epoch(partition)`: the highest leader epoch of the partition that any node has known.
        """
        broker = None if machine.node is None else machine.node.broker
        if broker is None or machine.rotten or machine.disk.dead is not None:
            return
        for runtime, states in runtimes(broker):
            for number, shard in runtime.shards.items():
                place = (machine.name, runtime.config.topic, number)
                leader = _leader(broker, shard) if shard.phase is Phase.ACTIVE else None
                if leader is None:
                    continue
                if self._seen.get(place) is not shard:
                    self._seen[place] = shard
                    self._compare(machine.name, runtime, shard, states, leader)
                if runtime is broker.groups.runtime and newest_epoch(leader) <= shard.epoch:
                    self._look_for_commits(machine.name, runtime, shard)

    def _look_for_commits(self, name: str, runtime: Runtime[Shard], shard: RuntimeShard[Shard]) -> None:
        for (group, (topic, index)), bound in self.checker.commit_bounds.items():
            if runtime.partition_of(group) != shard.partition:
                continue
            value = shard.machine.offsets.get(group, topic, index)
            if (-1 if value is None else value.offset) < bound:
                text = f"{group} had committed {bound}, the coordinator {name} of epoch {shard.epoch} has {value}"
                self.checker.broken("offsets", f"{topic}-{index}", text)

    def judge(self, machines: list[SimMachine]) -> None:
        """Compare every coordinator with the logs of all replicas, once the cluster is at rest."""
        brokers = [(machine.name, machine.node.broker) for machine in machines if machine.node is not None]
        for _, broker in brokers:
            assert broker is not None, "at rest all brokers run"
            for runtime, states in runtimes(broker):
                for shard in runtime.shards.values():
                    leader = _leader(broker, shard)
                    if shard.phase is not Phase.ACTIVE or leader is None:
                        continue
                    for name, other in brokers:
                        assert other is not None
                        replica = other.replicas.peek((leader.topic_id, leader.index))
                        if replica is not None and replica.log.end_offset == leader.log.end_offset:
                            self._compare(name, runtime, shard, states, replica)

    def _compare(
        self,
        name: str,
        runtime: Runtime[Any],
        shard: RuntimeShard[Any],
        states: States,
        replica: Partition,
    ) -> None:
        """Load a new state machine from the replica's log of the machine `name`."""
        ended: list[Exception | None] = []
        scheduler = _AtOnce()
        twin: RuntimeShard[Any] = RuntimeShard(
            shard.partition,
            shard.epoch,
            store=_LogOf(replica, replica.log.end_offset),  # type: ignore[arg-type]
            config=runtime.config,
            measures=RuntimeMeasures(),
            clock=shard.clock,
            scheduler=scheduler,
            make=runtime.make,
            lost=lambda _: None,
        )
        Loader(twin, ended.append).start()
        scheduler.run(ended)
        where = f"{runtime.config.topic}-{shard.partition}"
        if not ended or ended[0] is not None:
            if not ended or not isinstance(ended[0], (OSError, KafkaError)):  # the disk's faults are not the law's
                self.checker.broken("coordinators", where, f"the log of {name} cannot be loaded: {ended}")
            return
        self.compared += 1
        loaded, held = states(twin.machine, shard.machine)
        if loaded != held:
            text = f"the log of {name} gives {_difference(loaded, held)} than the coordinator has at {shard.epoch}"
            self.checker.broken("coordinators", where, text)


def _leader(broker: Broker, shard: RuntimeShard[Any]) -> Partition | None:
    """The partition, if the shard's state must equal the state in its log now."""
    try:
        leader = broker.replicas.leader(shard.config.topic, shard.partition)
    except KafkaError:
        return None
    is_settled = not shard.has_open_batch and leader.leader_epoch == shard.epoch and leader.log.dir.failed is None
    return leader if is_settled and leader.log.end_offset == shard.written_to else None


def _difference(loaded: Any, held: Any) -> str:
    for part, other in zip(loaded, held, strict=True):
        if part != other:
            if isinstance(part, dict) and isinstance(other, dict):
                names = [name for name in {**part, **other} if part.get(name) != other.get(name)]
                return f"{[(name, part.get(name)) for name in names]}, other {[other.get(name) for name in names]}"
            return f"{part!r:.300}, other {other!r:.300}"
    return "the same"
