"""kafka-storage: its refusals, output and files; byte-level facts are compared with Kafka's tools below."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kraft_node.base.config import NodeConfig, parse_properties
from kraft_node.cli import storage
from kraft_node.cli.common import ToolError
from kraft_node.cli.dump_log import main as dump
from kraft_node.cli.scram_argument import parse_scram
from kraft_node.cli.storage_dirs import read_meta_properties, write_directories
from kraft_node.testing.disk import SimDisk
from kraft_protocol.ids import parse_uuid
from tests.peer import run_java

CLUSTER = "9QFkB3aSS2KHv4RcngmCVg"
OTHER_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
MINIMUM = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
    "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\ncontroller.listener.names=CONTROLLER\n"
)


def write_config(folder: Path, *, static: bool = True, roles: str = "broker,controller") -> Path:
    quorum = "controller.quorum.voters=1@localhost:9093"
    if not static:
        quorum = "controller.quorum.bootstrap.servers=localhost:9093"
    listeners = {
        "broker,controller": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "broker": "PLAINTEXT://localhost:9092",
    }[roles]
    path = folder / "server.properties"
    path.write_text(
        f"process.roles={roles}\nnode.id=1\n{quorum}\nlisteners={listeners}\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={folder}/a,{folder}/b\n"
    )
    return path


def format_ok(config: Path, *more: str) -> None:
    assert storage.main(["format", "-c", str(config), "-t", CLUSTER, *more]) == 0


def refused(config: Path, *more: str, cluster: str = CLUSTER) -> str:
    with pytest.raises(ToolError) as error:
        storage.main(["format", "-c", str(config), "-t", cluster, *more])
    return str(error.value)


def meta(path: Path) -> dict[str, str]:
    return parse_properties((path / "meta.properties").read_text())


def test_formatting_makes_every_directory_of_the_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    format_ok(write_config(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        f"Formatting metadata directory {tmp_path}/a with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0.",
    ]
    first, second = meta(tmp_path / "a"), meta(tmp_path / "b")
    assert {k: first[k] for k in ("version", "cluster.id", "node.id")} == {
        "version": "1",
        "cluster.id": CLUSTER,
        "node.id": "1",
    }
    assert parse_uuid(first["directory.id"]) != parse_uuid(second["directory.id"])
    assert (tmp_path / "a/bootstrap.checkpoint").exists()
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_of_power_leaves_a_formatted_directory(seed: int) -> None:
    """The name of the directory was not durable, so a node lost topics with it (a point of `make crash-points`)."""
    disk = SimDisk(random.Random(seed))
    texts = {**parse_properties(MINIMUM), "log.dirs": "/deep/inside/a,/deep/inside/b"}
    write_directories(
        NodeConfig.parse(texts), cluster_id=CLUSTER, records=[], levels={"metadata.version": 25}, voters=None,
        ignore_formatted=False, new_uuid=lambda: parse_uuid(OTHER_CLUSTER), say=lambda _: None, disk=disk,
    )  # fmt: skip
    disk.lose_power()
    for path in ("/deep/inside/a", "/deep/inside/b"):
        assert read_meta_properties(path, disk) is not None
        assert disk.exists(f"{path}/bootstrap.checkpoint")


def test_a_formatted_directory_is_refused_or_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path)
    format_ok(config)
    before = meta(tmp_path / "a")
    assert "is already formatted" in refused(config)
    format_ok(config, "-g")
    assert capsys.readouterr().out.endswith("All of the log directories are already formatted.\n")
    for file in (tmp_path / "b").iterdir():
        file.unlink()
    format_ok(config, "-g")
    assert meta(tmp_path / "a") == before
    assert meta(tmp_path / "b")["cluster.id"] == CLUSTER


def test_a_foreign_directory_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/meta.properties").write_text(f"version=1\ncluster.id={OTHER_CLUSTER}\nnode.id=1\n")
    assert f"Expected {CLUSTER}, but read {OTHER_CLUSTER}" in refused(config, "-g")
    (tmp_path / "b/meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id=2\n")
    assert "Expected 1, but read 2" in refused(config, "-g")
    assert not (tmp_path / "a").exists()
    (tmp_path / "b/meta.properties").unlink()
    (tmp_path / "a").write_text("a file")
    assert "is not a directory" in refused(config)


@pytest.mark.parametrize(
    ("static", "arguments", "says"),
    [
        (True, ["-s"], "You cannot specify controller.quorum.voters and format the node with"),
        (True, ["-I", "1@h:1:JEXY6aqzQY-32P5TStzaFg"], "You cannot specify controller.quorum.voters"),
        (False, [], "you must specify one of the following: --standalone"),
        (False, ["-I", "1@h:JEXY6aqzQY-32P5TStzaFg"], "does not have the form id@hostname:port:directory"),
        (
            False,
            ["-I", "2147483648@h:1:JEXY6aqzQY-32P5TStzaFg"],
            "does not have the form id@hostname:port:directory",
        ),
        (False, ["-I", "1@h:1:JEXY6aqzQY-32P5TStzaFg,1@h:2:JEXY6aqzQY-32P5TStzaFg"], "more than once"),
        (False, ["-s", "-f", "kraft.version=0"], "Cannot set kraft.version to 0"),
        (True, ["-f", "kraft.version=1"], "Cannot set kraft.version to 1 unless"),
        (True, ["-r", "3.0"], "Unknown metadata.version '3.0'"),
        (True, ["-r", "3.3-IV2"], "Unknown metadata.version '3.3-IV2'"),
        (True, ["-r", "4.0", "-f", "metadata.version=27"], "to avoid ambiguity"),
        (True, ["-f", "metadata.version=99"], "99 is not known"),
        (True, ["-f", "foo=1"], "Unsupported feature: foo"),
        (True, ["-f", "group.version=2"], "No feature:group.version with feature level 2"),
        (True, ["-f", "group.version"], "equals sign not found"),
        (True, ["-f", "group.version=x"], "unable to parse x as a short"),
        (True, ["-r", "3.9", "-f", "eligible.leader.replicas.version=1"], "depends on metadata.version level 23"),
        (True, ["-r", "3.4", "-S", "SCRAM-SHA-256=[name=a,password=b]"], "only supported in metadata.version 3.5-IV2"),
        (True, ["-S", "x"], "Failed to find equals sign"),
    ],
)
def test_an_impossible_request_is_refused_and_writes_nothing(
    tmp_path: Path, static: bool, arguments: list[str], says: str
) -> None:
    assert says in refused(write_config(tmp_path, static=static), *arguments)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("option", ["-t", "--cluster-id"])
def test_a_cluster_id_may_begin_with_a_dash(tmp_path: Path, option: str) -> None:
    """Such ids come from clusters with ZooKeeper; the command line took it for an option, so a migration stopped."""
    cluster = "-QFkB3aSS2KHv4RcngmCVg"
    assert storage.main(["format", "-c", str(write_config(tmp_path)), option, cluster]) == 0
    assert meta(tmp_path / "a")["cluster.id"] == cluster


def test_a_missing_cluster_id_is_named(tmp_path: Path) -> None:
    with pytest.raises((ToolError, SystemExit)):
        storage.main(["format", "-t", "-c", str(write_config(tmp_path))])


def test_a_blank_cluster_id_is_refused(tmp_path: Path) -> None:
    assert "blank" in refused(write_config(tmp_path), cluster=" ")


def test_a_broker_needs_no_quorum_flag(tmp_path: Path) -> None:
    format_ok(write_config(tmp_path, static=False, roles="broker"))
    assert "can only use --standalone on a controller" in refused(
        write_config(tmp_path, static=False, roles="broker"), "-s", "-g"
    )


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("SCRAM-SHA-256=[password=x]", "must supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-1=[name=a,password=b]", "SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-256=name=a", "to start with ["),
        ("SCRAM-SHA-256=[name=a", "to end with ]"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=4095]", ">= 4096"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=16385]", "<= 16384"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=x]", "not a number"),
        ("SCRAM-SHA-256=[name=a,password=b,x=y]", "Unknown SCRAM configurations"),
        ('SCRAM-SHA-256=[name=a,saltedpassword="YQ=="]', "must supply 'salt'"),
        ("SCRAM-SHA-256=[name=a,,password=b]", "No equals sign"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=%,salt=YQ==]", "not base64"),
    ],
)
def test_wrong_scram_arguments_are_refused(argument: str, says: str) -> None:
    with pytest.raises(ToolError, match=re.escape(says)):
        parse_scram(argument, bytes)


@pytest.mark.parametrize(
    "argument",
    [
        "planted",
        "SCRAM-SHA-256=[name=a,password=b,planted]",
        "SCRAM-SHA-256=[name=a,password=b,planted=x]",
        "SCRAM-SHA-256=[name=a,password=b,planted=]",
        "SCRAM-SHA-256=[name=a,saltedpassword=planted%,salt=YQ==]",
        "SCRAM-SHA-256=[password=planted]",
        "SCRAM-SHA-256=[name=a,password=planted",
        "SCRAM-SHA-256=[name=a,password=planted,saltedpassword=YQ==]",
    ],
)
def test_a_refusal_of_a_scram_argument_has_no_password(argument: str) -> None:
    with pytest.raises(ToolError) as caught:
        parse_scram(argument, bytes)
    assert "planted" not in str(caught.value)


def test_scram_keys_match_rfc_7677() -> None:
    # The exchange of RFC 7677 section 3: its salt, and the keys behind its proof and signature.
    user = parse_scram('SCRAM-SHA-256=[name=user,password="pencil",salt="W22ZaJ0SNY7soEsUEjb6gQ=="]', bytes)
    assert user.iterations == 4096
    auth = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(user.server_key, auth, hashlib.sha256)
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(user.stored_key, auth, hashlib.sha256)
    client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(client_key).digest() == user.stored_key


def test_info_lists_directories_and_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path)
    assert storage.main(["info", "-c", str(config)]) == 1
    assert f"  {tmp_path}/a does not exist" in capsys.readouterr().out
    format_ok(config)
    assert storage.main(["info", "-c", str(config)]) == 0
    assert "node.id=1, version=1}" in capsys.readouterr().out
    (tmp_path / "b/meta.properties").write_text(f"version=1\ncluster.id={OTHER_CLUSTER}\nnode.id=7\n")
    assert storage.main(["info", "-c", str(config), "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any("cluster.id" in problem for problem in problems)
    assert any("the configuration has 1" in problem for problem in problems)


def test_misuse_exits_with_1(tmp_path: Path) -> None:
    for arguments in ([], ["bogus"], ["format", "-c", "x"], ["format", "-c", "x", "-t", "y", "-s", "-N"]):
        with pytest.raises(SystemExit) as left:
            storage.main(arguments)
        assert left.value.code == 1
    done = subprocess.run(
        [sys.executable, "-m", "kraft_node.cli.storage", "info", "-c", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path}/none: No such file or directory\n"


def test_random_uuids_are_ids(capsys: pytest.CaptureFixture[str]) -> None:
    storage.main(["random-uuid"])
    storage.main(["random-uuid"])
    first, second = capsys.readouterr().out.split()
    assert parse_uuid(first) != parse_uuid(second)


# Against Kafka's own tools


def kafka_format(config: Path, *more: str) -> None:
    run_java("kafka.tools.StorageTool", "format", "-c", str(config), "-t", CLUSTER, *more)


def without_times(text: str) -> str:
    text = re.sub(r"(CreateTime|lastContainedLogTimestamp)(\":|: )[0-9]+", r"\1", text)
    return re.sub(r"crc: [0-9]+|Dumping .*", "", text)


@pytest.mark.peer
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-r", "3.9"],
        ["-r", "4.1", "-f", "group.version=0"],
        ["-S", 'SCRAM-SHA-512=[name=bob,iterations=8192,salt="N3E=",saltedpassword="YCE="]'],
    ],
)
def test_bootstrap_files_match_kafkas(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    format_ok(write_config(ours), *arguments)
    kafka_format(write_config(theirs), *arguments)
    capsys.readouterr()
    texts = []
    for folder in (ours, theirs):
        assert dump(["--files", f"{folder}/a/bootstrap.checkpoint", "--cluster-metadata-decoder"]) == 0
        texts.append(without_times(capsys.readouterr().out))
    assert texts[0] == texts[1]
    assert "metadata.version" in texts[0]


@pytest.mark.peer
def test_quorum_files_match_kafkas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    voters = ["-I", "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,2@b:1:MvDxzVmcRsaTz33bUuRU6A"]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    format_ok(write_config(ours, static=False), *voters)
    kafka_format(write_config(theirs, static=False), *voters)
    assert meta(ours / "a")["directory.id"] == meta(theirs / "a")["directory.id"] == "JEXY6aqzQY-32P5TStzaFg"
    files = [sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) for folder in (ours, theirs)]
    assert files[0] == files[1]
    capsys.readouterr()
    texts = []
    for folder in (ours, theirs):
        dump(
            [
                "--files",
                f"{folder}/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
                "--print-data-log",
            ]
        )
        texts.append(without_times(capsys.readouterr().out))
    assert texts[0] == texts[1]
    assert "KRaftVoters" in texts[0]


@pytest.mark.peer
def test_ours_and_kafkas_tool_accept_directories_of_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    config = write_config(ours)
    format_ok(config)
    done = run_java("kafka.tools.StorageTool", "info", "-c", str(config))
    capsys.readouterr()
    storage.main(["info", "-c", str(config)])
    assert capsys.readouterr().out == done.stdout.decode()
    config = write_config(theirs)
    kafka_format(config)
    assert storage.main(["info", "-c", str(config)]) == 0
    assert "is already formatted" in refused(config)
    assert run_java("kafka.tools.StorageTool", "format", "-c", str(config), "-t", CLUSTER, "-g").returncode == 0


@pytest.mark.peer
def test_version_mapping_matches_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    for release in ("3.3-IV3", "3.9", "4.0-IV2", "4.1", "4.2-IV0", "4.3"):
        theirs = run_java("kafka.tools.StorageTool", "version-mapping", "-r", release).stdout.decode()
        storage.main(["version-mapping", "-r", release])
        assert capsys.readouterr().out == theirs


def test_a_relative_directory_is_made_where_the_tool_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path)
    config.write_text(config.read_text().replace(f"{tmp_path}/a,{tmp_path}/b", "deep/a"))
    assert storage.main(["format", "-t", CLUSTER, "-c", str(config)]) == 0
    assert (tmp_path / "deep" / "a" / "meta.properties").exists()


def test_variables_that_only_the_node_knows_do_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path)
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    known = f"{config.read_text()}config.providers=env\nconfig.providers.env.class={provider}\n"
    config.write_text(f"{known}log.roll.ms=${{env:KRAFT_TEST_MISSING}}\n")
    assert storage.main(["format", "-t", CLUSTER, "-c", str(config)]) == 0
    config.write_text(f"{known}log.dirs=${{env:KRAFT_TEST_MISSING}}\n")
    assert "log.dirs: ${env:KRAFT_TEST_MISSING} has no value: the environment does not have it" in refused(config)
