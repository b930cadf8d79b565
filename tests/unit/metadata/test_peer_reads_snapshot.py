"""Apache Kafka's own tools read our files: a snapshot of everything that metadata can hold."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.log_batches import encode_values, snapshot_header_batch
from kraft_node.metadata.snapshot import SnapshotCursor
from kraft_node.metadata.snapshot_writer import SnapshotWriting
from kraft_node.raft.log_view import SnapshotId
from kraft_protocol.ids import uuid_text
from kraft_protocol.wire import stored
from tests.peer import run_java, run_metadata_shell
from tests.property.metadata.naive import Stories
from tests.unit.server.quorum.raft_world import MemoryStorage, World

pytestmark = pytest.mark.peer


def snapshot_of(image: MetadataImage) -> tuple[str, bytes]:
    """File name and content of the snapshot of an image."""
    world, storage = World(), MemoryStorage()
    identity = SnapshotId(image.offset + 1, image.epoch)
    errors: list[Any] = []
    writing = SnapshotWriting(world, storage, image, identity, lambda _, error: errors.append(error))  # type: ignore[arg-type]
    writing.start()
    world.run(60_000)
    assert errors == [None]
    return f"{identity.end_offset:020d}-{identity.epoch:010d}.checkpoint", storage.files[identity]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MetadataImage]:
    stories = Stories(7)
    image = MetadataImage()
    image.replay(stored.FeatureLevelRecord(name="metadata.version", feature_level=30))
    for record in stories.records(400):
        image.replay(record)
    for topic in list(image.topics):
        for number, state in topic.partitions():
            # Kafka checks what random records ignore: an eligible leader must be a replica.
            state.isr = state.replicas
            state.elr = state.last_known_elr = ()
            image.topics.put_partition(topic.id, number, state)
    image.moved_to(499, 3, 1_700_000_000_000)
    name, data = snapshot_of(image)
    folder = tmp_path_factory.mktemp("snapshot") / "__cluster_metadata-0"
    folder.mkdir()
    path = folder / name
    path.write_bytes(data)
    return path, image


def test_dump_log_decodes_every_record(written: tuple[Path, MetadataImage]) -> None:
    path, image = written
    done = run_java("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path))
    lines = done.stdout.decode().splitlines()
    payloads = [json.loads(line.partition("payload: ")[2]) for line in lines if "payload: " in line]
    assert "SnapshotHeader" in done.stdout.decode()
    assert "SnapshotFooter" in done.stdout.decode()
    with SnapshotCursor(image) as cursor:
        ours = list(cursor)
    assert len(payloads) == len(ours)
    names = Counter(_screaming(type(record).__name__) for record in ours)
    assert Counter(payload["type"] for payload in payloads) == names
    topics = {(p["data"]["name"], p["data"]["topicId"]) for p in payloads if p["type"] == "TOPIC_RECORD"}
    assert topics == {(topic.name, uuid_text(topic.id)) for topic in image.topics}
    for payload, record in zip(payloads, ours, strict=True):
        if payload["type"] == "PARTITION_RECORD":
            data = payload["data"]
            assert data["replicas"] == record.replicas
            assert data["isr"] == record.isr
            assert (data["leader"], data["leaderEpoch"]) == (record.leader, record.leader_epoch)
            assert data["directories"] == [uuid_text(directory) for directory in record.directories]
            assert payload["version"] == 2


def test_the_metadata_shell_loads_the_snapshot(written: tuple[Path, MetadataImage]) -> None:
    path, image = written
    names = {topic.name for topic in image.topics}
    output = _shell(path, "ls", "/image/topics/byName", last=max(names))
    assert "shell fault" not in output, output
    assert names <= set(output.splitlines())
    topic = max(image.topics, key=len)
    shown = _shell(path, "cat", f"/image/topics/byName/{topic.name}/0", last="partitionEpoch")
    state = topic.partition(0)
    assert state is not None
    assert f"isr=[{', '.join(map(str, state.isr))}]" in shown
    assert f"partitionEpoch={state.partition_epoch}" in shown


def _shell(path: Path, *command: str, last: str) -> str:
    """The output of Apache's shell; it may differ before the shell has loaded the snapshot."""
    return run_metadata_shell("--snapshot", str(path), *command, is_whole=lambda text: last in text)


def test_a_snapshot_with_only_a_header_is_valid() -> None:
    """Proves that a reader's complaint about the files above is not about the first batch."""
    assert len(snapshot_header_batch(3, 5, 6)) > 61
    assert encode_values([stored.NoOpRecord()], 30) == [b"\x01\x14\x00\x00"]


def _screaming(name: str) -> str:
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).upper()
