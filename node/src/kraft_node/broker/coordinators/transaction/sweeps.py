"""The coordinator's periodic work on each partition: aborting old transactions, forgetting unused transactional ids.

A sweep looks at some transactional ids per turn of the loop. Its timers end with the shard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.transaction import rules
from kraft_node.broker.coordinators.transaction.rules import NEEDS_ID
from kraft_node.broker.coordinators.transaction.states import Change, Transaction, TransactionState, Values
from kraft_node.broker.coordinators.transaction.writing import store
from kraft_protocol.errors import KafkaError

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.transaction.config import TransactionConfig
    from kraft_node.broker.coordinators.transaction.decisions import Decisions
    from kraft_node.broker.coordinators.transaction.machine import Shard

log = logging.getLogger(__name__)

LOOKED_AT_A_TURN: Final = 100
"""Transactional ids. If all of them are aborted, their markers may be written in the same turn."""
REMOVED_AT_ONCE: Final = 500
"""Tombstones in one batch: far below any max.message.bytes."""


class Sweeper:
    """The sweeps of all shards. `version()`: the cluster's transaction.version."""

    def __init__(self, decisions: Decisions, config: TransactionConfig, version: Callable[[], int]) -> None:
        self._decisions = decisions
        self._config = config
        self._version = version

    def start(self, shard: Shard) -> None:
        """Sweep the shard until it ends."""
        config = self._config
        shard.timers.schedule("abort", config.abort_interval_ms, self._again, shard, "abort")
        shard.timers.schedule("remove", config.removal_interval_ms, self._again, shard, "remove")

    def _again(self, shard: Shard, what: str) -> None:
        config = self._config
        if what == "abort":
            shard.timers.schedule(what, config.abort_interval_ms, self._again, shard, what)
            self._sweep(shard, self._abort, iter(shard.machine.transactions.used()))
        else:
            shard.timers.schedule(what, config.removal_interval_ms, self._again, shard, what)
            self._sweep(shard, self._remove, shard.machine.transactions.all())

    def _sweep(
        self, shard: Shard, do: Callable[[Shard, list[Transaction]], None], transactions: Iterator[Transaction]
    ) -> None:
        some = list(islice(transactions, LOOKED_AT_A_TURN))
        do(shard, some)
        if len(some) == LOOKED_AT_A_TURN:
            shard.timers.call_soon(self._sweep, shard, do, transactions)

    # -- old transactions

    def _abort(self, shard: Shard, transactions: list[Transaction]) -> None:
        now_ms = self._decisions.clock.wall_ms()
        for transaction in transactions:
            if rules.is_timed_out(transaction, now_ms):
                self._fence(shard, transaction)

    def _fence(self, shard: Shard, transaction: Transaction, fresh_id: int | KafkaError | None = None) -> None:
        if isinstance(fresh_id, KafkaError):
            log.warning("old transaction stays open until the next try id=%s error=%s", transaction.name, fresh_id)
            return
        now_ms = self._decisions.clock.wall_ms()
        if shard.machine.transactions.get(transaction.name) is not transaction:
            return
        if not rules.is_timed_out(transaction, now_ms):
            return
        step = rules.fence(transaction, now_ms=now_ms, version=self._version(), fresh_id=fresh_id)
        if step is NEEDS_ID:
            self._decisions.take_id(partial(self._fence, shard, transaction))
            return
        assert isinstance(step, Values), "law: a fence is written"
        self._decisions.write(shard, transaction, step, partial(_aborted, transaction))

    # -- unused ids

    def _remove(self, shard: Shard, transactions: list[Transaction]) -> None:
        now_ms, expiration_ms = self._decisions.clock.wall_ms(), self._config.id_expiration_ms
        expired = [one for one in transactions if rules.is_expired(one, now_ms, expiration_ms)]
        for start in range(0, len(expired), REMOVED_AT_ONCE):
            some = expired[start : start + REMOVED_AT_ONCE]
            for transaction in some:
                transaction.begin(transaction.values._replace(state=TransactionState.DEAD))
            tombstones = [Change(transaction.name, None) for transaction in some]
            store(shard, tombstones, partial(_removed, shard, some))


def _aborted(transaction: Transaction, result: Any) -> None:
    if isinstance(result, KafkaError):
        log.warning("old transaction was not aborted id=%s error=%s", transaction.name, result)
    else:
        log.info("old transaction is aborted id=%s timeout=%d ms", transaction.name, transaction.values.timeout_ms)


def _removed(shard: Shard, transactions: list[Transaction], error: KafkaError | None) -> None:
    known = shard.machine.transactions
    for transaction in transactions:
        if error is not None:
            transaction.cancel()
        elif known.get(transaction.name) is transaction:
            known.remove(transaction.name)
    if error is not None:
        log.warning("unused transactional ids were not removed count=%d error=%s", len(transactions), error)
