"""The supervisor on simulated processes: it continues after a crash anywhere, and follows its file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_local.folder import Folder, Requests
from kraft_local.resource_file import BadResourceError, with_requests
from kraft_local.supervisor import Supervisor
from kraft_local.world import unclean
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Aged
from kraft_operator.plan.model.record import ReplacementRecord
from tests.unit.operator.local.fakes import FakeProcesses
from tests.unit.operator.sample import ROOT, sample

PLAINTEXT = (ROOT / "deploy/samples/plaintext.yaml").read_text().replace("name: plaintext", "name: sample")
NODES = [1, 2, 3, 101, 102, 103]


class Shown:
    """The reported resources."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.resource: dict[str, Any] = {}

    def event(self, text: str) -> None:
        self.events.append(text)

    def status(self, resource: dict[str, Any]) -> None:
        self.resource = resource


class Blind:
    """No node answers."""

    quorum: Aged[Any] = Aged()
    metadata: Aged[Any] = Aged()

    async def look(self, controllers: object, brokers: object, statuses: object = None) -> None:
        """Sees nothing."""


async def nobody_is_ready(nodes: Mapping[int, object]) -> dict[int, str]:
    return dict.fromkeys(nodes, "starts")


class CrashError(Exception):
    """The supervisor dies here."""


