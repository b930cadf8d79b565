"""The archive of the metadata log against both servers: its content equals that of Kafka's tools and clients."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kraft_node.metadata.log_batches import data_batch
from kraft_node.metadata.records import encode_record
from kraft_pipeline.archive import changes, files, plan
from kraft_pipeline.archive.run import MetadataSource, archive, archived, state_at
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_protocol.wire import stored
from tests.compat.members import Members, wait_for
from tests.compat.targets import Target
from tests.compat.tools import run_tool

CLIENT = "KafkaMetadataArchive"
BOTH_EVERY_DAY = True
XDIST_GROUP = "spark"  # with the many tests of the other clients
pytestmark = pytest.mark.timeout(600)
LINE = re.compile(r"^\| offset: (\d+) CreateTime: (\d+) .*? payload: (\{.*\})$", re.MULTILINE)


@pytest.fixture
def admin(cluster: Target) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, name: str, partitions: int, **config: str) -> None:
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        future.result(60)


def described(admin: AdminClient, topics: list[str]) -> dict[tuple[str, int], Any]:
    """Leader, replicas and ISR of partitions, as clients receive them."""
    there = admin.list_topics(timeout=60).topics
    return {
        (name, number): (part.leader, part.replicas, part.isrs)
        for name in topics
        for number, part in there[name].partitions.items()
    }


def of_state(rows: pa.Table) -> dict[tuple[str, int], Any]:
    return {(r["topic"], r["partition"]): (r["leader"], r["replicas"], r["isr"]) for r in rows.to_pylist()}


def as_dumped(row: dict[str, Any]) -> dict[str, Any]:
    """A row in kafka-dump-log's form."""
    if row["fields"] is not None:
        return {"type": row["type"], "version": row["version"], "data": json.loads(row["fields"])}
    names = {column: name for name, column in {**changes.NUMBERS, **changes.LISTS, "topicId": "topic_id"}.items()}
    data = {name: row[column] for column, name in names.items() if row[column] is not None}
    if row["type"] == "PARTITION_RECORD" and data["leaderRecoveryState"] == 0:
        del data["leaderRecoveryState"]  # at its default it is not written
    return {"type": row["type"], "version": row["version"], "data": data}


def test_changes_equal_the_output_of_kafka_dump_log(
    cluster: Target, admin: AdminClient, name: str, tmp_path: Path
) -> None:
    create(admin, name, 3, **{"retention.ms": "60000"})
    for future in admin.create_partitions([NewPartitions(name, 5)]).values():
        future.result(60)
    folder = tmp_path / files.FOLDER
    shutil.copytree(cluster.data / files.FOLDER, folder)
    (log,) = folder.glob("*.log")
    text = run_tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log)).text
    dumped = [(int(offset), int(when), json.loads(payload)) for offset, when, payload in LINE.findall(text)]
    rows = pa.Table.from_batches(list(files.read(files.Piece(str(log), 0, files.END)))).to_pylist()
    mine = [
        (row["offset"], int(row["timestamp"].timestamp() * 1000 + 0.5), as_dumped(row))
        for row in rows
        if row["type"].endswith("_RECORD")
    ]
    assert len(dumped) > 10
    assert mine == dumped
    assert {row["type"] for row in rows} >= {"PARTITION_RECORD", "REGISTER_BROKER_RECORD", "LEADER_CHANGE"}


@pytest.mark.parametrize(
    ("server", "kind"), [("kraftcluster", "parquet"), ("kraftcluster", "delta"), ("apache", "parquet")]
)
def test_the_archive_follows_the_controllers_and_keeps_history(
    make_target: Callable[..., Target], name: str, server: str, kind: str, tmp_path: Path
) -> None:
    cluster = make_target(server).start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    short, first, second = f"{name[:60]}-{kind}", f"{name[:60]}-{kind}-a", f"{name[:60]}-{kind}-b"
    spec = ArchiveSpec(brokers=cluster.bootstrap, format=kind, path=str(tmp_path / "archive"))
    create(admin, first, 3, **{"retention.ms": "60000"})
    wait_for("the topic", lambda: first in admin.list_topics(timeout=60).topics)
    then = archive(spec)
    before = described(admin, [first])
    create(admin, second, 2)
    for future in admin.create_partitions([NewPartitions(first, 4)]).values():
        future.result(60)
    entry = ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, second, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    address = f"127.0.0.1:{cluster.controller_port}"
    controllers = ArchiveSpec(controllers=address, format=kind, path=str(tmp_path / "archive"))
    now = archive(controllers)
    assert 0 < then.offset < now.offset
    state = state_at(archived(spec))
    wait_for("the topics", lambda: second in admin.list_topics(timeout=60).topics)
    wait_for("the partitions", lambda: len(described(admin, [first])) == 4)
    reported = {key: row for key, row in of_state(state.partitions).items() if key[0].startswith(short)}
    assert reported == described(admin, [first, second])
    assert state.small.configs[2, first] == {"retention.ms": "60000"}
    assert state.small.configs[2, second] == {"segment.bytes": "2000000"}
    assert [(b["brokerId"], b["fenced"]) for b in state.small.brokers.values()] == [(1, False)]
    old = state_at(archived(spec), offset=then.offset)
    assert {key: row for key, row in of_state(old.partitions).items() if key[0].startswith(short)} == before
    if kind == "parquet":
        table = pq.read_table(tmp_path / "archive" / "partitions")
        assert of_state(table) == of_state(state.partitions)
    for future in admin.delete_topics([first]).values():
        future.result(60)
    archive(controllers)
    assert first not in state_at(archived(spec)).small.topics.values()


