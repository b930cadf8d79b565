"""Options of `kraftcluster migrate` on real processes: --command-config, --watch, --restart and --metadata-log."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.members import wait_for
from tests.golden.migration.content import PASSWORD, Admin
from tests.golden.migration.operating import Operator, operating

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]
CONTROLLER = 3001


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with operating(tmp_path, 1) as made:
        yield made


def _migrated(operator: Operator) -> None:
    """Lead the cluster to writes to both worlds."""
    operator.make("before")
    operator.start()
    operator.restart_broker(operator.file("broker-1-migrating"))
    operator.start_controllers()
    operator.migrated()


def _alice(folder: Path, password: str) -> str:
    path = folder / "alice.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{password}";\n'
    )
    return str(path)


def test_check_reads_brokers_by_a_listener_with_sasl(operator: Operator, tmp_path: Path) -> None:
    with Admin(operator.cluster.bootstrap) as admin:
        admin.scram("alice", 1)
    assert "blocker" not in operator.check("--command-config", _alice(tmp_path, PASSWORD.decode()))
    (blocker,) = operator.check("--command-config", _alice(tmp_path, "wrong"), code=1)["blocker"]
    assert "its configuration cannot be read" in blocker


def test_a_migration_is_watched_and_finalized_with_a_command_that_restarts(operator: Operator, tmp_path: Path) -> None:
    _migrated(operator)
    watch = subprocess.Popen(operator.words("status", *operator.pages, "--watch"), stdout=subprocess.PIPE)
    try:
        operator.restart_broker(operator.file("broker-1-kraft"), ours=True)
        wait_for("no broker with ZooKeeper", lambda: operator.cluster.migration().get("state") == "MIGRATION_FINISHED")
        operator.migrated()
        due, done = tmp_path / f"{CONTROLLER}.due", tmp_path / f"{CONTROLLER}.done"

        def restart() -> None:
            wait_for("a restart is due", due.exists, timeout_s=120)
            node = operator.cluster.nodes[CONTROLLER]
            node.stop()
            node.overrides = operator.file(f"controller-{CONTROLLER}")
            node.launch()
            done.touch()

        threading.Thread(target=restart, daemon=True).start()
        script = f"touch {tmp_path}/{{id}}.due; until [ -e {tmp_path}/{{id}}.done ]; do sleep 0.1; done"
        file = operator.files / f"controller-{CONTROLLER}.properties"
        words = ("--properties", str(file), "--restart", f"sh -c '{script}'")
        assert operator.run("finalize", *operator.pages, *words) == {"order": [CONTROLLER], "finished": True}
        out, _ = watch.communicate(timeout=60)
    finally:
        watch.kill()
    seen = [json.loads(line) for line in out.splitlines()]
    assert seen[-1]["isFinished"]
    states = {one["active"]["state"] for one in seen if one["active"]}
    assert states >= {"MIGRATION_ACTIVE", "MIGRATION_FINISHED"}
    operator.has_topics({"before"})


def test_revert_is_refused_while_zookeeper_lacks_a_record(operator: Operator) -> None:
    _migrated(operator)
    controller, zookeeper = operator.cluster.nodes[CONTROLLER], operator.cluster.zookeeper.process
    assert zookeeper is not None
    zookeeper.send_signal(signal.SIGSTOP)
    operator.make("late")
    controller.kill()
    zookeeper.send_signal(signal.SIGCONT)
    log = str(controller.data / "__cluster_metadata-0")
    refusal = operator.run("revert", *operator.pages, "--metadata-log", log, code=3, zookeeper=True)
    assert "ZooKeeper lacks" in refusal

    controller.launch()
    operator.migrated()
    operator.stop_controllers()
    assert operator.run("revert", *operator.pages, "--metadata-log", log, zookeeper=True)["released"]
    operator.has_topics({"before", "late"})
