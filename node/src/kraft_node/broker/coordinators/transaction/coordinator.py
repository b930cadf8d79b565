"""The transaction coordinator: transactional ids of the partitions of `__transaction_state` that this broker leads.

The broker uses it: `handlers` are part of its table; `on_leader` and `on_resign` follow the leadership.
After an election it sends the markers of each transaction with a stored result, as `decisions` does after a write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.runtime.engine import Runtime
from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeConfig
from kraft_node.broker.coordinators.transaction.admin import TransactionAdmin
from kraft_node.broker.coordinators.transaction.api import TransactionApi
from kraft_node.broker.coordinators.transaction.decisions import Decisions
from kraft_node.broker.coordinators.transaction.machine import Shard, TransactionMachine
from kraft_node.broker.coordinators.transaction.markers import MarkerSender
from kraft_node.broker.coordinators.transaction.states import ENDING, Transaction
from kraft_node.broker.coordinators.transaction.sweeps import Sweeper
from kraft_node.broker.metadata_cache import TRANSACTION_STATE
from kraft_protocol.errors import KafkaError
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler
    from kraft_node.base.turns import Turns
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.broker.coordinators.runtime.seams import PartitionLogs
    from kraft_node.broker.coordinators.transaction.config import TransactionConfig
    from kraft_node.broker.coordinators.transaction.decisions import TakeId
    from kraft_node.broker.coordinators.transaction.seams import TransactionClusterView, WriteMarker

RESUMED_A_TURN: Final = 100
"""Transactions that are looked at in one turn after a load; their markers may be written at once."""


class TransactionCoordinator:
    """The transactions of one broker."""

    def __init__(
        self,
        *,
        clock: Clock,
        scheduler: Scheduler,
        store: PartitionLogs,
        cluster: TransactionClusterView,
        config: TransactionConfig,
        take_id: TakeId,
        version: Callable[[], int],
        peers: Callable[[int, int], ControllerLink | None],
        node_id: int,
        write_marker: WriteMarker,
        turns: Turns,
    ) -> None:
        """`version()`: the cluster's transaction.version. `peers` as in `Broker`. `write_marker` writes into the
        partitions of this broker, `node_id`. `turns`: for long answers."""
        self.sender = MarkerSender(
            scheduler,
            leader=cluster.marker_leader,
            peers=peers,
            node_id=node_id,
            write_here=write_marker,
            timeout_ms=config.request_timeout_ms,
        )
        self.runtime: Runtime[TransactionMachine] = Runtime(
            RuntimeConfig(TRANSACTION_STATE),
            clock=clock,
            scheduler=scheduler,
            store=store,
            make=lambda shard: TransactionMachine(shard, version, self._loaded, self._unloaded),
            partitions=lambda: cluster.partition_count(TRANSACTION_STATE) or config.topic_partitions,
        )
        self.on_leader = self.runtime.on_leader
        self.on_resign = self.runtime.on_resign
        self.decisions = Decisions(self.runtime, self.sender, clock, take_id)
        self._sweeper = Sweeper(self.decisions, config, version)
        api = TransactionApi(self.decisions, cluster, config, version)
        admin = TransactionAdmin(self.decisions, turns)
        self.verify = api.verify
        self.handlers: dict[ApiKey, Callable[..., Any]] = {
            ApiKey.INIT_PRODUCER_ID: api.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: api.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: api.add_offsets,
            ApiKey.END_TXN: api.end,
            ApiKey.DESCRIBE_TRANSACTIONS: admin.describe,
            ApiKey.LIST_TRANSACTIONS: admin.list,
        }

    def shutdown(self) -> None:
        """Drop all partitions."""
        self.runtime.shutdown()

    def close(self) -> None:
        """The broker stops."""
        self.runtime.shutdown()
        self.sender.close()

    # -- loading

    def _loaded(self, machine: TransactionMachine) -> None:
        """Serve requests and resume the endings once all that was read is committed: it may still be lost before."""
        shard = machine.shard

        def committed(error: KafkaError | None) -> None:
            if error is None:
                machine.is_settled = True
                shard.timers.call_soon(self._resume, shard, iter(machine.transactions.used()))
            elif shard.phase is Phase.ACTIVE:
                shard.timers.call_soon(self._loaded, machine)

        shard.after_writes(committed)
        self._sweeper.start(shard)

    def _resume(self, shard: Shard, transactions: Iterator[Transaction]) -> None:
        seen = 0
        for transaction in islice(transactions, RESUMED_A_TURN):
            seen += 1
            if transaction.values.state in ENDING and transaction.pending is None:
                self.decisions.finish(shard, transaction)()
        if seen == RESUMED_A_TURN:
            shard.timers.call_soon(self._resume, shard, transactions)

    def _unloaded(self, machine: TransactionMachine) -> None:
        self.sender.drop(machine.shard)

    # -- reading

    @property
    def waiting_completions(self) -> int:
        """Complete records that could not be appended and are tried again."""
        return sum(len(shard.machine.completions.refused) for shard in self.runtime.shards.values())
