"""kcat, the command line of librdkafka."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.compat.targets import Target
from tests.peer import require_program

CLIENT = "kcat"
pytestmark = pytest.mark.kcat


def kcat(cluster: Target, *args: str, stdin: str = "", timeout_s: float = 60) -> str:
    command = [require_program("kcat"), "-b", cluster.bootstrap, *args]
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
    return done.stdout.decode()


def test_lists_the_cluster(cluster: Target) -> None:
    metadata = json.loads(kcat(cluster, "-L", "-J"))
    assert metadata["brokers"] == [{"id": 1, "name": cluster.bootstrap}]
    assert metadata["originating_broker"]["name"].startswith(cluster.bootstrap)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produces_and_consumes(cluster: Target, name: str, codec: str) -> None:
    lines = [f"{codec} {i}" for i in range(1000)]
    kcat(cluster, "-P", "-t", name, "-z", codec, stdin="\n".join(lines))
    assert kcat(cluster, "-C", "-t", name, "-e", "-o", "beginning").split("\n")[:-1] == lines


def test_keys_headers_offsets_and_null_values(cluster: Target, name: str) -> None:
    kcat(cluster, "-P", "-t", name, "-K", "|", "-Z", "-H", "h=1", stdin="k1|v1\nk2|\n")
    shown = kcat(cluster, "-C", "-t", name, "-e", "-o", "beginning", "-f", r"%p %o %k %S %h\n")
    assert shown == "0 0 k1 2 h=1\n0 1 k2 -1 h=1\n"


def test_idempotent_producer(cluster: Target, name: str) -> None:
    lines = [str(i) for i in range(500)]
    kcat(cluster, "-P", "-t", name, "-X", "enable.idempotence=true", stdin="\n".join(lines))
    assert kcat(cluster, "-C", "-t", name, "-e", "-o", "beginning").split() == lines


def test_balanced_consumer_commits(cluster: Target, name: str) -> None:
    kcat(cluster, "-P", "-t", name, stdin="\n".join("abc"))
    group = ("-G", name, "-X", "auto.offset.reset=earliest", "-c", "3")
    assert kcat(cluster, *group, name).split() == ["a", "b", "c"]
    kcat(cluster, "-P", "-t", name, stdin="d")
    assert kcat(cluster, "-G", name, "-X", "auto.offset.reset=earliest", "-c", "1", name).split() == ["d"]


def test_query_offsets(cluster: Target, name: str) -> None:
    kcat(cluster, "-P", "-t", name, stdin="a\nb")
    assert f"{name} [0] offset 2" in kcat(cluster, "-Q", "-t", f"{name}:0:-1")
    assert f"{name} [0] offset 0" in kcat(cluster, "-Q", "-t", f"{name}:0:-2")
