"""One node with disks that fill up, disappear or lose data: its clients and its log show the effects."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.targets import Ours, Target

CLIENT = "Disks under rough treatment"
pytestmark = pytest.mark.xdist_group("rough-disk")

MakeNode = Callable[..., Ours]
MIB = 1 << 20


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes nodes; nodes that still run at the end are stopped."""
    made: list[Ours] = []

    def make(folder: str = "node", overrides: dict[str, str] | None = None) -> Ours:
        kind = SeveralDirectories if overrides and "metadata.log.dir" in overrides else Ours
        node = kind(folder, tmp_path / folder, overrides or {})
        made.append(node)
        return node

    yield make
    for node in made:
        node.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes folders, each with its own file system of 6 MiB."""
    mounted: list[Path] = []

    def make(name: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={6 * MIB}", "none", str(path)], capture_output=True, check=False
        )
        if done.returncode != 0:
            pytest.skip("this user may not mount file systems")
        mounted.append(path)
        return path

    yield make
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=False)


class SeveralDirectories(Ours):
    """A node that its test formats: if `log.dirs` names several directories, `data` is not the only one."""

    def format(self) -> None:
        pass


def fill(disk: Path) -> None:
    """Fill the disk to the last byte."""
    with (disk / "ballast").open("wb", buffering=0) as file:
        for size in (64 << 10, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def admin_of(node: Target) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


def create(node: Target, name: str, partitions: int = 1, **config: str) -> None:
    wanted = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin = admin_of(node)
    admin.create_topics([wanted])[name].result(10)


def send(node: Target, topic: str, partition: int, values: list[bytes], timeout_ms: int = 10_000) -> list[object]:
    """Produce; returns the errors."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": timeout_ms, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, callback=lambda e, _: errors.append(e) if e else None)
        producer.poll(0)
    producer.flush(timeout_ms / 1000 + 5)
    return errors


def read(node: Target, topic: str, partition: int, count: int) -> list[bytes]:
    """Values from the partition's first offset on."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        found += [m.value() or b"" for m in consumer.consume(500, 0.2) if m.error() is None]
    consumer.close()
    return found


def bounds(node: Target, topic: str) -> tuple[int, int]:
    """First offset and end of partition 0."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "r"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return low, high


