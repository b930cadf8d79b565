"""Verification for the group coordinator: may a transaction write offsets to a partition of `__consumer_offsets`?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft_node.broker.metadata_cache import CONSUMER_OFFSETS
from kraft_node.broker.transactions.verifier import Errors, Question
from kraft_node.log.producers.producer_state import NONE
from kraft_node.log.producers.verification import VERIFIED, Guard
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock
    from kraft_node.broker.coordinators.runtime.machine import TransactionalProducer
    from kraft_node.broker.transactions.verifier import Verifier
    from kraft_node.partition.manager import ReplicaManager


class OffsetTransactions:
    """`Transactions` of the group coordinator's seams."""

    __slots__ = ("_clock", "_replicas", "_verifier")

    def __init__(self, replicas: ReplicaManager, verifier: Verifier, clock: Clock) -> None:
        self._replicas = replicas
        self._verifier = verifier
        self._clock = clock

    def verify(
        self,
        partition: int,
        transactional_id: str,
        producer: TransactionalProducer,
        done: Callable[[Guard | KafkaError | None], None],
        *,
        adds: bool,
        names_abortable: bool,
    ) -> None:
        """Ask the transaction's coordinator whether the partition of offsets is part of it, if that is not known.

        `done` gets None if the transaction is open here already, a guard for the append that was verified, or the
        error. `adds`: the coordinator adds the partition. `names_abortable`: the client knows TRANSACTION_ABORTABLE.
        """
        try:
            producers = self._replicas.leader(CONSUMER_OFFSETS, partition).log.producers
        except KafkaError as error:
            done(error)
            return
        producer_id, epoch = producer.producer_id, producer.epoch
        if producers.has_open(producer_id, epoch):
            done(None)
            return
        if not adds and not self._verifier.is_enabled:
            done(VERIFIED)
            return
        try:
            guard = producers.begin_verification(producer_id, epoch, NONE, self._clock.wall_ms(), with_bumps=adds)
        except KafkaError as error:
            done(error)
            return
        name = (CONSUMER_OFFSETS, partition)

        def answered(errors: Errors) -> None:
            code = errors.get(name, ErrorCode.NONE)
            if code:
                words = f"the transaction coordinator of {transactional_id!r} answered {code.name}"
                done(KafkaError(code, words))
            else:
                done(guard)

        self._verifier.ask(
            Question(transactional_id, producer_id, epoch, [name], answered, adds=adds, names_abortable=names_abortable)
        )
