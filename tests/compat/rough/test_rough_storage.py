"""kafka-storage compared with Apache Kafka's own StorageTool: exit codes and resulting files.

Where ours is stricter on purpose, the row says so: it refuses instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kraft_node.base.config import parse_properties
from kraft_node.cli import storage
from kraft_node.cli.common import ToolError
from kraft_node.cli.dump_log import main as dump
from tests.compat.tools import run_tool

CLIENT = "kafka-storage beside StorageTool"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("rough-storage")]

T = "9QFkB3aSS2KHv4RcngmCVg"
OTHER = "MkU3OEVBNTcwNTJENDM2Qg"
D = "JEXY6aqzQY-32P5TStzaFg"
D2 = "MvDxzVmcRsaTz33bUuRU6A"
FORMAT = ("format", "-c", "@", "-t", T)
STRICTER = "ours refuses"
"""The row's mark where Kafka goes on and ours does not."""

QUORUMS = {
    "static": ("broker,controller", "controller.quorum.voters=1@localhost:9093"),
    "dynamic": ("broker,controller", "controller.quorum.bootstrap.servers=localhost:9093"),
    "none": ("broker,controller", ""),
    "broker": ("broker", "controller.quorum.bootstrap.servers=localhost:9093"),
    "controller": ("controller", "controller.quorum.bootstrap.servers=localhost:9093"),
}


def write_config(folder: Path, kind: str) -> Path:
    roles, quorum = QUORUMS[kind]
    listeners = {"broker": "PLAINTEXT://localhost:9092", "controller": "CONTROLLER://localhost:9093"}
    folder.mkdir(parents=True)
    path = folder / "server.properties"
    path.write_text(
        f"process.roles={roles}\nnode.id=1\n{quorum}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners={','.join(listeners[role] for role in roles.split(','))}\nlog.dirs={folder}/a,{folder}/b\n"
    )
    return path


def ours(*arguments: str) -> tuple[int, str]:
    """The exit code, and the reason of a refusal."""
    try:
        return storage.main(arguments), ""
    except (ToolError, OSError) as e:
        return 1, str(e)
    except SystemExit as e:
        return int(e.code or 0), "usage"


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.name != "server.properties")


def compare(
    tmp_path: Path, kind: str, arguments: tuple[str, ...], before: Mapping[str, str], expected: str = ""
) -> None:
    """Run both on equal directories (`before`: meta.properties by directory) and compare the results."""
    codes, found = [], []
    for who in ("kafka", "ours"):
        config = write_config(tmp_path / who, kind)
        for directory, text in before.items():
            (tmp_path / who / directory).mkdir()
            (tmp_path / who / directory / "meta.properties").write_text(text)
        words = [str(config) if word == "@" else word for word in arguments]
        if who == "kafka":
            codes.append(run_tool("kafka.tools.StorageTool", *words, check=False).code)
        else:
            code, reason = ours(*words)
            codes.append(code)
            assert "\n" not in reason
        found.append(files(tmp_path / who))
    if expected == STRICTER:
        assert (codes[0], codes[1]) == (0, 1)
        return
    assert (codes[1] != 0) == (codes[0] != 0), codes
    assert found[1] == found[0]


QUORUM_FLAGS: list[tuple[str, ...]] = [
    (),
    ("-s",),
    ("-N",),
    ("-I", f"1@localhost:9093:{D}"),
    ("-I", f"2@localhost:9093:{D}"),
    ("-f", "kraft.version=0"),
    ("-f", "kraft.version=1"),
    ("-N", "-f", "kraft.version=1"),
    ("-N", "-f", "kraft.version=0"),
    ("-s", "-f", "kraft.version=2"),
    ("-s", "-r", "3.8"),
    ("-s", "-N"),
]


@pytest.mark.parametrize("kind", QUORUMS)
@pytest.mark.parametrize("flags", QUORUM_FLAGS, ids=" ".join)
def test_quorum_flags(tmp_path: Path, kind: str, flags: tuple[str, ...]) -> None:
    compare(tmp_path, kind, (*FORMAT, *flags), {})


