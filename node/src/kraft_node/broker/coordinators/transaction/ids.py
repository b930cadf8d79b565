"""The transactional ids of one partition of `__transaction_state`; loaded ones stay as they are stored until needed.

A load reads each record of an id, usually four for each of its transactions, and most ids are at rest when it ends. So
a load keeps the last value of each id, and reads only those that are not at rest. This makes a load several times
faster. A look at all ids (the hourly removal of unused ones, ListTransactions) reads the others in turns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.broker.coordinators.transaction.records import (
    TYPE_SIZE,
    check_type,
    decode_values,
    encode_name,
    name_in,
    state_in,
)
from kraft_node.broker.coordinators.transaction.states import RESTING, Transaction
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.errors import EncodeError

if TYPE_CHECKING:
    from kraft_protocol.buffers import Buffer

log = logging.getLogger(__name__)

_RESTING: Final = frozenset(state.value for state in RESTING)


class Loaded(NamedTuple):
    """A record of the log; value None removes the id."""

    key: bytes
    value: bytes | None
    rests: bool
    """Whether the id is in no transaction, or removed."""


def loaded(key: Buffer, value: Buffer | None) -> Loaded:
    """A record with as much of it read as a load needs. Raises UnknownRecordTypeError for types of later releases, and
    ValueError for a value without a known state."""
    check_type(key)
    # What is kept must not hold the buffer that was read.
    return Loaded(
        key if isinstance(key, bytes) else bytes(key),
        value if value is None or isinstance(value, bytes) else bytes(value),
        value is None or state_in(value) in _RESTING,
    )


class TransactionalIds:
    """Transactional ids by name."""

    __slots__ = ("_known", "_stored", "_unfinished")

    def __init__(self) -> None:
        self._known: dict[str, Transaction] = {}
        self._stored: dict[bytes, bytes] = {}
        """Key and value of the last record of each loaded id that is not in `_known`."""
        self._unfinished: dict[bytes, None] = {}
        """Of the stored ids, those that a load must still read; empty after it."""

    def __len__(self) -> int:
        return len(self._known) + len(self._stored)

    # -- loading

    def load(self, record: Loaded) -> None:
        """Take over a record of the log."""
        key, value = record.key, record.value
        if value is None:
            self._stored.pop(key, None)
        else:
            self._stored[key] = value
        if record.rests:
            self._unfinished.pop(key, None)
        else:
            self._unfinished[key] = None

    def read_unfinished(self) -> Iterator[None]:
        """Read the loaded ids that are in a transaction, one a step. Raises ValueError for damage."""
        while self._unfinished:
            # `next(reversed(...))` would search behind all ids that were read before.
            self._read(self._unfinished.popitem()[0])
            yield

    def _read(self, key: bytes) -> Transaction:
        name = name_in(key)
        transaction = Transaction(name, decode_values(self._stored[key]))
        del self._stored[key]
        self._known[name] = transaction
        return transaction

    # -- as a mapping

    def get(self, name: str) -> Transaction | None:
        """The transactional id; None if it is not known. Raises KafkaError UNKNOWN_SERVER_ERROR if its stored value is
        damaged."""
        found = self._known.get(name)
        if found is not None or not self._stored:
            return found
        try:
            key = encode_name(name)
        except EncodeError:
            return None  # too long for any record
        return self._known_or_read(key) if key in self._stored else None

    def _known_or_read(self, key: bytes) -> Transaction | None:
        """The id of a key that was loaded; None if it has been removed. Raises like `get`."""
        try:
            return self._read(key) if key in self._stored else self._known.get(name_in(key))
        except ValueError as error:
            text = f"the stored value of transactional id {key[TYPE_SIZE:]!r} cannot be read: {error}"
            log.error(text)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error

    def __setitem__(self, name: str, transaction: Transaction) -> None:
        self._known[name] = transaction

    def remove(self, name: str) -> None:
        """Forget an id that `get` has returned."""
        del self._known[name]

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._stored.clear()
        self._unfinished.clear()

    # -- all

    def used(self) -> list[Transaction]:
        """The ids that have been used since the load, or were not at rest then."""
        return list(self._known.values())

    def all(self) -> Iterator[Transaction]:
        """The ids that are known at the first step, as far as they have not been removed.

        An id with a damaged value has no state to list: it stays stored, and the log names it each time.
        """
        keys = list(self._stored)
        yield from self.used()
        for key in keys:
            try:
                found = self._known_or_read(key)
            except KafkaError:
                continue
            if found is not None:
                yield found
