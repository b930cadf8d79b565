"""The transaction coordinator in every version: the life of transactional ids, and all refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from tests.golden.broker.pair import START_S, Pair, Side, warm_coordinator

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Build = Callable[[Side], Any]
NONE = ErrorCode.NONE
TIMEOUT_MS = 60_000
TRANSACTION = 1
BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
OF_CLIENTS = range(4)
OF_BROKERS = (4, 5)
KEEPS_EPOCH = range(5)
BUMPS_EPOCH = 5


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    """Create the topics and the coordinators on both."""
    made = Pair(*servers)
    made.create("tx-a", 3)
    made.create("tx-b", 1)
    warm_coordinator(made)
    for side in servers:
        while side.ask(InitProducerIdRequest(None, TIMEOUT_MS), 5).error_code:  # no producer ids yet
            time.sleep(0.05)
        for number in range(500):  # more than enough names to hit each of the partitions
            deadline = time.monotonic() + START_S
            while time.monotonic() < deadline:
                side.ask(coordinator("warm"), 4)
                if side.ask(EndTxnRequest(f"warm-{number}", 1, 1, True), 4).error_code not in BUSY:
                    break
                time.sleep(0.05)


def coordinator(*keys: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=list(keys))


def begin(pair: Pair, name: str) -> None:
    """Give the id a producer on both sides; `memory[name]` is its id and epoch."""
    for side in pair.sides:
        initialized(side, name)


def initialized(side: Side, name: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        found = side.ask(InitProducerIdRequest(name, TIMEOUT_MS), 5)
        if found.error_code not in BUSY or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert found.error_code == NONE, (side, found)
    side.memory[name] = (found.producer_id, found.producer_epoch)


def settle(pair: Pair, name: str) -> None:
    """Wait until no marker is missing on either side."""
    for side in pair.sides:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            state = side.ask(DescribeTransactionsRequest([name]), 0).transaction_states[0].transaction_state
            if not state.startswith("Prepare"):
                break
            time.sleep(0.02)


def init(name: str | None, timeout_ms: int = TIMEOUT_MS, *, of: str = "", ids: int = 0, epochs: int = 0) -> Build:
    """InitProducerId; `of`: with the producer of that id, changed by `ids` and `epochs`."""

    def made(side: Side) -> InitProducerIdRequest:
        if not of:
            return InitProducerIdRequest(name, timeout_ms)
        producer_id, epoch = side.memory[of]
        return InitProducerIdRequest(name, timeout_ms, producer_id + ids, epoch + epochs)

    return made


def add(name: str, *partitions: tuple[str, int], of: str = "", ids: int = 0, epochs: int = 0) -> Build:
    def made(side: Side) -> AddPartitionsToTxnRequest:
        producer_id, epoch = side.memory[of or name]
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id + ids,
            v3_and_below_producer_epoch=epoch + epochs,
            v3_and_below_topics=topics(*partitions),
        )

    return made


def topics(*partitions: tuple[str, int]) -> list[Any]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(*item) for item in by_topic.items()]


def add_for(*asked: tuple[str, tuple[str, int], bool, int, int]) -> Build:
    """(transactional id, partition, whether to verify only, change of the producer id, change of the epoch)."""

    def made(side: Side) -> AddPartitionsToTxnRequest:
        rows = []
        for name, partition, verify, ids, epochs in asked:
            producer_id, epoch = side.memory.get(name, (1, 1))
            rows.append(
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    name, producer_id + ids, epoch + epochs, verify, topics(partition)
                )
            )
        return AddPartitionsToTxnRequest(transactions=rows)

    return made


def offsets(name: str, group: str, *, ids: int = 0, epochs: int = 0) -> Build:
    def made(side: Side) -> AddOffsetsToTxnRequest:
        producer_id, epoch = side.memory[name]
        return AddOffsetsToTxnRequest(name, producer_id + ids, epoch + epochs, group)

    return made


def end(name: str, *, commit: bool, of: str = "", ids: int = 0, epochs: int = 0) -> Build:
    def made(side: Side) -> EndTxnRequest:
        producer_id, epoch = side.memory[of or name]
        return EndTxnRequest(name, producer_id + ids, epoch + epochs, commit)

    return made


def described(pair: Pair, *names: str) -> None:
    pair.same(DescribeTransactionsRequest(list(names)))


def open_transaction(pair: Pair, name: str, *partitions: tuple[str, int]) -> None:
    begin(pair, name)
    pair.same(add(name, *(partitions or (("tx-a", 0),))), 3)


def test_the_coordinator_of_a_transactional_id_is_found(pair: Pair) -> None:
    for key in ("t", "", "ü", "x" * 300):
        pair.same(FindCoordinatorRequest(key=key, key_type=TRANSACTION), (1, 2, 3))
        pair.same(coordinator(key))
    pair.same(coordinator("one", "two", "one"))


def test_init_of_every_version_gets_the_same_answers(pair: Pair) -> None:
    pair.same(init("init-versions"), range(6))
    described(pair, "init-versions")
    pair.same(init(""), range(6))
    for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
        pair.same(init("init-timeouts", timeout_ms), range(6))
    for producer_id, epoch in ((-1, 0), (5, -1), (5, 0), (-2, 3)):
        pair.same(InitProducerIdRequest("init-invalid", TIMEOUT_MS, producer_id, epoch), (3, 4, 5))
        pair.same(InitProducerIdRequest("", TIMEOUT_MS, producer_id, epoch), (3, 4, 5))


def test_init_of_a_producer_that_continues_gets_the_same_answers(pair: Pair) -> None:
    begin(pair, "continues")
    for ids, epochs in ((0, 0), (0, 0), (0, -1), (0, 1), (1, 0), (-1, 0), (0, 2), (0, 3)):
        pair.same(init("continues", of="continues", ids=ids, epochs=epochs), (3, 4, 5))
    described(pair, "continues")


def test_partitions_added_in_versions_of_clients_get_the_same_answers(pair: Pair) -> None:
    begin(pair, "add")
    for partitions in (
        [("tx-a", 0)],
        [("tx-a", 0), ("tx-a", 2), ("tx-b", 0)],
        [("tx-a", 0), ("tx-a", 0)],
        [("tx-a", 3)],
        [("tx-a", -1)],
        [("nope", 0), ("tx-a", 1), ("tx-b", 7)],
        [("", 0)],
        [("__consumer_offsets", 0), ("tx-a", 1)],
        [("__transaction_state", 0)],
    ):
        pair.same(add("add", *partitions), OF_CLIENTS, label=str(partitions))
        described(pair, "add")
    for ids, epochs in ((0, -1), (0, 1), (1, 0), (1, 1)):
        pair.same(add("add", ("tx-a", 1), ids=ids, epochs=epochs), OF_CLIENTS)
    pair.same(add("never-seen", ("tx-a", 1), of="add"), OF_CLIENTS)
    pair.same(add("", ("tx-a", 1), of="add"), OF_CLIENTS)


def test_partitions_added_or_verified_in_versions_of_brokers_get_the_same_answers(pair: Pair) -> None:
    begin(pair, "for-1")
    begin(pair, "for-2")
    a, b, group = ("tx-a", 0), ("tx-b", 0), ("__consumer_offsets", 0)
    pair.same(add_for(("for-1", a, True, 0, 0), ("for-2", b, True, 0, 0)), OF_BROKERS)
    pair.same(add_for(("for-1", a, False, 0, 0), ("for-2", a, True, 0, 0)), OF_BROKERS)
    pair.same(add_for(("for-1", group, False, 0, 0)), OF_BROKERS)
    pair.same(add_for(("for-1", a, True, 0, 0)), OF_BROKERS)
    pair.same(add_for(("for-1", b, True, 0, 0)), OF_BROKERS)
    for verify in (True, False):
        pair.same(add_for(("for-1", ("nope", 0), verify, 0, 0)), OF_BROKERS)
        pair.same(add_for(("", a, verify, 0, 0)), OF_BROKERS)
        pair.same(add_for(("unknown", a, verify, 0, 0)), OF_BROKERS)
        for ids, epochs in ((0, -1), (0, 1), (1, 0)):
            pair.same(add_for(("for-1", a, verify, ids, epochs)), OF_BROKERS)
    described(pair, "for-1", "for-2")


def test_added_offsets_get_the_same_answers(pair: Pair) -> None:
    begin(pair, "offsets")
    pair.same(offsets("offsets", "group"))
    pair.same(offsets("offsets", ""))
    described(pair, "offsets")
    for ids, epochs in ((0, -1), (0, 1), (1, 0)):
        pair.same(offsets("offsets", "group", ids=ids, epochs=epochs))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", KEEPS_EPOCH)
def test_ends_by_a_client_that_keeps_its_epoch_get_the_same_answers(pair: Pair, commit: bool, version: int) -> None:
    name = f"keeps-{version}-{commit}"
    begin(pair, name)
    for either in (True, False):
        pair.same(end(name, commit=either), version, label="of no transaction")
    open_transaction(pair, name, ("tx-a", 0), ("tx-b", 0))
    for ids, epochs in ((0, -1), (0, 1), (1, 0)):
        pair.same(end(name, commit=commit, ids=ids, epochs=epochs), version)
    pair.same(end(name, commit=commit), version)
    settle(pair, name)
    described(pair, name)
    for either in (commit, not commit):
        pair.same(end(name, commit=either), version, label="again")
    pair.same(add(name, ("tx-a", 1)), 3)
    described(pair, name)


@pytest.mark.parametrize("commit", [True, False])
def test_ends_by_a_client_whose_epoch_is_bumped_get_the_same_answers(pair: Pair, commit: bool) -> None:
    name = f"bumps-{commit}"
    begin(pair, name)
    pair.same(end(name, commit=True), BUMPS_EPOCH, label="of no transaction")
    pair.same(add_for((name, ("tx-a", 0), False, 0, 0)), 5)
    for ids, epochs in ((0, -1), (0, 1), (1, 0)):
        pair.same(end(name, commit=commit, ids=ids, epochs=epochs), BUMPS_EPOCH)
    pair.same(end(name, commit=commit), BUMPS_EPOCH)
    settle(pair, name)
    described(pair, name)
    for epochs in (0, 1, 2, -1):
        for either in (True, False):
            if (either, epochs) != (False, 1):
                pair.same(end(name, commit=either, epochs=epochs), BUMPS_EPOCH, label=f"after {commit}, {epochs:+}")
    pair.same(end(name, commit=False, epochs=1), BUMPS_EPOCH, label="an abort of nothing")
    settle(pair, name)
    described(pair, name)


@pytest.mark.parametrize("commit", [True, False])
def test_a_zombie_does_not_get_the_epoch_of_its_successor(pair: Pair, commit: bool) -> None:
    """The successor's client keeps its epoch (EndTxn 4), the client of the zombie does not (EndTxn 5)."""
    name = f"zombie-{commit}"
    begin(pair, name)
    begin(pair, name)
    pair.same(add(name, ("tx-a", 0)), 3)
    pair.same(end(name, commit=commit), 4)
    settle(pair, name)
    described(pair, name)  # both sides number the producer, which only Kafka's next answer names
    pair.same(end(name, commit=not commit, epochs=-1), 4, label="the zombie")

    def has_the_epoch_of_the_successor(answer: Any) -> bool:
        return answer.error_code == NONE and (answer.producer_id, answer.producer_epoch) == pair.kafka.memory[name]

    pair.differs(
        "zombie-end",
        end(name, commit=commit, epochs=-1),
        BUMPS_EPOCH,
        kafka=has_the_epoch_of_the_successor,
        ours=lambda answer: answer.error_code == ErrorCode.PRODUCER_FENCED,
    )


