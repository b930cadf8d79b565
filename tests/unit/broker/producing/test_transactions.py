"""Transactional batches through the Produce handler: the coordinator is asked once, and its errors reach the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_node.broker.transactions.verifier import Verifier
from kraft_node.log.config import make_config
from kraft_node.log.log_dir import LogDir
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments.files import FileCache
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.control import build_marker
from kraft_protocol.wire.codec import decode, encode
from kraft_protocol.wire.messages import AddPartitionsToTxnRequest, ProduceRequest
from tests.cyclic_garbage import found_garbage
from tests.unit.broker.producing import test_producing
from tests.unit.broker.producing.test_producing import rows
from tests.unit.broker.transactions.test_verifier import response
from tests.unit.broker.world import Controller, make_env, topic_id, topic_records


class Rig(test_producing.Rig):
    """The produce path over logs on disk; this broker is the coordinator, and the test answers for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        env = make_env(self.loop)
        self.directory = LogDir(env, str(path), FileCache(env.disk))
        self.coordinator = self.coordinators[1] = Controller()
        self.commit(topic_records("__transaction_state", 9, 1) + topic_records("a", 1, 12) + topic_records("b", 2, 2))

    def _open(self, topic: str, index: int, id_: bytes, _state: Any) -> Any:
        key = (topic, index)
        if key not in self.logs:
            path = Path(self.directory.path) / f"{topic}-{index}"
            path.mkdir()
            self.logs[key] = open_log(self.directory, str(path), topic, index, make_config({}))  # type: ignore[assignment]
        return self.logs[key]

    def send(
        self, *batches: tuple[str, int, bytes | None], version: int = 11, transactional_id: str | None = "t"
    ) -> Any:
        request = ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=[])
        for topic, index, records in batches:
            by_id = version >= 13
            request.topic_data.append(
                ProduceRequest.TopicProduceData(
                    name="" if by_id else topic,
                    topic_id=topic_id({"a": 1, "b": 2}[topic]) if by_id else bytes(16),
                    partition_data=[ProduceRequest.PartitionProduceData(index, records)],
                )
            )
        request = decode(ProduceRequest, encode(request, version), version)
        return self.seen(self.handler(self.client.context(0, version), request), version)

    def asked(self) -> Any:
        return self.coordinator.take(AddPartitionsToTxnRequest)

    def allow(self, *names: tuple[str, int], **codes: int) -> None:
        """The coordinator's answer to the oldest question; `codes` is for all partitions."""
        code = codes.get("code", 0)
        self.asked().answer(response(t=dict.fromkeys(names, code)))
        self.loop.run()

    def answer(self, version: int = 11) -> dict[Any, Any]:
        (message,) = self.client.answers
        self.client.answers.clear()
        return rows(self.seen(message, version))

    def end_transaction(self, topic: str, index: int, epoch: int = 0) -> None:
        marker = build_marker(commit=True, producer_id=7, producer_epoch=epoch, coordinator_epoch=0, timestamp=5)
        self.replicas.leader(topic, index).append(marker, 1, 0, internal=True)


def txn(sequence: int = 0, *, epoch: int = 0, pid: int = 7, **more: Any) -> bytes:
    fields: dict[str, Any] = {"transactional": True, **more}
    return build_batch(
        [(None, b"v")], timestamp=5, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **fields
    )


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.mark.parametrize(("version", "adds"), [(3, False), (10, False), (11, False), (12, True), (13, True)])
def test_first_batch_waits_for_the_coordinator_and_later_ones_do_not(rig: Rig, version: int, adds: bool) -> None:
    assert rig.send(("a", 0, txn(0)), version=version) is None
    assert rig.replicas.leader("a", 0).log.end_offset == 0
    question = rig.asked()
    (transaction,) = question.request.transactions
    assert transaction.verify_only is not adds
    question.answer(response(t={("a", 0): 0}))
    rig.loop.run()
    ((name, _),) = answers = rig.answer(version)
    assert answers[name, 0].error_code == 0
    assert answers[name, 0].base_offset == 0
    assert rows(rig.send(("a", 0, txn(1)), version=version))[name, 0].base_offset == 1
    assert rig.coordinator.sent == []


def test_batch_that_waits_for_the_coordinator_leaves_no_cycles(rig: Rig) -> None:
    with found_garbage() as garbage:
        for sequence in range(3):
            rig.send(("a", 0, txn(sequence)))
            rig.allow(("a", 0))
            rig.answer()
            rig.end_transaction("a", 0)
    assert garbage == []


