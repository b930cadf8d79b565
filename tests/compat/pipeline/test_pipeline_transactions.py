"""The sink's transactions against both servers, judged by a consumer of another hand that reads committed records."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.sinks import rows as sent
from kraft_pipeline.sinks import transactions
from kraft_pipeline.sinks.options import SinkOptions, parse_sink
from kraft_pipeline.sinks.transactions import Unit, write_once
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import BrokerError
from kraft_protocol.client.transactions import ClientTransaction
from tests.compat.pipeline.test_pipeline_client import create
from tests.compat.targets import Target

CLIENT = "pipeline"
BOTH_EVERY_DAY = True
XDIST_GROUP = "spark"
pytestmark = pytest.mark.timeout(300)


class Died(BaseException):
    """The process of the task ends here."""


def rows(first: int, count: int, topic: str | None = None) -> list[pa.RecordBatch]:
    """Rows in two Arrow batches."""
    values = [b"%d" % n for n in range(first, first + count)]
    halves = [values[: count // 2], values[count // 2 :]]
    given = [{"value": pa.array(half, pa.binary()), "key": pa.array(half, pa.binary())} for half in halves]
    if topic is not None:
        given = [{**one, "topic": pa.array([topic] * len(one["value"]))} for one in given]
    return [pa.RecordBatch.from_pydict(one) for one in given]


def options_of(target: Target, topic: str, name: str, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": target.bootstrap, "kafka.transactional.id": name, **more}
    return parse_sink(given | ({"topic": topic} if topic else {}), ["value", "key", "topic"])


def write(options: SinkOptions, batches: Any, unit: Unit) -> int:
    with Cluster(options.settings) as cluster:
        return write_once(cluster, options, iter(batches), unit)


def committed(target: Target, *topics: str) -> Counter[int]:
    """The values that a consumer with isolation.level=read_committed receives."""
    from confluent_kafka import Consumer, TopicPartition

    given = {"bootstrap.servers": target.bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = Consumer({**given, "enable.auto.commit": False, "enable.partition.eof": True})
    found: Counter[int] = Counter()
    try:
        parts = [(t, p) for t in topics for p in consumer.list_topics(t, timeout=60).topics[t].partitions]
        consumer.assign([TopicPartition(t, p, 0) for t, p in parts])
        left = set(parts)
        deadline = time.monotonic() + 60
        while left:
            message = consumer.poll(1.0)
            assert time.monotonic() < deadline
            if message is None:
                continue
            if message.error():
                left.discard((message.topic(), message.partition()))
            else:
                found[int(message.value())] += 1
    finally:
        consumer.close()
    return found


def test_rows_appear_once_however_often_a_task_runs(cluster: Target, name: str) -> None:
    create(cluster, name, 3)
    options = options_of(cluster, name, name)
    assert write(options, rows(0, 100), Unit("q", 0, 0)) == 100
    assert write(options, rows(100, 50), Unit("q", 0, 1)) == 50
    for batch in range(2):  # the second time after a crash before Spark's commit log
        assert write(options, rows(150, 30), Unit("q", 1, 0)) == 30, batch
    assert write(options, rows(0, 100), Unit("q", 0, 0)) == 100  # a process of an earlier batch that is still alive
    assert write(options, [], Unit("q", 2, 0)) == 0
    assert committed(cluster, name) == Counter(range(180))
    assert write(options, rows(180, 20), Unit("another query", 0, 0)) == 20
    assert committed(cluster, name) == Counter(range(200))


def test_an_attempt_that_dies_leaves_no_row(cluster: Target, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deaths before rows are stored, after it, before the commit, and after the commit."""
    create(cluster, name, 2)
    options, unit = options_of(cluster, name, name), Unit("q", 7, 3)

    def dying() -> Iterator[pa.RecordBatch]:
        yield from rows(0, 10)
        raise Died

    monkeypatch.setattr(transactions, "_abort", lambda _: None)  # a killed process aborts nothing
    with pytest.raises(Died):
        write(options, dying(), unit)
    for method, before in (("store", True), ("commit", True), ("commit", False)):
        with monkeypatch.context() as patch:
            real = getattr(ClientTransaction, method)

            def die(self: ClientTransaction, *given: Any, real: Any = real, before: bool = before) -> None:
                if not before:
                    real(self, *given)
                raise Died

            patch.setattr(ClientTransaction, method, die)
            with pytest.raises(Died):
                write(options, rows(0, 10), unit)
    for _ in range(2):
        assert write(options, rows(0, 10), unit) == 10
    assert committed(cluster, name) == Counter(range(10))


