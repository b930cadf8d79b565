"""The batches of one Produce request that begin transactions: they wait until the coordinator has agreed.

Produce 12 and later add the partitions to the transaction (transaction.version 2); with earlier versions the producer
has done so itself, and this is only verified. A producer with transaction.version 2 begins its next transaction while
markers of the last one are still being written: CONCURRENT_TRANSACTIONS is retried here for a short time, because the
producer's own retry would come late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kraft_node.broker.producing.batches import BatchRefused
from kraft_node.broker.transactions.verifier import Errors, PartitionName, Question
from kraft_node.log.producers.verification import Asking, Unverified
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import TRANSACTIONAL_BIT, read_header

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.broker.transactions.verifier import Verifier
    from kraft_node.log.producers.verification import Guard
    from kraft_node.log.validate import Checked, LongCheck, LongRecode
    from kraft_node.log.waiting.write_budget import AppendLater
    from kraft_node.partition.partition import Partition
    from kraft_node.partition.table import TopicKey
    from kraft_protocol.records.batch import BatchHeader

ADDING_VERSION: Final = 12
"""The first Produce version that adds partitions to the transaction."""
ABORTABLE_VERSION: Final = 11
"""The first Produce version with clients that know TRANSACTION_ABORTABLE."""
ATTRIBUTES_LOW: Final = 22
PRODUCER: Final = slice(43, 53)
"""Producer id and epoch in a batch."""
_RETRIABLE: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors that old producers do not retry: they get NOT_ENOUGH_REPLICAS, which they do retry."""


WorkT = TypeVar("WorkT", bound=Exception)


class LateAppend(NamedTuple):
    """A batch that is appended in a later turn; `row` is its index in the response."""

    key: TopicKey
    row: Any
    records: bytes | None
    partition: Partition | None = None
    """None: the partition must be looked up first, which may open its log."""
    work: LongCheck | LongRecode | AppendLater | Unverified | None = None
    """Work to do, or to wait for, before the append."""
    checked: Checked | None = None
    guard: Guard | None = None


def forgetting(work: WorkT) -> WorkT:
    """The exception without its traceback, to be kept.

    The traceback names the frame that keeps the exception: a cycle with the request's bytes, which would stay until
    the garbage collector runs.
    """
    work.__traceback__ = None
    return work


def check_one_producer(topic_data: Sequence[Any]) -> None:
    """Raise INVALID_PRODUCER_ID_MAPPING if the transactional batches of a request have several producers."""
    first = None
    for topic in topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < PRODUCER.stop or not records[ATTRIBUTES_LOW] & TRANSACTIONAL_BIT:
                continue
            producer = records[PRODUCER]
            if first is None:
                first = producer
            elif producer != first:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
                )


def refusal(code: ErrorCode, version: int) -> BatchRefused:
    """The error of a batch for a partition that the coordinator has refused, for a Produce request of this version."""
    if code == ErrorCode.INVALID_TXN_STATE:
        words = "Partition was not added to the transaction"
        return BatchRefused(code, words, words)
    if code in _RETRIABLE or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDING_VERSION):
        words = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        return BatchRefused(ErrorCode.NOT_ENOUGH_REPLICAS, words, words)
    return BatchRefused(code, f"the transaction coordinator answered {code.name}")


class InPlace(Asking):
    """Lets the coordinator of this broker verify a batch of a request while it is being appended.

    For producers that add their partitions themselves.
    """

    __slots__ = ("_transactional_id", "_verifier", "_version")

    def __init__(self, verifier: Verifier, transactional_id: str, version: int, now_ms: int) -> None:
        """`version`: of the Produce request, below `ADDING_VERSION`."""
        super().__init__(now_ms)
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._version = version

    def prove(self, partition: str, header: BatchHeader) -> None:
        """See `Asking`. The errors are those that the producer gets."""
        topic, _, index = partition.rpartition("-")
        code = self._verifier.code_here(
            self._transactional_id,
            header.producer_id,
            header.producer_epoch,
            (topic, int(index)),
            names_abortable=self._version >= ABORTABLE_VERSION,
        )
        if code is None:
            raise Unverified(header.producer_id, partition)
        if code:
            raise self.refused(code)

    def refused(self, code: ErrorCode) -> KafkaError:
        """See `Asking`."""
        return refusal(code, self._version)


class Opening:
    """One round of verification for a request. `done` gets the batches, each with its guard or its error code."""

    __slots__ = (
        "_batches",
        "_done",
        "_env",
        "_refused",
        "_since_ms",
        "_verifier",
        "_version",
        "transactional_id",
    )

    def __init__(
        self,
        env: Env,
        verifier: Verifier,
        transactional_id: str,
        version: int,
        batches: list[LateAppend],
        done: Callable[[list[tuple[LateAppend, ErrorCode]]], None],
    ) -> None:
        self._env = env
        self._verifier = verifier
        self.transactional_id = transactional_id
        self._version = version
        self._batches = batches
        self._refused: dict[PartitionName, ErrorCode] = {}
        """Batches that the log refuses without a question."""
        self._done = done
        self._since_ms = env.clock.monotonic_ms()

    def start(self) -> None:
        """Create the guards, and send the request to the coordinator."""
        adds = self._version >= ADDING_VERSION
        now_ms = self._env.clock.wall_ms()
        guarded = []
        names = []
        self._refused.clear()
        producer_id = epoch = -1
        for batch in self._batches:
            assert batch.partition is not None and batch.records is not None, "law: its log has refused it"
            header = read_header(batch.records)
            producer_id, epoch = header.producer_id, header.producer_epoch
            partition = batch.partition
            name = (partition.topic, partition.index)
            try:
                guard = partition.log.producers.begin_verification(
                    producer_id, epoch, header.base_sequence, now_ms, with_bumps=adds
                )
            except KafkaError as error:
                self._refused[name] = error.code
                guarded.append(batch)
                continue
            guarded.append(batch._replace(guard=guard))
            names.append(name)
        self._batches = guarded
        if not names:
            self._answered({})
            return
        self._verifier.ask(
            Question(
                self.transactional_id,
                producer_id,
                epoch,
                names,
                self._answered,
                adds=adds,
                names_abortable=self._version >= ABORTABLE_VERSION,
            )
        )

    def _answered(self, errors: Errors) -> None:
        is_busy = self._version >= ADDING_VERSION and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if is_busy:
            retry_ms, patience_ms = self._verifier.retry_pauses()
            if self._env.clock.monotonic_ms() < self._since_ms + patience_ms:
                self._env.scheduler.call_later(retry_ms, self.start)
                return
        results = []
        for batch in self._batches:
            assert batch.partition is not None, "law: as in `start`"
            name = (batch.partition.topic, batch.partition.index)
            results.append((batch, self._refused.get(name) or errors.get(name, ErrorCode.NONE)))
        self._done(results)