def test_partitions_of_a_request_are_verified_together(rig: Rig) -> None:
    batches = [("a", index, txn()) for index in range(12)] + [("b", 1, txn())]
    assert rig.send(*batches) is None
    rig.loop.run()
    (transaction,) = rig.coordinator.sent[0].request.transactions
    assert [(topic.name, sorted(topic.partitions)) for topic in transaction.topics] == [
        ("a", list(range(12))),
        ("b", [1]),
    ]
    rig.allow(*[(topic, index) for topic, index, _ in batches])
    assert {row.error_code for row in rig.answer().values()} == {0}
    assert rig.coordinator.sent == []


def test_next_transaction_is_verified_again(rig: Rig) -> None:
    rig.send(("a", 0, txn(0)))
    rig.allow(("a", 0))
    rig.end_transaction("a", 0)
    rig.client.answers.clear()
    assert rig.send(("a", 0, txn(1))) is None
    rig.allow(("a", 0))
    assert rig.answer()["a", 0].error_code == 0


def test_marker_while_the_coordinator_is_asked_refuses_the_batch(rig: Rig) -> None:
    rig.send(("a", 0, txn(0)))
    rig.end_transaction("a", 0)
    rig.allow(("a", 0))
    assert rig.answer()["a", 0].error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "code", "reported"),
    [
        (10, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_refusals_as_each_version_knows_them(rig: Rig, version: int, code: ErrorCode, reported: ErrorCode) -> None:
    rig.send(("a", 0, txn()), version=version)
    rig.allow(("a", 0), code=code)
    row = rig.answer(version)["a", 0]
    assert (row.error_code, row.base_offset, row.log_start_offset) == (reported, -1, -1)
    assert rig.replicas.leader("a", 0).log.end_offset == 0
    words = row.error_message
    if reported == ErrorCode.NOT_ENOUGH_REPLICAS:
        assert words.endswith(f"Underlying error: {code.name}")
    elif code == ErrorCode.INVALID_TXN_STATE:
        assert words == "Partition was not added to the transaction"


def test_unreachable_coordinator_is_retried_by_the_client(rig: Rig) -> None:
    rig.send(("a", 0, txn()))
    rig.asked().answer(ConnectionResetError("gone"))
    assert rig.answer()["a", 0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    rig.coordinators.clear()
    rig.send(("a", 0, txn()))
    rig.loop.run()
    assert rig.answer()["a", 0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_partition_in_its_transaction_is_appended_though_another_is_refused(rig: Rig) -> None:
    rig.send(("a", 0, txn()))
    rig.allow(("a", 0))
    rig.client.answers.clear()
    rig.send(("a", 0, txn(1)), ("a", 1, txn()))
    rig.allow(("a", 1), code=ErrorCode.INVALID_TXN_STATE)
    answer = rig.answer()
    assert answer["a", 0].base_offset == 1
    assert answer["a", 1].error_code == ErrorCode.INVALID_TXN_STATE


def test_earlier_transaction_that_is_completing_is_waited_for(rig: Rig) -> None:
    """transaction.version 2: the next transaction begins while the markers of the last one are written."""
    rig.send(("a", 0, txn()), version=12)
    rig.allow(("a", 0), code=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert rig.client.answers == []
    rig.loop.run(20)
    rig.allow(("a", 0), code=ErrorCode.CONCURRENT_TRANSACTIONS)
    rig.loop.run(20)
    rig.allow(("a", 0))
    assert rig.answer(12)["a", 0].error_code == 0


def test_completing_transaction_is_not_waited_for_longer_than_configured(rig: Rig) -> None:
    rig.send(("a", 0, txn()), version=12)
    for _ in range(5):
        rig.allow(("a", 0), code=ErrorCode.CONCURRENT_TRANSACTIONS)
        assert rig.client.answers == []
        rig.loop.run(20)
    rig.allow(("a", 0), code=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert rig.answer(12)["a", 0].error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_older_epoch_is_refused_without_a_question(rig: Rig) -> None:
    rig.send(("a", 0, txn(epoch=1)))
    rig.allow(("a", 0))
    rig.client.answers.clear()
    rig.send(("a", 0, txn(epoch=0)), ("a", 1, txn(epoch=0)))
    rig.allow(("a", 1))
    answer = rig.answer()
    assert (answer["a", 0].error_code, answer["a", 0].log_start_offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert answer["a", 1].error_code == 0
    assert rows(rig.send(("a", 0, txn(epoch=0))))["a", 0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.coordinator.sent == []


def test_leadership_lost_while_the_coordinator_is_asked(rig: Rig) -> None:
    rig.send(("a", 0, txn()))
    rig.replicas.leader("a", 0).close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.allow(("a", 0))
    assert rig.answer()["a", 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_two_producers_in_one_request_are_refused(rig: Rig) -> None:
    for other in (txn(pid=8), txn(epoch=1)):
        with pytest.raises(KafkaError) as caught:
            rig.send(("a", 0, txn()), ("a", 1, other))
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    rig.send(("a", 0, txn()), ("a", 1, txn(pid=8, transactional=False)))
    assert rig.asked()


def test_plain_batches_of_a_transactional_request_are_not_verified(rig: Rig) -> None:
    assert rows(rig.send(("a", 0, txn(transactional=False))))["a", 0].base_offset == 0
    assert rig.coordinator.sent == []


def test_repeated_batch_is_answered_without_a_question(rig: Rig) -> None:
    rig.send(("a", 0, txn()))
    rig.allow(("a", 0))
    rig.end_transaction("a", 0)
    assert rows(rig.send(("a", 0, txn())))["a", 0].base_offset == 0
    assert rig.coordinator.sent == []


@pytest.mark.parametrize("version", [11, 12])
def test_without_verification_only_partitions_that_the_broker_adds_are_asked_about(rig: Rig, version: int) -> None:
    rig.verifier.is_enabled = False
    answer = rig.send(("a", 0, txn()), version=version)
    if version < 12:
        assert rows(answer)["a", 0].base_offset == 0
    else:
        rig.allow(("a", 0))
        assert rig.answer(version)["a", 0].base_offset == 0


def test_batch_before_the_one_that_is_verified_first_is_out_of_order(rig: Rig) -> None:
    """The client sends sequences 0 and 1; the request with 0 is lost."""
    rig.send(("a", 0, txn(0)))
    rig.asked().answer(ConnectionResetError("gone"))
    rig.client.answers.clear()
    rig.send(("a", 0, txn(1)))
    rig.allow(("a", 0))
    assert rig.answer()["a", 0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class OwnRig(Rig):
    """As `Rig`, but the coordinator's verification is a call in this broker; `code` is its answer."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.code = ErrorCode.NONE
        self.verified: list[Any] = []
        self.handler.verifier = self.verifier = Verifier(
            self.image, self.verifier._config, self.loop, lambda node, _: self.coordinators.get(node), 1, self._verify
        )

    def _verify(self, name: str, producer: Any, partitions: Any) -> Any:
        self.verified.append((name, producer, *partitions))
        return dict.fromkeys(partitions, self.code)


@pytest.fixture
def own(tmp_path: Path) -> OwnRig:
    return OwnRig(tmp_path)


def test_a_batch_of_an_own_transaction_is_verified_and_answered_at_once(own: OwnRig) -> None:
    for sequence in range(2):
        assert rows(own.send(("a", 0, txn(sequence))))["a", 0].base_offset == sequence
    assert own.verified == [("t", (7, 0), ("a", 0))], "the second batch is of the open transaction"
    own.end_transaction("a", 0)
    assert rows(own.send(("a", 0, txn(2))))["a", 0].base_offset == 3
    assert len(own.verified) == 2
    assert own.coordinator.sent == []


@pytest.mark.parametrize(
    ("code", "version", "seen"),
    [
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_refusal_by_the_own_coordinator_is_translated(
    own: OwnRig, code: ErrorCode, version: int, seen: ErrorCode
) -> None:
    own.code = code
    assert rows(own.send(("a", 0, txn()), version=version))["a", 0].error_code == seen
    assert own.replicas.leader("a", 0).log.end_offset == 0
    own.code = ErrorCode.NONE
    assert rows(own.send(("a", 0, txn()), version=version))["a", 0].base_offset == 0


def test_no_batch_comes_before_one_that_the_own_coordinator_refused(own: OwnRig) -> None:
    """Both are in flight. The second, appended first, would leave the first out of order forever."""
    own.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rows(own.send(("a", 0, txn(0))))["a", 0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    own.code = ErrorCode.NONE
    assert rows(own.send(("a", 0, txn(1))))["a", 0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [rows(own.send(("a", 0, txn(n))))["a", 0].base_offset for n in range(2)] == [0, 1]


def test_the_log_refuses_batches_of_own_transactions_too(own: OwnRig) -> None:
    own.send(("a", 0, txn(0, epoch=2)))
    own.end_transaction("a", 0, epoch=2)
    assert rows(own.send(("a", 0, txn(0, epoch=1))))["a", 0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rows(own.send(("a", 0, txn(5, epoch=2))))["a", 0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert own.replicas.leader("a", 0).log.end_offset == 2


def test_partitions_that_the_broker_adds_are_asked_about_at_the_own_coordinator_too(own: OwnRig) -> None:
    assert own.send(("a", 0, txn()), version=12) is None
    own.allow(("a", 0))
    assert own.answer(12)["a", 0].base_offset == 0
    assert own.verified == []


def test_a_batch_of_an_own_transaction_leaves_no_cycles(own: OwnRig) -> None:
    with found_garbage() as garbage:
        for sequence in range(3):
            own.send(("a", 0, txn(sequence)))
            own.end_transaction("a", 0)
    assert garbage == []
