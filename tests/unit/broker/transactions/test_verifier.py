"""Questions to transaction coordinators: what is sent, when it is replaced, and what producers are told."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.broker.coordinators.partitioning import partition_for
from kraft_node.broker.transactions.verifier import LANE, Question, Verifier
from kraft_node.metadata.image import MetadataImage
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tests.unit.broker.fetching.test_fetching import CONFIG
from tests.unit.broker.world import Controller, Loop, broker_records, replay, topic_records

HERE = ("a", 0)
THERE = ("b", 3)
OWN_NODE = 3


class Rig:
    def __init__(self, *, with_topic: bool = True, leader: int = 2) -> None:
        self.loop = Loop()
        self.image = MetadataImage()
        self.links = {1: Controller(), 2: Controller()}
        replay(self.image, broker_records(1, 2, 3))
        if with_topic:
            replay(self.image, topic_records("__transaction_state", 9, 4, leader=leader, isr=(leader, 1)))
        config = BrokerConfig(NodeConfig.parse(CONFIG))
        self.lanes: list[int] = []
        self.here: dict[Any, ErrorCode] = {}
        """The answers of the broker's own coordinator."""
        self.verifier = Verifier(self.image, config, self.loop, self._link, OWN_NODE, self._verify_here)  # type: ignore[arg-type]
        self.answers: list[Any] = []

    def _verify_here(self, name: str, producer: Any, partitions: Any) -> dict[Any, ErrorCode]:
        assert (name, producer) == ("t", (7, 0))
        return {one: self.here.get(one, ErrorCode.NONE) for one in partitions}

    def _link(self, node_id: int, lane: int) -> Any:
        self.lanes.append(lane)
        return self.links.get(node_id)

    def ask(self, name: str = "t", *, epoch: int = 0, adds: bool = False, abortable: bool = False, **more: Any) -> None:
        partitions = more.get("partitions", [HERE, THERE])
        done = lambda errors: self.answers.append((name, epoch, dict(errors)))  # noqa: E731
        self.verifier.ask(Question(name, 7, epoch, partitions, done, adds=adds, names_abortable=abortable))

    def sent(self) -> Any:
        return self.links[2].take(AddPartitionsToTxnRequest)

    def outcomes(self) -> list[Any]:
        self.loop.run()
        answers, self.answers = self.answers, []
        return answers


def response(error: int = 0, **codes: dict[Any, int]) -> AddPartitionsToTxnResponse:
    """`codes`: by transactional id, the code of each partition."""
    results = []
    for name, of_partitions in codes.items():
        topics: dict[str, list[Any]] = {}
        for (topic, index), code in of_partitions.items():
            row = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(index, code)
            topics.setdefault(topic, []).append(row)
        results.append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=name,
                topic_results=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=rows)
                    for topic, rows in topics.items()
                ],
            )
        )
    return AddPartitionsToTxnResponse(error_code=error, results_by_transaction=results)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("adds", [False, True])
def test_question_goes_to_the_leader_of_the_ids_partition(rig: Rig, adds: bool) -> None:
    rig.ask(adds=adds)
    sent = rig.sent()
    assert sent.version == 5
    assert rig.lanes == [LANE]
    (transaction,) = sent.request.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("t", 7, 0)
    assert transaction.verify_only is not adds
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("a", [0]), ("b", [3])]
    sent.answer(response(t={HERE: 0, THERE: 0}))
    assert rig.outcomes() == [("t", 0, {})]


def test_own_coordinator_verifies_at_once() -> None:
    rig = Rig(leader=OWN_NODE)
    rig.ask()
    assert rig.answers == [("t", 0, {})]
    rig.here = {THERE: ErrorCode.TRANSACTION_ABORTABLE}
    rig.ask(abortable=True)
    assert rig.answers[1:] == [("t", 0, {THERE: ErrorCode.TRANSACTION_ABORTABLE})]
    rig.ask()
    assert rig.answers[2:] == [("t", 0, {THERE: ErrorCode.INVALID_TXN_STATE})]
    assert rig.lanes == []


def test_own_coordinator_is_asked_to_add_partitions() -> None:
    rig = Rig(leader=OWN_NODE)
    rig.links[OWN_NODE] = Controller()
    rig.ask(adds=True)
    (transaction,) = rig.links[OWN_NODE].take(AddPartitionsToTxnRequest).request.transactions
    assert not transaction.verify_only


def test_leaders_differ_by_partition() -> None:
    rig = Rig(with_topic=False)
    records = topic_records("__transaction_state", 9, 2, leader=1, isr=(1, 2))
    records[2].leader = 2
    replay(rig.image, records)
    names = {partition_for(name, 2): name for name in ("a", "b", "c", "d")}
    rig.ask(names[0])
    rig.ask(names[1])
    assert [len(link.sent) for link in rig.links.values()] == [1, 1]


