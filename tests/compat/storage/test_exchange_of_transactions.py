"""A data directory moves to the other server in the midst of a transaction, which the other server then commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from tests.compat.targets import Target
from tests.golden.broker.pair import Side

CLIENT = "Data directories, written by one server and served by the other"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("exchange")]

TOPIC = "moved"
WAIT_S = 60.0
MakeTarget = Callable[..., Target]
BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def _until_free(ask: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = ask()
        if answer.error_code not in BUSY or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def _initialized(side: Side, name: str) -> tuple[int, int]:
    side.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
    found = _until_free(lambda: side.ask(InitProducerIdRequest(name, 600_000), 4))
    assert found.error_code == ErrorCode.NONE, found
    return found.producer_id, found.producer_epoch


def _written(side: Side, name: str, word: bytes) -> tuple[int, int]:
    """A transaction with one record, open."""
    producer_id, epoch = _initialized(side, name)
    added = side.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(TOPIC, [0])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == ErrorCode.NONE
    batch = build_batch(
        [(None, word)],
        timestamp=int(time.time() * 1000),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    data = ProduceRequest.PartitionProduceData(0, batch)
    request = ProduceRequest(name, -1, 10_000, [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])])
    produced = side.ask(request, 11)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE, produced
    return producer_id, epoch


def _ended(side: Side, name: str, producer: tuple[int, int], *, commit: bool) -> None:
    answer = _until_free(lambda: side.ask(EndTxnRequest(name, *producer, commit), 4))
    assert answer.error_code == ErrorCode.NONE, answer


def _state(side: Side, name: str) -> Any:
    """The transactional id, once it is loaded and no marker is missing."""
    deadline = time.monotonic() + WAIT_S
    while True:
        (state,) = side.ask(DescribeTransactionsRequest([name]), 0).transaction_states
        is_moving = state.error_code in BUSY or state.transaction_state.startswith("Prepare")
        if not is_moving or time.monotonic() > deadline:
            return state
        time.sleep(0.05)


def _committed(target: Target) -> list[bytes | None]:
    """What a consumer of committed records finds from beginning to end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error():
            break  # the end
        if message is not None:
            found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("stop", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
@pytest.mark.parametrize(
    ("writer", "reader"), [pytest.param("kraftcluster", "apache", marks=pytest.mark.slow), ("apache", "kraftcluster")]
)
def test_open_transactions_move_with_their_directory(
    make_target: MakeTarget, writer: str, reader: str, stop: str
) -> None:
    first = make_target(writer, "writer")
    shared = {"log.dirs": str(first.folder / "data")}
    first.start()
    side = Side(writer, first)
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    assert side.ask(CreateTopicsRequest([topic], 30_000), 7).topics[0].error_code == ErrorCode.NONE
    producers = {name: _written(side, name, name.encode()) for name in ("done", "undone", "open", "doomed")}
    _ended(side, "done", producers["done"], commit=True)
    _ended(side, "undone", producers["undone"], commit=False)
    before = {name: _state(side, name) for name in producers}
    side.close()
    getattr(first, stop)()
    second = make_target(reader, "reader", **shared)
    second.start()
    side = Side(reader, second)
    assert {name: _state(side, name) for name in producers} == before
    _ended(side, "open", producers["open"], commit=True)
    _ended(side, "doomed", producers["doomed"], commit=False)
    assert _state(side, "open").transaction_state == "CompleteCommit"
    assert _state(side, "doomed").transaction_state == "CompleteAbort"
    assert _committed(second) == [b"done", b"open"]
    for name, (producer_id, epoch) in producers.items():
        assert _initialized(side, name) == (producer_id, epoch + 1)
    side.close()
    assert second.stop() in {0, 143}
