"""Clients in Go and JavaScript (`go` and `js` beside this file), fetched and built by their own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compat.targets import Target
from tests.peer import IS_MISSING

CLIENT = "Clients in Go and JavaScript"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a minute or two to fetch and build

FOLDER = Path(__file__).parent
GOLDEN = FOLDER.parents[1] / "golden" / "compat"
GO = {
    "franz-go": ["consumed 250", "group Stable lag 0", "retention.ms 1000000", "deleted 250"],
    "sarama-4.1": ["consumed 250 of 5 codecs", "committed 250", "group Empty"],
    "sarama-2.1": ["consumed 250 of 5 codecs", "committed 250", "group Empty"],
    "sarama-1.1": ["consumed 200 of 4 codecs", "committed 200", "group Empty"],
    "kafka-go": ["consumed 50 keys 5 to 5 times"],
}
GO_TRANSACTIONS = (
    "franz-go transactions",
    "franz-go transactions before 4.0",
    "franz-go consumers of KIP-848",
    "sarama transactions",
    "sarama transactions as of 2.1",
)
"""Their lines against Apache Kafka are in `tests/golden/compat`."""
JS = {
    "kafkajs.js": [
        "created true",
        "consumed 50 keys Set(1) { 4 }",
        "committed 200",
        "group Empty",
        "retention.ms 1000000",
    ],
    "platformatic.mjs": ['consumed {"none":50,"gzip":50,"snappy":50,"lz4":50}', "group EMPTY"],
}


def _program(name: str) -> str:
    """Skip unless the program is installed: CI does not install these languages."""
    return shutil.which(name) or pytest.skip(f"{name}{IS_MISSING}install it from your system's packages")


def _run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> list[str]:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def go_tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program, built."""
    folder = tmp_path_factory.mktemp("go")
    _run(_program("go"), "build", "-o", str(folder / "tour"), ".", cwd=FOLDER / "go", env={"GOFLAGS": "-mod=readonly"})
    return folder / "tour"


@pytest.fixture(scope="module")
def js_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The JavaScript programs beside their libraries."""
    folder = tmp_path_factory.mktemp("js")
    npm = _program("npm")
    shutil.copytree(FOLDER / "js", folder, dirs_exist_ok=True)
    _run(npm, "install", "--no-package-lock", "--no-audit", "--no-fund", cwd=folder)
    return folder


@pytest.mark.parametrize("client", GO)
def test_go_clients_administer_produce_and_consume(cluster: Target, name: str, go_tour: Path, client: str) -> None:
    assert _run(str(go_tour), client, cluster.bootstrap, name, cwd=go_tour.parent) == GO[client]


@pytest.mark.parametrize("tour", GO_TRANSACTIONS)
def test_go_transactions_and_kip_848(cluster: Target, name: str, go_tour: Path, tour: str) -> None:
    golden = (GOLDEN / f"{tour.replace(' ', '_')}.txt").read_text().splitlines()
    assert _run(str(go_tour), tour, cluster.bootstrap, name, cwd=go_tour.parent) == golden


@pytest.mark.parametrize("program", JS)
def test_javascript_clients_administer_produce_and_consume(
    cluster: Target, name: str, js_folder: Path, program: str
) -> None:
    assert _run(_program("node"), program, cluster.bootstrap, name, cwd=js_folder) == JS[program]
