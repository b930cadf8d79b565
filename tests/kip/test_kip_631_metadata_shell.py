"""KIP-631, "kafka-shell.sh": the metadata of a snapshot or of a running cluster as a tree of files.

Released as kafka-metadata-shell, which only reads snapshots; `--controllers` and `--config` are the draft's,
`--directory` ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_node.cli import metadata_shell
from kraft_node.cli.common import ToolError
from kraft_node.cli.metadata_shell import Shell, columns
from kraft_node.cli.metadata_source import Controllers, LogDirectory, SnapshotSource
from kraft_node.cli.metadata_tree import java_double
from kraft_node.metadata.image import MetadataImage
from kraft_node.testing.machine import DIR
from kraft_protocol.wire import stored
from tests.compat.members import Members, wait_for
from tests.kip.cluster import Cluster
from tests.kip.test_kip_631_record_formats import ENDPOINT, RECORDS
from tests.peer import run_metadata_shell
from tests.unit.controller.harness import uuid
from tests.unit.metadata.test_peer_reads_snapshot import snapshot_of

pytestmark = pytest.mark.xdist_group("metadata-shell")

Broker = stored.RegisterBrokerRecord


def everything() -> list[Any]:
    """A record of each kind, so that every part of the tree has content."""
    other = Broker.BrokerEndpoint(name="EXT", host="e", port=9094, security_protocol=1)
    feature = Broker.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)
    controller = stored.RegisterControllerRecord
    entity = stored.ClientQuotaRecord.EntityData

    def quota(value: float, *entities: tuple[str, str]) -> Any:
        parts = [entity(entity_type=kind, entity_name=name) for kind, name in entities]
        return stored.ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=value, remove=False)

    def partition(number: int, **fields: Any) -> Any:
        return stored.PartitionRecord(
            partition_id=number, topic_id=uuid(7), replicas=[1, 2], isr=[1], leader_epoch=3, partition_epoch=4,
            directories=[uuid(500), uuid(1)], **fields,
        )  # fmt: skip

    return [
        stored.FeatureLevelRecord(name="metadata.version", feature_level=30),
        stored.FeatureLevelRecord(name="group.version", feature_level=1),
        Broker(broker_id=1, incarnation_id=uuid(1), broker_epoch=5, end_points=[ENDPOINT, other], features=[feature],
               rack="r", fenced=False, log_dirs=[uuid(500), uuid(501)]),
        Broker(broker_id=2, incarnation_id=uuid(2), broker_epoch=6, end_points=[ENDPOINT], features=[], rack=None,
               fenced=True, in_controlled_shutdown=True, log_dirs=[]),
        controller(
            controller_id=3000, incarnation_id=uuid(9), zk_migration_ready=False, features=[],
            end_points=[controller.ControllerEndpoint(name="CONTROLLER", host="c", port=9093, security_protocol=0)],
        ),
        RECORDS[2][1],
        partition(0, leader=1, adding_replicas=[2], removing_replicas=[]),
        partition(1, leader=-1, adding_replicas=[], removing_replicas=[2], leader_recovery_state=1,
                  eligible_leader_replicas=[2], last_known_elr=[1]),
        stored.ConfigRecord(resource_type=2, resource_name="foo", name="retention.ms", value="1"),
        stored.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="2"),
        stored.ConfigRecord(resource_type=4, resource_name="1", name="log.retention.ms", value="3"),
        stored.ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="5"),
        stored.ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="50000"),
        quota(1.5, ("user", "a(b)")),
        quota(1e7, ("user", "u"), ("client-id", "c")),
        quota(123456789.0, ("ip", "1.2.3.4")),
        stored.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000),
        RECORDS[6][1], RECORDS[10][1], RECORDS[11][1],
    ]  # fmt: skip


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = MetadataImage()
    for record in everything():
        image.replay(record)
    image.moved_to(499, 3, 1_700_000_000_123)
    name, data = snapshot_of(image)
    path = tmp_path_factory.mktemp("shell") / "__cluster_metadata-0" / name
    path.parent.mkdir()
    path.write_bytes(data)
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert metadata_shell.main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.peer
@pytest.mark.parametrize(
    "command",
    [
        ("tree", "/image"),
        ("ls", "/image/to*", "/local", "/image/provenance"),
        ("find", "/image/cluster"),
        ("cat", "/image/cluster/brokers/1", "/image/cluster", "/nowhere"),
        ("ls", "/image/{acls,scram}", "/nowhere"),
        ("pwd",),
        ("cat",),
    ],
    ids=" ".join,
)
def test_its_tree_and_its_commands_equal_those_of_apaches_shell(
    snapshot: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Apache's shell numbers records by their place in the file; this shows only in the provenance."""
    ours = output(capsys, "--snapshot", str(snapshot), *command)

    def comparable(text: str) -> list[str]:
        return [line for line in text.splitlines() if "SNAPSHOT_" not in line and "offset " not in line]

    whole = comparable(ours)
    theirs = run_metadata_shell("--snapshot", str(snapshot), *command, is_whole=lambda text: comparable(text) == whole)
    assert whole == comparable(theirs)


