"""`kraftcluster migrate` on real processes: check, start and finalize; revert from several states."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.members import wait_for
from tests.golden.migration.operating import Operator, operating

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def operator(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Operator]:
    with operating(tmp_path, request.param) as made:
        yield made


@pytest.mark.parametrize("operator", [1], indirect=True)
def test_a_migration_is_reverted_while_all_brokers_use_zookeeper(operator: Operator) -> None:
    operator.make("before")
    operator.start()
    operator.restart_broker(operator.file("broker-1-migrating"))
    operator.start_controllers()
    operator.migrated()
    operator.make("dual")
    operator.migrated()
    assert operator.run("revert", *operator.pages, code=1, zookeeper=True)["step"] == "stop"
    operator.stop_controllers()
    done = operator.run("revert", *operator.pages, zookeeper=True)
    assert (done["released"], done["controller"]) == (True, 1)
    operator.restart_broker(operator.former)
    operator.has_topics({"before", "dual"})
    operator.make("reverted")
    assert not operator.run("revert", *operator.pages, zookeeper=True)["released"]


@pytest.mark.parametrize("operator", [1], indirect=True)
def test_a_migration_is_reverted_after_a_broker_was_replaced(operator: Operator) -> None:
    operator.make("before")
    operator.start()
    migrating = operator.file("broker-1-migrating")
    operator.restart_broker(migrating)
    operator.start_controllers()
    operator.migrated()
    operator.restart_broker(operator.file("broker-1-kraft"), ours=True)
    operator.make("ours")
    assert operator.run("revert", *operator.pages, code=1, zookeeper=True)["step"] == "brokers"
    former = operator.broker
    former.stop()
    shutil.rmtree(former.data / "__cluster_metadata-0")
    meta = former.data / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=0").replace("node.id", "broker.id"))
    operator.restart_broker(migrating)
    operator.migrated()
    assert operator.run("revert", *operator.pages, code=1, zookeeper=True)["step"] == "stop"
    operator.stop_controllers()
    assert operator.run("revert", *operator.pages, zookeeper=True)["controller"] == 1
    operator.restart_broker(operator.former)
    operator.has_topics({"before", "ours"})
    operator.make("again")


@pytest.mark.parametrize("operator", [3], indirect=True)
def test_the_commands_lead_from_zookeeper_to_a_finished_migration(operator: Operator) -> None:
    operator.make("before")
    found = operator.check()
    assert "migrate start" in found["next"][0]
    assert "blocker" not in found
    assert "broker 1: zookeeper.metadata.migration.enable is not true" in found["preparation"]
    assert any("password" in one for one in found["warning"])

    result = operator.start()
    names = [*(f"controller-{i}" for i in (3001, 3002, 3003)), "broker-1-migrating", "broker-1-kraft"]
    assert [Path(one["file"]).name for one in result["files"]] == [f"{name}.properties" for name in names]
    assert [one["todo"] for one in result["files"]] == [[]] * 5
    assert operator.start() == result  # the same again
    operator.restart_broker(operator.file("broker-1-migrating"))
    assert "start the controllers" in operator.check()["next"][0]
    operator.start_controllers()
    operator.migrated()
    status = operator.run("status", *operator.pages)
    assert (status["active"]["state"], status["isFinished"]) == ("MIGRATION_ACTIVE", False)
    assert "migrate status" in operator.check()["next"][0]
    assert "brokers 1 use ZooKeeper" in operator.run("finalize", *operator.pages, code=3)

    operator.restart_broker(operator.file("broker-1-kraft"), ours=True)
    wait_for("no broker with ZooKeeper", lambda: operator.cluster.migration().get("state") == "MIGRATION_FINISHED")
    operator.migrated()
    operator.unregister_broker()
    refusal = operator.run("finalize", *operator.pages, code=3)
    assert "brokers 1 have replicas, but are not registered" in refusal
    operator.broker.launch()
    operator.broker.wait_ready()
    files = [str(operator.files / f"controller-{i}.properties") for i in operator.cluster.controller_ports]
    named = [word for file in files for word in ("--properties", file)]
    order = operator.run("finalize", *operator.pages, *named, "--no-wait")["order"]
    assert sorted(order) == [3001, 3002, 3003]
    for node_id in order:
        node = operator.cluster.nodes[node_id]
        node.stop()
        assert operator.file(f"controller-{node_id}")["zookeeper.metadata.migration.enable"] == "false"
        node.overrides["zookeeper.metadata.migration.enable"] = "false"
        node.launch()
    assert operator.run("finalize", *operator.pages)["finished"]
    assert operator.run("status", *operator.pages)["isFinished"]
    assert "no way back" in operator.run("revert", *operator.pages, code=3, zookeeper=True)
    operator.has_topics({"before"})
    operator.make("after")