@pytest.mark.parametrize(
    "voters",
    [
        "",
        ",",
        f"1@localhost:9093:{D},1@localhost:9094:{D2}",
        f"1@localhost:9093:{D},2@b:1:{D}",
        f"1@localhost:9093:{D} , 2@b:1:{D2}",
        f"1@localhost:9093:{D},",
        f"1@localhost:{D}",
        f"x@localhost:9093:{D}",
        f"-1@localhost:9093:{D}",
        f"1@localhost:99999:{D}",
        f"1@[::1]:9093:{D}",
        f"1@[::1:9093:{D}",
        "1@localhost:9093:zzz",
        "1@localhost:9093:AAAAAAAAAAAAAAAAAAAAAA",
        f"1-{D}@localhost:9093",
    ],
)
def test_initial_controllers(tmp_path: Path, voters: str) -> None:
    compare(tmp_path, "dynamic", (*FORMAT, "-I", voters), {})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("format", "-c", "@"), ""),
        (("format", "-t", T), ""),
        (("format", "-c", "@", "-t", "any text"), ""),
        (("format", "-c", "@", "-t", ""), STRICTER),
        ((), ""),
        (("bogus",), ""),
        (("info",), ""),
        (("info", "-c", "@"), ""),
        (("info", "-c", "/there/is/none"), ""),
        (("random-uuid", "x"), ""),
        (("feature-dependencies",), ""),
        (("version-mapping",), ""),
        ((*FORMAT, "--feature", "group.version=1", "-f", "transaction.version=1"), ""),
        ((*FORMAT, "--feature", "group.version=1", "transaction.version=1"), ""),
        ((*FORMAT, "-f", "group.version=1", "-f", "group.version=0"), ""),
    ],
)
def test_arguments(tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    compare(tmp_path, "static", arguments, {}, expected)


@pytest.mark.parametrize("text", [
    "group.version=0", "group.version=2", "group.version=-1", "group.version", "group.version=x", "group.version=",
    "=1", "foo=1", "metadata.version=25", "metadata.version=99", "metadata.version=1", "transaction.version=3",
    "eligible.leader.replicas.version=1", "share.version=1", "group.version= 1", "group.version=1=2",
    "group.version=99999", "kraft.version=0",
])  # fmt: skip
def test_features(tmp_path: Path, text: str) -> None:
    compare(tmp_path / "new", "static", (*FORMAT, "-f", text), {})
    compare(tmp_path / "old", "static", (*FORMAT, "-r", "3.9", "-f", text), {})
    compare(tmp_path / "needs", "static", ("feature-dependencies", "-f", text), {})


@pytest.mark.parametrize(
    "release", ["3.0", "3.3", "3.3-IV2", "3.9", "4.0", "4.3", "4.3-IV0", "4.4", "4.3.1", "25", "x", ""]
)
def test_releases(tmp_path: Path, release: str) -> None:
    compare(tmp_path / "format", "static", (*FORMAT, "-r", release), {})
    compare(tmp_path / "mapping", "static", ("version-mapping", "-r", release), {})


SCRAM = [
    ("SCRAM-SHA-512=[name=alice,password=secret]", ""),
    ('SCRAM-SHA-256=[name="alice",password="secret"]', ""),
    (" SCRAM-SHA-256=[name=a,password=b] ", ""),
    ("SCRAM-SHA-256=[name=a,password=b,]", ""),
    ("SCRAM-SHA-256=[name=a,password=b=c]", ""),
    ("SCRAM-SHA-256=[name=a,password=b,password=c]", ""),
    ("SCRAM-SHA-256=[name=a,salt=YQ,saltedpassword=YWI]", ""),
    ("x", ""),
    ("SCRAM-SHA-1=[name=a,password=b]", ""),
    ("scram-sha-256=[name=a,password=b]", ""),
    ("SCRAM-SHA-256=name=a", ""),
    ("SCRAM-SHA-256=[name=a", ""),
    ("SCRAM-SHA-256=[name=a,password=b]x", ""),
    ("SCRAM-SHA-256=[]", ""),
    ("SCRAM-SHA-256=[password=b]", ""),
    ("SCRAM-SHA-256=[name=a]", ""),
    ("SCRAM-SHA-256=[name=a,password=]", ""),
    ("SCRAM-SHA-256=[name=a,,password=b]", ""),
    ("SCRAM-SHA-256=[name=a;password=b]", ""),
    ("SCRAM-SHA-256=[name=a,password=b,iterations=4095]", ""),
    ("SCRAM-SHA-256=[name=a,password=b,iterations=16385]", ""),
    ("SCRAM-SHA-256=[name=a,password=b,iterations=x]", ""),
    ("SCRAM-SHA-256=[name=a,password=b,x=y]", ""),
    ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", ""),
    ("SCRAM-SHA-256=[name=a,salt=%,password=b]", ""),
    ('SCRAM-SHA-256=[name="a,b",password="c d"]', ""),
    ("SCRAM-SHA-256=[ name = a , password = b ]", ""),
    ("SCRAM-SHA-256=[name=,password=b]", STRICTER),
    ("SCRAM-SHA-256=[name=a,password=b,salt=]", STRICTER),
    ("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=YQ==,password=b]", STRICTER),
]


@pytest.mark.parametrize(("argument", "expected"), SCRAM, ids=[row[0] for row in SCRAM])
def test_scram_arguments(tmp_path: Path, argument: str, expected: str) -> None:
    compare(tmp_path, "static", (*FORMAT, "-S", argument), {}, expected)


@pytest.mark.parametrize(
    "password", ["secret", " b", "b ", 'a"b', 'a"b,iterations=8192', '"q"', "Ünïcödé", "Ⅸ", "a=b", "a\\b"]
)
def test_the_same_password_makes_the_same_credential(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    """If one side dropped spaces or quotes that the other keeps, the user would be locked out."""
    texts = []
    for who in ("kafka", "ours"):
        config = write_config(tmp_path / who, "static")
        words = ["format", "-c", str(config), "-t", T, "-S", f"SCRAM-SHA-256=[name=a,salt=YWJj,password={password}]"]
        if who == "kafka":
            run_tool("kafka.tools.StorageTool", *words)
        else:
            assert ours(*words) == (0, "")
        capsys.readouterr()
        dump(
            [
                "--files",
                f"{tmp_path / who}/a/bootstrap.checkpoint",
                "--cluster-metadata-decoder",
                "--skip-record-metadata",
            ]
        )
        lines = capsys.readouterr().out.splitlines()
        texts.append([line[line.index("{") :] for line in lines if "USER_SCRAM_CREDENTIAL_RECORD" in line])
    assert len(texts[0]) == 1
    assert texts[1] == texts[0]


META = f"version=1\ncluster.id={T}\nnode.id=1\ndirectory.id={D}\n"
STORED = {
    "as it should be": META,
    "no directory id": f"version=1\ncluster.id={T}\nnode.id=1\n",
    "another cluster": META.replace(T, OTHER),
    "another node": META.replace("node.id=1", "node.id=7"),
    "version 0": f"version=0\nbroker.id=1\ncluster.id={T}\n",
    "version 0 of another": "version=0\nbroker.id=7\n",
    "no version": f"cluster.id={T}\nnode.id=1\n",
    "version 2": META.replace("version=1", "version=2"),
    "version x": META.replace("version=1", "version=x"),
    "empty": "",
    "garbage": "\x00\x01\x7f garbage",
    "node x": META.replace("node.id=1", "node.id=x"),
    "directory x": META.replace(D, "zz"),
}
UNREADABLE = {"version 2", "version x", "node x", "directory x"}


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("command", [FORMAT, (*FORMAT, "-g"), ("info", "-c", "@")], ids=["format", "format -g", "info"])
def test_directories_that_have_been_used(tmp_path: Path, state: str, command: tuple[str, ...]) -> None:
    text = STORED[state]
    both = {"a": text, "b": text.replace(D, D2)}
    # Kafka formats the other directories beside a file that it cannot read. Ours asks for an administrator's look
    # first.
    beside = STRICTER if state in UNREADABLE and command[0] == "format" else ""
    # Kafka's info ignores the configuration's node.id.
    alike = STRICTER if state == "another node" and command[0] == "info" else ""
    compare(tmp_path / "one", "static", command, {"a": text}, beside)
    compare(tmp_path / "both", "static", command, both, alike)


def test_directories_that_differ(tmp_path: Path) -> None:
    mixed = {"a": META, "b": META.replace(T, OTHER).replace(D, D2)}
    compare(tmp_path / "info", "static", ("info", "-c", "@"), mixed)
    compare(tmp_path / "format", "static", (*FORMAT, "-g"), mixed)


def test_info_reports_the_stored_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "n", "static")
    assert ours("format", "-c", str(config), "-t", T) == (0, "")
    theirs = run_tool("kafka.tools.StorageTool", "info", "-c", str(config))
    capsys.readouterr()
    assert ours("info", "-c", str(config)) == (0, "")
    assert capsys.readouterr().out == theirs.out
    assert parse_properties((tmp_path / "n/a/meta.properties").read_text())["cluster.id"] == T