def test_an_abort_before_the_first_transaction_gets_the_same_answer(pair: Pair) -> None:
    begin(pair, "abort-first")
    pair.same(end("abort-first", commit=False, epochs=-1), BUMPS_EPOCH)
    pair.same(end("abort-first", commit=False), BUMPS_EPOCH)
    settle(pair, "abort-first")
    described(pair, "abort-first")


def test_ends_of_unknown_ids_get_the_same_errors(pair: Pair) -> None:
    for name in ("", "never-ended", "ü"):
        pair.same(EndTxnRequest(name, 1, 1, True))
        pair.same(EndTxnRequest(name, -1, -1, False))


def test_a_second_producer_aborts_the_transaction_of_the_first(pair: Pair) -> None:
    open_transaction(pair, "fence")
    pair.same(init("fence"), 5)
    settle(pair, "fence")
    described(pair, "fence")
    pair.same(init("fence"), 5)
    described(pair, "fence")
    for version in KEEPS_EPOCH:
        pair.same(end("fence", commit=True), version)
    pair.same(end("fence", commit=True), BUMPS_EPOCH)
    pair.same(add("fence", ("tx-a", 0)), OF_CLIENTS)
    pair.same(offsets("fence", "g"))
    pair.same(init("fence", of="fence"), (3, 4, 5))


