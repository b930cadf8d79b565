"""Our command lines with `--command-config`, on a secured node of ours and on one of Apache Kafka."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.compat.security.secured import PASSWORDS, SCRAM_PASSWORD, SCRAM_USER, Secured, jaas, lone

CLIENT = "command lines"
BOTH_EVERY_DAY = True
XDIST_GROUP = "command-lines"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(server_name: str, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    stores = authority.issue("CN=node,O=Example").stores()
    protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:SASL_SSL"
    overrides = {**stores, "listener.security.protocol.map": protocols}
    secured = lone(server_name, tmp_path_factory.mktemp("tools"), ["PLAIN", "SCRAM-SHA-256"], overrides)
    secured.target.start()
    yield secured
    secured.target.stop()


def client_file(folder: Path, authority: Authority, mechanism: str, name: str, password: str) -> str:
    """A file with continued lines, as people write it."""
    path = folder / "admin.properties"
    entry = jaas(mechanism, username=name, password=password).replace(" required ", " required \\\n    ")
    path.write_text(
        f"# of an administrator\nsecurity.protocol=SASL_SSL\nsasl.mechanism = {mechanism}\nsasl.jaas.config: {entry}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.path}\n"
    )
    return str(path)


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"kraft_node.cli.{module}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_kafka_cluster_reaches_brokers_by_scram_and_controllers_by_plain(
    server: Secured, authority: Authority, tmp_path: Path
) -> None:
    scram = client_file(tmp_path, authority, "SCRAM-SHA-256", SCRAM_USER, SCRAM_PASSWORD)
    for arguments, words in (
        (("cluster-id",), "Cluster ID: "),
        (("list-endpoints",), "127.0.0.1"),
        (("api-versions",), "SaslHandshake(17): "),
    ):
        done = run("cluster", *arguments, "-b", server.bootstrap, "--command-config", scram)
        assert done.returncode == 0, done.stderr
        assert words in done.stdout
    plain = client_file(tmp_path, authority, "PLAIN", "ann", PASSWORDS["ann"])
    controller = f"127.0.0.1:{server.target.controller_port}"
    done = run("cluster", "list-endpoints", "-C", controller, "--command-config", plain)
    assert done.returncode == 0, done.stderr
    assert "controller" in done.stdout


def test_the_metadata_shell_follows_a_secured_controller(server: Secured, authority: Authority, tmp_path: Path) -> None:
    plain = client_file(tmp_path, authority, "PLAIN", "broker", PASSWORDS["broker"])
    controller = f"127.0.0.1:{server.target.controller_port}"
    done = run("metadata_shell", "--controllers", controller, "--command-config", plain, "ls", "/image/cluster")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["brokers", "controllers"]


def test_a_wrong_password_ends_a_tool_with_the_cause_and_without_the_password(
    server: Secured, authority: Authority, tmp_path: Path
) -> None:
    wrong = client_file(tmp_path, authority, "SCRAM-SHA-256", SCRAM_USER, "planted-wrong")
    done = run("cluster", "cluster-id", "-b", server.bootstrap, "--command-config", wrong)
    assert done.returncode == 1 and done.stdout == ""
    assert "credentials with SASL mechanism SCRAM-SHA-256" in done.stderr
    assert "planted" not in done.stderr and "Traceback" not in done.stderr


def test_a_damaged_file_ends_a_tool_with_file_and_key(server: Secured, tmp_path: Path) -> None:
    path = tmp_path / "admin.properties"
    path.write_text("security.protocol=SASL_SSL\nsasl.jaas.confg=planted-secret\n")
    done = run("cluster", "cluster-id", "-b", server.bootstrap, "--command-config", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"{path}: sasl.jaas.confg is not a key") and "planted" not in done.stderr
