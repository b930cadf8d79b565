"""The transactional ids of one partition of `__transaction_state`, as a state machine of the coordinator runtime.

Records of this broker's own writes are not replayed: a transactional id changes when its record is committed (see
`states.Transaction`). So answers never show a state that a failover could take back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from kraft_node.broker.coordinators.runtime.machine import NewerRecordError
from kraft_node.broker.coordinators.runtime.shard import RuntimeShard
from kraft_node.broker.coordinators.transaction.completions import Completions
from kraft_node.broker.coordinators.transaction.ids import Loaded, TransactionalIds, loaded
from kraft_node.broker.coordinators.transaction.records import encode_name, encode_values
from kraft_protocol.wire import coordinator as stored

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.runtime.machine import StoredRecord
    from kraft_node.broker.coordinators.transaction.states import Change
    from kraft_protocol.buffers import Buffer


class TransactionMachine:
    """`StateMachine` of transactional ids."""

    __slots__ = ("_loaded", "_unloaded", "_version", "completions", "is_settled", "shard", "transactions")

    def __init__(
        self,
        shard: RuntimeShard[TransactionMachine],
        version: Callable[[], int],
        loaded: Callable[[TransactionMachine], None],
        unloaded: Callable[[TransactionMachine], None],
    ) -> None:
        """`version()`: the cluster's transaction.version. `loaded` and `unloaded` are called with this machine."""
        self.shard = shard
        self.transactions = TransactionalIds()
        self.completions = Completions(shard)
        self.is_settled = False
        """Whether all loaded records are committed. Until then a failover may take them back, so they count for no
        answer."""
        self._version = version
        self._loaded = loaded
        self._unloaded = unloaded

    def encode(self, record: Change) -> StoredRecord:
        """The stored form at the cluster's transaction.version; a tombstone if the id is removed."""
        values = record.values
        return encode_name(record.name), None if values is None else encode_values(values, self._version())

    def decode(self, key: Buffer, value: Buffer | None) -> Loaded:
        """Key and value as they are: a later record replaces most of them, so they are read once the load needs them.
        Raises NewerRecordError for types of later releases, and ValueError for damage."""
        try:
            return loaded(key, value)
        except stored.UnknownRecordTypeError as error:
            raise NewerRecordError(str(error)) from error

    def replay(self, _offset: int, _producer_id: int, _producer_epoch: int, record: Loaded) -> None:
        """Set or remove a transactional id: while loading, not for this broker's own writes."""
        self.transactions.load(record)

    def complete_load(self) -> Iterator[None]:
        """Read the transactions that are not at rest."""
        return self.transactions.read_unfinished()

    def end_transaction(self, _offset: int, _producer_id: int, _producer_epoch: int, *, commit: bool) -> None:
        """The topic's own records are never transactional."""

    def committed_to(self, high_watermark: int) -> None:
        """Changes are applied when their write has been committed."""

    def loaded(self) -> None:
        """Let the coordinator continue the transactions once all loaded records are committed."""
        self._loaded(self)

    def unloaded(self) -> None:
        """Let the coordinator drop the unsent markers of this shard, then forget all transactional ids."""
        self._unloaded(self)
        self.transactions.clear()


Shard: TypeAlias = RuntimeShard[TransactionMachine]
