"""KIP-631, "kafka-storage.sh", "kafka-cluster.sh", "Changes to kafka-dump-log-segments.sh", "AdminClient"."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kraft_node.cli import cluster, common, dump_log, storage
from kraft_protocol.ids import parse_uuid
from tests.compat.members import Members, wait_for
from tests.peer import run_java

pytestmark = pytest.mark.xdist_group("kip-tools")

CLUSTER = "3Db5QLSqSZieL3rJBUUegA"


class Tool:
    """The main function of a program, its output and its exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""
        self.code = 0

    def __call__(self, main: Callable[[Sequence[str]], int], *arguments: str) -> str:
        with pytest.raises(SystemExit) as left:
            common.run(main, arguments)
        self.code = int(left.value.code or 0)
        out, self.err = self._capsys.readouterr()
        return out


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        f"advertised.listeners=PLAINTEXT://localhost:9092\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return str(path)


# kafka-storage


def test_random_uuid_prints_a_uuid(tool: Tool) -> None:
    found = {tool(storage.main, "random-uuid").strip() for _ in range(5)}
    assert len(found) == 5
    assert all(len(parse_uuid(text)) == 16 for text in found)


def test_format_writes_cluster_and_node_id_into_every_directory(tool: Tool, config: str, tmp_path: Path) -> None:
    tool(storage.main, "format", "--config", config, "--cluster-id", CLUSTER)
    assert tool.code == 0
    for directory in ("a", "b"):
        text = (tmp_path / directory / "meta.properties").read_text()
        assert f"cluster.id={CLUSTER}" in text
        assert "node.id=1" in text


def test_format_fails_when_any_directory_is_formatted(tool: Tool, config: str) -> None:
    tool(storage.main, "format", "-c", config, "-t", CLUSTER)
    tool(storage.main, "format", "-c", config, "-t", CLUSTER)
    assert tool.code == 1
    assert "already formatted" in tool.err


def test_with_ignore_formatted_it_skips_formatted_directories(tool: Tool, config: str, tmp_path: Path) -> None:
    tool(storage.main, "format", "-c", config, "-t", CLUSTER)
    before = (tmp_path / "a" / "meta.properties").read_text()
    (tmp_path / "b" / "meta.properties").unlink()
    tool(storage.main, "format", "-c", config, "-t", CLUSTER, "--ignore-formatted")
    assert tool.code == 0
    assert (tmp_path / "a" / "meta.properties").read_text() == before
    assert (tmp_path / "b" / "meta.properties").exists()


def test_info_prints_directories_and_metadata(tool: Tool, config: str, tmp_path: Path) -> None:
    tool(storage.main, "format", "-c", config, "-t", CLUSTER)
    reported = tool(storage.main, "info", "-c", config)
    assert tool.code == 0
    assert f"{tmp_path}/a" in reported
    assert f"{tmp_path}/b" in reported
    assert CLUSTER in reported


@pytest.mark.parametrize("command", [[], ["info"], ["format"], ["random-uuid"]], ids=str)
def test_help_names_every_command(tool: Tool, command: list[str]) -> None:
    text = tool(storage.main, *command, "-h")
    assert tool.code == 0
    wanted = {"info": ["--config"], "format": ["--config", "--cluster-id", "--ignore-formatted"]}
    names = wanted.get(command[0], []) if command else ["info", "format", "random-uuid"]
    assert all(name in text for name in names)


# kafka-cluster, kafka-dump-log


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    found = Members(
        tmp_path_factory.mktemp("kip-tools"), controllers=("kraftcluster",), brokers=("kraftcluster", "kraftcluster")
    )
    try:
        yield found.start()
    finally:
        found.stop()


def test_cluster_id_prints_the_id_of_the_cluster(tool: Tool, members: Members) -> None:
    reported = tool(cluster.main, "cluster-id", "--bootstrap-server", members.bootstrap)
    assert tool.code == 0
    assert len(parse_uuid(reported.split(":")[1].strip())) == 16
    assert tool(cluster.main, "cluster-id", "-C", members.bootstrap_controllers) == reported


def test_unregister_removes_the_registration_of_a_broker(tool: Tool, members: Members) -> None:
    members.nodes[102].kill()
    reported = tool(cluster.main, "unregister", "--bootstrap-server", members.nodes[101].bootstrap, "--id", "102")
    assert (tool.code, reported) == (0, "Broker 102 is no longer registered.\n")
    wait_for("broker 102 gone", lambda: members.unfenced(101) == {101})
    reported = tool(cluster.main, "list-endpoints", "-b", members.nodes[101].bootstrap, "--include-fenced-brokers")
    assert [row.split()[0] for row in reported.splitlines()[1:]] == ["101"]


def test_unregistering_an_unknown_broker_fails(tool: Tool, members: Members) -> None:
    tool(cluster.main, "unregister", "-b", members.nodes[101].bootstrap, "-i", "999")
    assert tool.code == 1
    assert "BROKER_ID_NOT_REGISTERED" in tool.err


@pytest.fixture(scope="module")
def metadata_file(members: Members, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy of the controller's metadata log, which continues to grow."""
    members.create("dumped", 2, 1, via=101)
    (path,) = members.nodes[1].data.glob("__cluster_metadata-0/*.log")
    copy = tmp_path_factory.mktemp("dump") / path.name
    copy.write_bytes(path.read_bytes())
    return str(copy)


def test_the_cluster_metadata_decoder_prints_records_as_json(tool: Tool, metadata_file: str) -> None:
    text = tool(dump_log.main, "--cluster-metadata-decoder", "--files", metadata_file)
    payloads = [json.loads(line.partition("payload: ")[2]) for line in text.splitlines() if "payload: " in line]
    topics = [payload for payload in payloads if payload["type"] == "TOPIC_RECORD"]
    assert {"type", "version", "data"} == set(topics[0])
    assert "dumped" in {topic["data"]["name"] for topic in topics}
    partitions = [payload["data"] for payload in payloads if payload["type"] == "PARTITION_RECORD"]
    assert {"partitionId", "topicId", "replicas", "isr", "leader", "leaderEpoch"} <= set(partitions[0])


def test_skip_record_metadata_keeps_that_of_the_batches(tool: Tool, metadata_file: str) -> None:
    full = tool(dump_log.main, "--cluster-metadata-decoder", "--files", metadata_file).splitlines()
    brief = tool(
        dump_log.main, "--cluster-metadata-decoder", "--skip-record-metadata", "--files", metadata_file
    ).splitlines()
    assert any("CreateTime" in line for line in full if line.startswith("|"))
    assert not any("CreateTime" in line for line in brief if line.startswith("|"))
    batches = [[line for line in text if line.startswith("baseOffset")] for text in (full, brief)]
    assert batches[0] == batches[1] != []
    assert any("payload: " in line for line in brief)


@pytest.mark.peer
def test_apaches_admin_client_unregisters_brokers_too(members: Members) -> None:
    """By Apache's kafka-cluster, which calls AdminClient.unregisterBroker."""
    done = run_java(
        "org.apache.kafka.tools.ClusterTool", "unregister", "--bootstrap-server", members.nodes[101].bootstrap,
        "--id", "998", check=False,
    )  # fmt: skip
    assert "998" in (done.stdout + done.stderr).decode()
