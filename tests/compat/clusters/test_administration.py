"""Three controllers and three brokers of ours, and Apache Kafka's tools: moves, elections, racks, lost directories."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kraft_pipeline.codec import Decoder
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.fetch import Range, fetch_range
from kraft_protocol.client.requests import NO_ID
from tests.compat.members import Members, wait_for
from tests.compat.targets import Ours, free_ports
from tests.compat.tools import Done, run_tool

CLIENT = "A cluster under administration"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("administration")]

TOOLS = "org.apache.kafka.tools"
RACKS = {101: "a", 102: "a", 103: "b"}
PATIENCE_S = 90.0
LOG_FOLDER = re.compile(r"(?!__cluster_metadata).+-\d+")
"""The folder of a partition that is served, not one that is being deleted."""


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Two log directories and two fetchers a leader each; two brokers in rack a, one in rack b."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = Members(tmp_path_factory.mktemp("administration"), overrides={"replica.selector.class": selector})
    for node_id, rack in RACKS.items():
        node = cluster.nodes[node_id]
        node.overrides["broker.rack"] = rack
        node.overrides["num.replica.fetchers"] = "2"
        node.overrides["log.dirs"] = f"{node.folder / 'data'},{node.folder / 'more'}"
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(autouse=True)
def whole(members: Members) -> None:
    """All members run at the start of every test."""
    for node_id, node in members.nodes.items():
        if node.process is None:
            members.start(node_id)
    for node_id in members.broker_ids:
        wait_for("all brokers unfenced", lambda n=node_id: members.unfenced(n) == set(RACKS), PATIENCE_S)


def run(members: Members, tool: str, *args: str, check: bool = True) -> Done:
    return run_tool(f"{TOOLS}.{tool}", "--bootstrap-server", members.bootstrap, *args, check=check)


def create(members: Members, name: str, assignment: str, *configs: str) -> None:
    """Create a topic; `assignment` has the form of kafka-topics: 101:102,102:103."""
    extra = [part for config in configs for part in ("--config", config)]
    run(members, "TopicCommand", "--create", "--topic", name, "--replica-assignment", assignment, *extra)


def described(members: Members, name: str) -> list[dict[str, list[int]]]:
    """Leader, replicas and ISR of each partition, as kafka-topics prints them."""
    lines = run(members, "TopicCommand", "--describe", "--topic", name).out.splitlines()
    rows = []
    for line in lines:
        words = {key.strip(): text for key, _, text in (part.partition(":") for part in line.split("\t"))}
        if "Partition" in words:
            rows.append({key: _numbers(words[key]) for key in ("Leader", "Replicas", "Isr")})
    return rows


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word.strip().isdigit()]


def in_sync(members: Members, name: str, *brokers: int) -> bool:
    return all(sorted(row["Isr"]) == sorted(brokers) for row in described(members, name))


def led_by(members: Members, name: str, *leaders: int) -> bool:
    return [row["Leader"] for row in described(members, name)] == [[leader] for leader in leaders]


def produce(members: Members, name: str, values: list[bytes], partition: int = 0, **settings: Any) -> list[KafkaError]:
    """Produce with acks=all; returns the errors of the deliveries."""
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": members.bootstrap, "acks": "all", "linger.ms": 1, **settings})
    for value in values:
        producer.produce(name, value, partition=partition, on_delivery=lambda e, _: errors.append(e) if e else None)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return errors


def values_of(members: Members, name: str, count: int, partition: int = 0, **settings: Any) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": members.bootstrap, "group.id": "reader", **settings})
    consumer.assign([TopicPartition(name, partition, 0)])
    found: list[bytes | None] = []

    def enough() -> bool:
        found.extend(message.value() for message in consumer.consume(500, 0.2) if message.error() is None)
        return len(found) >= count

    try:
        wait_for(f"{count} records of {name}", enough, PATIENCE_S)
    finally:
        consumer.close()
    return found


def log_folder(members: Members, broker: int, name: str, partition: int = 0) -> Path | None:
    """The folder of a partition's log on a broker, in either of its directories."""
    folder = members.nodes[broker].folder
    return next((path for d in ("data", "more") if (path := folder / d / f"{name}-{partition}").is_dir()), None)