def until(check: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def refusal(node: Ours) -> str:
    done = subprocess.run(
        node._command("server", str(node.properties())), capture_output=True, timeout=30, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout.splitlines()[-1] if done.stdout else done.stderr


def format_both(node: Ours) -> None:
    storage = node._command("storage", "format", "-t", "kraftclusterTests00000", "-c", str(node.properties()))
    subprocess.run(storage, check=True, capture_output=True)


def test_a_full_directory_takes_its_own_partitions_offline(
    make_node: MakeNode, small_disk: Callable[[str], Path], tmp_path: Path
) -> None:
    sick, sound = small_disk("sick"), tmp_path / "sound"
    node = make_node(overrides={"log.dirs": f"{sound},{sick}", "metadata.log.dir": str(sound)})
    format_both(node)
    node.start()
    create(node, "t", 4)
    for partition in range(4):
        assert send(node, "t", partition, [b"before"]) == []
    where = {p: ("sick" if (sick / f"t-{p}").exists() else "sound") for p in range(4)}
    assert set(where.values()) == {"sick", "sound"}
    fill(sick)
    for partition, place in where.items():
        if place == "sick":
            errors = send(node, "t", partition, [bytes(200_000)] * 2, timeout_ms=4_000)
            assert errors
    for partition, place in where.items():
        if place == "sound":
            assert send(node, "t", partition, [b"after"]) == []
            assert read(node, "t", partition, 2) == [b"before", b"after"]
    leaders = {p.id: p.leader for p in admin_of(node).list_topics("t", timeout=10).topics["t"].partitions.values()}
    assert {p for p, leader in leaders.items() if leader < 0} == {p for p, place in where.items() if place == "sick"}
    failed = [line for line in node.log.read_text().splitlines() if "log directory failed" in line]
    assert len(failed) == 1
    assert str(sick) in failed[0]
    assert "Traceback" not in node.log.read_text()
    assert node.stop() == 0
    (sick / "ballast").unlink()
    node.start()
    for partition in range(4):
        assert read(node, "t", partition, 1)[:1] == [b"before"]


def test_a_node_without_any_directory_left_ends(
    make_node: MakeNode, small_disk: Callable[[str], Path], tmp_path: Path
) -> None:
    sick, metadata = small_disk("sick"), tmp_path / "metadata"
    node = make_node(overrides={"log.dirs": str(sick), "metadata.log.dir": str(metadata)})
    format_both(node)
    node.start()
    create(node, "t")
    fill(sick)
    send(node, "t", 0, [bytes(200_000)] * 2, timeout_ms=3_000)
    assert node.process is not None
    assert node.process.wait(20) == 1
    last = node.log.read_text().splitlines()[-1]
    assert str(sick) in last
    assert "No space left" in last


def test_a_full_disk_refuses_the_start_with_the_reason(make_node: MakeNode, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("disk")
    node = make_node(overrides={"log.dirs": str(disk)})
    node.format()
    fill(disk)
    printed = refusal(node)
    assert str(disk) in printed
    assert "No space left" in printed


def test_a_read_only_disk_refuses_the_start_with_the_reason(
    make_node: MakeNode, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("disk")
    node = make_node(overrides={"log.dirs": str(disk)})
    node.format()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    printed = refusal(node)
    assert str(disk) in printed
    assert "Read-only" in printed


def test_torn_tails_and_missing_indexes_are_mended_after_a_kill(make_node: MakeNode) -> None:
    node = make_node().start()
    create(node, "t", 2, segment_bytes=str(MIB))
    values = [bytes([n % 256]) * 10_000 for n in range(300)]
    assert send(node, "t", 0, values) == []
    assert send(node, "t", 1, [b"x", b"y"]) == []
    node.kill()
    folder = node.data / "t-0"
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 1
    with segments[-1].open("ab") as file:
        file.write(b"torn" * 100)
    for index in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        index.unlink()
    (node.data / "t-1/00000000000000000000.index").write_bytes(b"\xff" * 16)
    node.start()
    assert read(node, "t", 0, 300) == values
    assert read(node, "t", 1, 2) == [b"x", b"y"]
    cut = [line for line in node.log.read_text().splitlines() if "t-0" in line and segments[-1].name in line]
    assert len(cut) == 1
    assert node.stop() == 0
    assert {path.with_suffix(".index") for path in segments} <= set(folder.glob("*.index"))


def test_clients_see_retention_rolling_and_deletion(make_node: MakeNode) -> None:
    node = make_node(
        overrides={
            "log.retention.check.interval.ms": "200",
            "log.initial.task.delay.ms": "100",
            "log.segment.delete.delay.ms": "500",
        }
    ).start()
    create(node, "sized", segment_bytes=str(MIB), retention_bytes=str(2 * MIB), file_delete_delay_ms="300")
    assert send(node, "sized", 0, [bytes(10_000)] * 600) == []
    until(lambda: 10_000 * (600 - bounds(node, "sized")[0]) < 4 * MIB, "no retention by size")
    low, high = bounds(node, "sized")
    assert high == 600
    assert (high - low) * 10_000 > 2 * MIB
    until(lambda: not list((node.data / "sized-0").glob("*.deleted")), "deleted segments stay")

    create(node, "timed", segment_ms="300", retention_ms="1500")
    assert send(node, "timed", 0, [b"old"]) == []
    time.sleep(0.5)
    assert send(node, "timed", 0, [b"rolls"]) == []
    assert len(list((node.data / "timed-0").glob("*.log*"))) == 2  # the first may be *.log.deleted already
    until(lambda: bounds(node, "timed") == (2, 2), "no retention by time")

    create(node, "indexed", segment_index_bytes="24", index_interval_bytes="0")
    assert send(node, "indexed", 0, [b"one"]) == []
    for _ in range(8):
        assert send(node, "indexed", 0, [b"more"]) == []
    assert len(list((node.data / "indexed-0").glob("*.log"))) > 2

    create(node, "gone", file_delete_delay_ms="5000")
    assert send(node, "gone", 0, [b"x"]) == []
    admin = admin_of(node)
    admin.delete_topics(["gone"])["gone"].result(10)
    until(lambda: list(node.data.glob("gone-0.*-delete")), "no -delete directory")
    assert not (node.data / "gone-0").exists()
    until(lambda: not list(node.data.glob("gone-0.*")), "the -delete directory stays")
    with pytest.raises(KafkaException):
        bounds(node, "gone")
    assert node.stop() == 0
