"""KafkaTable against both servers: Avro values, rows by key, backfill, maintenance, and faults."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.engine import InlineEngine, SparkEngine
from kraft_pipeline.tables.errors import TaskError
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client.errors import ClientError
from tests.compat.pipeline.test_pipeline_client import NOW, create, produced, written
from tests.compat.pipeline.test_pipeline_table import cut_off, document, rows, run, send, written_files
from tests.compat.targets import Target
from tests.registry import RegistryServer
from tests.writers import Writers

CLIENT = "KafkaTable"
XDIST_GROUP = "spark"
WAIT_S = 120.0
KILLS = int(os.environ.get("KRAFT_KILLS", "2"))  # `make table-kills`: fifty
pytestmark = pytest.mark.timeout(900)


@contextmanager
def running(given: dict[str, Any]) -> Iterator[list[str]]:
    """Write the table until the block ends. Yields the reasons of its waits."""
    waited: list[str] = []
    raised: list[BaseException] = []
    writer = runner.Runner(table_spec.parse(given), InlineEngine(), wait=waited.append)

    def work() -> None:
        try:
            writer.run()
        except BaseException as e:
            raised.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield waited
    finally:
        writer.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert raised == []


def until(found: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def avro(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields]}


def keyed(target: Target, topic: str, records: list[tuple[str | None, bytes | None]]) -> None:
    """Produce records with keys, in the given order, in partition 0."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": target.bootstrap})
    for key, value in records:
        producer.produce(topic, value, key=key, partition=0)
    assert producer.flush(60) == 0


def test_avro_values_of_confluents_serializer(cluster: Target, name: str, tmp_path: Path) -> None:
    """Two versions of a schema, a foreign schema, and bytes that are not Avro; the registry's clients are foreign."""
    pytest.importorskip("authlib", reason="confluent-kafka's registry client")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    create(cluster, name)
    at = ("at", {"type": "long", "logicalType": "timestamp-millis"})
    first = avro("R", ("id", "long"), ("name", ["null", "string"]), at)
    second = avro("R", ("id", "long"), at, ("deep", avro("D", ("x", {"type": "array", "items": "int"}))))
    with RegistryServer().serving() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        context = SerializationContext(name, MessageField.VALUE)

        def of(schema: dict[str, Any]) -> Callable[[Any], bytes]:
            serializer = AvroSerializer(client, json.dumps(schema))
            return lambda row: serializer(row, context)  # type: ignore[return-value]

        one, two = of(first), of(second)
        send(cluster, name, [one({"id": n, "name": f"n{n}" if n % 2 else None, "at": 1000 * n}) for n in range(50)])
        given = document(
            cluster,
            name,
            tmp_path / "t",
            "delta",
            value={"format": "avro", "evolve": "additive", "registry": {"url": registry.url}},
        )
        assert [(p.rows, p.dead) for p in run(given)] == [(50, 0)]
        other = registry.add("other", "{}", schemaType="JSON")
        bad = [b"\0\0\0\x03\xe7x", bytes([0, 0, 0, 0, other]), b"plain"]
        send(cluster, name, [two({"id": 50, "at": 0, "deep": {"x": [1, 2]}}), *bad, None])
        assert [(p.rows, p.dead) for p in run(given)] == [(2, 3)]
        found = sorted(rows(tmp_path / "t", "delta"), key=lambda row: row["_offset"])
        assert [row["id"] for row in found] == [*range(51), None]
        assert [row["name"] for row in found[:3]] == [None, "n1", None]
        assert found[7]["at"].timestamp() == 7.0
        assert found[50]["deep"] == {"x": [1, 2]}
        dead = sorted(rows(f"{tmp_path}/t_dead_letters", "delta"), key=lambda row: row["offset"])
        url = registry.url
        assert [row["reason"] for row in dead] == [
            f"schema 999 of {url} does not exist",
            f"schema {other} of {url} is of type JSON, not AVRO",
            "the value does not begin with a schema id",
        ]
        registry.refuse = True
        send(cluster, name, [b"\0\0\0\x03\xe8x"])
        with pytest.raises(ClientError, match=r"schema registry: schema 1000 of .*: 401"):
            run(given)
        registry.refuse, registry.away = False, True
        given["spec"]["kafka"] = {"kafkaConsumer.pollTimeoutMs": "300"}
        with pytest.raises(ClientError, match=r"schema registry: schema 1000 of .*: 503 .* \(tried for 0.3 s\)"):
            run(given)
        given["spec"]["commit"] = {"maxDelay": "1ms"}
        with running(given) as waited:  # the run continues with the registry; no record becomes a dead letter
            until(lambda: waited)
            registry.away = False
            until(lambda: runner.open_table(table_spec.parse(given)).state().batch == 2)
        assert "503" in waited[0]
        assert len(rows(f"{tmp_path}/t_dead_letters", "delta")) == 4