def size_of(members: Members, broker: int, name: str, partition: int = 0) -> int:
    folder = log_folder(members, broker, name, partition)
    return 0 if folder is None else sum(path.stat().st_size for path in folder.glob("*.log"))


class Reassignment:
    """kafka-reassign-partitions with one plan."""

    def __init__(self, members: Members, name: str, *replicas: list[int]) -> None:
        self.members = members
        self.plan = members.folder / f"{name}-{time.monotonic_ns()}.json"
        rows = [{"topic": name, "partition": index, "replicas": wanted} for index, wanted in enumerate(replicas)]
        self.plan.write_text(json.dumps({"version": 1, "partitions": rows}))

    def __call__(self, *args: str) -> str:
        tool = "reassign.ReassignPartitionsCommand"
        return run(self.members, tool, "--reassignment-json-file", str(self.plan), *args).text


def throttles(members: Members, name: str) -> tuple[str, str]:
    """The throttles of the topic and the brokers, as kafka-configs shows them."""
    config = "kafka.admin.ConfigCommand"
    where = ("--bootstrap-server", members.bootstrap, "--describe")
    topic = run_tool(config, *where, "--entity-type", "topics", "--entity-name", name).text
    brokers = run_tool(config, *where, "--entity-type", "brokers").text
    return tuple("\n".join(line for line in text.splitlines() if "throttled" in line) for text in (topic, brokers))  # type: ignore[return-value]


def test_a_throttled_move_keeps_to_its_rate_and_its_throttle_is_removed(members: Members) -> None:
    create(members, "moved", "101:102,102:101")
    for partition in (0, 1):
        assert produce(members, "moved", [os.urandom(50_000) for _ in range(100)], partition) == []
    move = Reassignment(members, "moved", [103, 102], [103, 101])
    rate = 1_500_000
    begun = time.monotonic()
    assert "Successfully started" in move("--execute", "--throttle", str(rate))
    of_topic, of_brokers = throttles(members, "moved")
    for key in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        assert key in of_topic
    for key in ("leader.replication.throttled.rate", "follower.replication.throttled.rate"):
        assert f"{key}={rate}" in of_brokers
    assert "still in progress" in move("--verify")

    def moved() -> int:
        return sum(size_of(members, 103, "moved", partition) for partition in (0, 1))

    def is_done() -> bool:
        now, size = time.monotonic() - begun, moved()
        # One read may exceed the rest of the rate on each side, and a rate covers at least a second.
        assert size <= rate * (now + 1) + 2 * (1 << 20), f"{size} bytes after {now:.1f} s"
        return size > 10_000_000

    wait_for("all bytes have come", is_done, PATIENCE_S)

    def is_over() -> bool:
        return "still in progress" not in move("--verify", "--preserve-throttles")

    wait_for("the move is over", is_over, PATIENCE_S)
    assert throttles(members, "moved") == (of_topic, of_brokers)
    done = move("--verify")
    assert "Clearing broker-level throttles" in done
    assert "Clearing topic-level throttles" in done
    assert throttles(members, "moved") == ("", "")
    assert [row["Replicas"] for row in described(members, "moved")] == [[103, 102], [103, 101]]
    wait_for("the new ones are in sync", lambda: in_sync_with(members, "moved", 103), PATIENCE_S)
    wait_for("the old log is gone", lambda: log_folder(members, 101, "moved") is None, PATIENCE_S)
    assert len(values_of(members, "moved", 100)) == 100


def under_replicated(members: Members) -> str:
    return run(members, "TopicCommand", "--describe", "--under-replicated-partitions").out.strip()


def in_sync_with(members: Members, name: str, broker: int) -> bool:
    return all(broker in row["Isr"] for row in described(members, name))


