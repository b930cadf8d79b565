"""librdkafka repeats a stored batch when it bumps its epoch. A round of faults forgives this, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraft_node.testing.histories.logs import RecordOutcome, Sent
from kraft_protocol.wire.api import ApiKey
from tests.compat.targets import Target
from tests.faults.epochs import Batch, Copy, Forgiveness, ProducerLog, batches_of, producer_logger
from tests.faults.wire import Wire

TIMEOUT_S = 30.0
SMALL_BYTES = 1000
A = ("a", 0)


def producer_through(wire: Wire, log: ProducerLog) -> Producer:
    settings = {"bootstrap.servers": f"127.0.0.1:{wire.port}", "enable.idempotence": True, "linger.ms": 0}
    return Producer({**settings, "debug": "eos,msg"}, logger=producer_logger(log))


def stored(data: Path, topic: str) -> list[tuple[int, int, int]]:
    """Producer epoch, first sequence and number of records of each batch."""
    rows = batches_of(data, topic, 1)[topic, 0]
    return [(batch.epoch, batch.base_sequence, len(span)) for span, _, batch in rows]


def test_librdkafka_repeats_a_stored_batch_after_an_error_in_another_partition(target: Target, wire: Wire) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    topics = [NewTopic("a", 1, 1), NewTopic("b", 1, 1, config={"max.message.bytes": str(SMALL_BYTES)})]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)
    log = ProducerLog()
    producer = producer_through(wire, log)
    refused: list[KafkaError] = []

    def send(topic: str, size: int = 1) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        producer.produce(topic, bytes(size), partition=0, on_delivery=delivered)

    for topic in "ab":
        send(topic)
    assert producer.flush(TIMEOUT_S) == 0
    wire.hold()
    for number, (topic, size) in enumerate((("b", 2 * SMALL_BYTES), ("b", 1), ("a", 1)), 1):
        send(topic, size)
        wire.wait_held(ApiKey.PRODUCE, number, TIMEOUT_S)
    wire.deliver_then_break(ApiKey.PRODUCE, 2)  # b's two refusals arrive, the acknowledgement of a does not
    assert producer.flush(TIMEOUT_S) == 0
    assert [error.code() for error in refused] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert stored(target.data, "a") == [(0, 0, 1), (0, 1, 1), (1, 0, 1)]
    assert stored(target.data, "b") == [(0, 0, 1), (1, 0, 1)]
    record = Sent("p", A, 1, "x", RecordOutcome.ACKNOWLEDGED, 2)
    has_repeated = Forgiveness({"p": log}, batches_of(target.data, "a", 1))
    assert has_repeated(record, [1, 2])
    assert not has_repeated(record, [0, 1])
    assert not has_repeated(record, [0, 1, 2])


def failed(sequence: int, error: str, actions: str) -> str:
    where = f"t [0]: MessageSet with 2 message(s) (MsgId 9, BaseSeq {sequence})"
    return f"{where} encountered error: {error} (actions {actions})"


def bumped(epoch: int) -> str:
    return f"All partitions drained, bumped epoch to PID{{Id:7,Epoch:{epoch}}}"


def skipped(sequence: int, expected: int) -> str:
    return (
        "ProduceRequest for t [0] with 2 message(s) failed due to skipped sequence numbers "
        f"(PID{{Id:7,Epoch:0}}, base seq {sequence} > next seq {expected}) caused by previous failed request"
    )


LOST = failed(4, "Local: Broker transport failure", "Refresh,MsgPossiblyPersisted")
DEPOSED = failed(4, "Broker: Not leader for partition", "Refresh,MsgNotPersisted")
REFUSED = failed(4, "Broker: Not enough in-sync replicas", "Retry,MsgNotPersisted")
LATE = failed(4, "Broker: Request timed out", "Retry,MsgPossiblyPersisted")
SKIPPED = failed(4, "Broker: Broker received an out of order sequence number", "Permanent,MsgPossiblyPersisted")


def copies(*where: tuple[int, int, int]) -> list[Copy]:
    """By producer id, epoch and sequence number."""
    return [Copy(at, who, Batch(("t", 0), epoch, sequence)) for at, (who, epoch, sequence) in enumerate(where)]


@pytest.mark.parametrize(
    ("lines", "places", "is_forgiven"),
    [
        pytest.param([LOST, bumped(1)], [(7, 0, 4), (7, 1, 0)], True, id="an unanswered batch and a newer epoch"),
        pytest.param([LATE, bumped(1)], [(7, 0, 4), (7, 1, 0)], True, id="a late batch and a newer epoch"),
        pytest.param([DEPOSED, bumped(1)], [(7, 0, 4), (7, 1, 0)], True, id="a deposed leader"),
        pytest.param([LOST, REFUSED, skipped(6, 4), bumped(1)], [(7, 0, 4), (7, 1, 0)], True, id="refused later"),
        pytest.param([LOST, bumped(1), LOST, bumped(2)], [(7, 0, 4), (7, 1, 4), (7, 2, 0)], True, id="three times"),
        pytest.param([LOST, bumped(1)], [(7, 0, 4), (7, 0, 4)], False, id="one epoch"),
        pytest.param([LOST, bumped(1)], [(7, 1, 0), (7, 0, 4)], False, id="an older epoch after a newer one"),
        pytest.param([LOST, bumped(1)], [(7, 0, 4), (8, 1, 0)], False, id="two producers"),
        pytest.param([REFUSED, bumped(1)], [(7, 0, 4), (7, 1, 0)], False, id="stored although refused"),
        pytest.param([SKIPPED, bumped(1)], [(7, 0, 4), (7, 1, 0)], False, id="stored although out of order"),
        pytest.param([bumped(1), LOST], [(7, 0, 4), (7, 1, 0)], False, id="unanswered in another epoch"),
        pytest.param([LATE, skipped(6, 4), bumped(1)], [(7, 0, 4), (7, 1, 0)], False, id="a wrong refusal after it"),
        pytest.param([LOST, skipped(9, 6), bumped(1)], [(7, 0, 4), (7, 1, 0)], False, id="a wrong refusal elsewhere"),
        pytest.param([LOST, bumped(1)], [(7, 0, 4), (7, 1, 0), (7, 2, 0)], False, id="once more than it was sent"),
    ],
)
def test_only_repetitions_by_the_client_are_forgiven(
    lines: list[str], places: list[tuple[int, int, int]], is_forgiven: bool
) -> None:
    log = ProducerLog()
    logger = producer_logger(log)
    for line in lines:
        logger.debug("%s [%s] %s", "MSGSET", "p", line)
    assert log.has_repeated(copies(*places)) is is_forgiven