def test_a_snapshot_is_read_from_disk(snapshot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "--snapshot", str(snapshot), "ls").splitlines() == ["image", "local"]
    shown = output(capsys, "-s", str(snapshot), "cat", "/image/provenance")
    assert shown == "offset 499, epoch 3, time 2023-11-14T22:13:20.123Z[UTC]\n"


def test_the_shell_replays_the_log_into_nodes_in_memory(tmp_path: Path) -> None:
    """A log directory: its latest snapshot and the log after it, without a torn end."""
    cluster = Cluster(1, 1)
    cluster.create("foo", [1], retention_ms="1000")
    disk = cluster["c1"].disk
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    for name in disk.listdir(f"{DIR}/__cluster_metadata-0"):
        if name.endswith(".log"):
            path = f"{DIR}/__cluster_metadata-0/{name}"
            file = disk.open(path)
            (folder / name).write_bytes(bytes(file.pread(0, disk.size(path))) + b"\0\0\0\0torn")
            file.close()
    source = LogDirectory(str(tmp_path))
    assert [topic.name for topic in source.image.topics] == ["foo"]
    printed: list[str] = []
    Shell(source, printed.append, interactive=False).run(["cat", "/image/configs/TOPIC:foo/retention.ms"])
    assert printed == ["1000"]


def test_a_log_that_begins_behind_its_snapshots_is_refused(tmp_path: Path) -> None:
    """The shell showed a tree that lacked the records between."""
    (tmp_path / "00000000000000000007.log").write_bytes(b"")
    with pytest.raises(ToolError, match="the log begins at 7, snapshots end at 0: records are missing"):
        LogDirectory(str(tmp_path))


def test_the_metadata_of_a_running_cluster_is_read_from_its_controllers(members: Any, live: Any) -> None:
    shell, printed = live
    members.create("first", 2, 1)
    shell.run(["ls", "/image/topics/byName"])
    assert "first" in printed
    printed.clear()
    shell.run(["ls", "/image/cluster/brokers"])
    assert sorted(printed) == [str(number) for number in sorted(members.broker_ids)]


