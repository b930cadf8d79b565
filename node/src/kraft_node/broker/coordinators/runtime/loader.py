"""Reads a partition back into its shard, one slice per turn of the loop.

A turn is limited by records, not bytes. A record costs some 5 µs, so a turn stays below 5 ms. The broker
continues to serve others while a large partition loads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import rare
from kraft_node.broker.coordinators.runtime.machine import NewerRecordError
from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_node.log.errors import is_shortage
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import iter_headers
from kraft_protocol.records.control import ControlType, parse_control_key
from kraft_protocol.records.pairs import pairs_in

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.runtime.shard import RuntimeShard
    from kraft_protocol.records.batch import BatchHeader

log = logging.getLogger(__name__)

READ_BYTES: Final = 64 * 1024
"""Bytes per read of the log (a single larger batch is read whole): the work of one turn."""
RECORDS_A_TURN: Final = 400
RETRY_MS: Final = 50
"""Delay until a log that could not be opened yet is tried again."""


class Loader:
    """Loads one shard; then calls `done` with None, or with the error that ended the load."""

    __slots__ = ("_done", "_offset", "_records", "_shard", "_work")

    def __init__(self, shard: RuntimeShard[Any], done: Callable[[Exception | None], None]) -> None:
        self._shard = shard
        self._done = done
        self._records = 0
        self._offset: int | None = None
        """All before it has been applied."""
        self._work = self._replay()

    def start(self) -> None:
        """Start loading in the next turn of the loop."""
        self._shard.scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        if self._shard.phase is not Phase.LOADING:
            return  # resigned meanwhile
        try:
            limit = 1 if rare.takes("coordinator load short") else RECORDS_A_TURN
            steps = sum(1 for _ in islice(self._work, limit))
        except Exception as error:  # for any exception: the partition must not seem to be loading without end
            is_closed = isinstance(error, KafkaError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if is_closed or is_shortage(error) or is_shortage(error.__cause__):
                # The log is being made or opened again, or no descriptor is left. If another broker leads, the shard
                # must resign.
                self._work = self._replay()
                self._shard.scheduler.call_later(RETRY_MS, self._turn)
            else:
                self._done(error)
            return
        if steps == limit:
            self._shard.scheduler.call_soon(self._turn)
            return
        level = logging.INFO if self._records else logging.DEBUG
        log.log(level, "%r: loaded %d records", self._shard, self._records)
        self._done(None)

    def _replay(self) -> Iterator[None]:
        """Apply the whole log, yielding after each record, then complete the load."""
        shard, store = self._shard, self._shard.store
        offset = store.start_offset(shard.partition) if self._offset is None else self._offset
        shard.high_watermark_moved(store.high_watermark(shard.partition))
        while offset < store.end_offset(shard.partition):
            size = 1 if rare.takes("coordinator read small") else READ_BYTES
            piece = bytes(store.read(shard.partition, offset, size))
            next_offset = offset
            for batch in iter_headers(piece):
                next_offset = batch.next_offset
                yield from self._replay_batch(piece, batch, offset)
            if next_offset <= offset:
                break  # compaction left nothing up to the end
            self._offset = offset = next_offset
        yield from shard.machine.complete_load()
        shard.high_watermark_moved(store.high_watermark(shard.partition))  # raises if the log was closed meanwhile

    def _replay_batch(self, piece: bytes, batch: BatchHeader, start: int) -> Iterator[None]:
        machine = self._shard.machine
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        for offset, key, value in pairs_in(piece, batch):
            self._records += 1
            yield
            if offset < start:
                continue
            if batch.is_control:
                kind = parse_control_key(key)
                if kind in {ControlType.COMMIT, ControlType.ABORT}:
                    commit = kind is ControlType.COMMIT
                    machine.end_transaction(offset, producer_id, producer_epoch, commit=commit)
                continue
            try:
                decoded = machine.decode(key or b"", value)
            except NewerRecordError as error:
                log.warning("record is ignored shard=%r offset=%d reason=%s", self._shard, offset, error)
                continue
            except ValueError as error:
                raise ValueError(f"the record at offset {offset} cannot be read: {error}") from error
            machine.replay(offset, producer_id, producer_epoch, decoded)
