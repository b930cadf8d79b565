"""Refused starts, and starts after a crash or a bad disk: one node, seen from outside."""

from __future__ import annotations

import ctypes
import http.client
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kraft_node.runtime.cpu_slice import ATTRIBUTES, CALLS, SIZE, SLICE_NS
from tests.compat.members import Members, wait_for
from tests.compat.rough.test_rough_disk import SeveralDirectories, admin_of, bounds, create, format_both, read, send
from tests.compat.targets import CLUSTER_ID, Ours, free_ports

CLIENT = "Starts"
pytestmark = pytest.mark.xdist_group("rough-start")

MIB = 1 << 20
LONG_S = 60
OTHER_CLUSTER = "anotherCluster0000000A"
META = "meta.properties"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SeveralDirectories]:
    """A formatted node over the directories d1 and d2, with the metadata in d1."""
    paths = [tmp_path / "d1", tmp_path / "d2"]
    overrides = {
        "log.dirs": ",".join(map(str, paths)),
        "metadata.log.dir": str(paths[0]),
        "log.flush.offset.checkpoint.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
    }
    made = SeveralDirectories("node", tmp_path / "node", overrides)
    format_both(made)
    yield made
    made.kill()


def start_refused(node: Ours, *options: str) -> str:
    """The last line of a start that fails with exit code 1."""
    done = subprocess.run(
        [*node._command("server", str(node.properties())), *options],
        capture_output=True, timeout=LONG_S, text=True, check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    assert "Traceback" not in printed
    return printed.strip().splitlines()[-1]


# --- refusals ---


def edit(name: str, change: Callable[[str], str]) -> Callable[[SeveralDirectories], None]:
    def work(node: SeveralDirectories) -> None:
        path = Path(node.overrides["log.dirs"].split(",")[int(name[1]) - 1]) / META
        path.write_text(change(path.read_text()))

    return work


def wipe(name: str) -> Callable[[SeveralDirectories], None]:
    return lambda node: shutil.rmtree(node.folder.parent / name)


def empty(name: str) -> Callable[[SeveralDirectories], None]:
    return lambda node: (node.folder.parent / name / META).unlink()


def replaced(key: str, value: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"^{re.escape(key)}=.*$", f"{key}={value}", text, flags=re.MULTILINE)


def without(key: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"^{re.escape(key)}=.*\n", "", text, flags=re.MULTILINE)


def same_id(node: SeveralDirectories) -> None:
    shutil.copy(node.folder.parent / "d1" / META, node.folder.parent / "d2" / META)


def setting(**values: str) -> Callable[[SeveralDirectories], None]:
    return lambda node: node.overrides.update({key.replace("__", "."): value for key, value in values.items()})


REFUSALS: dict[str, tuple[Callable[[SeveralDirectories], None], tuple[str, ...]]] = {
    "no directory": (wipe("d2"), ("/d2", "does not exist", "kafka-storage format")),
    "no metadata directory": (wipe("d1"), ("/d1", "does not exist")),
    "not formatted": (empty("d2"), ("/d2", "not formatted", META)),
    "metadata directory not formatted": (empty("d1"), ("/d1", "not formatted", META)),
    "another cluster": (edit("d2", replaced("cluster.id", OTHER_CLUSTER)), ("/d2", OTHER_CLUSTER, CLUSTER_ID)),
    "another node": (edit("d2", replaced("node.id", "7")), ("/d2", "node 7", "node 1")),
    "the same id twice": (same_id, ("/d1", "/d2", "directory.id")),
    "no cluster id": (edit("d2", without("cluster.id")), ("/d2", META, "cluster.id")),
    "no node id": (edit("d1", without("node.id")), ("/d1", META, "node.id")),
    "a node id that is none": (edit("d1", replaced("node.id", "one")), ("/d1", META, "node.id", "one")),
    "a directory id that is none": (edit("d2", replaced("directory.id", "!")), ("/d2", META, "directory.id", "!")),
    "an unknown version": (edit("d2", replaced("version", "9")), ("/d2", META, "version 9")),
    "no text": (
        lambda node: (node.folder.parent / "d2" / META).write_bytes(b"\xff\xfe\x00"), ("/d2", META)
    ),
    "node.id missing": (setting(node__id=""), ("node.id",)),
    "node.id negative": (setting(node__id="-5"), ("node.id", "-5")),
    "a number that is none": (setting(num__partitions="many"), ("num.partitions", "many", "INT")),
    "a number out of range": (setting(num__partitions="0"), ("num.partitions", "0", "at least 1")),
    "a boolean that is none": (setting(auto__create__topics__enable="yes"), ("auto.create.topics.enable", "yes")),
    "a word that is none of the list": (setting(log__cleanup__policy="shred"), ("log.cleanup.policy", "shred")),
    "a role that is none": (setting(process__roles="broker,king"), ("process.roles", "king")),
    "a voter that is none": (setting(controller__quorum__voters="1-here"), ("controller.quorum.voters", "1-here")),
    "not among the voters": (setting(node__id="3"), ("3", "controller.quorum.voters")),
    "a listener that is none": (setting(listeners="nowhere"), ("nowhere", "no colon")),
    "a delay that is none": (setting(stray__log__delete__delay__ms="soon"), ("stray.log.delete.delay.ms", "soon")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_impossible_starts_are_refused(node: SeveralDirectories, name: str) -> None:
    spoil, words = REFUSALS[name]
    spoil(node)
    printed = start_refused(node)
    assert [word for word in words if word not in printed] == [], printed


def test_two_nodes_cannot_use_the_same_directory(node: SeveralDirectories) -> None:
    node.start()
    printed = start_refused(node)
    assert "/d1" in printed
    assert "another process" in printed


def test_a_port_that_is_taken_is_named(node: SeveralDirectories, tmp_path: Path) -> None:
    node.start()
    other = SeveralDirectories("other", tmp_path / "other", dict(node.overrides), node.port, free_ports(1)[0])
    other.overrides |= {"log.dirs": str(tmp_path / "o1"), "metadata.log.dir": str(tmp_path / "o1")}
    format_both(other)
    printed = start_refused(other)
    assert str(node.port) in printed


def test_unknown_keys_warn_once_each(node: SeveralDirectories) -> None:
    node.overrides |= {"bogus.key": "1", "other.bogus": "2"}
    node.start()
    assert node.stop() == 0
    lines = [line for line in node.log.read_text().splitlines() if "bogus" in line]
    assert [("WARN" in line, line.count("bogus")) for line in lines] == [(True, 1)] * 2


# --- damage in durable data ---


def damage_last_flushed(path: Path) -> int:
    """Change a byte in the middle of the log in `path`; returns the offset of the damaged batch."""
    (file,) = path.glob("*.log")
    data = bytearray(file.read_bytes())
    position, batches = 0, []
    while position < len(data):
        batches.append(position)
        position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    middle = batches[len(batches) // 2]
    data[middle + 70] ^= 1
    file.write_bytes(data)
    return int.from_bytes(data[middle : middle + 8], "big")


def flushed_log(node: SeveralDirectories, partitions: int) -> list[Path]:
    """Topic `t`, each partition with ten durable records, on a killed node; returns the partitions' directories."""
    create(node, "t", partitions, flush_messages="1")
    for partition in range(partitions):
        for _ in range(10):
            assert send(node, "t", partition, [b"durable"]) == []
    roots = [Path(path) for path in node.overrides["log.dirs"].split(",")]
    wanted = {f"t {number} 10" for number in range(partitions)}
    wait_for("the checkpoints", lambda: is_checkpointed(roots, wanted), LONG_S)
    node.kill()
    return [path for number in range(partitions) for root in roots for path in root.glob(f"t-{number}")]


def is_checkpointed(roots: list[Path], wanted: set[str]) -> bool:
    """Whether both checkpoints have these lines about topic `t`.

    The node writes one checkpoint after the other. After a kill only what both name is durable.
    """
    names = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
    return all(checkpointed(roots, name) == wanted for name in names)


def checkpointed(roots: list[Path], name: str) -> set[str]:
    """The lines about topic `t` in the checkpoint files of that name."""
    files = [root / name for root in roots]
    return {line for file in files if file.exists() for line in file.read_text().splitlines() if line.startswith("t ")}


def test_damage_in_durable_data_costs_its_replica_and_no_other(node: SeveralDirectories) -> None:
    paths = flushed_log(node.start(), 4)  # type: ignore[arg-type]
    assert len({path.parent for path in paths}) == 2
    sick = next(path for path in paths if path.parent.name == "d2")
    offset = damage_last_flushed(sick)
    node.start()
    reported = f"{sick}/00000000000000000000.log is damaged at offset {offset}"
    wait_for("the reason", lambda: reported in node.log.read_text(), LONG_S)
    for number, path in enumerate(paths):
        if path != sick:
            assert send(node, "t", number, [b"more"]) == []
            assert read(node, "t", number, 11) == [b"durable"] * 10 + [b"more"]
    lost = {paths.index(sick)}

    def leaderless() -> set[int]:
        topic = admin_of(node).list_topics("t", timeout=10).topics["t"]
        return {number for number, partition in topic.partitions.items() if partition.leader < 0}

    wait_for("the controller to know", lambda: leaderless() == lost, LONG_S)
    assert node.stop() == 0
    assert (sick / "00000000000000000000.log").stat().st_size > 0


def test_damage_in_the_only_directory_does_not_end_the_node(tmp_path: Path) -> None:
    overrides = {
        "log.dirs": str(tmp_path / "d2"),
        "metadata.log.dir": str(tmp_path / "d1"),
        "log.flush.offset.checkpoint.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
    }
    node = SeveralDirectories("node", tmp_path / "node", overrides)
    format_both(node)
    (path,) = flushed_log(node.start(), 1)  # type: ignore[arg-type]
    offset = damage_last_flushed(path)
    node.start()
    reported = f"{path}/00000000000000000000.log is damaged at offset {offset}"
    wait_for("the reason", lambda: reported in node.log.read_text(), LONG_S)
    create(node, "u")
    assert send(node, "u", 0, [b"more"]) == []
    assert read(node, "u", 0, 1) == [b"more"]
    assert node.stop() == 0


# --- what the system is asked for ---


def test_the_loop_of_a_node_has_short_slices(node: SeveralDirectories) -> None:
    """Beside two busy processes on two cores the loop waited 0.16 ms for a processor, and waits 0.02 ms with them."""
    number = CALLS.get(platform.machine())
    if number is None:
        pytest.skip("this system has no sched_setattr")

    def slice_ns(process_id: int) -> int:
        room = ctypes.create_string_buffer(SIZE)
        assert ctypes.CDLL(None).syscall(number + 1, process_id, room, SIZE, 0) == 0
        return int(struct.unpack(ATTRIBUTES, room.raw)[5])

    if not slice_ns(0):
        pytest.skip("this kernel has no slices of threads")
    node.start()
    assert node.process is not None
    pid = node.process.pid
    wait_for("short slices", lambda: slice_ns(pid) == SLICE_NS, LONG_S)


# --- what a start reads ---


def bytes_read(node: Ours) -> int:
    """Bytes that the process read since its start, from any source (Linux)."""
    assert node.process is not None
    text = Path(f"/proc/{node.process.pid}/io").read_text()
    return int(dict(line.split(": ") for line in text.splitlines())["rchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count what a process reads")
def test_after_a_kill_only_records_past_the_recovery_point_are_read(node: SeveralDirectories) -> None:
    node.start()
    create(node, "small")
    assert send(node, "small", 0, [b"x"]) == []
    node.kill()
    node.start()
    wait_for("recovery", lambda: "all logs have been recovered" in node.log.read_text(), LONG_S)
    nothing = bytes_read(node)
    create(node, "t", flush_ms="500")
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.size": 900_000, "linger.ms": 50})
    for number in range(200 * MIB // 100_000):
        producer.produce("t", bytes([number % 256]) * 100_000)
        producer.poll(0)
    assert producer.flush(LONG_S) == 0
    end = bounds(node, "t")[1]
    roots = [Path(path) for path in node.overrides["log.dirs"].split(",")]
    wait_for("the checkpoint", lambda: is_checkpointed(roots, {f"t 0 {end}"}), LONG_S)
    node.kill()
    node.log.unlink()
    node.start()
    wait_for("recovery", lambda: "all logs have been recovered" in node.log.read_text(), LONG_S)
    assert bounds(node, "t") == (0, end)
    assert bytes_read(node) - nothing < 10 * MIB  # index entries of the last 4 MiB may be missing


# --- directories marked for deletion ---


def test_strays_are_renamed_and_removed_after_their_delay(node: SeveralDirectories) -> None:
    node.overrides["stray.log.delete.delay.ms"] = "300"
    node.start()
    create(node, "t")
    assert send(node, "t", 0, [b"x"]) == []
    assert node.stop() == 0
    (path,) = node.folder.parent.glob("d?/t-0")
    stray = path.parent / "gone-3"
    shutil.copytree(path, stray)
    marker = stray / "partition.metadata"
    marker.write_text(re.sub("topic_id: .*", "topic_id: AAAAAAAAAAAAAAAAAAAAZQ", marker.read_text()))
    node.start()
    wait_for("the warning", lambda: "stray log set aside partition=gone-3" in node.log.read_text(), LONG_S)
    wait_for("the removal", lambda: not list(path.parent.glob("gone-3*")), LONG_S)
    assert read(node, "t", 0, 1) == [b"x"]


def test_deletions_that_a_kill_interrupts_are_finished(node: SeveralDirectories) -> None:
    node.start()
    create(node, "t", file_delete_delay_ms="600000")
    assert send(node, "t", 0, [b"x"]) == []
    admin = admin_of(node)
    admin.delete_topics(["t"])["t"].result(LONG_S)
    wait_for("the renaming", lambda: list(node.folder.parent.glob("d?/t-0.*-delete")), LONG_S)
    node.kill()
    node.start()
    wait_for("the removal", lambda: not list(node.folder.parent.glob("d?/t-0*")), LONG_S)


# --- a broker without its controller ---


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_broker_without_its_controller_is_not_ready_until_it_returns(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    cluster = Members(tmp_path, controllers=["kraftcluster"], brokers=["kraftcluster"])
    cluster.nodes[101].overrides |= {"http.listener": f"127.0.0.1:{port}", "broker.session.timeout.ms": "3000"}
    cluster.nodes[1].overrides["broker.session.timeout.ms"] = "3000"
    cluster.start()
    try:
        wait_for("readiness", lambda: get(port, "/readyz") == (200, "ok\n"), LONG_S)
        cluster.nodes[1].kill()
        wait_for("the fence", lambda: get(port, "/readyz") == (503, "broker is fenced\n"), LONG_S)
        assert get(port, "/livez") == (200, "ok\n")
        cluster.start(1)
        wait_for("readiness again", lambda: get(port, "/readyz") == (200, "ok\n"), LONG_S)
    finally:
        for member in cluster.nodes.values():
            member.kill()


def test_a_daemon_runs_in_the_background_with_kafkas_log_path(node: SeveralDirectories) -> None:
    properties = str(node.properties())
    command = node._command("server", "-daemon", properties)
    environment = {**node._env(), "LOG_DIR": str(node.folder / "logs")}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=LONG_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    log = node.folder / "logs" / "kafkaServer.out"
    (pid,) = (int(p.parent.name) for p in Path("/proc").glob("[0-9]*/cmdline") if properties.encode() in commands(p))
    try:
        wait_for("the node serves", lambda: "broker serves" in log.read_text(), LONG_S)
        assert os.getsid(pid) == pid
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for("the node stops", lambda: "stopped code=0" in log.read_text(), LONG_S)


def commands(path: Path) -> bytes:
    """The arguments of a process; empty if the process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