class Stage:
    def __init__(self, root: Path) -> None:
        self.file = root / "kraftcluster.yaml"
        self.file.write_text(PLAINTEXT)
        self.folder = Folder(root / "data" / "sample")
        self.fakes = FakeProcesses()
        self.shown = Shown()
        self.supervisor = self.reborn()

    def reborn(self) -> Supervisor:
        self.supervisor = Supervisor(
            self.folder, self.file, self.shown, processes=self.fakes, view=Blind(), probe=nobody_is_ready
        )
        self.supervisor.world._free = lambda _port: True
        return self.supervisor

    def load(self) -> None:
        self.supervisor.load()

    def passes(self, count: int) -> None:
        async def run() -> None:
            async with self.supervisor.client:
                for _ in range(count):
                    await self.supervisor.once()
                    self.formats()

        asyncio.run(run())

    def formats(self) -> None:
        """The pending requests to `kafka-storage`, done."""
        for folder, run in self.fakes.runs.items():
            if folder.name.startswith("format-") and run.alive:
                file = Path(run.command[run.command.index("-c") + 1])
                values = dict(line.split("=", 1) for line in file.read_text().splitlines())
                cluster_id = run.command[run.command.index("-t") + 1]
                for path in values["log.dirs"].split(","):
                    meta = Path(path) / "meta.properties"
                    text = f"cluster.id={cluster_id}\nnode.id={values['node.id']}\nversion=1\n"
                    assert not meta.exists() or meta.read_text() == text
                    meta.write_text(text)
                self.fakes.end(folder, 0)

    def change(self, change: Any) -> None:
        document = yaml.safe_load(self.file.read_text())
        change(document["spec"])
        self.file.write_text(yaml.safe_dump(document))

    def running(self) -> list[int]:
        return sorted(int(path.name) for path, run in self.fakes.runs.items() if run.alive and path.name.isdigit())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_new_cluster_is_formatted_once_and_started(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    assert stage.running() == NODES
    assert sorted(stage.fakes.started) == sorted([*["format-0"] * 6, *map(str, NODES)])
    reported = stage.shown.resource
    assert reported["status"]["voters"] == [1, 2, 3]
    assert reported["local"]["bootstrap"] == "localhost:9092,localhost:9192,localhost:9292"
    assert reported == stage.folder.status()


@pytest.mark.parametrize("step", range(0, 33, 2))
def test_a_supervisor_continues_after_a_crash_at_any_step(
    stage: Stage, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies right after that many steps, and keeps only the disk and the running processes."""
    stage.load()
    done = 0
    real = type(stage.supervisor.world).carry_out

    def carry_out(world: Any, cluster: Any, what: do.Step) -> bool:
        nonlocal done
        found = real(world, cluster, what)
        done += 1
        if done == step + 1:
            raise CrashError
        return found

    monkeypatch.setattr(type(stage.supervisor.world), "carry_out", carry_out)
    crashed = False
    for _ in range(10):
        try:
            stage.passes(1)
        except CrashError:
            crashed = True
            for run in stage.fakes.runs.values():
                if not run.alive:
                    run.exit_code = None  # the exit code of another process's child is unknown
            stage.reborn().load()
    assert crashed == (step < done)
    assert stage.running() == NODES
    ids = {run.command[run.command.index("-t") + 1] for run in stage.fakes.runs.values() if "-t" in run.command}
    assert ids <= {stage.folder.memory().record.cluster_id}
    assert {pid for pid in stage.fakes.started if pid.isdigit()} == set(map(str, NODES))
    assert len([name for name in stage.fakes.started if name.isdigit()]) == 6


def test_a_wrong_change_is_reported_once_and_the_old_specification_stays(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    before = stage.folder.memory()
    stage.change(lambda spec: spec["nodePools"][0].update(replicas=5))
    stage.passes(3)
    reported = [event for event in stage.shown.events if "not taken over" in event]
    assert len(reported) == 1
    assert "set quorum.allowVoterChanges to true in the same edit" in reported[0]
    assert "allowVoterChanges" in stage.shown.resource["local"]["trouble"]
    assert stage.folder.memory() == before
    with pytest.raises(BadResourceError, match="allowVoterChanges"):
        stage.reborn().load()
    stage.file.write_text(PLAINTEXT)
    stage.supervisor.load()
    stage.passes(1)
    assert stage.shown.resource["local"]["trouble"] == ""


def test_a_file_during_a_write_is_read_again_later(stage: Stage) -> None:
    stage.load()
    whole = stage.file.read_text()
    for part in ("", whole[:100], whole[:-20]):
        stage.file.write_text(part)
        stage.passes(1)
    stage.file.write_text(whole.replace("replicas: 3\n  security", "replicas: 4\n  security"))
    stage.passes(2)
    assert not [event for event in stage.shown.events if "not taken over" in event]
    assert stage.shown.resource["spec"]["replicas"] == 4


def test_an_added_volume_is_formatted_while_its_node_is_down(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    stage.change(lambda spec: spec["nodePools"][1]["storage"]["volumes"].append({"name": "more", "size": "1Gi"}))
    stage.passes(3)
    assert (stage.folder.disk(101, 0) / "more").is_dir()
    assert stage.running() == NODES, "nobody restarts while the quorum is unknown"
    stage.fakes.end(stage.folder.node(101), -9)
    stage.supervisor.world._clock = lambda: stage.supervisor._clock() + 60
    stage.passes(6)
    assert stage.running() == NODES
    assert stage.fakes.started[-2:] == ["format-0", "101"]
    assert (stage.folder.disk(101, 0) / "more" / "meta.properties").exists()
    (node,) = (one for one in stage.shown.resource["status"]["nodes"] if one["id"] == 101)
    assert node["volumes"] == ["data", "more"]


def test_a_deleted_file_changes_nothing(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    stage.file.unlink()
    stage.passes(2)
    assert stage.running() == NODES
    assert "No such file" in stage.shown.resource["local"]["trouble"]


def test_another_clusters_file_is_refused(stage: Stage) -> None:
    stage.load()
    stage.file.write_text(PLAINTEXT.replace("name: sample", "name: other"))
    with pytest.raises(BadResourceError, match="it is sample that runs here, not other"):
        stage.load()


def test_more_replicas_in_the_file_start_brokers(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    stage.change(lambda spec: spec.update(replicas=5))
    stage.passes(8)
    assert stage.running() == [*NODES, 104, 105]
    assert stage.folder.memory().generation == 2
    assert stage.folder.memory().ports["105/plain"] == 9492


def test_an_unknown_quorum_permits_no_restart(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    with stage.folder.changing_requests() as requests:
        requests.annotations["kraftcluster.io/roll"] = "101=now"
    stage.passes(3)
    assert all(run.asked == 0 for run in stage.fakes.runs.values())
    (node,) = (one for one in stage.shown.resource["status"]["nodes"] if one["id"] == 101)
    assert node["needsRestart"] == ["roll"]


def test_a_requested_pause_stops_all_steps(stage: Stage) -> None:
    stage.load()
    with stage.folder.changing_requests() as requests:
        requests.paused = True
    stage.passes(5)
    assert stage.fakes.runs == {}
    with stage.folder.changing_requests() as requests:
        requests.paused = False
    stage.passes(8)
    assert stage.running() == NODES


def test_brokers_stop_before_controllers(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    order: list[int] = []
    real = stage.fakes.signal

    def signal(folder: Path, number: int) -> bool:
        order.append(int(folder.name))
        return real(folder, number)

    stage.fakes.signal = signal  # type: ignore[method-assign]
    assert asyncio.run(stage.supervisor.stop_all(asyncio.Event()))
    assert sorted(order[:3]) == [101, 102, 103]
    assert sorted(order[3:]) == [1, 2, 3]
    assert stage.running() == []


def test_a_stop_that_kills_after_the_grace_period_is_not_clean(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.load()
    stage.passes(8)
    for run in stage.fakes.runs.values():
        run.deaf = True
    monkeypatch.setattr(stage.supervisor.world, "_grace_s", lambda *_: 0.0)
    assert not asyncio.run(stage.supervisor.stop_all(asyncio.Event()))
    assert stage.running() == []


@pytest.mark.parametrize(
    ("code", "when"),
    [(1, "before it is asked"), (-9, "before it is asked"), (1, "while it stops"), (-6, "while it stops")],
)
def test_a_stop_in_which_a_node_crashes_is_not_clean(stage: Stage, code: int, when: str) -> None:
    stage.load()
    stage.passes(8)
    real = stage.fakes.signal
    crashes = stage.folder.node(102)

    def signal(folder: Path, number: int) -> bool:
        if when == "while it stops" and folder == crashes:
            stage.fakes.end(folder, code)
            return True
        if when == "before it is asked" and crashes in stage.fakes.runs and stage.fakes.runs[crashes].alive:
            stage.fakes.end(crashes, code)
        return real(folder, number)

    stage.fakes.signal = signal  # type: ignore[method-assign]
    assert not asyncio.run(stage.supervisor.stop_all(asyncio.Event()))
    assert stage.running() == []
    assert unclean(stage.folder, [101, 102, 103]) == [102]


def test_a_node_that_crashed_and_runs_again_stops_cleanly(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    stage.fakes.end(stage.folder.node(102), 1)
    stage.passes(8)
    assert asyncio.run(stage.supervisor.stop_all(asyncio.Event()))


def test_an_immediate_stop_kills_unresponsive_nodes_and_reports_it(stage: Stage) -> None:
    stage.load()
    stage.passes(8)
    for run in stage.fakes.runs.values():
        run.deaf = True
    at_once = asyncio.Event()
    at_once.set()
    assert not asyncio.run(stage.supervisor.stop_all(at_once))
    assert stage.running() == []


def test_a_failed_pass_is_reported_and_the_next_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.load()
    stop = asyncio.Event()
    passes: list[int] = []

    async def once() -> do.Plan:
        passes.append(1)
        if len(passes) == 2:
            stop.set()
        raise ValueError("a mistake")

    monkeypatch.setattr(stage.supervisor, "once", once)
    monkeypatch.setattr("kraft_local.supervisor.SETTLED_S", 0.0)
    asyncio.run(stage.supervisor.run(stop))
    assert len(passes) == 2
    assert "ValueError: a mistake" in stage.shown.events[-1]


def test_requests_are_added_to_the_specification_of_the_file() -> None:
    spec = sample(replacements=[{"name": "a", "node": 1, "by": "EmptyDisk"}]).spec
    item = {"name": "a", "node": 2, "by": "NewId"}
    found = with_requests(spec, Requests(replacements=[item, {**item, "name": "b"}], hibernated=True))
    assert [(one.name, one.node) for one in found.replacements] == [("a", 1), ("b", 2)], "the file's come first"
    assert (found.paused, found.hibernated) == (False, True)


def test_a_preview_lists_the_steps_for_a_file(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.load()
    stage.passes(8)
    written = (stage.folder.root / "cluster.json").read_text()
    looker = Supervisor(
        stage.folder, stage.file, Shown(), processes=stage.fakes, acts=False, view=Blind(), probe=nobody_is_ready
    )
    looker.memory.accepted["replicas"] = 4  # type: ignore[index]

    monkeypatch.setattr("kraft_local.supervisor.BUSY_S", 0.0)

    async def look() -> dict[str, Any]:
        async with looker.client:
            return await looker.look()

    lines = asyncio.run(look())["status"]["plan"]
    assert "Remember: nodes are assigned" in lines
    assert "CreateVolume 104: the claims of disk 0 are created" in lines
    assert (stage.folder.root / "cluster.json").read_text() == written


def test_a_request_of_the_command_line_ends_with_its_replacement(stage: Stage) -> None:
    stage.load()
    stage.passes(1)
    items = [{"name": name, "node": 2, "by": "EmptyDisk", "accept": []} for name in ("done", "open")]
    with stage.folder.changing_requests() as requests:
        requests.replacements = items
    record = stage.supervisor.memory.record
    stage.supervisor.memory.record = record.replacing(ReplacementRecord("done", 2, "EmptyDisk", done=True))
    stage.passes(1)
    assert [one["name"] for one in stage.folder.requests().replacements] == ["open"]
