"""Deleted files free their space: a running node keeps no descriptor of an unlinked file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import AlterReplicaLogDirsRequest
from tests.compat.rough.test_rough_disk import SeveralDirectories, admin_of, create, format_both, until
from tests.compat.targets import Ours

CLIENT = "Space that deletions free"
pytestmark = pytest.mark.xdist_group("freed-space")

SMALL_SEGMENTS = {"internal_segment_bytes": "20000"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Ours]:
    """A node with two log directories that checks its logs every 200 ms."""
    paths = [tmp_path / "a", tmp_path / "b"]
    made = SeveralDirectories(
        "node",
        tmp_path / "node",
        {
            "log.dirs": ",".join(map(str, paths)),
            "metadata.log.dir": str(paths[0]),
            "log.initial.task.delay.ms": "0",
            "log.retention.check.interval.ms": "200",
            "log.cleaner.backoff.ms": "200",
            "log.segment.delete.delay.ms": "0",
        },
    )
    format_both(made)
    made.start()
    yield made
    made.kill()


def unlinked(node: Ours) -> list[str]:
    """Deleted log files that the node still holds open."""
    assert node.process is not None
    held = []
    for fd in os.listdir(f"/proc/{node.process.pid}/fd"):
        try:
            target = os.readlink(f"/proc/{node.process.pid}/fd/{fd}")
        except OSError:  # closed meanwhile
            continue
        if target.endswith(" (deleted)") and ("/t-" in target or ".deleted" in target):
            held.append(target)
    return held


def fill(node: Ours, key: Callable[[int], bytes] | None = None, count: int = 60) -> None:
    """Fill some dozen segments of topic t that only the node has read."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "batch.size": 10_000})
    for number in range(count):
        producer.produce("t", bytes(9_000), key=key(number) if key else None, partition=0)
        producer.flush(10)


def data(node: Ours) -> list[Path]:
    """The segment files of topic t, in any folder and under any name."""
    folders = Path(node.properties().parent).parent
    return sorted(folders.glob("[ab]/t-*/*.log*"))


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def frees_all(node: Ours) -> None:
    until(lambda: not unlinked(node), f"descriptors to be closed: {unlinked(node)}", 5)


def test_retention_closes_deleted_segments(node: Ours) -> None:
    create(node, "t", **SMALL_SEGMENTS, retention_bytes="30000")
    fill(node)
    until(lambda: len(data(node)) <= 4, "retention")
    frees_all(node)


def test_delete_records_closes_deleted_segments(node: Ours) -> None:
    create(node, "t", **SMALL_SEGMENTS)
    fill(node)
    admin, up_to = admin_of(node), TopicPartition("t", 0, 59)
    admin.delete_records([up_to])[up_to].result(10)
    until(lambda: len(data(node)) <= 4, "the records to go")
    frees_all(node)


def test_compaction_closes_replaced_segments(node: Ours) -> None:
    create(node, "t", **SMALL_SEGMENTS, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    fill(node, key=lambda number: b"%d" % (number % 2))
    until(lambda: sum(size_of(path) for path in data(node)) < 60_000, "compaction")
    frees_all(node)


def test_deleting_a_topic_closes_its_segments(node: Ours) -> None:
    create(node, "t", **SMALL_SEGMENTS, retention_bytes="200000")
    fill(node)
    admin = admin_of(node)
    admin.delete_topics(["t"])["t"].result(10)
    until(lambda: not data(node), "the files to go")
    frees_all(node)


def test_a_move_closes_the_segments_in_the_former_directory(node: Ours, tmp_path: Path) -> None:
    create(node, "t", **SMALL_SEGMENTS)
    fill(node)
    before = next(path for path in (tmp_path / "a", tmp_path / "b") if (path / "t-0").is_dir())
    after = tmp_path / ("b" if before.name == "a" else "a")
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t", [0])
    wanted = AlterReplicaLogDirsRequest([AlterReplicaLogDirsRequest.AlterReplicaLogDir(str(after), [topic])])
    with NodeClient("127.0.0.1", node.port, 10) as client:
        answer = client.request(ApiKey.ALTER_REPLICA_LOG_DIRS, wanted)
    assert answer.results[0].partitions[0].error_code == 0
    until(lambda: (after / "t-0").is_dir() and not list(before.glob("t-0*")), "the move")
    frees_all(node)
