"""Processes and folders as pods and volumes: how they are observed, and steps that run once or twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft_local.folder import Folder, Memory
from kraft_local.ports import NoPortError, given
from kraft_local.world import FORMAT_AGAIN_S, RESTART_S, RESTART_S_MAX, WELL_S, World
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Job
from kraft_operator.plan.model.record import Node, Record
from tests.unit.operator.local.fakes import FakeProcesses
from tests.unit.operator.sample import CLUSTER_ID, sample

RECORD = Record(
    CLUSTER_ID,
    (Node(1, "controllers", True, False), Node(101, "brokers", False, True)),
    voters=(1,),
)
ASPECTS = {"roles": "broker", "voters": "1", "config": "c"}


class Stage:
    """A world with its own clock, and its messages."""

    def __init__(self, root: Path) -> None:
        self.now = 1000.0
        self.said: list[str] = []
        self.fakes = FakeProcesses()
        self.folder = Folder(root / "sample")
        self.cluster = sample()
        self.world = self.reborn()
        self.world.remember(self.cluster, do.Remember(RECORD, ""))

    def reborn(self) -> World:
        """Kill the supervisor and start another."""
        memory = self.folder.memory()
        self.world = World(
            self.folder, memory, self.fakes, lambda: self.now, show=self.said.append, free=lambda _port: True
        )
        return self.world

    def do(self, *steps: do.Step) -> None:
        for step in steps:
            assert self.world.carry_out(self.cluster, step)

    def kube(self, **lacks: str) -> object:
        return self.world.kube(self.cluster, {int(key[1:]): why for key, why in lacks.items()})

    def pod(self, node_id: int = 101):  # type: ignore[no-untyped-def]
        return self.world.kube(self.cluster, {}).pods.get(node_id)

    def format(self, node_id: int = 101, disk: int = 0) -> None:
        """Format as `kafka-storage` does."""
        self.do(do.CreateVolume(node_id, disk), do.Format(node_id, disk))
        self.formatted(node_id, disk)

    def formatted(self, node_id: int = 101, disk: int = 0) -> None:
        job = self.folder.node(node_id) / f"format-{disk}"
        self.fakes.end(job, 0)
        text = f"cluster.id={CLUSTER_ID}\nnode.id={node_id}\nversion=1\n"
        (self.folder.disk(node_id, disk) / "data" / "meta.properties").write_text(text)
        self.do(do.MarkFormatted(node_id, disk))

    def node(self, node_id: int = 101) -> Path:
        return self.folder.node(node_id)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_memory_and_the_ports_survive_a_restart(stage: Stage) -> None:
    ports = stage.world.memory.ports
    assert ports["101/plain"] == 9092
    assert ports["1/controller"] == 9093
    assert len(set(ports.values())) == len(ports)
    grown = RECORD.having(Node(102, "brokers", False, True))
    stage.do(do.Remember(grown, ""))
    memory = stage.reborn().memory
    assert memory.record == grown
    assert memory.ports["102/plain"] == 9192
    assert ports.items() <= memory.ports.items()


def test_two_clusters_that_start_together_get_different_ports(stage: Stage, tmp_path: Path) -> None:
    """Neither listened yet when the other one looked: nodes of both got the same ports, for good."""
    assert stage.folder.lock.take()
    second = World(Folder(tmp_path / "second"), Memory(), stage.fakes, lambda: 0.0, show=str, free=lambda _port: True)
    second.remember(stage.cluster, do.Remember(RECORD, ""))
    assert not {*second.memory.ports.values()} & {*stage.world.memory.ports.values()}
    stage.folder.lock.release()
    third = World(Folder(tmp_path / "third"), Memory(), stage.fakes, lambda: 0.0, show=str, free=lambda _port: True)
    third.remember(stage.cluster, do.Remember(RECORD, ""))
    assert third.memory.ports == stage.world.memory.ports, "nobody drives the first one now"


def test_a_port_in_use_is_not_assigned() -> None:
    nodes = [Node(101, "brokers", False, True), Node(102, "brokers", False, True)]
    said: list[str] = []
    ports = given(sample(), nodes, {}, 0, lambda port: port not in {9092, 9404}, said.append)
    assert [text.split(":")[0] for text in said] == [f"port {n} is used by another program" for n in (9092, 9404)]
    assert {k: v for k, v in ports.items() if k.startswith("101/")} == {
        "101/plain": 9192,
        "101/external": 9094,
        "101/http": 9405,
    }
    assert given(sample(), nodes, ports, 7, lambda _port: False) == ports, "what was given stays"
    with pytest.raises(NoPortError):
        given(sample(), nodes, {}, 0, lambda _port: False)


def test_a_disk_is_made_formatted_and_marked(stage: Stage) -> None:
    assert stage.world.kube(stage.cluster, {}).volumes == {}
    stage.do(do.CreateVolume(101, 0))
    assert stage.world.kube(stage.cluster, {}).volumes[101, 0].formatted_for == ""
    stage.do(do.Format(101, 0))
    assert stage.world.kube(stage.cluster, {}).jobs[101, 0].state == "running"
    command = stage.fakes.runs[stage.node() / "format-0"].command
    assert command[-3:] == ["-t", CLUSTER_ID, "-g"]
    text = (stage.node() / "format.properties").read_text()
    assert f"log.dirs={stage.folder.disk(101, 0) / 'data'}" in text
    stage.formatted()
    assert stage.world.kube(stage.cluster, {}).volumes[101, 0].formatted_for == f"{CLUSTER_ID}/101"
    assert stage.world.kube(stage.cluster, {}).jobs == {}


def test_a_failed_format_is_reported_and_repeated(stage: Stage) -> None:
    stage.do(do.CreateVolume(101, 0), do.Format(101, 0))
    (stage.node() / "format.log").write_text("first\nno space left\n")
    stage.fakes.end(stage.node() / "format-0", 1)
    assert stage.world.kube(stage.cluster, {}).jobs[101, 0] == Job("failed", "no space left")
    stage.now += FORMAT_AGAIN_S
    assert stage.world.kube(stage.cluster, {}).jobs == {}


def test_a_format_with_unknown_outcome_is_repeated(stage: Stage) -> None:
    stage.do(do.CreateVolume(101, 0), do.Format(101, 0))
    stage.fakes.end(stage.node() / "format-0", None)
    assert stage.reborn().kube(stage.cluster, {}).jobs == {}
    stage.do(do.Format(101, 0))


def test_a_foreign_disk_shows_its_owner(stage: Stage) -> None:
    stage.format()
    meta = stage.folder.disk(101, 0) / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=101", "node.id=7"))
    assert stage.world.kube(stage.cluster, {}).volumes[101, 0].formatted_for == f"{CLUSTER_ID}/7"


def test_a_disk_without_meta_properties_does_not_count(stage: Stage) -> None:
    stage.format()
    (stage.folder.disk(101, 0) / "data" / "meta.properties").unlink()
    assert stage.world.kube(stage.cluster, {}).volumes == {}


def test_a_dropped_format_job_is_gone(stage: Stage) -> None:
    stage.do(do.CreateVolume(101, 0), do.Format(101, 0))
    assert (101, 0) in stage.world.kube(stage.cluster, {}).jobs
    stage.do(do.DropJob(101, 0))
    assert (101, 0) not in stage.world.kube(stage.cluster, {}).jobs


def test_a_node_runs_with_its_file_and_reports_readiness(stage: Stage) -> None:
    stage.format()
    stage.do(do.CreatePod(101, ASPECTS))
    text = (stage.node() / "server.properties").read_text()
    for line in (
        "node.id=101",
        "process.roles=broker",
        "listeners=PLAIN://localhost:9092,EXTERNAL://localhost:9094",
        "advertised.listeners=PLAIN://localhost:9092,EXTERNAL://localhost:9094",
        "controller.quorum.voters=1@localhost:9093",
        "http.listener=localhost:9405",
        "min.insync.replicas=2",
    ):
        assert line in text.splitlines()
    pod = stage.world.kube(stage.cluster, {101: "RECOVERY"}).pods[101]
    assert (pod.running, pod.ready, pod.message, pod.aspects) == (True, False, "RECOVERY", ASPECTS)
    assert stage.pod().ready


def test_a_node_that_ends_restarts_after_growing_pauses(stage: Stage) -> None:
    stage.format()
    waits = []
    for _ in range(8):
        stage.do(do.CreatePod(101, ASPECTS))
        assert stage.pod().running
        (stage.folder.log(101)).write_text("starts\nno such key\n")
        stage.fakes.end(stage.node(), 1)
        pod = stage.pod()
        assert (pod.running, pod.ready) == (False, False)
        assert pod.message == "ended with code 1: no such key"
        waited = 0.0
        while stage.pod() is not None:
            stage.now += 0.5
            waited += 0.5
        waits.append(waited)
    assert waits == [RESTART_S, 2, 4, 8, 16, RESTART_S_MAX, RESTART_S_MAX, RESTART_S_MAX]
    stage.do(do.CreatePod(101, ASPECTS))
    stage.now += WELL_S
    stage.fakes.end(stage.node(), -9)
    assert stage.pod().message == "has ended by signal 9"
    stage.now += RESTART_S
    assert stage.pod() is None, "it had been well for long enough"


def test_a_stopped_process_is_removed_at_once(stage: Stage) -> None:
    stage.format()
    stage.do(do.CreatePod(101, ASPECTS))
    stage.fakes.end(stage.node(), 1)
    assert not stage.pod().running
    stage.do(do.Recreate((101,), "corrected"))
    assert stage.pod() is None


def test_a_stop_is_requested_once_and_enforced_after_the_grace_period(stage: Stage) -> None:
    stage.format()
    stage.do(do.CreatePod(101, ASPECTS))
    run = stage.fakes.runs[stage.node()]
    run.deaf = True
    stage.do(do.Restart((101,), "config"))
    for _ in range(3):
        assert stage.pod().terminating
        stage.do(do.Restart((101,), "config"))
    assert run.asked == 1, "asked twice, a node stops at once"
    stage.now += 59
    assert stage.pod().terminating
    stage.now += 1
    stage.pod()
    assert run.exit_code == -9
    assert stage.pod() is None


def test_after_a_crash_a_new_supervisor_finishes_the_stop(stage: Stage) -> None:
    stage.format()
    stage.do(do.CreatePod(101, ASPECTS))
    stage.fakes.runs[stage.node()].deaf = True
    stage.do(do.Stop(101, "it leaves"))
    stage.reborn()
    assert stage.pod().terminating
    assert not stage.pod().ready
    stage.fakes.end(stage.node(), None)
    assert stage.pod() is None, "it was asked to: it has not ended by itself"
    stage.do(do.CreatePod(101, ASPECTS))
    assert not stage.pod().terminating


def test_an_observer_changes_nothing(stage: Stage) -> None:
    stage.format()
    stage.do(do.CreatePod(101, ASPECTS))
    stage.fakes.end(stage.node(), 1)
    memory = stage.folder.memory()
    looker = World(stage.folder, memory, stage.fakes, lambda: stage.now + 100, show=stage.said.append, acts=False)
    assert looker.kube(stage.cluster, {}).pods[101].message == "has ended"
    assert stage.node() in stage.fakes.runs
    assert stage.said == []


def test_a_new_disk_leaves_the_old_one_unchanged(stage: Stage) -> None:
    stage.format()
    stage.do(do.Remember(RECORD.having(replace(RECORD.nodes[1], disk=1)), ""))
    stage.format(disk=1)
    stage.do(do.CreatePod(101, ASPECTS))
    assert str(stage.folder.disk(101, 1)) in (stage.node() / "server.properties").read_text()
    assert sorted(stage.world.kube(stage.cluster, {}).volumes) == [(101, 0), (101, 1)]
    stage.do(do.DeleteVolume(101, 0))
    assert sorted(stage.world.kube(stage.cluster, {}).volumes) == [(101, 1)]


def test_steps_inside_the_cluster_are_not_carried_out_locally(stage: Stage) -> None:
    assert not stage.world.carry_out(stage.cluster, do.Unregister(101))


def test_a_disk_records_finished_replacements(stage: Stage) -> None:
    stage.format()
    assert stage.kube().volumes[101, 0].replaced == frozenset()  # type: ignore[attr-defined]
    stage.do(do.MarkReplaced(101, 0, ("disk", "older")))
    stage.reborn()
    assert stage.kube().volumes[101, 0].replaced == {"disk", "older"}  # type: ignore[attr-defined]