def test_a_move_can_be_cancelled(members: Members) -> None:
    # These are not the brokers of the throttled move above. As in Kafka, a rate covers the last eleven seconds: if one
    # move sent few bytes, the next may begin with the bytes of several seconds.
    create(members, "stays", "103:102")
    assert produce(members, "stays", [os.urandom(50_000) for _ in range(60)]) == []
    move = Reassignment(members, "stays", [101, 102])
    move("--execute", "--throttle", "1000")
    assert "still in progress" in move("--verify")
    shown = run(members, "reassign.ReassignPartitionsCommand", "--list").text
    assert "stays-0: replicas: 101,102,103. adding: 101. removing: 103." in shown
    assert "Successfully cancelled" in move("--cancel")

    def is_as_before() -> bool:
        (row,) = described(members, "stays")
        return (row["Leader"], sorted(row["Replicas"]), sorted(row["Isr"])) == ([103], [102, 103], [102, 103])

    wait_for("it is as before", is_as_before, PATIENCE_S)
    assert throttles(members, "stays") == ("", "")
    wait_for("what had been copied is gone", lambda: log_folder(members, 101, "stays") is None, PATIENCE_S)
    assert "No partition reassignments found" in run(members, "reassign.ReassignPartitionsCommand", "--list").text
    assert produce(members, "stays", [b"on"]) == []


def test_replicas_are_spread_over_racks(members: Members) -> None:
    options = ("--partitions", "6", "--replication-factor", "2")
    run(members, "TopicCommand", "--create", "--topic", "racks", *options)
    wait_for("all partitions are shown", lambda: len(described(members, "racks")) == 6, PATIENCE_S)
    for row in described(members, "racks"):
        assert sorted(RACKS[broker] for broker in row["Replicas"]) == ["a", "b"]
    create(members, "disregards-racks", "101:102")


