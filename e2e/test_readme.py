"""The README's commands for Kubernetes, as they stand there: operator, cluster, application, a client outside."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kube import CLIENT_IMAGE, NODE_IMAGE, OPERATOR_IMAGE, ROOT, get, kubectl, needs_kubernetes, until
from tools.peers import installed, java_command

pytestmark = [needs_kubernetes, pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")]

NAMESPACE = "kraft"
NODE = "localhost/kraftcluster:dev"
OPERATOR = "localhost/kraft-operator:dev"
KCAT = "docker.io/edenhill/kcat:1.7.1"
"""Images as README and samples name them. The tests' own take their place."""


def _commands() -> str:
    """All commands of the section, but for those that build images."""
    section = (ROOT / "README.md").read_text().partition("\n## On Kubernetes\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3, "operator and cluster, application, client outside"
    lines = [line for line in "".join(blocks).splitlines() if not line.startswith("docker build ")]
    return "\n".join(lines).replace(NODE, NODE_IMAGE).replace(OPERATOR, OPERATOR_IMAGE)


@pytest.fixture
def folder(operator: None, tmp_path: Path) -> Iterator[Path]:
    """A folder like the checkout, with the images of the tests in the samples, and Apache Kafka's consumer in `bin`."""
    _forget()
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    samples = tmp_path / "deploy/samples"
    samples.mkdir(parents=True)
    for one in (ROOT / "deploy/samples").glob("*.yaml"):
        (samples / one.name).write_text(one.read_text().replace(NODE, NODE_IMAGE).replace(KCAT, CLIENT_IMAGE))
    consumer = tmp_path / "bin/kafka-console-consumer.sh"
    consumer.parent.mkdir()
    java = java_command("org.apache.kafka.tools.consumer.ConsoleConsumer")
    consumer.write_text(f'#!/bin/sh\nexec {shlex.join(java)} "$@"\n')
    consumer.chmod(0o755)
    yield tmp_path
    _forget()


def _forget() -> None:
    if get("namespace", NAMESPACE, namespace="") is not None:
        kubectl("delete", "namespace", NAMESPACE, "--timeout=150s", check=True)


@pytest.mark.skipif(not installed(), reason="needs Java and make peers")
def test_the_commands_of_the_readme_lead_to_a_client_with_a_certificate(folder: Path) -> None:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    script = ["bash", "-euo", "pipefail", "-c", _commands()]
    done = subprocess.run(
        script, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    read = [line for line in done.stdout.splitlines() if re.match(r"\w{3} \w{3} +\d+ \d\d:", line)]  # of `date`
    assert len(read) == 3, done.stdout
    unknown = kubectl(
        "exec", "shop", "-n", NAMESPACE, "--", "kcat", "-b", "sample-bootstrap:9092", "-L", "-m", "5", timeout=60
    )
    assert unknown.returncode != 0 and "orders" not in unknown.stdout, "a client without a certificate is refused"
    until("the cluster says that it is secured", _secured, 60)


def _secured() -> bool:
    conditions = get("kc", "sample", namespace=NAMESPACE)["status"]["conditions"]
    return any(one["type"] == "Secured" and one["status"] == "True" for one in conditions)
