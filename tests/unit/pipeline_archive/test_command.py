"""`kraft-pipeline meta`: sources, archives that grow, output, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.log_batches import data_batch, snapshot_footer_batch, snapshot_header_batch
from kraft_node.metadata.records import encode_record
from kraft_pipeline.archive import files
from kraft_pipeline.archive import run as run_module
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.run import Done, archive, archived, state_at
from kraft_pipeline.archive.spec import ArchiveSpec, parse
from kraft_pipeline.cli.main import main
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs.table_spec import API_VERSION, SpecError
from kraft_protocol.wire import stored

NOW = 1_760_000_000_000
TOPIC = bytes([1]) * 16


def batch(offset: int, *records: Any) -> bytes:
    values = [encode_record(r, kind_of(r).version(30)) for r in records]
    return data_batch(values, offset, 3, NOW + 1000 * offset)


def broker(number: int) -> Any:
    return stored.RegisterBrokerRecord(broker_id=number, broker_epoch=number, fenced=False, log_dirs=[bytes([9]) * 16])


def partition(number: int, *replicas: int) -> Any:
    return stored.PartitionRecord(
        partition_id=number,
        topic_id=TOPIC,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
        leader_epoch=0,
    )


FIRST = (
    broker(1),
    broker(2),
    stored.TopicRecord("t", TOPIC),
    partition(0, 1),
    partition(1, 1),
    stored.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
    stored.ConfigRecord(resource_type=4, resource_name="", name="ssl.key.password", value="hunter2"),
    stored.UserScramCredentialRecord(name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v"),
)
SECOND = (stored.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[], leader=-1), partition(2, 2))


def log_folder(path: Path) -> Path:
    folder = path / files.FOLDER
    folder.mkdir(parents=True)
    (path / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    (folder / f"{0:020}.log").write_bytes(batch(0, *FIRST))
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Any:
    assert main(["meta", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_an_archive_grows_by_new_records(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    folder = log_folder(tmp_path / "data")
    file = tmp_path / "archive.yaml"
    spec = {"directory": str(tmp_path / "data"), "table": {"format": kind, "path": str(tmp_path / "table")}}
    document = {"apiVersion": API_VERSION, "kind": "KafkaMetadataArchive", "metadata": {"name": "a"}, "spec": spec}
    file.write_text(yaml.safe_dump(document))
    first = run(capsys, "archive", "-f", file)
    assert (first["rows"], first["offset"], first["partitions"]) == (8, 7, 2)
    orphan = tmp_path / "table" / "changes" / "kafkametadataarchive-metadata-left-by-the-dead.parquet"
    orphan.write_bytes(b"")
    with (folder / f"{0:020}.log").open("ab") as out:
        out.write(batch(8, *SECOND))
    second = run(capsys, "archive", "-f", file)
    assert (second["rows"], second["offset"], second["partitions"]) == (2, 9, 3)
    assert run(capsys, "archive", "-f", file)["rows"] == 0
    assert not orphan.exists()
    now, then = run(capsys, "as-of", "-f", file), run(capsys, "as-of", "-f", file, "--offset", 7)
    assert [p["leader"] for p in now["partitions"]] == [-1, 1, 2]
    assert [(p["leader"], p["leader_epoch"]) for p in then["partitions"]] == [(1, 0), (1, 0)]
    assert now["topics"] == [{"topic": "t", "topic_id": "AQEBAQEBAQEBAQEBAQEBAQ", "partitions": 3, "replicas": 1}]
    assert run(capsys, "as-of", tmp_path / "table") == now, "whatever made it, of whatever format"
    at = run(capsys, "as-of", "-f", file, "--time", NOW + 7999)
    assert at["offset"] == 7
    text = b"".join(path.read_bytes() for path in (tmp_path / "table").rglob("*.parquet"))
    fields = pq.read_table([*(tmp_path / "table" / "changes").glob("*.parquet")]).column("fields").to_pylist()
    assert b"hunter2" not in text
    assert not any(secret in (line or "") for line in fields for secret in ("hunter2", '"storedKey":"aw=='))
    (tmp_path / "data" / "meta.properties").write_text("cluster.id=other\n")
    assert main(["meta", "archive", "-f", str(file)]) == 2
    assert "the archive is of cluster abc, this is cluster other" in capsys.readouterr().err


def test_passwords_and_values_of_unknown_broker_keys_are_not_archived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key of a plug-in may be a secret, so brokers do not show its value either."""
    secret = {"listener.name.a.ssl.keystore.key": "hunter3", "plugin.token": "hunter4"}
    plain = {"log.cleaner.threads": "17"}
    records = [
        stored.ConfigRecord(resource_type=4, resource_name="1", name=name, value=value)
        for name, value in {**secret, **plain}.items()
    ]
    folder = log_folder(tmp_path / "data")
    with (folder / f"{0:020}.log").open("ab") as out:
        out.write(batch(8, *records))
    run(capsys, "archive", tmp_path / "data", "--table", tmp_path / "table")
    for source in (tmp_path / "data", tmp_path / "table"):
        values = {row["key"]: row["value"] for row in run(capsys, "as-of", source)["configs"]}
        assert values == {"retention.ms": "5", **plain, **dict.fromkeys(("ssl.key.password", *secret), "(redacted)")}
    fields = pq.read_table([*(tmp_path / "table" / "changes").glob("*.parquet")]).column("fields").to_pylist()
    text = "".join(filter(None, fields))
    assert "hunter" not in text
    assert '"17"' in text


