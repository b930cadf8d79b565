"""The pipeline's own client: whole Fetch responses of both servers, decoded into columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.codec import Decoder
from kraft_pipeline.codec.decode import HEADER_TYPE
from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sinks.rows import RowWriter
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.errors import BrokerError, ClientError, DataLossError
from kraft_protocol.client.fetch import Range, fetch_range
from kraft_protocol.client.requests import EARLIEST, LATEST, TopicInfo
from tests.compat.targets import Target

CLIENT = "pipeline"
BOTH_EVERY_DAY = True
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW = 1_700_000_000_000


def create(target: Target, topic: str, partitions: int = 1, **config: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    config = {"retention.ms": "-1", **config}  # the records are of 2023
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(60)
    deadline = time.monotonic() + 60
    with Cluster(Settings(target.bootstrap)) as client:  # brokers learn of it after the controller has answered
        while not _has_leaders(client.topics([topic]).get(topic), partitions):
            assert time.monotonic() < deadline, topic
            time.sleep(0.05)


def _has_leaders(topic: TopicInfo | None, partitions: int) -> bool:
    return (
        topic is not None
        and len(topic.partitions) == partitions
        and all(p.leader >= 0 for p in topic.partitions.values())
    )


def produced(target: Target, topic: str, count: int, codec: str = "none", first: int = 0) -> list[bytes]:
    """Produce records of all sizes in partition 0, with timestamps a second apart; returns their values."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,  # without it a retried record would come after later records
            "linger.ms": 20,
            "batch.size": 50_000,
        }
    )
    values = [b"%d-" % i + b"x" * (i * 37 % 400) for i in range(first, first + count)]
    failed: list[Any] = []
    for i, value in enumerate(values, first):
        producer.produce(
            topic,
            value,
            key=b"k%d" % i if i % 3 else None,
            partition=0,
            timestamp=NOW + 1000 * i,
            headers=[("n", b"%d" % i)] if i % 2 else None,
            callback=lambda e, _: e and failed.append(e),
        )
    assert producer.flush(60) == 0
    assert failed == []
    return values


def whole(cluster: Cluster, topic: str) -> Range:
    key = (topic, 0)
    start, end = cluster.offsets({key: EARLIEST})[key], cluster.offsets({key: LATEST})[key]
    return Range(topic, cluster.topic(topic).id, 0, start, end)


def read(cluster: Cluster, wanted: Range, columns: tuple[str, ...] = ("value",), **options: Any) -> list[Any]:
    decoder = Decoder(wanted.topic, 0, columns)
    rows = []
    for chunk in fetch_range(cluster, wanted, **options):
        for part in decoder.decode(chunk.records, chunk.offset, chunk.end, chunk.aborted):
            rows += [tuple(row.values()) for row in part.to_pylist()]
    return [row[0] for row in rows] if len(columns) == 1 else rows


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_in_many_responses(cluster: Target, name: str, codec: str) -> None:
    create(cluster, name)
    values = produced(cluster, name, 3000, codec)
    with Cluster(Settings(cluster.bootstrap)) as client:
        wanted = whole(client, name)
        assert (wanted.start, wanted.end) == (0, 3000)
        rows = read(client, wanted, ("key", "value", "offset", "headers"), max_bytes=60_000)
        assert [row[1] for row in rows] == values
        assert [row[2] for row in rows] == list(range(3000))
        assert [row[0] for row in rows[:4]] == [None, b"k1", b"k2", None]
        assert [row[3] for row in rows[:2]] == [None, [{"key": "n", "value": b"1"}]]
        assert read(client, wanted._replace(start=1003, end=1010)) == values[1003:1010]


def test_offsets_by_time(cluster: Target, name: str) -> None:
    create(cluster, name)
    produced(cluster, name, 100)
    key = (name, 0)
    with Cluster(Settings(cluster.bootstrap)) as client:
        found = [client.offsets({key: NOW + when})[key] for when in (-5, 41_500, 99_000, 99_001)]
    assert found == [0, 42, 99, -1]


def offsets_of(parts: Sequence[Any]) -> list[tuple[int, int]]:
    return [(part.wanted.start, part.wanted.end) for part in parts]


