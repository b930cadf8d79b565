"""The transaction coordinator: transactional ids of the partitions of `__transaction_state` that this broker leads.

The broker uses it: `handlers` are part of its table; `on_leader` and `on_resign` follow the leadership.

A request decides by the rules of `rules`, writes the new values, and answers when they are committed. When the result
of a transaction is committed (a Prepare record), `markers` writes it into the transaction's partitions. A Complete
record follows, at the latest with the next record of the id (`completions`). After an election the same is done for
each transaction with a stored result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.base.calls import call_each
from kraft_node.broker.coordinators.runtime.engine import Runtime
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_node.broker.coordinators.runtime.shard import NO_LINGER, Phase, RuntimeConfig
from kraft_node.broker.coordinators.transaction import rules
from kraft_node.broker.coordinators.transaction.admin import TransactionAdmin
from kraft_node.broker.coordinators.transaction.api import TransactionApi
from kraft_node.broker.coordinators.transaction.machine import Shard, TransactionMachine
from kraft_node.broker.coordinators.transaction.markers import Ending, MarkerSender
from kraft_node.broker.coordinators.transaction.rules import NEEDS_ID, Settled, Step
from kraft_node.broker.coordinators.transaction.states import ENDING, Change, Transaction, Values
from kraft_node.broker.coordinators.transaction.sweeps import Sweeper
from kraft_node.broker.coordinators.transaction.writing import store
from kraft_node.broker.metadata_cache import TRANSACTION_STATE
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler
    from kraft_node.base.turns import Turns
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.broker.coordinators.runtime.seams import PartitionLogs
    from kraft_node.broker.coordinators.transaction.config import TransactionConfig
    from kraft_node.broker.coordinators.transaction.seams import TransactionClusterView, WriteMarker

log = logging.getLogger(__name__)

RESUMED_A_TURN: Final = 100
"""Transactions that are looked at in one turn after a load; their markers may be written at once."""

Done: TypeAlias = Callable[["Values | Settled | KafkaError"], None]
"""Gets the written or found value, or the error with a code for clients."""
TakeId: TypeAlias = Callable[[Callable[[int | KafkaError], None]], None]
"""`broker.producer_ids.ProducerIds.take`."""


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
        self.clock = clock
        self.config = config
        self.cluster = cluster
        self.version = version
        self.take_id = take_id
        self.sender = MarkerSender(
            scheduler,
            leader=cluster.marker_leader,
            peers=peers,
            node_id=node_id,
            write_here=write_marker,
            timeout_ms=config.request_timeout_ms,
        )
        self.runtime: Runtime[TransactionMachine] = Runtime(
            RuntimeConfig(TRANSACTION_STATE, append_linger_ms=NO_LINGER),
            clock=clock,
            scheduler=scheduler,
            store=store,
            make=lambda shard: TransactionMachine(shard, version, self._loaded, self._unloaded),
            partitions=lambda: cluster.partition_count(TRANSACTION_STATE) or config.topic_partitions,
        )
        self.on_leader = self.runtime.on_leader
        self.on_resign = self.runtime.on_resign
        self.sweeper = Sweeper(self)
        api, admin = TransactionApi(self), TransactionAdmin(self, turns)
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

    # -- steps

    def run(
        self,
        name: str,
        decide: Callable[[Transaction, int | None], Step],
        done: Done,
        *,
        create: Callable[[int], Values] | None = None,
        fresh_id: int | None = None,
    ) -> None:
        """Decide about a transactional id, write the decision, and call `done` when it is committed.

        `decide(transaction, fresh_id)` is called again with an unused producer id if it needs one. `create(fresh_id)`
        makes the values of an unknown transactional id; None: it is refused.
        """
        need_id = partial(self._with_id, name, decide, done, create)
        try:
            shard = self._settled_shard(name)
            transaction = shard.machine.transactions.get(name)
            if transaction is None:
                if create is None:
                    raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {name} is not known")
                if fresh_id is None:
                    self.take_id(need_id)
                    return
                transaction = shard.machine.transactions[name] = Transaction(name, create(fresh_id))
            step = decide(transaction.as_seen(), fresh_id)
        except KafkaError as error:
            done(error)
            return
        if step is NEEDS_ID:
            self.take_id(need_id)
        elif isinstance(step, Values):
            self.write(shard, transaction, step, done)
        else:
            assert isinstance(step, Settled), "law: a step is one of three things"
            done(step)

    def _with_id(
        self,
        name: str,
        decide: Callable[[Transaction, int | None], Step],
        done: Done,
        create: Callable[[int], Values] | None,
        fresh_id: int | KafkaError,
    ) -> None:
        if isinstance(fresh_id, KafkaError):
            done(fresh_id)
        else:
            self.run(name, decide, done, create=create, fresh_id=fresh_id)

    def write(self, shard: Shard, transaction: Transaction, values: Values, done: Done) -> None:
        """Write the values of a transactional id; they count, and `done` is called, when they are committed.

        If they are the result of a transaction, its markers follow. `done` gets an error if the commit takes longer
        than the transaction may; the write stays pending then, and counts if it is committed later.
        """
        last = None if transaction.completion is None else shard.machine.completions.take(transaction)
        transaction.begin(values, last)
        answers = [done]
        # Unless the append commits at once, a follower's fetch commits. During a fetch nothing may be appended.
        at_once = True

        def answer(result: Values | KafkaError) -> None:
            if answers:
                answers.pop()(result)

        def refuse(error: KafkaError) -> None:
            answer(KafkaError(client_error(error), str(error)))

        def decided(error: KafkaError | None) -> None:
            if error is not None:
                transaction.cancel()
                if last is not None:
                    shard.machine.completions.put_back(transaction, last, error)
                refuse(error)
                return
            transaction.commit(values)
            if last is not None:
                shard.machine.completions.written(transaction)
            if values.state not in ENDING:
                answer(values)
                return
            send_markers = self._ending(shard, transaction)
            go_on = send_markers if at_once else partial(shard.timers.call_soon, send_markers)
            call_each([partial(answer, values), go_on])

        changes = [Change(transaction.name, step) for step in (last, values) if step is not None]
        store(shard, changes, decided, refuse, timeout_ms=values.timeout_ms)
        at_once = False

    # -- endings

    def _ending(self, shard: Shard, transaction: Transaction) -> Callable[[], None]:
        """Begin the last step of a transaction with a stored result. Returns the call that sends its markers."""
        complete = rules.completed(transaction.values, self.clock.wall_ms())
        transaction.begin(complete)
        done = partial(shard.machine.completions.add, transaction, complete)
        return partial(self.sender.add, Ending(shard, transaction, done))

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
        self.sweeper.start(shard)

    def _resume(self, shard: Shard, transactions: Iterator[Transaction]) -> None:
        seen = 0
        for transaction in islice(transactions, RESUMED_A_TURN):
            seen += 1
            if transaction.values.state in ENDING and transaction.pending is None:
                self._ending(shard, transaction)()
        if seen == RESUMED_A_TURN:
            shard.timers.call_soon(self._resume, shard, transactions)

    def _unloaded(self, machine: TransactionMachine) -> None:
        self.sender.drop(machine.shard)

    # -- reading

    @property
    def waiting_completions(self) -> int:
        """Complete records that could not be appended and are tried again."""
        return sum(len(shard.machine.completions.refused) for shard in self.runtime.shards.values())

    def transaction(self, name: str) -> Transaction | None:
        """The transactional id, as requests see it; None if it is not known.

        Raises KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        found = self._settled_shard(name).machine.transactions.get(name)
        return None if found is None else found.as_seen()

    def _settled_shard(self, name: str) -> Shard:
        shard = self.runtime.shard_of(name)
        if not shard.machine.is_settled:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{shard!r} has loaded uncommitted records")
        return shard