def test_a_log_that_was_trimmed_is_read_from_its_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = log_folder(tmp_path)
    (folder / f"{0:020}.log").unlink()
    (folder / f"{8:020}.log").write_bytes(batch(8, *SECOND))
    with pytest.raises(ArchiveError, match="the log begins at offset 8 and has no snapshot"):
        files.pieces([folder])
    snapshot = folder / f"{8:020}-{3:010}.checkpoint"
    snapshot.write_bytes(snapshot_header_batch(3, NOW, NOW) + batch(1, *FIRST) + snapshot_footer_batch(9, 3, NOW))
    whole = run(capsys, "as-of", tmp_path)
    assert (whole["offset"], [p["leader"] for p in whole["partitions"]]) == (9, [-1, 1, 2])
    alone = run(capsys, "as-of", snapshot)
    assert (alone["offset"], [p["leader"] for p in alone["partitions"]]) == (7, [1, 1])
    assert main(["meta", "as-of", str(tmp_path), "--offset", "3"]) == 2
    assert "neither the start of the log nor an earlier snapshot" in capsys.readouterr().err


def test_trimmed_history_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`as-of` answered with the state before the gap."""
    folder, table = log_folder(tmp_path / "data"), tmp_path / "table"
    with (folder / f"{0:020}.log").open("ab") as out:
        out.write(batch(8, *SECOND))
    run(capsys, "archive", tmp_path / "data", "--table", table)
    (folder / f"{0:020}.log").unlink()
    snapshot, late = folder / f"{20:020}-{3:010}.checkpoint", NOW + 19_000
    snapshot.write_bytes(snapshot_header_batch(3, late, late) + batch(19, *FIRST) + snapshot_footer_batch(27, 3, late))
    (folder / f"{20:020}.log").write_bytes(batch(20, *SECOND))
    done = run(capsys, "archive", tmp_path / "data", "--table", table)
    assert (done["offset"], done["gaps"]) == (21, [[10, 19]])
    assert main(["meta", "archive", str(tmp_path / "data"), "--table", str(table)]) == 0
    assert "the changes from offset 10 to 19 were trimmed before they were archived" in capsys.readouterr().err
    for offset, known in ((9, True), (10, False), (18, False), (19, True), (21, True)):
        assert (main(["meta", "as-of", str(table), "--offset", str(offset)]) == 0) is known, offset
    assert "The state is known up to offset 9 and again from 19 on" in capsys.readouterr().err
    assert main(["meta", "as-of", str(table), "--time", str(NOW + 7999)]) == 0
    assert main(["meta", "as-of", str(table), "--time", str(NOW + 15_000)]) == 2
    assert main(["meta", "as-of", str(table), "--time", str(NOW + 21_000)]) == 0


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_tasks_archive_the_same_as_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    folder = log_folder(tmp_path / "data")
    (folder / f"{8:020}.log").write_bytes(batch(8, *SECOND))

    def both() -> list[Done]:
        done, states = [], []
        for name, engine in (("tasks", InlineEngine), ("alone", None)):
            spec = ArchiveSpec(paths=(str(folder),), format=kind, path=str(tmp_path / name))
            done.append(replace(archive(spec, engine=engine), seconds=0, files=0))
            state = state_at(archived(spec))
            states.append((state.offset, state.epoch, state.small, state.partitions.to_pylist()))
            rows = pa.Table.from_batches(list(archived(spec))).to_pylist()
            assert [row["offset"] for row in rows] == list(range(done[-1].offset + 1))
            assert "hunter2" not in json.dumps(rows, default=str)
        assert states[0] == states[1]
        assert list((tmp_path / "tasks" / "changes" / "_state").iterdir()) == []
        return done

    monkeypatch.setattr(run_module, "SPREAD_BYTES", 1)
    assert both() == [Done(10, 9, 3, 1, 2, 0, 0)] * 2
    (folder / f"{10:020}.log").write_bytes(batch(10, stored.NoOpRecord(), *SECOND[:1]))
    assert both() == [Done(2, 11, 3, 1, 2, 0, 0)] * 2


def test_report_and_plan_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = log_folder(tmp_path)
    with (folder / f"{0:020}.log").open("ab") as out:
        out.write(batch(8, *SECOND))
    assert main(["meta", "report", str(folder), "--check"]) == 1
    assert "3 partitions, 1 offline, 1 under-replicated" in capsys.readouterr().out
    plan = tmp_path / "plan.json"
    assert main(["meta", "plan", str(folder), "--out", str(plan), "--brokers", "2"]) == 0
    assert "replicas max" in capsys.readouterr().out
    moved = [{"topic": "t", "partition": number, "replicas": [2]} for number in (0, 1)]
    assert json.loads(plan.read_text()) == {"version": 1, "partitions": moved}
    reported = run(capsys, "plan", folder, "--compare", plan)
    assert (reported["scores"]["plan"]["moved_replicas"], reported["scores"]["other"]["moved_replicas"]) == (0, 2)
    assert main(["meta", "report", str(folder)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    at = next(number for number, line in enumerate(lines) if line[:1] == ["broker"])
    assert lines[at][-5:] == ["bytes", "flaps", "fenced", "for,", "s"]
    assert lines[at].count("flaps") == 1
    assert "unknown" in lines[at + 1], "of bytes nothing is known"
    file = tmp_path / "sizes.json"
    sizes = [{"partition": "t-0", "size": 2048, "offsetLag": 0, "isFuture": False}]
    file.write_text(json.dumps({"version": 1, "brokers": [{"broker": 1, "logDirs": [{"partitions": sizes}]}]}) + "\n")
    found = run(capsys, "report", folder, "--sizes-file", file)["skew"]["brokers"]
    assert [one["bytes"] for one in found] == [2048, 0]
    assert [one["bytes"] for one in run(capsys, "report", folder)["skew"]["brokers"]] == [None, None]
    plan.write_text("no JSON")
    for arguments, message in [
        (["--topic", "absent"], "topic absent does not exist"),
        (["--compare", str(plan)], "plan.json has no reassignment in JSON"),
    ]:
        assert main(["meta", "plan", str(folder), *arguments]) == 2
        assert message in capsys.readouterr().err
    for word in ("7", "x", ""):
        assert main(["meta", "plan", str(folder), "--brokers", f"2,{word}"]) == 2
        assert f"--brokers: {word!r} is not a registered broker" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["as-of"], "give one of: files or a directory"),
        (["as-of", "{tmp}"], "holds no segment and no snapshot"),
        (["as-of", "{tmp}/absent"], "is not a file"),
        (["as-of", "{tmp}", "--time", "soon"], "'soon' is neither ISO 8601"),
        (["archive", "{tmp}"], "give the path of the archive with --table"),
        (["archive", "-f", "{tmp}/absent.yaml"], "No such file"),
        (["archive", "-f", "{tmp}/absent.yaml", "--command-config", "x"], "has spec.security.propertiesFile"),
        (["report", "{tmp}", "--command-config", "x"], "--command-config has no effect here"),
    ],
)
def test_impossible_commands_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["meta", *(a.format(tmp=tmp_path) for a in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_the_resource_is_read_strictly() -> None:
    def read(**spec: Any) -> ArchiveSpec:
        return parse(
            {"apiVersion": API_VERSION, "kind": "KafkaMetadataArchive", "metadata": {"name": "a"}, "spec": spec}
        )

    table = {"path": "/t"}
    found = read(bootstrapControllers="c:1", table=table, clusterRef="prod", schedule="@hourly")
    assert found == ArchiveSpec(controllers="c:1", path="/t")
    for spec, message in [
        ({"table": table}, r"spec: give one of directory, bootstrapControllers, bootstrapServers"),
        ({"table": table, "clusterRef": "prod"}, r"spec\.clusterRef: only the operator"),
        ({"table": table, "directory": "/d", "bootstrapServers": "b:1"}, r"spec: give one of"),
        ({"directory": "/d"}, r"spec\.table\.path: is missing"),
        (
            {"directory": "/d", "table": {**table, "format": "csv"}},
            r"spec\.table\.format: 'csv' is not one of parquet",
        ),
        ({"directory": "/d", "table": table, "tabel": 1}, r"spec\.tabel: unknown field"),
    ]:
        with pytest.raises(SpecError, match=message):
            read(**spec)