def test_a_stream_from_the_latest_offsets_misses_nothing(cluster: Target, name: str) -> None:
    """Spark asks for the first offset until the first micro-batch is written, also after a restart of the query."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from kraft_pipeline.sources.kraft import KraftStreamReader
    from kraft_pipeline.sources.options import parse

    def reader() -> KraftStreamReader:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribePattern": f"{name}.*"}
        return KraftStreamReader(parse(given, streaming=True), ("value",))

    everything = ReadAllAvailable()
    begun = reader()
    start = begun.initialOffset()  # of no topic
    create(cluster, name)
    produced(cluster, name, 10)
    first = begun.latestOffset(start, everything)
    produced(cluster, name, 5, first=10)
    assert offsets_of(begun.partitions(begun.initialOffset(), first)) == [(0, 10)]
    begun.stop()
    begun = reader()
    start = begun.initialOffset()
    assert begun.latestOffset(start, everything) == start
    assert begun.partitions(begun.initialOffset(), start) == []
    produced(cluster, name, 7, first=15)
    first = begun.latestOffset(start, everything)
    produced(cluster, name, 3, first=22)
    begun.stop()
    again = reader()
    assert offsets_of(again.partitions(again.initialOffset(), first)) == [(15, 22)]
    second = again.latestOffset(first, everything)
    assert offsets_of(again.partitions(first, second)) == [(22, 25)]
    assert set(second) == {name, "@ids", "@epochs"}
    again.prepareForTriggerAvailableNow()
    produced(cluster, name, 2, first=25)
    start = again.initialOffset()
    assert again.latestOffset(start, everything) == start
    again.stop()


def test_read_committed(cluster: Target, name: str) -> None:
    from confluent_kafka import Producer

    create(cluster, name)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for batch, commit in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(name, f"{batch}.{i}", partition=0)
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(name, "open", partition=0)
    producer.flush(60)
    key = (name, 0)
    with Cluster(Settings(cluster.bootstrap)) as client:
        assert client.offsets({key: LATEST})[key] == 45
        stable = client.offsets({key: LATEST}, committed=True)[key]
        assert stable == 44
        wanted = whole(client, name)
        everything = [f"{b}.{i}".encode() for b in range(4) for i in range(10)] + [b"open"]
        assert read(client, wanted) == everything
        committed = read(client, wanted._replace(end=stable), committed=True)
        assert committed == [v for v in everything if v[:1] in b"02"]
    producer.abort_transaction(60)


def test_the_client_waits_for_a_restarting_server(make_target: Callable[..., Target], server_name: str) -> None:
    target = make_target(server_name).start()
    create(target, "t")
    values = produced(target, "t", 2000)
    with Cluster(Settings(target.bootstrap)) as client:
        wanted = whole(client, "t")
        chunks = fetch_range(client, wanted, max_bytes=30_000)
        first = next(chunks)
        target.stop()
        target.start()
        decoder = Decoder("t", 0, ["value"])
        rows = [
            row["value"]
            for c in [first, *chunks]
            for part in decoder.decode(c.records, c.offset)
            for row in part.to_pylist()
        ]
    assert rows == values


def test_deleted_records_are_a_data_loss(cluster: Target, name: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    create(cluster, name)
    values = produced(cluster, name, 200)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 150)]).values()
    deleted.result(60)
    with Cluster(Settings(cluster.bootstrap)) as client:
        wanted = whole(client, name)
        assert (wanted.start, wanted.end) == (150, 200)
        with pytest.raises(DataLossError, match=r"offset 5 is gone, the log has 150 to 200 now"):
            read(client, wanted._replace(start=5))
        assert read(client, wanted._replace(start=5), fail_on_data_loss=False) == values[150:]
        with pytest.raises(DataLossError, match="another topic has its name now"):
            read(client, wanted._replace(topic_id=b"another topic id"))


def test_impossible_requests_are_reported(cluster: Target, name: str) -> None:
    create(cluster, name)
    produced(cluster, name, 3)
    with Cluster(Settings(cluster.bootstrap, retry_s=0.5)) as client:
        assert client.topics([name, f"{name}-none"]).keys() == {name}
        with pytest.raises(BrokerError, match=rf"topic {name}-none: UNKNOWN_TOPIC_OR_PARTITION \(3\)"):
            client.topic(f"{name}-none")
        beyond = whole(client, name)._replace(end=4)
        begun = time.monotonic()
        with pytest.raises(ClientError, match=r"nothing comes from offset 3 on: the high watermark is 3 \(tried for"):
            read(client, beyond)
        assert time.monotonic() > begun + 0.5
    refused = pytest.raises(ClientError, match=r"metadata: no broker of 127.0.0.1:1 can be reached: .*refused")
    with Cluster(Settings("127.0.0.1:1", retry_s=0.2)) as client, refused:
        client.topics()
    with pytest.raises(ValueError, match="'nowhere' is not host:port"):
        Cluster(Settings("nowhere"))


def written(target: Target, rows: pa.Table, **options: str) -> int:
    given = {"kafka.bootstrap.servers": target.bootstrap, **options}
    with Cluster(Settings(target.bootstrap)) as client:
        writer = RowWriter(client, parse_sink(given, rows.schema.names))
        for batch in rows.to_batches(max_chunksize=700):
            writer.write(batch)
        writer.close()
        return writer.rows


def consumed(target: Target, topics: list[str], count: int) -> list[Any]:
    """Read with librdkafka, which checks the CRCs."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": topics[0],
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe(topics)
    got: list[Any] = []
    deadline = time.monotonic() + 60
    while len(got) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            got.append(message)
    consumer.close()
    return got