def test_a_configuration_has_client_settings_and_may_name_the_controllers(
    members: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--config`, beside `--controllers`, or a node's own file instead of both."""
    client, other = tmp_path / "client.properties", tmp_path / "other.properties"
    client.write_text("security.protocol=PLAINTEXT\n")
    other.write_text("security.protocol=SASL_SSL\n")
    one = str(members.controller_ids[0])
    controllers = ("--controllers", members.bootstrap_controllers)
    of_controllers = (*controllers, "ls", "/image/cluster/controllers")
    wait_for("it is registered", lambda: one in output(capsys, *of_controllers).splitlines(), 60)
    for where in ((*controllers, "--config", str(client)), ("-c", str(members.nodes[int(one)].properties()))):
        assert one in output(capsys, *where, "ls", "/image/cluster/controllers").splitlines()
    for where, words in (
        ((*controllers, "-c", str(other)), "sasl.jaas.config is missing"),
        (("-c", str(client)), "controller.quorum."),
    ):
        with pytest.raises(ToolError, match=words):
            metadata_shell.main([*where, "ls"])


def test_the_shell_follows_the_cluster_without_becoming_a_member(members: Any, live: Any) -> None:
    shell, printed = live
    before = {observer.replica_id for observer in members.quorum().observers}
    members.create("second", 1, 1)
    shell.run(["cat", "/image/topics/byName/second/name"])
    assert printed == ["second"]
    assert {observer.replica_id for observer in members.quorum().observers} == before


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Any:
    cluster = Members(tmp_path_factory.mktemp("shell-live"), brokers=("kraftcluster",))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def live(members: Any) -> Any:
    source = Controllers(members.bootstrap_controllers)
    printed: list[str] = []
    yield Shell(source, printed.append, interactive=False), printed
    source.close()


def shell_of(snapshot: Path) -> tuple[Shell, list[str]]:
    printed: list[str] = []
    return Shell(SnapshotSource(str(snapshot)), printed.append, interactive=True), printed


SESSION = [
    ("pwd", ["/"]),
    ("ls", ["image", "local"]),
    ("cd image", []),
    ("pwd", ["/image"]),
    ("cd ../image/topics/./byName", []),
    ("pwd", ["/image/topics/byName"]),
    ("cat foo/name", ["foo"]),
    ("cat foo/²", ["cat: foo/²: No such file or directory."]),
    ("cd foo/name", ["cd: foo/name: not a directory."]),
    ("cd nowhere", ["cd: nowhere: no such directory."]),
    ("find foo/id", ["foo/id"]),
    ("cd", []),
    ("pwd", ["/"]),
    ("cat /image", ["cat: /image: Is a directory"]),
    ("tree /image/features", ["finalized_group.version:", "  1", "metadataVersion:", "  Optional[4.3-IV0]"]),
    ("man nothing", ["man: unknown command nothing. Type help to get a list of commands."]),
]


def test_the_commands_of_the_draft(snapshot: Path) -> None:
    shell, printed = shell_of(snapshot)
    for line, answer in SESSION:
        printed.clear()
        shell.run(line.split())
        assert printed == answer, line


def test_help_and_man_name_every_command(snapshot: Path) -> None:
    shell, printed = shell_of(snapshot)
    shell.run(["help"])
    assert all(
        name in "\n".join(printed) for name in ("cat", "cd", "exit", "find", "help", "history", "ls", "man", "pwd")
    )
    for name in metadata_shell.COMMANDS:
        printed.clear()
        shell.run(["man", name])
        assert printed[0].startswith(f"{name}: {metadata_shell.COMMANDS[name]}")


def test_the_prompt_reads_commands_until_exit_and_keeps_their_history(snapshot: Path) -> None:
    shell, printed = shell_of(snapshot)
    lines = iter(["cd /image", "", "bogus", "history 2", "exit", "never read"])
    shell.talk(lambda _prompt: next(lines))
    assert next(lines) == "never read"
    assert printed[0] == "[ Kafka Metadata Shell ]"
    assert printed[1].startswith("invalid choice: 'bogus' (choose from 'cat', 'cd',")
    assert printed[2:] == ["    1  bogus", "    2  history 2"]


def test_the_prompt_survives_an_interrupt_and_ends_with_the_input(snapshot: Path) -> None:
    shell, printed = shell_of(snapshot)
    ends = iter([KeyboardInterrupt, EOFError])

    def read(_prompt: str) -> str:
        raise next(ends)

    shell.talk(read)
    assert printed == ["[ Kafka Metadata Shell ]", "^C"]


def test_paths_are_completed(snapshot: Path) -> None:
    shell, _ = shell_of(snapshot)
    assert shell.complete("/im") == ["/image/"]
    assert shell.complete("/image/to") == ["/image/topics/"]
    assert shell.complete("image/features/m") == ["image/features/metadataVersion"]


def test_lists_fill_the_width_of_the_screen() -> None:
    assert columns(["a", "b", "c"], 12) == (1, [3, 3, 3])
    assert columns(["aaaa", "b", "c"], 9) == (2, [6, 3])
    assert columns(["a" * 40, "b"], 20) == (2, [0])
    assert columns(["a", "b"], None) == (2, [0])


def test_numbers_are_printed_as_java_does() -> None:
    assert [java_double(value) for value in (1.5, 1e7, 123456789.0, 0.0001, 100.0, 0.0)] == [
        "1.5",
        "1.0E7",
        "1.23456789E8",
        "1.0E-4",
        "100.0",
        "0.0",
    ]


def test_an_unreadable_source_is_one_line_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kraft_node.cli.common import run

    damaged = tmp_path / "00000000000000000500-0000000003.checkpoint"
    damaged.write_bytes(b"\0" * 70)
    for arguments in (["-s", str(tmp_path / "none")], ["-s", str(damaged)], ["-d", str(tmp_path / "no")], [], ["-x"]):
        with pytest.raises(SystemExit) as left:
            run(metadata_shell.main, [*arguments, "ls"])
        assert left.value.code == 1
        text = capsys.readouterr().err
        assert text
        assert "Traceback" not in text
