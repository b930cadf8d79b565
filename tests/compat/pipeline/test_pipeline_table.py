"""KafkaTable against both servers: rows, dead letters, new fields, its position, and kills at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.errors import FencedError
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import open_storage, store_options
from kraft_protocol.client.errors import ClientError
from tests.compat.pipeline.test_pipeline_client import create, produced, written
from tests.compat.targets import Target
from tests.writers import ENDED, Writers

CLIENT = "KafkaTable"
XDIST_GROUP = "spark"  # with the many tests of the other clients
FORMATS = ["delta", "iceberg", "parquet"]
pytestmark = pytest.mark.timeout(900)


def document(target: Target, topic: str, path: Path | str, kind: str, **more: Any) -> dict[str, Any]:
    """The YAML of a KafkaTable; `more` are sections of its spec."""
    return {
        "apiVersion": table_spec.API_VERSION,
        "kind": table_spec.KIND,
        "metadata": {"name": "t"},
        "spec": {
            "bootstrapServers": target.bootstrap,
            "topics": {"names": [topic]},
            "engine": {"mode": "inline"},
            **more,
            "table": {"format": kind, "path": str(path), **more.get("table", {})},
        },
    }


def run(given: dict[str, Any]) -> list[runner.Progress]:
    """Run until no records are left; returns the batches."""
    reported: list[runner.Progress] = []
    runner.Runner(table_spec.parse(given), InlineEngine(), report=reported.append).run(once=True)
    return reported


def rows(uri: Path | str, kind: str, storage: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """The rows that a reader of the format sees."""
    uri, options = str(uri), storage or {}
    if kind == "delta":
        from deltalake import DeltaTable

        return pa.table(DeltaTable(uri, storage_options=store_options(options)).to_pyarrow_table()).to_pylist()
    if kind == "iceberg":
        from pyiceberg.table import StaticTable

        named = {f"s3.{name}": options[key] for name, key in ICEBERG_NAMES.items() if key in options}
        named |= {"s3.connect-timeout": "60", "s3.request-timeout": "60"}  # a store on a busy machine
        return StaticTable.from_metadata(uri, named).scan().to_arrow().to_pylist()
    found: list[dict[str, Any]] = []
    store = open_storage(uri, options)
    for file in ParquetTable(store, "t").live():
        found += [{**row, **file.values} for row in pq.read_table(pa.BufferReader(store.read(file.path))).to_pylist()]
    return found


ICEBERG_NAMES = {
    "endpoint": "AWS_ENDPOINT_URL",
    "access-key-id": "AWS_ACCESS_KEY_ID",
    "secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "region": "AWS_REGION",
}


def send(target: Target, topic: str, values: list[bytes | None]) -> None:
    written(target, pa.table({"value": pa.array(values, pa.binary())}), topic=topic)


@pytest.mark.parametrize("kind", FORMATS)
def test_raw_rows_by_date(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    create(cluster, name)
    values = produced(cluster, name, 300, "zstd")
    given = document(
        cluster, name, tmp_path / "t", kind, commit={"maxRows": 120}, table={"partitionBy": ["hour"]}, groupId=name
    )
    assert [p.rows for p in run(given)] == [120, 120, 60]
    found = sorted(rows(tmp_path / "t", kind), key=lambda row: row["offset"])
    assert [row["value"] for row in found] == values
    assert [row["offset"] for row in found] == list(range(300))
    assert found[1]["key"] == b"k1"
    assert found[1]["headers"] == [{"key": "n", "value": b"1"}]
    if kind != "iceberg":  # Iceberg's partitions are not columns
        assert {row["hour"] for row in found} == {"2023-11-14-22"}
    assert found[0]["timestamp"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert run(given) == []
    produced(cluster, name, 5, first=300)
    assert [(p.batch, p.rows) for p in run(given)] == [(3, 5)]
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name})
    assert [t.offset for t in consumer.committed([TopicPartition(name, 0)], timeout=60)] == [305]
    consumer.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_json_with_new_fields_and_dead_letters(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    create(cluster, name)
    given = document(
        cluster,
        name,
        tmp_path / "t",
        kind,
        value={"format": "json", "evolve": "additive"},
        table={"partitionBy": ["c"]},
    )
    send(cluster, name, [b'{"id": %d, "c": "%s"}' % (i, b"xy"[i % 2 : i % 2 + 1]) for i in range(100)])
    send(cluster, name, [b"no object", b'{"id": "text"}', None, b'{"id": 7}{"id": 8}', b'{"_offset": 1}'])
    assert [(p.rows, p.dead) for p in run(given)] == [(101, 4)]
    send(cluster, name, [b'{"id": 200, "when": "2024-02-29T10:00:00", "deep": {"a": [1, 2]}, "c": "x"}'])
    assert [(p.rows, p.dead) for p in run(given)] == [(1, 0)]
    found = sorted(rows(tmp_path / "t", kind), key=lambda row: row["_offset"])
    assert [row["id"] for row in found] == [*range(100), None, 200]
    assert [row["c"] for row in found] == ["xy"[i % 2] for i in range(100)] + [None, "x"]
    assert found[-1]["when"] == "2024-02-29T10:00:00"
    assert found[-1]["deep"] == {"a": [1, 2]}
    dead = sorted(rows(Path(f"{tmp_path}/t_dead_letters"), kind), key=lambda row: row["offset"])
    assert [row["value"] for row in dead] == [b"no object", b'{"id": "text"}', b'{"id": 7}{"id": 8}', b'{"_offset": 1}']
    assert [(row["stage"], row["batch"], row["partition"]) for row in dead] == [("decode", 0, 0)] * 4
    assert [row["code"] for row in dead] == ["json.syntax", "json.type", "json.syntax", "field.name"]
    assert dead[1]["reason"] == "the field id is 'text' and not a number"
    assert dead[3]["reason"] == "the field '_offset' has the name of another column"
    strict = document(cluster, name, tmp_path / "s", kind, value={"format": "json"}, deadLetter={"table": False})
    with pytest.raises(runner.DeadLetterError, match=rf"{name}-0, offset 100: JSON parse error"):
        run(strict)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_field_with_the_name_of_a_partition_is_a_dead_letter(
    cluster: Target, name: str, tmp_path: Path, kind: str
) -> None:
    """It is a dead letter, not a reason to stop; readers of a folder of Parquet files see the rows."""
    create(cluster, name)
    given = document(cluster, name, tmp_path / "t", kind)
    given["spec"]["value"] = {"format": "json", "evolve": "additive"}
    given["spec"]["table"]["partitionBy"] = ["date"]
    send(cluster, name, [b'{"n": 1}', b'{"n": 2}'])
    assert [(p.rows, p.dead) for p in run(given)] == [(2, 0)]
    send(cluster, name, [b'{"n": 3, "date": "2024-02-29"}', b'{"n": 4, "more": true}'])
    assert [(p.rows, p.dead) for p in run(given)] == [(1, 1)]
    assert sorted(row["n"] for row in rows(tmp_path / "t", kind)) == [1, 2, 4]
    (dead,) = rows(f"{tmp_path}/t_dead_letters", kind)
    assert dead["reason"] == "the field 'date' has the name of another column"
    if kind == "parquet":
        found = pq.read_table(tmp_path / "t").to_pylist()
        assert sorted((row["n"], row["date"] == f"{row['_timestamp']:%Y-%m-%d}") for row in found) == [
            (1, True),
            (2, True),
            (4, True),
        ]


def test_a_recreated_topic_is_refused(cluster: Target, name: str, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    create(cluster, name)
    produced(cluster, name, 20)
    given = document(cluster, name, tmp_path / "t", "delta")
    run(given)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (gone,) = admin.delete_topics([name]).values()
    gone.result(60)
    deadline = time.monotonic() + 60
    while name in admin.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    create(cluster, name)
    produced(cluster, name, 40)
    with pytest.raises(ClientError, match="has been deleted and made again"):
        run(given)
    given["spec"]["failOnDataLoss"] = False
    assert [p.rows for p in run(given)] == [40]


@pytest.mark.parametrize("kind", FORMATS)
def test_two_writers_do_not_spoil_a_table(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    create(cluster, name)
    produced(cluster, name, 50)
    given = table_spec.parse(document(cluster, name, tmp_path / "t", kind))

    class Overtaken(InlineEngine):
        def run(self, job: Any, ranges: Any) -> Any:
            found = super().run(job, ranges)
            runner.Runner(given, InlineEngine()).run(once=True)
            return found

    with pytest.raises(FencedError, match=r"writer \d+ has taken over, writer \d+ commits nothing more"):
        runner.Runner(given, Overtaken()).run(once=True)
    assert Counter(row["offset"] for row in rows(tmp_path / "t", kind)) == Counter(range(50))


def test_a_writer_that_was_replaced_ends(cluster: Target, name: str, tmp_path: Path) -> None:
    """It ends with its own exit code, also while it is idle."""
    create(cluster, name)
    produced(cluster, name, 5)
    given, file = document(cluster, name, tmp_path / "t", "delta", commit={"maxDelay": "0s"}), tmp_path / "table.yaml"
    file.write_text(json.dumps(given))
    with Writers() as writers:
        writers.start("table", "run", str(file))
        assert writers.line().startswith("batch 0: 5 rows")
        runner.Runner(table_spec.parse(given), InlineEngine()).run(once=True)
        status, reported = writers.ended()
    assert (status, reported.partition(":")[0]) == (3, "kraft-pipeline")
    assert "has taken over, writer" in reported


KILLS = int(os.environ.get("KRAFT_KILLS", "3"))  # `make table-kills`: fifty of each format


@pytest.mark.timeout(900 + 60 * KILLS)
@pytest.mark.xdist_group("spark-kraftcluster")
@pytest.mark.parametrize("kind", FORMATS)
def test_killed_at_any_moment(make_target: Callable[..., Target], tmp_path: Path, kind: str) -> None:
    """No row is lost or repeated, and every file left belongs to the table."""
    server = make_target("kraftcluster").start()
    kill_often(server, tmp_path, document(server, "t", tmp_path / "t", kind), KILLS)


def test_small_files_are_merged_and_a_table_can_be_reset(cluster: Target, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    for kind in FORMATS:
        given = document(cluster, name, tmp_path / kind, kind, maintenance={"vacuumAfter": "0s"})
        for first in range(0, 40, 10):
            produced(cluster, name, 10, first=first)
            run(given)
        parsed, path = table_spec.parse(given), tmp_path / kind
        before = sorted((row["offset"], row["value"]) for row in rows(path, kind))
        files = maintenance.status(parsed)["files"]
        assert maintenance.compact(parsed) == (files, 1)
        assert maintenance.compact(parsed) == (0, 0)
        assert sorted((row["offset"], row["value"]) for row in rows(path, kind)) == before
        assert maintenance.vacuum(parsed) == (0 if kind == "parquet" else files)  # engines read Parquet's folder
        assert len(list(path.glob("kafkatable-*.parquet"))) == 1
        assert sorted((row["offset"], row["value"]) for row in rows(path, kind)) == before
        found = maintenance.status(parsed)
        assert (found["rows"], found["files"], found["lag"]) == (len(before), 1, 0)
        assert run(given) == []
        assert maintenance.reset(parsed) > 0
        assert [p.rows for p in run(given)] == [len(before)]
    with pytest.raises(ValueError, match="is not a delta table: nothing is removed"):
        maintenance.reset(table_spec.parse(document(cluster, name, tmp_path, "delta")))


def kill_often(target: Target, folder: Path, given: dict[str, Any], kills: int) -> None:
    """Kill the writer of JSON and dead letters `kills` times at random. Then let it finish, and check the table."""
    given["spec"] |= {"value": {"format": "json", "schema": {"n": "long"}}, "commit": {"maxRows": 100}}
    (topic,), kind, file = given["spec"]["topics"]["names"], given["spec"]["table"]["format"], folder / "table.yaml"
    create(target, topic)
    file.write_text(json.dumps(given))
    chance = random.Random(f"{kind}{kills}")
    sent = killed = 0
    with Writers() as writers:
        while killed < kills:
            send(target, topic, [b'{"n": %d}' % n if n % 10 else b"dead %d" % n for n in range(sent, sent + 1000)])
            sent += 1000
            killed += cut_off(writers, file, chance, batches=8)
        writers.finish(file, given)
    parsed = table_spec.parse(given)
    assert Counter(row["n"] for row in rows(parsed.path, kind, parsed.storage)) == Counter(
        n for n in range(sent) if n % 10
    )
    dead = [row["value"] for row in rows(parsed.dead_letter_path, kind, parsed.storage)]
    assert Counter(dead) == Counter(b"dead %d" % n for n in range(0, sent, 10))
    for dead_letters in (False, True):
        files = runner.open_table(parsed, dead_letters=dead_letters).files()
        assert written_files(parsed, dead_letters=dead_letters) == files


def cut_off(writers: Writers, file: Path, chance: random.Random, *, batches: int) -> bool:
    """Start the writer of a spec and kill it in one of its first batches; returns whether it was still at work."""
    pid = writers.start("table", "run", str(file), "--once")
    lines = chance.randrange(1, batches)  # a line for each batch, then a moment of the next batch
    while lines and not writers.line().startswith(ENDED):
        lines -= 1
    if lines:
        return False
    time.sleep(chance.random() * 0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return writers.ended()[0] == -signal.SIGKILL


def written_files(parsed: table_spec.TableSpec, *, dead_letters: bool = False) -> set[str]:
    """The data files in the folder, committed or not."""
    where = open_storage(parsed.dead_letter_path if dead_letters else parsed.path, parsed.storage)
    return {f.path for f in where.list() if f.path.endswith(".parquet") and not f.path.startswith("_delta_log/")}


def test_on_spark(spark: Any, cluster: Target, name: str, tmp_path: Path) -> None:
    from kraft_pipeline.tables.engines.engine import SparkEngine

    create(cluster, name, 3)
    sent = [b'{"n": %d}' % n for n in range(3000)]
    written(
        cluster, pa.table({"value": sent, "partition": pa.array([n % 3 for n in range(3000)], pa.int32())}), topic=name
    )
    given = table_spec.parse(document(cluster, name, tmp_path / "t", "delta", value={"format": "json"}))
    runner.Runner(given, SparkEngine(spark)).run(once=True)
    assert sorted(row["n"] for row in rows(tmp_path / "t", "delta")) == list(range(3000))