def test_a_failed_attempt_aborts_its_transaction(cluster: Target, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers need not wait for the coordinator's timeout."""
    create(cluster, name, 1)
    monkeypatch.setattr(sent, "WAITING_BYTES_MAX", 0)  # the first rows are stored when the second fail
    options = options_of(cluster, name, name)
    bad = [*rows(0, 10), pa.RecordBatch.from_pydict({"value": pa.array([1.5]), "key": pa.array([b"k"])})]
    with pytest.raises(ValueError, match="keys and values must be string or binary"):
        write(options, bad, Unit("q", 0, 0))
    assert write(options_of(cluster, name, f"{name}-other"), rows(50, 5), Unit("q", 0, 0)) == 5
    assert committed(cluster, name) == Counter(range(50, 55))


def test_two_attempts_at_once_write_the_rows_once(cluster: Target, name: str) -> None:
    """Speculation: the second attempt fences the first, which waits for the mark of the second."""
    create(cluster, name, 2)
    options, unit = options_of(cluster, name, name), Unit("q", 0, 0)
    began, found = threading.Event(), list[int]()
    fenced = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        first, second = rows(0, 60)
        yield first
        began.set()
        assert fenced.wait(120)
        yield second

    def quick() -> Iterator[pa.RecordBatch]:
        yield from rows(0, 60)
        fenced.set()

    def attempt() -> None:
        found.append(write(options, slow(), unit))

    thread = threading.Thread(target=attempt)
    thread.start()
    assert began.wait(120)
    found.append(write(options, quick(), unit))
    thread.join(120)
    assert found == [60, 60]
    assert committed(cluster, name) == Counter(range(60))


def test_a_task_with_other_rows_is_refused(cluster: Target, name: str) -> None:
    create(cluster, name)
    options, unit = options_of(cluster, name, name), Unit("q", 3, 0)
    assert write(options, rows(0, 10), unit) == 10
    with pytest.raises(ValueError, match="batch 3, task 0: an earlier attempt wrote 10 rows, this attempt has 9"):
        write(options, rows(0, 9), unit)
    assert committed(cluster, name) == Counter(range(10))


def test_rows_of_several_topics_are_one_transaction(cluster: Target, name: str) -> None:
    topics = [f"{name}-{n}" for n in range(2)]
    for topic in topics:
        create(cluster, topic)
    options = options_of(cluster, "", name)
    for batch in range(3):
        some = rows(20 * batch, 10, topics[batch % 2]) + rows(20 * batch + 10, 10, topics[(batch + 1) % 2])
        for _ in range(2):
            assert write(options, some, Unit("q", batch, 0)) == 20
    assert committed(cluster, *topics) == Counter(range(60))


def test_rows_are_not_repeated_after_one_of_their_topics_was_deleted(cluster: Target, name: str) -> None:
    """Brokers delete the offsets of a deleted topic. The mark was an offset of the last topic alone."""
    from confluent_kafka.admin import AdminClient

    topics = [f"{name}-{n}" for n in range(3)]
    for topic in topics:
        create(cluster, topic)
    options, unit = options_of(cluster, "", name), Unit("q", 0, 0)
    some = [batch for n, topic in enumerate(topics) for batch in rows(10 * n, 10, topic)]
    assert write(options, some, unit) == 30
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for topic in topics[1:]:
        admin.delete_topics([topic])[topic].result(60)
        create(cluster, topic)
        assert write(options, some, unit) == 30
    assert committed(cluster, *topics) == Counter(range(10))


def test_a_refused_transaction_is_an_error(cluster: Target, name: str) -> None:
    create(cluster, name)
    with pytest.raises(BrokerError, match=r"^transaction .*-0: INVALID_TRANSACTION_TIMEOUT"):
        write(
            options_of(cluster, name, name, **{"kafka.transaction.timeout.ms": "2000000000"}),
            rows(0, 2),
            Unit("q", 0, 0),
        )
