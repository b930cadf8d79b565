"""Requests from transaction coordinators to verify that partitions are part of a transaction, or to add them
(KIP-890).

Every broker that leads a partition sends a request before a transaction begins there (AddPartitionsToTxn 4 and 5). A
coordinator's broker gets one request at a time; verifications that arrive meanwhile are sent together. The lane is a
connection of its own, because the coordinator answers only after a commit. A coordinator of this broker verifies at
once.

Producers know fewer errors than coordinators have, so some are translated; see `_translated`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.base.calls import call_each
from kraft_node.broker.coordinators.partitioning import partition_for
from kraft_node.broker.coordinators.transaction.rules import ProducerEpoch
from kraft_node.broker.metadata_cache import TRANSACTION_STATE
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.env import Scheduler
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.metadata.image import MetadataImage

LANE: Final = -1
"""The lane of `peers` for these requests; fetchers use the lanes from 0."""
NEWEST_VERSION: Final = 5
FIRST_VERSION: Final = 4
"""The first version between brokers. An older coordinator cannot verify."""
ENABLED: Final = "transaction.partition.verification.enable"

PartitionName: TypeAlias = tuple[str, int]
Errors: TypeAlias = Mapping[PartitionName, ErrorCode]
"""The partitions to which the transaction must not write; empty if all is well."""
Done: TypeAlias = Callable[[Errors], None]
VerifyHere: TypeAlias = "Callable[[str, ProducerEpoch, Sequence[PartitionName]], Mapping[PartitionName, ErrorCode]]"


class Question:
    """One transaction and the partitions where it is about to begin.

    `adds`: the producer did not add them itself (transaction.version 2). `names_abortable`: the client knows
    TRANSACTION_ABORTABLE.
    """

    __slots__ = ("adds", "done", "epoch", "names_abortable", "partitions", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[PartitionName],
        done: Done,
        *,
        adds: bool,
        names_abortable: bool,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.partitions = partitions
        self.done = done
        self.adds = adds
        self.names_abortable = names_abortable

    def refuse(self, code: ErrorCode) -> None:
        """Answer with `code` for each partition."""
        self.done(dict.fromkeys(self.partitions, code))


class Verifier:
    """The questions of one broker, `node_id`.

    `peers(node_id, lane)` returns the link to a broker; None if it is unknown. `verify_here` verifies with the
    coordinator of this broker; it returns the code of each partition.
    """

    def __init__(
        self,
        image: MetadataImage,
        config: ConfigView,
        scheduler: Scheduler,
        peers: Callable[[int, int], ControllerLink | None],
        node_id: int,
        verify_here: VerifyHere,
    ) -> None:
        self._node_id = node_id
        self._verify_here = verify_here
        self._image = image
        self._config = config
        self._scheduler = scheduler
        self._peers = peers
        self._waiting: dict[int, dict[str, Question]] = {}
        """By node id and transactional id: to be sent after the pending answer."""
        self._asking: set[int] = set()
        self._timeout_ms = config.int("request.timeout.ms")
        self.is_enabled = True
        """Whether producers that add partitions themselves are verified."""
        self.config_changed()

    def config_changed(self) -> None:
        """Apply the dynamic key."""
        self.is_enabled = self._config.boolean(ENABLED)

    def retry_pauses(self) -> tuple[int, int]:
        """How long to wait before CONCURRENT_TRANSACTIONS is retried, and for how long it is: milliseconds."""
        longest_ms = self._config.int("add.partitions.to.txn.retry.backoff.max.ms")
        return self._config.int("add.partitions.to.txn.retry.backoff.ms"), min(longest_ms, self._timeout_ms)

    def ask(self, question: Question) -> None:
        """Answer `question`. A newer question about the same transaction replaces one that was not sent.

        The answer may come before this returns.
        """
        node_id = self._coordinator_of(question.transactional_id)
        if node_id is None:
            self._scheduler.call_soon(question.refuse, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if node_id == self._node_id and not question.adds:
            codes = self._verify_here(
                question.transactional_id, ProducerEpoch(question.producer_id, question.epoch), question.partitions
            )
            _answer(question, codes)
            return
        waiting = self._waiting.setdefault(node_id, {})
        older = waiting.get(question.transactional_id)
        if older is not None and older.epoch > question.epoch:
            self._scheduler.call_soon(question.refuse, ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        waiting[question.transactional_id] = question
        if older is not None:
            is_fenced = older.epoch < question.epoch
            code = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            self._scheduler.call_soon(older.refuse, code)
        if node_id not in self._asking:
            self._send(node_id)

    def code_here(
        self, transactional_id: str, producer_id: int, epoch: int, partition: PartitionName, *, names_abortable: bool
    ) -> ErrorCode | None:
        """The answer about one partition, which the producer has added itself, from the coordinator of this broker.

        None if another broker coordinates the transaction. `names_abortable` as in `Question`.
        """
        if self._coordinator_of(transactional_id) != self._node_id:
            return None
        codes = self._verify_here(transactional_id, ProducerEpoch(producer_id, epoch), (partition,))
        return _translated(codes.get(partition), names_abortable=names_abortable)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """The live broker that coordinates the transactional id; None without a live leader."""
        topic = self._image.topics.by_name(TRANSACTION_STATE)
        if topic is None:
            return None
        leader = topic.leader(partition_for(transactional_id, len(topic)))
        broker = self._image.brokers.get(leader)
        return leader if broker is not None and broker.active else None

    def _send(self, node_id: int, version: int = NEWEST_VERSION) -> None:
        questions = self._waiting.pop(node_id, None)
        if not questions:
            return
        link = self._peers(node_id, LANE)
        if link is None:
            for question in questions.values():
                self._scheduler.call_soon(question.refuse, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._asking.add(node_id)
        self._submit(link, node_id, questions, version)

    def _submit(self, link: ControllerLink, node_id: int, questions: dict[str, Question], version: int) -> None:
        def answered(answer: Any) -> None:
            if _is_too_new(answer) and version > FIRST_VERSION:
                self._submit(link, node_id, questions, version - 1)
                return
            self._asking.discard(node_id)
            try:
                _deliver(questions, answer)
            finally:
                self._send(node_id)

        request = AddPartitionsToTxnRequest(transactions=[_transaction(question) for question in questions.values()])
        link.send(request, version, answered, self._timeout_ms)


def _transaction(question: Question) -> Any:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.epoch,
        verify_only=not question.adds,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )


def _is_too_new(answer: Any) -> bool:
    return isinstance(answer, KafkaError) and answer.code == ErrorCode.UNSUPPORTED_VERSION


def _deliver(questions: dict[str, Question], answer: Any) -> None:
    """Answer all questions, even if an answer raises."""
    if _is_too_new(answer):  # the coordinator's broker is older than KIP-890: it cannot verify
        call_each([question.done for question in questions.values()], {})
        return
    failure = ErrorCode.NONE
    if isinstance(answer, OSError | KafkaError):
        failure = ErrorCode.NETWORK_EXCEPTION if isinstance(answer, OSError) else answer.code
    elif answer.error_code:
        failure = ErrorCode(answer.error_code)
    if failure:
        # The producer must not get an error about the rights between brokers.
        hidden = failure == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        code = ErrorCode.INVALID_TXN_STATE if hidden else failure
        call_each([question.refuse for question in questions.values()], code)
        return
    rows = {row.transactional_id: row for row in answer.results_by_transaction}
    call_each([partial(_answer, question, _codes(rows.get(name))) for name, question in questions.items()])


def _codes(row: Any) -> dict[PartitionName, ErrorCode]:
    return {
        (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in (() if row is None else row.topic_results)
        for one in topic.results_by_partition
    }


def _answer(question: Question, codes: Mapping[PartitionName, ErrorCode]) -> None:
    errors = {
        name: _translated(codes.get(name), names_abortable=question.names_abortable) for name in question.partitions
    }
    question.done({name: code for name, code in errors.items() if code})


def _translated(code: ErrorCode | None, *, names_abortable: bool) -> ErrorCode:
    """The coordinator's code for a partition, as the producer knows it. None: the answer lacks the partition."""
    if code is None:
        return ErrorCode.NETWORK_EXCEPTION
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not names_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
