"""The runtime of one coordinator: the shards of its topic's partitions that this broker leads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kraft_node.broker.coordinators.partitioning import partition_for
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_node.broker.coordinators.runtime.loader import Loader
from kraft_node.broker.coordinators.runtime.measures import RuntimeMeasures
from kraft_node.broker.coordinators.runtime.shard import MachineT, Phase, RuntimeConfig, RuntimeShard
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler
    from kraft_node.broker.coordinators.runtime.machine import PlannedWrite
    from kraft_node.broker.coordinators.runtime.seams import PartitionLogs

log = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT")


class Runtime(Generic[MachineT]):
    """Finds, loads and drops shards, and runs operations on the shard of a key."""

    def __init__(
        self,
        config: RuntimeConfig,
        *,
        clock: Clock,
        scheduler: Scheduler,
        store: PartitionLogs,
        make: Callable[[RuntimeShard[MachineT]], MachineT],
        partitions: Callable[[], int],
    ) -> None:
        """`make(shard)` makes an empty state machine. `partitions()`: the number of partitions of the topic."""
        self.config = config
        self._clock = clock
        self._scheduler = scheduler
        self._store = store
        self.make = make
        self._partitions = partitions
        self.measures = RuntimeMeasures()
        self.shards: dict[int, RuntimeShard[MachineT]] = {}

    # -- leadership

    def on_leader(self, partition: int, epoch: int) -> None:
        """This broker leads the partition since `epoch`: load it.

        If it led before, no other broker can have written meanwhile (that would have been a resignation). Then the
        loaded state stays, and only a failed load is retried.
        """
        old = self.shards.get(partition)
        if old is not None:
            old.epoch = max(old.epoch, epoch)
            if old.phase is not Phase.FAILED:
                return
            self.on_resign(partition)
        shard = RuntimeShard(
            partition,
            epoch,
            store=self._store,
            config=self.config,
            measures=self.measures,
            clock=self._clock,
            scheduler=self._scheduler,
            make=self.make,
            lost=self._lost,
        )
        self.shards[partition] = shard
        Loader(shard, partial(self._loaded, shard, self._clock.monotonic_ms())).start()

    def on_resign(self, partition: int) -> None:
        """This broker no longer leads the partition, or it was deleted: drop its state and refuse waiting requests."""
        shard = self.shards.pop(partition, None)
        if shard is not None:
            log.info("coordinator is elsewhere now shard=%r", shard)
            shard.close()

    def shutdown(self) -> None:
        """Resign from everything."""
        for partition in list(self.shards):
            self.on_resign(partition)

    def _loaded(self, shard: RuntimeShard[MachineT], begun_ms: int, error: Exception | None) -> None:
        if error is None:
            now_ms = self._clock.monotonic_ms()
            self.measures.loaded(now_ms - begun_ms, now_ms)
            shard.activate()
            return
        is_foreseen = isinstance(error, (KafkaError, ValueError, OSError))
        log.error("coordinator was not loaded shard=%r error=%s", shard, error, exc_info=None if is_foreseen else error)
        shard.close(Phase.FAILED)

    def _lost(self, shard: RuntimeShard[MachineT]) -> None:
        """The shard's state is ahead of its log: load it again."""
        if self.shards.get(shard.partition) is shard:
            self.on_resign(shard.partition)
            self.on_leader(shard.partition, shard.epoch)

    # -- finding

    def partition_of(self, key: str) -> int:
        """The partition that holds the key."""
        return partition_for(key, self._partitions())

    def shard_at(self, partition: int) -> RuntimeShard[MachineT]:
        """The active shard of the partition. Raises KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        shard = self.shards.get(partition)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self.config.topic}-{partition} is coordinated by another broker"
            )
        shard.check()
        return shard

    def shard_of(self, key: str) -> RuntimeShard[MachineT]:
        """The active shard of the key. Raises like `shard_at`."""
        return self.shard_at(partition_for(key, self._partitions()))

    # -- operations

    def write(
        self,
        key: str | int,
        operation: Callable[[MachineT], PlannedWrite[Any, ResponseT]],
        done: Callable[[ResponseT | KafkaError], None],
    ) -> None:
        """Run `operation` on the state machine of a key or a partition; `done` gets the response after the commit.

        If `operation` raises KafkaError, or the records cannot be written, `done` gets an error with a code for
        clients. `done` may be called before this returns.
        """
        try:
            shard = self.shard_at(key) if isinstance(key, int) else self.shard_of(key)
            planned = operation(shard.machine)
        except KafkaError as error:
            done(_for_clients(error))
            return
        shard.write(planned, lambda error: done(planned.response if error is None else _for_clients(error)))

    def read(
        self,
        key: str | int,
        operation: Callable[[MachineT], ResponseT],
        done: Callable[[ResponseT | KafkaError], None],
    ) -> None:
        """Call `done` with the result of `operation` on a state that is committed as a whole.

        This waits for all earlier writes. A state machine that distinguishes committed changes from others
        (`StateMachine.committed_to`) can be read at once, through `shard_of`.
        """

        def committed(error: KafkaError | None) -> None:
            if error is not None:
                done(_for_clients(error))
                return
            try:
                response = operation(shard.machine)
            except KafkaError as refused:
                done(_for_clients(refused))
                return
            done(response)

        try:
            shard = self.shard_at(key) if isinstance(key, int) else self.shard_of(key)
        except KafkaError as error:
            done(_for_clients(error))
            return
        shard.after_writes(committed)


def _for_clients(error: KafkaError) -> KafkaError:
    code = client_error(error)
    return error if code == error.code else KafkaError(code, str(error))