@pytest.mark.parametrize(("rack", "reads_from"), [("b", 103), ("a", 101), ("elsewhere", 101), (None, 101)])
def test_consumers_read_from_the_replica_in_their_rack(members: Members, rack: str | None, reads_from: int) -> None:
    topic = f"near-{rack}"
    create(members, topic, "101:103")
    assert produce(members, topic, [b"%d" % number for number in range(500)]) == []
    seen: list[int] = []

    def look(text: str) -> None:
        partitions = json.loads(text)["topics"].get(topic, {}).get("partitions", {})
        if "0" in partitions and partitions["0"]["rxmsgs"]:
            seen.append(partitions["0"]["broker"])

    settings = {"statistics.interval.ms": 100, "stats_cb": look, "auto.offset.reset": "earliest"}
    if rack is not None:
        settings["client.rack"] = rack
    consumer = Consumer({"bootstrap.servers": members.bootstrap, "group.id": topic, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0

    def enough() -> bool:
        nonlocal found
        found += sum(1 for message in consumer.consume(500, 0.1) if message.error() is None)
        return found >= 500 and bool(seen) and seen[-1] == reads_from

    try:
        wait_for(f"records from broker {reads_from}", enough, PATIENCE_S)
    finally:
        consumer.close()
    assert found == 500


@pytest.mark.parametrize(("rack", "reads_from"), [("b", 103), ("elsewhere", 101)])
def test_the_pipeline_reads_from_the_replica_in_its_rack(
    members: Members, rack: str, reads_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, asked, connection = f"piped-{rack}", list[int](), Cluster.connection
    create(members, topic, "101:103")
    assert produce(members, topic, [b"%d" % number for number in range(500)]) == []

    def noted(cluster: Cluster, node: int) -> Any:
        asked.append(node)
        return connection(cluster, node)

    monkeypatch.setattr(Cluster, "connection", noted)

    def last_read() -> int:
        decoder = Decoder(topic, 0, ["offset"])
        with Cluster(Settings(members.bootstrap, rack=rack)) as cluster:
            chunks = fetch_range(cluster, Range(topic, NO_ID, 0, 0, 500), max_bytes=1000)
            batches = [batch for c in chunks for batch in decoder.decode(c.records, c.offset, c.end)]
        assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(500))
        return asked[-1]

    wait_for(f"records from broker {reads_from}", lambda: last_read() == reads_from, PATIENCE_S)


def test_too_few_in_sync_replicas_refuse_acks_all(members: Members) -> None:
    create(members, "strict", "101:102:103", "min.insync.replicas=3")
    assert produce(members, "strict", [b"before"]) == []
    members.nodes[103].kill()
    wait_for("it is out of sync", lambda: in_sync(members, "strict", 101, 102), PATIENCE_S)
    (error,) = produce(members, "strict", [b"refused"], retries=0)
    assert error.code() == KafkaError.NOT_ENOUGH_REPLICAS
    assert produce(members, "strict", [b"by the leader alone"], acks="1") == []
    members.start(103)
    wait_for("it is in sync", lambda: in_sync(members, "strict", 101, 102, 103), PATIENCE_S)
    assert produce(members, "strict", [b"after"]) == []
    assert values_of(members, "strict", 3) == [b"before", b"by the leader alone", b"after"]


def test_preferred_leaders_are_elected_by_the_tool(members: Members) -> None:
    create(members, "preferred", "102:101,102:103,101:102")
    members.nodes[102].stop()
    wait_for("the others lead", lambda: led_by(members, "preferred", 101, 103, 101), PATIENCE_S)
    members.start(102)
    wait_for("it is in sync", lambda: in_sync_with(members, "preferred", 102), PATIENCE_S)
    elect = ("--election-type", "preferred", "--topic", "preferred", "--partition")
    run(members, "LeaderElectionCommand", *elect, "0")
    wait_for("102 leads one", lambda: led_by(members, "preferred", 102, 103, 101), PATIENCE_S)
    # Other tests leave topics behind. Their replicas on 102 may become in-sync after the replicas of this test.
    wait_for("all replicas are in sync", lambda: not under_replicated(members), PATIENCE_S)
    run(members, "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    wait_for("102 leads both", lambda: led_by(members, "preferred", 102, 102, 101), PATIENCE_S)


def test_unclean_leaders_are_elected_only_on_request(members: Members) -> None:
    create(members, "clean", "102:103")
    create(members, "unclean", "102:103", "unclean.leader.election.enable=true")
    for name in ("clean", "unclean"):
        assert produce(members, name, [b"both"]) == []
    members.nodes[103].kill()
    for name in ("clean", "unclean"):
        wait_for("102 is alone", lambda n=name: in_sync(members, n, 102), PATIENCE_S)
        assert produce(members, name, [b"102 alone"]) == []
    members.nodes[102].kill()
    members.start(103)
    wait_for("an unclean leader", lambda: led_by(members, "unclean", 103), PATIENCE_S)
    assert described(members, "clean")[0]["Leader"] == []
    run(members, "LeaderElectionCommand", "--election-type", "unclean", "--topic", "clean", "--partition", "0")
    wait_for("the tool's leader", lambda: led_by(members, "clean", 103), PATIENCE_S)
    for name in ("clean", "unclean"):
        assert produce(members, name, [b"103"]) == []
    members.start(102)
    for name in ("clean", "unclean"):
        wait_for("102 follows", lambda n=name: in_sync(members, n, 102, 103), PATIENCE_S)
        assert values_of(members, name, 2) == [b"both", b"103"]
        wait_for("what 102 had alone is cut", lambda n=name: _same(members, n), PATIENCE_S)


def _same(members: Members, name: str) -> bool:
    folders = [log_folder(members, broker, name) for broker in (102, 103)]
    return len({folder and (folder / f"{0:020d}.log").read_bytes() for folder in folders}) == 1


def even_out(members: Members, broker: int) -> None:
    """Give both directories of a broker as many logs, because new logs go where the fewest are."""
    folders = (members.nodes[broker].folder / name for name in ("data", "more"))
    counts = [len([at for at in folder.iterdir() if LOG_FOLDER.fullmatch(at.name)]) for folder in folders]
    missing = abs(counts[0] - counts[1])
    if missing:
        create(members, "evens-out", ",".join([str(broker)] * missing))


def test_a_failed_directory_takes_only_its_replicas_offline(members: Members) -> None:
    even_out(members, 102)
    create(members, "disks", ",".join(["102:103"] * 4))
    for partition in range(4):
        assert produce(members, "disks", [b"before"], partition) == []
    where = [log_folder(members, 102, "disks", partition) for partition in range(4)]
    lost = {partition for partition, folder in enumerate(where) if folder and folder.parent.name == "more"}
    assert 0 < len(lost) < 4
    more = members.nodes[102].folder / "more"
    more.rename(more.with_name("taken-away"))
    more.write_text("no directory")
    # A broker notices the failure when it creates a log in that directory.
    create(members, "finds-out", ",".join(["102"] * 2))
    for partition in (0, 1):
        produce(members, "finds-out", [b"x"], partition, **{"message.timeout.ms": 3000})
    expected = [103 if partition in lost else 102 for partition in range(4)]
    wait_for("the others lead what was there", lambda: led_by(members, "disks", *expected), PATIENCE_S)
    for partition, row in enumerate(described(members, "disks")):
        assert sorted(row["Isr"]) == ([103] if partition in lost else [102, 103])
        assert produce(members, "disks", [b"without"], partition) == []
    shown = run(members, "LogDirsCommand", "--describe", "--broker-list", "102").out
    (broker,) = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))["brokers"]
    errors = {Path(row["logDir"]).name: row["error"] for row in broker["logDirs"]}
    assert errors["data"] is None
    assert "KafkaStorageException" in errors["more"]
    wait_for("all brokers unfenced", lambda: members.unfenced(101) == set(RACKS), PATIENCE_S)

    members.nodes[102].stop()
    more.unlink()
    more.with_name("taken-away").rename(more)
    members.start(102)
    wait_for("all are in sync", lambda: in_sync(members, "disks", 102, 103), PATIENCE_S)
    for partition in range(4):
        assert values_of(members, "disks", 2, partition) == [b"before", b"without"]


def test_new_partitions_avoid_cordoned_directories_and_brokers(members: Members) -> None:
    def cordon(broker: int, value: str) -> None:
        change = ("--alter", "--add-config", f"cordoned.log.dirs=[{value}]")
        entity = ("--entity-type", "brokers", "--entity-name", str(broker))
        run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", members.bootstrap, *entity, *change)

    more = str(members.nodes[102].folder / "more")
    cordon(102, more)
    try:
        create(members, "elsewhere", ",".join(["102"] * 4))
        for partition in range(4):
            assert produce(members, "elsewhere", [b"x"], partition) == []
        folders = [log_folder(members, 102, "elsewhere", partition) for partition in range(4)]
        assert {folder.parent.name for folder in folders if folder} == {"data"}
        cordon(102, "*")

        def refused() -> bool:
            options = ("--partitions", "1", "--replication-factor", "3", "--topic", "three")
            done = run(members, "TopicCommand", "--create", "--if-not-exists", *options, check=False)
            if done.code == 0:
                run(members, "TopicCommand", "--delete", "--topic", "three")
            return done.code != 0 and "cordoned" in done.text

        wait_for("a broker all of whose directories are cordoned gets no replicas", refused, PATIENCE_S)
    finally:
        cordon(102, "")


def test_the_id_of_a_live_broker_is_refused_to_another(members: Members, tmp_path: Path) -> None:
    real = members.nodes[102]
    port, controller_port = free_ports(2)
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    own = {"listeners": listener, "advertised.listeners": listener, "initial.broker.registration.timeout.ms": "4000"}
    overrides = {**real.overrides, **own, "log.dirs": str(tmp_path / "data")}
    other = Ours("another-102", tmp_path, overrides, port, controller_port, is_lone=False)
    other.launch()
    try:
        assert other.process is not None
        assert other.process.wait(PATIENCE_S) == 1
    finally:
        other.kill()
    assert "DUPLICATE_BROKER_REGISTRATION" in other.tail().strip().splitlines()[-1]
    assert "Traceback" not in other.tail()
    wait_for("all brokers unfenced", lambda: members.unfenced(101) == set(RACKS), PATIENCE_S)
    create(members, "still-102", "102")
    assert produce(members, "still-102", [b"x"]) == []


def test_a_single_working_controller_address_suffices_and_clients_see_no_controller(members: Members) -> None:
    node = members.nodes[103]
    voters = node.overrides.pop("controller.quorum.voters")
    standby = next(n for n in members.controller_ids if n != members.leader())
    nobody = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    node.stop()
    node.overrides["controller.quorum.bootstrap.servers"] = (
        f"{nobody},127.0.0.1:{members.nodes[standby].controller_port}"
    )
    try:
        members.start(103)
        wait_for("it is unfenced", lambda: 103 in members.unfenced(101), PATIENCE_S)
        shown = run_tool(f"{TOOLS}.ClusterTool", "list-endpoints", "--bootstrap-server", node.bootstrap).out
        assert {line.split()[0] for line in shown.splitlines()[1:]} == {"101", "102", "103"}
    finally:
        node.stop()
        del node.overrides["controller.quorum.bootstrap.servers"]
        node.overrides["controller.quorum.voters"] = voters