def test_without_a_coordinator_requests_get_not_available(rig: Rig) -> None:
    unavailable = Rig(with_topic=False)
    unavailable.ask()
    assert unavailable.answers == [], "never before `ask` has returned"
    failed = {HERE: ErrorCode.COORDINATOR_NOT_AVAILABLE, THERE: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert unavailable.outcomes() == [("t", 0, failed)]
    del rig.links[2]
    rig.ask()
    assert rig.outcomes() == [("t", 0, failed)]
    rig.ask()
    assert rig.outcomes() == [("t", 0, failed)]


def test_questions_that_arrive_during_a_request_share_the_next_request(rig: Rig) -> None:
    rig.ask("t")
    rig.ask("u")
    rig.ask("v")
    first = rig.sent()
    assert rig.links[2].sent == []
    first.answer(response(t={HERE: 0, THERE: 0}))
    second = rig.sent()
    assert [one.transactional_id for one in second.request.transactions] == ["u", "v"]
    second.answer(response(u={HERE: 0, THERE: 48}, v={HERE: 0, THERE: 0}))
    assert rig.outcomes() == [("t", 0, {}), ("u", 0, {THERE: ErrorCode.INVALID_TXN_STATE}), ("v", 0, {})]


def test_waiting_question_is_replaced(rig: Rig) -> None:
    rig.ask("first")
    rig.ask("t", epoch=1)
    rig.ask("t", epoch=1, partitions=[HERE])
    assert rig.outcomes() == [("t", 1, {HERE: ErrorCode.NETWORK_EXCEPTION, THERE: ErrorCode.NETWORK_EXCEPTION})]
    rig.ask("t", epoch=2)
    assert rig.outcomes() == [("t", 1, {HERE: ErrorCode.INVALID_PRODUCER_EPOCH})]
    rig.ask("t", epoch=1)
    assert rig.outcomes() == [
        ("t", 1, {HERE: ErrorCode.INVALID_PRODUCER_EPOCH, THERE: ErrorCode.INVALID_PRODUCER_EPOCH})
    ]
    rig.sent().answer(response(first={HERE: 0, THERE: 0}))
    (transaction,) = rig.sent().request.transactions
    assert transaction.producer_epoch == 2


@pytest.mark.parametrize(
    ("code", "abortable", "reported"),
    [
        (ErrorCode.PRODUCER_FENCED, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, True, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, False, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, False, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_the_code_of_a_partition_is_translated_for_its_client(
    rig: Rig, code: ErrorCode, abortable: bool, reported: ErrorCode
) -> None:
    rig.ask(abortable=abortable)
    rig.sent().answer(response(t={HERE: code, THERE: 0}))
    assert rig.outcomes() == [("t", 0, {HERE: reported})]


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.INVALID_TXN_STATE),
        (response(ErrorCode.UNKNOWN_SERVER_ERROR), ErrorCode.UNKNOWN_SERVER_ERROR),
        (TimeoutError("late"), ErrorCode.NETWORK_EXCEPTION),
        (ConnectionResetError("gone"), ErrorCode.NETWORK_EXCEPTION),
        (KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_errors_of_a_whole_request_apply_to_each_of_its_rows(rig: Rig, answer: Any, reported: ErrorCode) -> None:
    rig.ask()
    rig.sent().answer(answer)
    assert rig.outcomes() == [("t", 0, {HERE: reported, THERE: reported})]
    rig.ask()
    assert rig.sent(), "the next question is sent"


def test_partitions_that_the_answer_lacks_are_not_verified(rig: Rig) -> None:
    rig.ask()
    rig.sent().answer(response(t={HERE: 0}))
    assert rig.outcomes() == [("t", 0, {THERE: ErrorCode.NETWORK_EXCEPTION})]
    rig.ask()
    rig.sent().answer(response())
    assert rig.outcomes() == [("t", 0, {HERE: ErrorCode.NETWORK_EXCEPTION, THERE: ErrorCode.NETWORK_EXCEPTION})]


def test_coordinator_older_than_the_question_is_not_asked(rig: Rig) -> None:
    rig.ask()
    too_old = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    rig.sent().answer(too_old)
    again = rig.sent()
    assert again.version == 4
    again.answer(too_old)
    assert rig.outcomes() == [("t", 0, {})]


def test_one_failing_caller_does_not_keep_the_others_waiting(rig: Rig) -> None:
    def fail(_errors: Any) -> None:
        raise RuntimeError("as the test wants it")

    rig.ask("first")
    rig.verifier.ask(Question("bad", 7, 0, [HERE], fail, adds=False, names_abortable=False))
    rig.ask("good")
    rig.sent().answer(response(first={HERE: 0, THERE: 0}))
    with pytest.raises(RuntimeError):
        rig.sent().answer(response(bad={HERE: 0}, good={HERE: 0, THERE: 0}))
    assert rig.outcomes() == [("first", 0, {}), ("good", 0, {})]
    rig.ask()
    assert rig.sent()
