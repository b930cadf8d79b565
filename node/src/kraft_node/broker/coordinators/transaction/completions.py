"""Complete records of one partition of `__transaction_state` that are not written yet.

Once all markers of a transaction are committed, no answer waits for its Complete record. The result is decided: after a
failover, the next coordinator finds the Prepare record and writes the markers again, which changes nothing. So the
record waits:

- for the next write of its transactional id. Both records are one batch, so no record of the next transaction can be
  in the log without the Complete record;
- for at most `LINGER_MS`. The records that are due are one batch.

A busy producer thus costs one append less in each transaction, and its next transaction does not wait for replicas of
the Complete record.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import rare
from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_node.broker.coordinators.transaction.states import Change
from kraft_node.broker.coordinators.transaction.writing import store

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.runtime.shard import RuntimeShard
    from kraft_node.broker.coordinators.transaction.states import Transaction, Values
    from kraft_protocol.errors import KafkaError

log = logging.getLogger(__name__)

LINGER_MS: Final = 100
"""Longer than a busy producer pauses between its transactions."""
RETRY_MS: Final = 1_000
"""Delay after a refused append."""
WRITTEN_AT_ONCE: Final = 100
"""Records in one batch."""
NAME_BYTES_MAX: Final = 10_000
"""Characters of transactional ids in one batch, unless a single id is longer: far below any max.message.bytes."""


class Completions:
    """The transactions of one shard whose last step is not written. They end with the shard."""

    __slots__ = ("_is_armed", "_shard", "_waiting", "refused")

    def __init__(self, shard: RuntimeShard[Any]) -> None:
        self._shard = shard
        self._waiting: dict[Transaction, int] = {}
        """By transaction: when its record is due, monotonic milliseconds; nearly in this order."""
        self._is_armed = False
        self.refused: set[Transaction] = set()
        """Transactions whose Complete record could not be appended and is tried again."""

    def add(self, transaction: Transaction, values: Values) -> None:
        """All markers of the transaction are written; `values` are its last step, which has begun."""
        transaction.complete(values)
        self._wait(transaction, 0 if rare.takes("completion alone") else LINGER_MS)

    def take(self, transaction: Transaction) -> Values:
        """The last step, for the batch with the next step."""
        del self._waiting[transaction]
        return transaction.take_completion()

    def put_back(self, transaction: Transaction, values: Values, error: KafkaError) -> None:
        """The batch of a last step could not be written."""
        if self._shard.phase is Phase.ACTIVE:  # otherwise the next load resumes the transaction
            log.info("completion is written again id=%s error=%s", transaction.name, error)
            transaction.begin(values)
            transaction.complete(values)
            self.refused.add(transaction)
            self._wait(transaction, RETRY_MS)

    def written(self, transaction: Transaction) -> None:
        """The batch of a last step is committed."""
        self.refused.discard(transaction)

    def _wait(self, transaction: Transaction, delay_ms: int) -> None:
        self._waiting[transaction] = self._shard.clock.monotonic_ms() + delay_ms
        self._arm(delay_ms)

    def _arm(self, delay_ms: int) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._shard.timers.call_later(delay_ms, self._write_due)

    def _write_due(self) -> None:
        self._is_armed = False
        now_ms = self._shard.clock.monotonic_ms()
        due: list[Transaction] = []
        room = NAME_BYTES_MAX
        for transaction, due_ms in self._waiting.items():
            room -= len(transaction.name)
            if due_ms > now_ms or len(due) == WRITTEN_AT_ONCE or (room < 0 and due):
                break
            due.append(transaction)
        taken = [(transaction, self.take(transaction)) for transaction in due]
        if self._waiting:
            self._arm(max(0, next(iter(self._waiting.values())) - now_ms))
        if taken:
            self._write(taken)

    def _write(self, due: list[tuple[Transaction, Values]]) -> None:
        for transaction, values in due:
            transaction.begin(values)
        store(self._shard, [Change(one.name, values) for one, values in due], partial(self._decided, due))

    def _decided(self, due: list[tuple[Transaction, Values]], error: KafkaError | None) -> None:
        for transaction, values in due:
            if error is None:
                self.written(transaction)
                transaction.commit(values)
            else:
                transaction.cancel()
                self.put_back(transaction, values, error)