@pytest.mark.parametrize("codec", CODECS)
def test_sink_with_every_codec(cluster: Target, name: str, codec: str) -> None:
    from confluent_kafka import Producer

    create(cluster, name, 3)
    keys = [b"key-%d" % (i % 50) if i % 5 else None for i in range(3000)]
    values = [b"%d" % i + b"y" * (i % 300) if i % 7 else None for i in range(3000)]
    headers = [[{"key": "n", "value": b"%d" % i}] if i % 2 else None for i in range(3000)]
    rows = pa.table({"key": keys, "value": values, "headers": pa.array(headers, HEADER_TYPE)})
    assert written(cluster, rows, topic=name, **{"kafka.compression.type": codec, "kafka.batch.size": "20000"}) == 3000
    got = consumed(cluster, [name], 3000)
    assert sorted((m.key() or b"", m.value() or b"") for m in got) == sorted(
        (k or b"", v or b"") for k, v in zip(keys, values, strict=True)
    )
    assert sum(1 for m in got if m.headers() == [("n", (m.value() or b"y").partition(b"y")[0])]) > 1000
    # Each key lies in the partition that a Java client would choose, in the order of the rows.
    places: dict[bytes, set[int]] = {}
    for message in got:
        if message.key():
            places.setdefault(message.key(), set()).add(message.partition())
    assert all(len(partitions) == 1 for partitions in places.values())
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})
    where: dict[bytes, int] = {}
    for key in places:
        producer.produce(name, b"", key=key, callback=lambda _, m: where.__setitem__(m.key(), m.partition()))
    assert producer.flush(60) == 0
    assert {key: {partition} for key, partition in where.items()} == places


def test_sink_with_topics_and_partitions_of_the_rows(cluster: Target, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        create(cluster, topic, 2)
    rows = pa.table(
        {
            "value": [str(i) for i in range(2000)],
            "topic": [topics[i % 2] for i in range(2000)],
            "partition": pa.array([1 if i % 3 else 0 for i in range(2000)], pa.int32()),
        }
    )
    assert written(cluster, rows) == 2000
    got = consumed(cluster, topics, 2000)
    for i in range(4):
        expected = [str(n).encode() for n in range(2000) if n % 2 == i // 2 and (1 if n % 3 else 0) == i % 2]
        assert [m.value() for m in got if (m.topic(), m.partition()) == (topics[i // 2], i % 2)] == expected
    with pytest.raises(ValueError, match=f"a row for partition 2: topic {topics[0]} has 2"):
        written(cluster, pa.table({"value": ["x"], "partition": pa.array([2], pa.int32())}), topic=topics[0])


def test_sink_has_its_topic_made(cluster: Target, name: str) -> None:
    """Kafka's producers create topics, and so does Spark's sink."""
    assert written(cluster, pa.table({"value": [b"a", b"b"]}), topic=name) == 2
    assert sorted(m.value() for m in consumed(cluster, [name], 2)) == [b"a", b"b"]
    with Cluster(Settings(cluster.bootstrap, retry_s=60.0)) as client:
        with pytest.raises(BrokerError, match=r"INVALID_TOPIC_EXCEPTION \(17\)"):
            client.ensure_topic("no name!")
        assert client.topics([f"{name}-none"]) == {}, "who only asks has none made"
        assert client.topics([f"{name}-none"]) == {}


def test_sink_continues_after_a_restart_without_loss_or_duplicates(
    make_target: Callable[..., Target], server_name: str
) -> None:
    target = make_target(server_name).start()
    create(target, "t", 2)
    with Cluster(Settings(target.bootstrap)) as client:
        writer = RowWriter(client, parse_sink({"kafka.bootstrap.servers": target.bootstrap, "topic": "t"}, ["value"]))
        for part in range(4):
            if part == 2:
                target.stop()
                target.start()
            writer.write(pa.record_batch({"value": [f"{part}.{i}" for i in range(1000)]}))
            writer.close()
    got = [m.value().decode() for m in consumed(target, ["t"], 4000)]
    assert sorted(got) == sorted(f"{part}.{i}" for part in range(4) for i in range(1000))


def test_sink_reports_a_refusal_of_the_broker(cluster: Target, name: str) -> None:
    create(cluster, name, 1, **{"max.message.bytes": "1000"})
    rows = pa.table({"value": [b"z" * 5000]})
    with pytest.raises(BrokerError, match=rf"{name}-0.*MESSAGE_TOO_LARGE \(10\)"):
        written(cluster, rows, topic=name)
