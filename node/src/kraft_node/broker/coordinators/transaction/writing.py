"""Writes of transactional ids: memory never differs from what a load of the log would find."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraft_node.broker.coordinators.runtime.machine import PlannedWrite
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.runtime.shard import RuntimeShard
    from kraft_node.broker.coordinators.transaction.states import Change


class _Store:
    """A write in progress. An object, not a closure that names itself: the collector need not free it."""

    __slots__ = ("_decided", "_late", "_shard")

    def __init__(
        self,
        shard: RuntimeShard[Any],
        decided: Callable[[KafkaError | None], None],
        late: Callable[[KafkaError], None] | None,
    ) -> None:
        self._shard = shard
        self._decided = decided
        self._late = late

    def written(self, error: KafkaError | None) -> None:
        if error is None or error.code != ErrorCode.REQUEST_TIMED_OUT:
            self._decided(error)
            return
        self._shard.after_writes(self.written)
        if self._late is not None:
            self._late(error)


def store(
    shard: RuntimeShard[Any],
    changes: list[Change],
    decided: Callable[[KafkaError | None], None],
    late: Callable[[KafkaError], None] | None = None,
    *,
    timeout_ms: int | None = None,
) -> None:
    """Write the changes. Call `decided` when they are committed (None), or cannot be committed by this coordinator.

    Call `late` if the commit takes longer than `timeout_ms`. The log has the records then, and a later load may find
    them. So the write stays pending: memory never differs from what a load would find.
    """
    shard.write(PlannedWrite(changes, None, replay=False, timeout_ms=timeout_ms), _Store(shard, decided, late).written)