@pytest.mark.parametrize("server", ["kraftcluster", pytest.param("apache", marks=pytest.mark.slow)])
def test_the_archive_finds_where_the_log_was_truncated(
    make_target: Callable[..., Target], name: str, server: str, tmp_path: Path
) -> None:
    """The end of a directory's log was archived, another epoch wrote other records there; then a reader asks for it."""
    cluster = make_target(server).start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, name, 3)
    wait_for("the topic", lambda: name in admin.list_topics(timeout=60).topics)
    cluster.stop()
    copy = tmp_path / "copy"
    shutil.copytree(cluster.data / files.FOLDER, copy / files.FOLDER)
    shutil.copy(cluster.data / "meta.properties", copy)
    path = str(tmp_path / "archive")
    (log,) = (copy / files.FOLDER).glob("*.log")
    found = files.spans([copy])[-1]
    records = [encode_record(stored.NoOpRecord(), 0)] * 5
    log.write_bytes(log.read_bytes() + data_batch(records, found.last + 1, found.epoch, 0))
    assert archive(ArchiveSpec(paths=(str(copy),), path=path)).offset == found.last + 5
    cluster.start()
    create(admin, f"{name[:60]}-after", 2)
    done = archive(ArchiveSpec(controllers=f"127.0.0.1:{cluster.controller_port}", path=path))
    assert done.cut == found.last + 1
    rows = pa.Table.from_batches(list(archived(ArchiveSpec(path=path))))
    assert rows.column("offset").to_pylist() == list(range(done.offset + 1))
    assert rows.column("epoch")[found.last + 1].as_py() > found.epoch
    assert f"{name[:60]}-after" in state_at(archived(ArchiveSpec(path=path))).small.topics.values()


def test_kafka_carries_out_a_plan_that_moves_less_than_its_own(tmp_path: Path) -> None:
    members = Members(tmp_path, ("kraftcluster",), ("kraftcluster",) * 4)
    try:
        members.start(1, 101, 102, 103)
        for number in range(3):
            members.create(f"topic-{number}", partitions=8, replicas=2)
        members.start(104)
        spec = ArchiveSpec(controllers=members.bootstrap_controllers)
        wait_for("four brokers", lambda: len(plan.racks_of(state_at(MetadataSource(spec).rows()))) == 4)
        state = state_at(MetadataSource(spec).rows())
        before, racks = plan.of_state(state), plan.racks_of(state)
        after = plan.plan(before, racks)
        ours = plan.score(before, after, racks, {})

        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        address = ("--bootstrap-server", members.bootstrap)
        wanted = tmp_path / "topics.json"
        topics = [{"topic": f"topic-{number}"} for number in range(3)]
        wanted.write_text(json.dumps({"version": 1, "topics": topics}))
        printed = run_tool(
            tool, *address, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "101,102,103,104"
        ).out
        theirs = plan.score(before, plan.from_json(json.loads(printed.strip().splitlines()[-1])), racks, {})
        print(f"ours: {ours}\nKafka's: {theirs}")
        assert ours.moved_replicas == 12 < theirs.moved_replicas
        assert (ours.replicas_min, ours.replicas_max, ours.leaders_min, ours.leaders_max) == (12, 12, 6, 6)

        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan.to_json(after)))
        run_tool(tool, *address, "--execute", "--reassignment-json-file", str(path))

        def done() -> bool:
            now = plan.of_state(state_at(MetadataSource(spec).rows()))
            return len(now) == 24 and now == {**before, **after}

        wait_for("the reassignment", done)
    finally:
        members.stop()
