"""Batches of aborted transactions, and markers that are no longer needed (KIP-98, KIP-534).

A marker may be removed once all records of its transaction are removed. Until a pass finds no batch of the
transaction, readers need the marker. It ends an aborted transaction for them, and shows a follower that the
transaction has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraft_node.log.segments.txn_index import AbortedTxn
from kraft_protocol.records.control import ControlType, iter_control_records

if TYPE_CHECKING:
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.records.batch import BatchHeader


class ScannedTransactions:
    """The transactions of a log, as one scan of its batches in ascending order finds them."""

    __slots__ = ("_aborted", "_ahead", "_committed", "needed")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._ahead = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        """Aborted transactions that begin after the current position."""
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """For each producer its open transaction that will be aborted, and whether a batch of it was found."""
        self._committed: set[int] = set()
        """Producers with an open transaction that has a batch and will be committed."""
        self.needed: list[AbortedTxn] = []
        """The finished aborted transactions with batches: the index of aborted transactions keeps them."""

    def met_batch(self, header: BatchHeader) -> bool:
        """Whether a transactional batch belongs to an aborted transaction."""
        self._begin(header.last_offset)
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def met_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a control batch is no longer needed: it is empty, or all records of its transaction are removed.

        Raises CorruptBatch.
        """
        self._begin(header.last_offset)
        for record in iter_control_records(batch):
            if record.type == ControlType.ABORT:
                txn, has_batches = self._aborted.pop(header.producer_id, (None, False))
                if txn is not None and has_batches:
                    self.needed.append(txn)
                return not has_batches
            if record.type == ControlType.COMMIT:
                has_batches = header.producer_id in self._committed
                self._committed.discard(header.producer_id)
                return not has_batches
            return False
        return True

    def _begin(self, last_offset: int) -> None:
        ahead = self._ahead
        while ahead and ahead[-1].first_offset <= last_offset:
            txn = ahead.pop()
            self._aborted.setdefault(txn.producer_id, (txn, False))