KEYED = ["delta", "iceberg"]


@pytest.mark.parametrize("kind", KEYED)
def test_rows_by_key_with_tombstones(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    create(cluster, name)
    given = document(
        cluster,
        name,
        tmp_path / "t",
        kind,
        value={"format": "json", "evolve": "additive"},
        table={"mode": "upsert", "key": ["_key"], "partitionBy": ["c"]},
        commit={"maxRows": 4},
    )
    keyed(
        cluster,
        name,
        [
            ("a", b'{"n": 1, "c": "x"}'),
            ("b", b'{"n": 2, "c": "x"}'),
            ("a", b'{"n": 3, "c": "y"}'),
            (None, b'{"n": 4, "c": "y"}'),
            ("b", None),
            ("c", b'{"n": 5, "c": "x", "more": {"m": 1}}'),
            ("never", None),
            ("d", b"bad"),
        ],
    )
    assert [(p.rows, p.dead) for p in run(given)] == [(3, 1), (3, 1)]
    keyed(cluster, name, [("never", None)])
    assert [(p.batch, p.rows) for p in run(given)] == [(2, 1)]  # a batch that changes nothing counts as well
    keyed(cluster, name, [("c", b'{"n": 6, "c": "y"}')])
    assert [(p.batch, p.rows) for p in run(given)] == [(3, 1)]
    found = sorted(rows(tmp_path / "t", kind), key=lambda row: row["_key"])
    assert [(row["_key"], row["n"], row["c"], row["more"], row["_offset"]) for row in found] == [
        (b"a", 3, "y", None, 2),
        (b"c", 6, "y", None, 9),
    ]
    dead = sorted(rows(f"{tmp_path}/t_dead_letters", kind), key=lambda row: row["offset"])
    assert [(row["offset"], row["stage"]) for row in dead] == [(3, "key"), (7, "decode")]
    assert dead[0]["reason"] == "the record has no _key"
    assert not list((tmp_path / "t").rglob("_staged/*"))


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_backfill_runs_beside_the_stream(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    create(cluster, name, 2)
    produced(cluster, name, 100)
    given = document(cluster, name, tmp_path / "t", kind, startingOffsets="latest", commit={"maxRows": 30})
    parsed = table_spec.parse(given)
    with pytest.raises(table_spec.SpecError, match="the table has no batch yet"):
        runner.Runner(parsed, InlineEngine(), backfill=True).run()
    assert [p.rows for p in run(given)] == [0]
    produced(cluster, name, 20, first=100)

    class Beside(InlineEngine):
        """The stream and a compaction commit while the backfill writes."""

        def run(self, job: Any, ranges: Any) -> Any:
            found = super().run(job, ranges)
            run(given)
            maintenance.compact(parsed)
            return found

    reported: list[int] = []

    def fill(engine: InlineEngine, since_s: int | None = None, most: int = 9) -> list[int]:
        """Run the backfill; returns the rows of each batch; stops after `most` batches."""
        reported.clear()

        def report(done: runner.Progress) -> None:
            reported.append(done.rows)
            if len(reported) == most:
                filling.stop()

        filling = runner.Runner(parsed, engine, report=report, backfill=True)
        since_ms = None if since_s is None else NOW + 1000 * since_s
        assert filling.run(since_ms=since_ms) == sum(reported)
        return reported

    assert fill(Beside(), since_s=55, most=1) == [30]
    # the backfill that was begun continues, whatever options are given now
    assert fill(InlineEngine(), since_s=10) == [15]
    assert fill(InlineEngine(), since_s=40) == [15]
    assert fill(Beside()) == [30, 10]
    assert fill(InlineEngine()) == []
    offsets = Counter((row["partition"], row["offset"]) for row in rows(tmp_path / "t", kind))
    assert offsets == Counter((0, offset) for offset in range(120))
    produced(cluster, name, 5, first=120)
    assert [p.rows for p in run(given)] == [5]
    found = maintenance.status(parsed)
    assert (found["rows"], found["lag"]) == (125, 0)


def test_a_backfill_killed_between_dead_letters_and_rows_writes_each_once(
    cluster: Target, name: str, tmp_path: Path
) -> None:
    create(cluster, name)
    send(cluster, name, [b'{"n": %d}' % n if n % 5 else b"dead %d" % n for n in range(50)])
    value = {"format": "json", "schema": {"n": "long"}}
    given = document(
        cluster, name, tmp_path / "t", "delta", startingOffsets="latest", value=value, commit={"maxRows": 20}
    )
    run(given)
    parsed = table_spec.parse(given)

    class Dies(runner.Runner):
        def _commit_dead(self, *given: Any) -> None:
            super()._commit_dead(*given)
            raise KeyboardInterrupt

    def one_batch() -> tuple[int, int]:
        def report(done: runner.Progress) -> None:
            reported.append((done.rows, done.dead))
            writer.stop()

        reported: list[tuple[int, int]] = []
        writer = runner.Runner(parsed, InlineEngine(), report=report, backfill=True)
        writer.run()
        return reported[0]

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            Dies(parsed, InlineEngine(), backfill=True).run()
        assert one_batch() == (16, 4)
    runner.Runner(parsed, InlineEngine(), backfill=True).run()
    assert sorted(row["n"] for row in rows(tmp_path / "t", "delta")) == [n for n in range(50) if n % 5]
    dead = rows(f"{tmp_path}/t_dead_letters", "delta")
    assert Counter(row["value"] for row in dead) == Counter(b"dead %d" % n for n in range(0, 50, 5))


def test_batches_by_bytes(cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    send(cluster, name, [b"x" * 10_000] * 100)
    found = run(document(cluster, name, tmp_path / "t", "parquet", commit={"maxBytes": "250k"}))
    assert sum(p.rows for p in found) == 100
    assert all(20 <= p.rows <= 25 for p in found[:-1]), found


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_running_table_is_maintained(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    """Small files are merged and deleted while batches are committed; each record is there once."""
    create(cluster, name)
    care = {"every": "1s", "vacuumAfter": "0s"}
    given = document(cluster, name, tmp_path / "t", kind, commit={"maxDelay": "1ms"}, maintenance=care)
    table = runner.open_table(table_spec.parse(given))
    with running(given):
        for batch in range(3):
            produced(cluster, name, 10, first=10 * batch)
            until(lambda most=batch: table.state().batch >= most)
        until(lambda: len(list((tmp_path / "t").glob("kafkatable-*.parquet"))) == 1)
    assert Counter(row["offset"] for row in rows(tmp_path / "t", kind)) == Counter(range(30))


def test_a_run_waits_for_a_missing_topic_and_a_stopped_broker(
    make_target: Callable[..., Target], tmp_path: Path
) -> None:
    """A topic that does not exist yet, then a broker that is down; a lost record is not waited for."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    target = make_target("kraftcluster").start()
    given = document(
        target, "t", tmp_path / "t", "delta", commit={"maxDelay": "1ms"}, kafka={"kafkaConsumer.pollTimeoutMs": "500"}
    )
    with pytest.raises(ClientError, match="topic t: UNKNOWN_TOPIC_OR_PARTITION"):
        run(given)
    table = runner.open_table(table_spec.parse(given))
    with running(given) as waited:
        until(lambda: waited)
        assert waited[0] == "topic t: UNKNOWN_TOPIC_OR_PARTITION (3)"
        create(target, "t")
        produced(target, "t", 10)
        until(lambda: table.state().batch == 0)
        target.stop()
        waited.clear()
        until(lambda: waited)
        assert "can be reached" in waited[0]
        target.start()
        produced(target, "t", 10, first=10)
        until(lambda: sum(file.rows for file in table.live() if table.state()) == 20)
    produced(target, "t", 30, first=20)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    (gone,) = admin.delete_records([TopicPartition("t", 0, 30)]).values()
    gone.result(60)
    with pytest.raises(ClientError, match="offset 20 is gone, the log has 30 to 50"):
        run(given)
    given["spec"]["failOnDataLoss"] = False
    run(given)
    offsets = Counter(row["offset"] for row in rows(tmp_path / "t", "delta"))
    assert offsets == Counter([*range(20), *range(30, 50)])


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_full_disk(make_target: Callable[..., Target], tmp_path: Path, kind: str) -> None:
    """The run waits, reports it, and continues when there is room; no record is lost or repeated."""
    private = ["unshare", "-rm"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*private, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("unshare: this machine lets nobody mount a disk of one's own")
    target = make_target("kraftcluster").start()
    create(target, "t")
    send(target, "t", [random.Random(n).randbytes(2000) for n in range(300)])
    disk, file = tmp_path / "disk", tmp_path / "table.yaml"
    disk.mkdir()
    file.write_text(json.dumps(document(target, "t", disk / "t", kind, commit={"maxRows": 50, "maxDelay": "1ms"})))
    program = [sys.executable, "-m", "tests.compat.pipeline.fulldisk"]
    command = [*private, *program, *map(str, (file, disk, 300, tmp_path / "copy"))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "No space left on device" in found["waited"][0]
    assert found["left"] == []
    assert Counter(row["offset"] for row in rows(tmp_path / "copy" / "t", kind)) == Counter(range(300))


@pytest.mark.timeout(900 + 60 * KILLS)
@pytest.mark.parametrize("kind", KEYED)
def test_rows_by_key_of_a_writer_that_is_killed(make_target: Callable[..., Target], tmp_path: Path, kind: str) -> None:
    """In the end each key has its last value, and every file left belongs to the table."""
    target = make_target("kraftcluster").start()
    kill_often_by_key(target, tmp_path, document(target, "t", tmp_path / "t", kind), KILLS)


def kill_often_by_key(target: Target, folder: Path, given: dict[str, Any], kills: int) -> None:
    """Kill the writer of rows by key `kills` times at random. Then let it finish, and check the table."""
    given["spec"] |= {"value": {"format": "json", "schema": {"n": "long"}}, "commit": {"maxRows": 100}}
    given["spec"]["table"] |= {"mode": "upsert", "key": ["_key"]}
    (topic,), kind, file = given["spec"]["topics"]["names"], given["spec"]["table"]["format"], folder / "table.yaml"
    create(target, topic)
    file.write_text(json.dumps(given))
    chance, expected, killed = random.Random(f"{kind}{kills}"), dict[bytes, int](), 0
    with Writers() as writers:
        while killed < kills:
            changes = [(f"k{chance.randrange(50)}", None if chance.random() < 0.3 else n) for n in range(700)]
            keyed(target, topic, [(key, None if n is None else b'{"n": %d}' % n) for key, n in changes])
            for key, n in changes:
                expected.pop(key.encode(), None)
                if n is not None:
                    expected[key.encode()] = n
            killed += cut_off(writers, file, chance, batches=6)
        writers.finish(file, given)
    parsed = table_spec.parse(given)
    found = rows(parsed.path, kind, parsed.storage)
    assert {row["_key"]: row["n"] for row in found} == expected
    assert len(found) == len(expected)
    assert written_files(parsed) == runner.open_table(parsed).files()


def test_avro_values_on_spark(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    """Each executor asks the registry. If it is down, the run waits; if it refuses, the run ends."""
    from io import BytesIO

    from fastavro import schemaless_writer

    def framed(number: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
        out = BytesIO()
        schemaless_writer(out, schema, row)
        return b"\0" + number.to_bytes(4) + out.getvalue()

    create(cluster, name, 3)
    first = avro("R", ("id", "long"), ("name", ["null", "string"]))
    second = avro("R", ("id", "long"), ("tags", {"type": "map", "values": "double"}))
    with RegistryServer().serving() as registry:
        one, two = (registry.add(name, json.dumps(schema)) for schema in (first, second))
        sent = [framed(one, first, {"id": n, "name": f"n{n}"}) for n in range(90)]
        sent += [framed(two, second, {"id": n, "tags": {"t": 0.5}}) for n in range(90, 120)]
        send(cluster, name, [*sent, b"none of it"])
        value = {"format": "avro", "evolve": "additive", "registry": {"url": registry.url}}
        given = document(
            cluster, name, tmp_path / "t", "delta", value=value, kafka={"kafkaConsumer.pollTimeoutMs": "300"}
        )
        engine, reported = SparkEngine(spark), list[runner.Progress]()
        registry.away = True
        with pytest.raises(TaskError, match=r"^schema registry: schema \d of .*: 503") as away:
            runner.Runner(table_spec.parse(given), engine).run(once=True)
        registry.away, registry.refuse = False, True
        with pytest.raises(TaskError, match=r"^schema registry: schema \d of .*: 401") as refused:
            runner.Runner(table_spec.parse(given), engine).run(once=True)
        assert (away.value.failure.retriable, refused.value.failure.retriable) == (True, False)
        registry.refuse = False
        given["spec"]["kafka"] = {}
        runner.Runner(table_spec.parse(given), engine, report=reported.append).run(once=True)
    assert [(p.rows, p.dead) for p in reported] == [(120, 1)]
    found = sorted(rows(tmp_path / "t", "delta"), key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(120))
    assert (found[5]["name"], found[5]["tags"]) == ("n5", None)
    assert (found[95]["name"], found[95]["tags"]) == (None, [("t", 0.5)])


def test_backfill_on_spark(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name, 3)
    written(cluster, pa.table({"value": [b"%d" % n for n in range(600)]}), topic=name)
    given = table_spec.parse(document(cluster, name, tmp_path / "t", "iceberg", startingOffsets="latest"))
    engine, reported = SparkEngine(spark), list[runner.Progress]()
    runner.Runner(given, engine).run(once=True)
    written(cluster, pa.table({"value": [b"%d" % n for n in range(600, 700)]}), topic=name)
    runner.Runner(given, engine).run(once=True)
    assert runner.Runner(given, engine, report=reported.append, backfill=True).run() == 600
    assert (sum(p.rows for p in reported), reported[-1].lag) == (600, 0)
    assert runner.Runner(given, engine, backfill=True).run() == 0
    assert Counter(row["value"] for row in rows(tmp_path / "t", "iceberg")) == Counter(b"%d" % n for n in range(700))


def test_rows_by_key_on_spark(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    """Each file with rows that change is a task of its own."""
    create(cluster, name)
    value, table = {"format": "json", "schema": {"n": "long"}}, {"mode": "upsert", "key": ["_key"]}
    given = table_spec.parse(document(cluster, name, tmp_path / "t", "iceberg", value=value, table=table))
    for first in (0, 30, 60):
        keyed(cluster, name, [(f"k{n}", b'{"n": %d}' % n) for n in range(first, first + 30)])
        runner.Runner(given, SparkEngine(spark)).run(once=True)
    keyed(cluster, name, [(f"k{n}", None if n % 2 else b'{"n": 0}') for n in range(0, 90, 15)])
    runner.Runner(given, SparkEngine(spark)).run(once=True)
    expected = {b"k%d" % n: 0 if n % 15 == 0 else n for n in range(90) if n % 30 != 15}
    assert {row["_key"]: row["n"] for row in rows(tmp_path / "t", "iceberg")} == expected
