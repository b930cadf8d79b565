"""Random operations on replicated ledgers, with elections, lost appends and compaction, against the runtime's laws.

- No acknowledged operation is lost, and none that a later one replaced comes back.
- A read sees all operations that were acknowledged before it.
- A standby that loads the log has the state of the leader that wrote it.
- Every operation is answered exactly once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraft_node.broker.coordinators.runtime.machine import PlannedWrite, TransactionalProducer
from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.tiers import examples
from tests.unit.coordinators.runtime.ledger import Broker, Ledger, Replicas
from tests.unit.coordinators.surroundings import Time

BROKERS = (1, 2, 3)
LEADER = 0
ANY = st.sampled_from(BROKERS)
WHERE = st.sampled_from((LEADER, LEADER, LEADER, *BROKERS))
"""Mostly the present leader."""
NAMES = st.sampled_from(["a", "b", "c"])


def planned_as(planned: PlannedWrite[Any, str], _: Ledger) -> PlannedWrite[Any, str]:
    """An operation with a result that the test knows in advance."""
    return planned


class Operation:
    """A put (its number is the value) or a removal of a name; `answer` is True, False (refused), or None (open)."""

    def __init__(self, number: int, name: str, *, removes: bool) -> None:
        self.number = number
        self.name = name
        self.removes = removes
        self.answers: list[Any] = []

    @property
    def acknowledged(self) -> bool:
        return self.answers == ["ok"]


class Ledgers(RuleBasedStateMachine):
    @initialize(linger_ms=st.sampled_from([-1, 0, 20]))
    def begin(self, linger_ms: int) -> None:
        self.replicas = Replicas(BROKERS, Time())
        self.brokers = {number: Broker(log, linger_ms=linger_ms) for number, log in self.replicas.logs.items()}
        self.operations: list[Operation] = []
        self.reads: list[list[Any]] = []
        self.open_producers: dict[int, set[int]] = {}
        self.brokers[1].lead()

    def _at(self, where: int) -> Broker:
        return self.brokers[where or self.replicas.leader]

    # -- clients, which may ask a broker of the past

    @rule(where=WHERE, name=NAMES, removes=st.booleans(), count=st.integers(1, 3))
    def write(self, where: int, name: str, removes: bool, count: int) -> None:
        for _ in range(count):
            operation = Operation(len(self.operations) + 1, name, removes=removes)
            self.operations.append(operation)
            planned = PlannedWrite([(name, None if removes else operation.number)], "ok")
            self._at(where).runtime.write(0, partial(planned_as, planned), operation.answers.append)

    @rule(where=WHERE, name=NAMES)
    def read(self, where: int, name: str) -> None:
        floor = self._acknowledged(name)
        answers: list[Any] = []
        self.reads.append(answers)

        def seen(value: Any) -> None:
            answers.append(value)
            if not isinstance(value, KafkaError) and self._is_leader(where):
                self._explain(name, value, floor)

        self._at(where).runtime.read(0, lambda ledger: ledger.numbers.get(name), seen)

    @rule(where=WHERE, producer_id=st.integers(100, 102))
    def write_in_transaction(self, where: int, producer_id: int) -> None:
        producer = TransactionalProducer(producer_id, 0)
        planned = PlannedWrite([(f"of {producer_id}", 1)], "ok", producer)
        self._at(where).runtime.write(0, lambda _: planned, lambda _: None)

    @rule(where=WHERE, producer_id=st.integers(100, 102), commit=st.booleans())
    def end_transaction(self, where: int, producer_id: int, commit: bool) -> None:
        runtime = self._at(where).runtime
        shard = runtime.shards.get(0)
        if shard is not None:
            producer = TransactionalProducer(producer_id, 0)
            shard.end_transaction(producer, lambda _: None, commit=commit, coordinator_epoch=shard.epoch)

    # -- faults

    @rule()
    def replicate(self) -> None:
        self.replicas.replicate()

    @rule(ms=st.sampled_from([0, 1, 20, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.brokers[1].time.advance(ms)

    @rule(where=ANY, deaf=st.booleans(), loads=st.booleans())
    def elect(self, where: int, deaf: bool, loads: bool) -> None:
        """Another broker leads; the old leader may not notice. The new one may be in the midst of its load."""
        old = self.replicas.leader
        committed = max(log.high_watermark_ for log in self.replicas.logs.values())
        if self.replicas.logs[where].end < committed or (where in self.replicas.cut_off):
            return
        self.replicas.cut_off = {old} if deaf and old != where else set()
        epoch = self.replicas.elect(where)
        for number, broker in self.brokers.items():
            if number not in self.replicas.cut_off and number != where:
                broker.runtime.on_resign(0)
        self.brokers[where].runtime.on_leader(0, epoch)
        if loads:
            self.brokers[where].settle()

    @rule()
    def heal(self) -> None:
        cut_off, self.replicas.cut_off = self.replicas.cut_off, set()
        self.replicas.replicate()
        for number in cut_off:
            self.replicas.logs[number].led_epoch = -1
            self.brokers[number].runtime.on_resign(0)

    @rule(where=WHERE, code=st.sampled_from([None, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def appends_fail(self, where: int, code: ErrorCode | None) -> None:
        self._at(where).log.fail_append = code

    @rule(where=WHERE, code=st.sampled_from([None, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def no_room(self, where: int, code: ErrorCode | None) -> None:
        self._at(where).log.fail = code

    @rule()
    def compact(self) -> None:
        self.replicas.compact()

    # -- laws

    def _is_leader(self, where: int) -> bool:
        return where in {LEADER, self.replicas.leader}

    def _acknowledged(self, name: str) -> int:
        """The latest acknowledged operation on the name."""
        return max((o.number for o in self.operations if o.name == name and o.acknowledged), default=0)

    def _explain(self, name: str, value: int | None, floor: int) -> None:
        """An operation not older than `floor` must have left `value`."""
        for operation in self.operations:
            if operation.name == name and operation.number >= floor:
                if operation.removes and value is None:
                    return
                if not operation.removes and value == operation.number:
                    return
        assert (value, floor) == (None, 0), f"{name} is {value} after operation {floor} was acknowledged"

    @precondition(lambda self: hasattr(self, "brokers"))
    @invariant()
    def leader_has_every_acknowledged_operation(self) -> None:
        shard = self.brokers[self.replicas.leader].runtime.shards.get(0)
        if shard is not None and shard.phase is Phase.ACTIVE:
            for name in ("a", "b", "c"):
                self._explain(name, shard.machine.numbers.get(name), self._acknowledged(name))

    @precondition(lambda self: hasattr(self, "brokers"))
    @invariant()
    def log_gives_the_state_of_the_leader(self) -> None:
        """The state is what another broker loads from this log, unless records are still to be appended."""
        leader = self.brokers[self.replicas.leader]
        shard = leader.runtime.shards.get(0)
        if shard is None or shard.phase is not Phase.ACTIVE or shard.has_open_batch:
            return
        assert loaded_from(self.replicas, self.replicas.leader) == shard.machine.state

    @precondition(lambda self: hasattr(self, "brokers"))
    @invariant()
    def nothing_is_answered_twice(self) -> None:
        for answers in [*self.reads, *(operation.answers for operation in self.operations)]:
            assert len(answers) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "brokers"):
            return
        for log in self.replicas.logs.values():
            log.fail = log.fail_append = None
        self.heal()
        for where in BROKERS:
            self.elect(where, False, True)
            for name in ("a", "b", "c"):
                self.read(where, name)
            self.brokers[1].time.advance(20)
            self.replicas.replicate()
            assert not any(isinstance(answers[0], KafkaError) for answers in self.reads[-3:])
            self.brokers[1].time.advance(5_000)
        for broker in self.brokers.values():
            broker.runtime.shutdown()
        for answers in [*self.reads, *(operation.answers for operation in self.operations)]:
            assert len(answers) == 1


def loaded_from(replicas: Replicas, where: int) -> Any:
    """The state of a new coordinator on a copy of the log."""
    copy = Replicas([where], Time())
    log, source = copy.logs[where], replicas.logs[where]
    log.batches, log.end, log.high_watermark_ = list(source.batches), source.end, source.high_watermark_
    return Broker(log).lead().ledger.state


Ledgers.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLedgers = Ledgers.TestCase