def test_lists_and_descriptions_match(pair: Pair) -> None:
    open_transaction(pair, "list-open")
    begin(pair, "list-empty")
    listed = "list-.*"
    pair.same(ListTransactionsRequest(transactional_id_pattern=listed), 2)
    for states in (["Ongoing"], ["Empty", "Ongoing"], ["ongoing"], ["Dead"], ["PrepareEpochFence", "Odd"], [""]):
        pair.same(ListTransactionsRequest(states, transactional_id_pattern=listed), 2)
    for duration in (-1, 0, 3_600_000, -5):
        pair.same(ListTransactionsRequest(duration_filter=duration, transactional_id_pattern=listed), 2)
    pair.same(lambda side: ListTransactionsRequest(producer_id_filters=[side.memory["list-open"][0]]))
    pair.same(ListTransactionsRequest(producer_id_filters=[-1]))
    for pattern in (
        "",
        "list-open",
        "list-ope",
        "LIST-OPEN",
        "list.open",
        r"list\-open",
        "list-(open|empty)",
        "[",
        "*",
        "list-.+?",
    ):
        pair.same(ListTransactionsRequest(["Ongoing"], transactional_id_pattern=pattern or "list-.*"), 2, label=pattern)
    pair.differs(
        "pattern-beyond-ascii",
        ListTransactionsRequest(transactional_id_pattern="(ü|a)"),
        2,
        kafka=lambda answer: answer.error_code == NONE,
        ours=lambda answer: answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION,
    )
    described(pair, "list-open", "list-empty", "unknown", "", "list-open")
