"""Processes and folders as the planner's pods and volumes: observes them and carries out steps.

    pod      a process with its `server.properties`; an ended process is a pod that does not run, until the next start
             is due
    volume   a folder for each of the pool's volumes under `disk-N`, with a mark that names the owner
    job      a run of `kafka-storage format`

The supervisor calls it. It only decides when an ended process may start again. Every step can be repeated after a
crash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kraft_local.files import environment, format_command, format_roles, log_dirs, node_file, start_command
from kraft_local.folder import Folder, Memory
from kraft_local.ports import CONTROLLER, HOST, given, is_free, key
from kraft_local.processes import Process
from kraft_operator.api.pools import NodePool
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Job, Kube, Pod, Volume
from kraft_operator.plan.model.record import Node, Record
from kraft_operator.plan.model.situation import MIGRATES
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.pods import ids, keeping

MARK: Final = "formatted-for"
REPLACED: Final = "replaced"
"""The file with the names of the node's finished replacements, separated by commas."""
VOLUME_MARK: Final = ".mark"
"""Suffix of the file with the mark of a volume that was removed from its pool."""
STOPPING: Final = "stopping.json"
UNCLEAN: Final = "unclean"
"""The file that marks a crash or a kill of a node's last process."""
PROPERTIES: Final = "server.properties"
RESTART_S: Final = 1.0
"""Seconds until an ended node starts again: long enough to see that it is missing."""
RESTART_S_MAX: Final = 30.0
"""The most seconds between starts of a node that keeps ending. Every end in a row doubles the delay up to this."""
WELL_S: Final = 60.0
"""A node that ran for this many seconds started successfully."""
GRACE_S: Final = 60.0
"""Grace period in seconds for a node of a removed pool."""
ROOM: Final = 2**62
"""The size of a folder in bytes: in effect unlimited. The size in the resource has no effect."""
FORMAT_AGAIN_S: Final = 10.0
LINE_CHARS_MAX: Final = 300


class Starts(Protocol):
    """The interface of `processes.Processes`. Tests have a fake."""

    def start(
        self, folder: Path, command: list[str], what: Mapping[str, str], log: Path, env: Mapping[str, str]
    ) -> None:
        """Start `command` in the background, unless a process runs in `folder`. `what` is recorded, `env` is added."""
        ...

    def look(self, folder: Path) -> Process | None:
        """The process that runs in a folder, or ran there last; None if it was forgotten or none ran."""
        ...

    def rewrite(self, folder: Path, aspects: Mapping[str, str]) -> None:
        """Change aspects in the record of the process that runs in a folder."""
        ...

    def signal(self, folder: Path, number: int) -> bool:
        """Send a signal to the process in a folder. Returns whether it was sent."""
        ...

    def forget(self, folder: Path) -> None:
        """Remove the record of an ended process, so that `look` no longer returns it."""
        ...


@dataclass(slots=True)
class _Ended:
    """A process that has ended by itself."""

    again_at: float
    why: str


class World:
    """One cluster's processes and folders."""

    def __init__(
        self,
        folder: Folder,
        memory: Memory,
        processes: Starts,
        clock: Callable[[], float],
        *,
        show: Callable[[str], None],
        free: Callable[[int], bool] = is_free,
        acts: bool = True,
    ) -> None:
        self.folder = folder
        self.memory = memory
        self._processes = processes
        self._clock = clock
        self._show = show
        self._free = free
        self._acts = acts
        """If False, it only observes, because another supervisor may drive the cluster."""
        self._since: dict[int, float] = {}
        self._ended: dict[int, _Ended] = {}
        self._failures: dict[int, int] = {}
        self._failed_jobs: dict[tuple[int, int], float] = {}
        self._asked: set[tuple[int, str]] = set()
        """Process ids and start times of processes that got SIGTERM. A node that gets it twice stops at once. Start
        times alone are not sufficient: processes that start in the same 10 ms have the same."""

    # Observation

    def processes(self) -> dict[int, Process]:
        """Every process that was started and not forgotten, by node id."""
        found = {}
        for node_id in self.folder.node_ids():
            process = self._processes.look(self.folder.node(node_id))
            if process is not None:
                found[node_id] = process
        return found

    def kube(self, cluster: NamedCluster, not_ready: Mapping[int, str]) -> Kube:
        """Processes, folders and jobs as pods, volumes, jobs. `not_ready`: nodes with the reasons."""
        pods, volumes, jobs = {}, {}, {}
        for node_id, process in self.processes().items():
            pod = self._pod(node_id, process, not_ready.get(node_id))
            if pod is not None:
                pods[node_id] = pod
        for node in self.memory.record.nodes:
            for disk in self._disks(node.id):
                volume = self._volume(cluster, node, disk)
                if volume is not None:
                    volumes[node.id, disk] = volume
            job = self._job(node)
            if job is not None:
                jobs[node.id, node.disk] = job
        return Kube(pods, volumes, jobs)

    def _pod(self, node_id: int, process: Process, problem: str | None) -> Pod | None:
        stopping = self._stopping(node_id, process)
        if process.alive:
            self._since.setdefault(node_id, self._clock())
            if stopping is not None and self._acts:
                self._press(node_id, process, stopping)
            ready = problem is None and stopping is None
            mounted = _mounted(self.folder.node(node_id) / PROPERTIES)
            port = self.memory.ports.get(key(node_id, CONTROLLER))
            return Pod(
                True,
                ready,
                process.what,
                terminating=stopping is not None,
                message=problem or "",
                volumes=mounted,
                addresses=frozenset() if port is None else frozenset({f"{HOST}:{port}"}),
            )
        if not self._acts:
            return Pod(False, False, process.what, message="has ended")
        if stopping is None:
            ended = self._ended.get(node_id) or self._has_ended(node_id, process)
            if self._clock() < ended.again_at:
                return Pod(False, False, process.what, message=ended.why)
        self._note_end(node_id, process, asked=stopping is not None)
        self._forget(node_id)
        return None

    def _note_end(self, node_id: int, process: Process, *, asked: bool) -> None:
        """Note whether an ended process stopped cleanly. The exit code of another supervisor's child is unknown."""
        if not asked or process.exit_code not in {0, None}:
            (self.folder.node(node_id) / UNCLEAN).touch()

    def _has_ended(self, node_id: int, process: Process) -> _Ended:
        self._note_end(node_id, process, asked=False)
        now = self._clock()
        ran_s = now - self._since.pop(node_id, now)
        failures = self._failures[node_id] = 0 if ran_s >= WELL_S else self._failures.get(node_id, -1) + 1
        wait_s = min(RESTART_S * 2**failures, RESTART_S_MAX)
        code = process.exit_code
        how = "has ended" if code is None else f"has ended by signal {-code}" if code < 0 else f"ended with code {code}"
        why = f"{how}: {_last_line(self.folder.log(node_id))}" if code is not None and code > 0 else how
        self._show(f"node {node_id} {why}; it starts again in {wait_s:.0f} s")
        ended = self._ended[node_id] = _Ended(now + wait_s, why)
        return ended

    def _forget(self, node_id: int) -> None:
        self._processes.forget(self.folder.node(node_id))
        (self.folder.node(node_id) / STOPPING).unlink(missing_ok=True)
        self._ended.pop(node_id, None)
        self._since.pop(node_id, None)

    def _disks(self, node_id: int) -> list[int]:
        there = self.folder.node(node_id)
        names = [path.name.partition("-") for path in there.glob("disk-*")] if there.is_dir() else []
        return sorted(int(number) for _, _, number in names if number.isdecimal())

    def _volume(self, cluster: NamedCluster, node: Node, disk: int) -> Volume | None:
        """The volumes of a disk; None if the disk does not exist, or was formatted and has lost its content."""
        folder = self.folder.disk(node.id, disk)
        mark = folder / MARK
        marked = mark.read_text().strip() if mark.exists() else ""
        pool = cluster.pool(node.pool)
        owners = {owner for path in (log_dirs(pool, folder) if pool else ()) if (owner := _owner(path)) is not None}
        if marked and not owners and pool is not None:
            return None
        foreign = sorted(owners - {f"{self.memory.record.cluster_id}/{node.id}"})
        there = {path.name: path for path in (log_dirs(pool, folder) if pool is not None else ()) if path.is_dir()}
        if pool is not None:  # also volumes that were removed from the pool
            there |= {path.name: path for path in folder.iterdir() if path.is_dir() and _owner(path) is not None}
        unmarked = frozenset(name for name, path in there.items() if marked and _owner(path) is None)
        done = folder / REPLACED
        replaced = frozenset(done.read_text().strip().split(",") if done.exists() else ()) - {""}
        marks = {path.stem: path.read_text().strip() for path in folder.glob(f"*{VOLUME_MARK}")}
        sizes = dict.fromkeys(there, ROOM)
        return Volume(foreign[0] if foreign else marked, sizes, unmarked, replaced=replaced, marks=marks)

    def _job(self, node: Node) -> Job | None:
        key_ = (node.id, node.disk)
        process = self._processes.look(self._job_folder(*key_))
        if process is None:
            return None
        if process.alive:
            return Job("running")
        if process.exit_code == 0:
            return Job("done")
        if not self._acts:
            return None
        if process.exit_code is not None:
            failed = self._failed_jobs.setdefault(key_, self._clock())
            if self._clock() - failed < FORMAT_AGAIN_S:
                return Job("failed", _last_line(self.folder.node(node.id) / "format.log"))
        # The format may or may not be complete. It can be repeated.
        self._failed_jobs.pop(key_, None)
        self._processes.forget(self._job_folder(*key_))
        return None

    def _job_folder(self, node_id: int, disk: int) -> Path:
        return self.folder.node(node_id) / f"format-{disk}"

    # Steps

    def remember(self, cluster: NamedCluster, step: do.Remember) -> None:
        """Write the record, with ports for all its nodes. Raises ports.NoPortError."""
        self._remember(cluster, step.record)

    def _remember(self, cluster: NamedCluster, record: Record) -> None:
        with self.folder.giving_ports() as others:

            def free(port: int) -> bool:
                return port not in others and self._free(port)

            memory = self.memory
            memory.ports = given(cluster, record.nodes, memory.ports, memory.offset, free, self._show)
            memory.record = record
            self.folder.remember(memory)

    def carry_out(self, cluster: NamedCluster, step: do.Step) -> bool:
        """Carry out a step. Returns False for steps that go through Kafka's protocol."""
        match step:
            case do.Remember():
                self.remember(cluster, step)
            case do.CreateVolume():
                self._make(cluster, step.node, step.disk)
            case do.Format():
                self._format(cluster, step)
            case do.DropJob():
                folder = self._job_folder(step.node, step.disk)
                self._processes.signal(folder, signal.SIGKILL)
                self._processes.forget(folder)
            case do.MarkFormatted():
                (self.folder.disk(step.node, step.disk) / MARK).write_text(
                    f"{self.memory.record.cluster_id}/{step.node}\n"
                )
                self._processes.forget(self._job_folder(step.node, step.disk))
            case do.MarkReplaced():
                (self.folder.disk(step.node, step.disk) / REPLACED).write_text(",".join(step.names) + "\n")
            case do.MarkVolume():
                for name in step.volumes:
                    file = self.folder.disk(step.node, step.disk) / f"{name}{VOLUME_MARK}"
                    file.write_text(f"{step.mark}\n") if step.mark else file.unlink(missing_ok=True)
            case do.DeleteVolume() if step.volumes:
                for name in step.volumes:
                    folder = self.folder.disk(step.node, step.disk)
                    shutil.rmtree(folder / name)
                    (folder / f"{name}{VOLUME_MARK}").unlink(missing_ok=True)
            case do.DeleteVolume():
                folder = self.folder.disk(step.node, step.disk)
                gone = folder.with_name(f"deleted-{step.disk}")
                folder.rename(gone)
                shutil.rmtree(gone)
            case do.CreatePod():
                self._start(cluster, step.node, step.aspects)
            case do.RewriteAspects():
                self._processes.rewrite(self.folder.node(step.node), step.aspects)
            case do.Restart():
                for one in step.marks:
                    self.carry_out(cluster, one)
                self.stop(cluster, step.nodes)
            case do.Recreate():
                self.stop(cluster, step.nodes)
            case do.Stop():
                self.stop(cluster, (step.node,))
            case _:
                return False
        return True

    def _node(self, cluster: NamedCluster, node_id: int) -> tuple[Node, NodePool]:
        node = self.memory.record.node(node_id)
        assert node is not None, f"node {node_id} is not in the record"
        pool = cluster.pool(node.pool)
        assert pool is not None, f"node {node_id} belongs to no existing pool"
        return node, pool

    def _make(self, cluster: NamedCluster, node_id: int, disk: int) -> None:
        _, pool = self._node(cluster, node_id)
        for path in log_dirs(pool, self.folder.disk(node_id, disk)):
            path.mkdir(parents=True, exist_ok=True)

    def _write(
        self,
        cluster: NamedCluster,
        node_id: int,
        disk: int,
        roles: Iterable[str],
        voters: Iterable[int],
        name: str,
        *,
        static: bool,
        aspects: Mapping[str, str] | None = None,
    ) -> Path:
        pool = keeping(self._node(cluster, node_id)[1], aspects or {})
        path = self.folder.node(node_id) / name
        where = self.folder.disk(node_id, disk)
        text = node_file(
            cluster,
            pool,
            node_id,
            list(roles),
            list(voters),
            self.memory.ports,
            where,
            tls=self.folder.tls(node_id),
            static=static,
            migrates=MIGRATES in (aspects or {}),
        )
        path.write_text(text)
        return path

    def _format(self, cluster: NamedCluster, step: do.Format) -> None:
        node, _ = self._node(cluster, step.node)
        roles = format_roles(node)
        voters = {*self.memory.record.voters, *([node.id] if node.controller else [])}
        static = not self.memory.record.dynamic
        file = self._write(cluster, node.id, step.disk, roles, voters, "format.properties", static=static)
        cluster_id = self.memory.record.cluster_id
        assert cluster_id is not None
        dynamic: list[str] = []
        if self.memory.record.dynamic and node.controller:
            dynamic = ["-N"] if step.joins else ["-I", self._initial()]
        command = format_command(file, cluster_id, cluster.spec.metadata_version, dynamic)
        log = self.folder.node(node.id) / "format.log"
        self._processes.start(self._job_folder(step.node, step.disk), command, {}, log, {})

    def _initial(self) -> str:
        """The initial voters of a dynamic quorum, in Kafka's form. Directory ids follow from cluster id and node id."""
        record = self.memory.record
        found = []
        for voter in record.voters:
            node = record.node(voter)
            text = f"{record.cluster_id}/{voter}/{0 if node is None else node.disk}"
            directory = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:16]).decode().rstrip("=")
            found.append(f"{voter}@{HOST}:{self.memory.ports[key(voter, CONTROLLER)]}:{directory.replace('-', 'A', 1)}")
        return ",".join(found)

    def _start(self, cluster: NamedCluster, node_id: int, aspects: Mapping[str, str]) -> None:
        node, pool = self._node(cluster, node_id)
        self._make(cluster, node_id, node.disk)
        roles = [role for role in aspects.get("roles", "").split(",") if role]
        voters = ids(aspects, "voters") or ids(aspects, "bootstrap")
        self._remember(cluster, self.memory.record)
        static = "voters" in aspects
        file = self._write(cluster, node_id, node.disk, roles, voters, PROPERTIES, static=static, aspects=aspects)
        folder = self.folder.node(node_id)
        (folder / UNCLEAN).unlink(missing_ok=True)
        self._processes.start(folder, start_command(file), aspects, self.folder.log(node_id), environment(pool))
        self._since[node_id] = self._clock()

    # Stopping

    def stop(self, cluster: NamedCluster, nodes: Iterable[int]) -> None:
        """Make nodes stop cleanly. `kube` kills them once their grace period is over."""
        for node_id in nodes:
            process = self._processes.look(self.folder.node(node_id))
            if process is None or not process.alive:
                if process is not None:
                    self._note_end(node_id, process, asked=self._stopping(node_id, process) is not None)
                self._forget(node_id)
            elif self._stopping(node_id, process) is None and process.started:
                deadline = self._clock() + self._grace_s(cluster, node_id)
                text = json.dumps({"pid": process.pid, "started": process.started, "deadline": deadline})
                (self.folder.node(node_id) / STOPPING).write_text(text)
                self._press(node_id, process, deadline)

    def kill(self, node_id: int) -> None:
        """Kill a node at once (SIGKILL)."""
        if self._processes.signal(self.folder.node(node_id), signal.SIGKILL):
            (self.folder.node(node_id) / UNCLEAN).touch()

    def _grace_s(self, cluster: NamedCluster, node_id: int) -> float:
        node = self.memory.record.node(node_id)
        pool = cluster.pool(node.pool) if node is not None else None
        return float(pool.pod.termination_grace_seconds if pool is not None else GRACE_S)

    def _stopping(self, node_id: int, process: Process) -> float | None:
        """The deadline of a node that is being stopped; None if it is not."""
        try:
            found = json.loads((self.folder.node(node_id) / STOPPING).read_text())
        except (FileNotFoundError, ValueError):  # ValueError: a crash interrupted the write, before SIGTERM was sent
            return None
        # Files of older versions have no process id.
        same = found["started"] == process.started and found.get("pid", process.pid) == process.pid
        return float(found["deadline"]) if same else None

    def _press(self, node_id: int, process: Process, deadline: float) -> None:
        """Send SIGTERM, because the writer of the deadline may have died before. Kill the node after the deadline."""
        identity = (process.pid, process.started)
        if self._clock() >= deadline:
            self.kill(node_id)
        elif identity not in self._asked and self._processes.signal(self.folder.node(node_id), signal.SIGTERM):
            self._asked.add(identity)


def unclean(folder: Folder, nodes: Iterable[int]) -> list[int]:
    """The ids among `nodes` with a last process that crashed or was killed."""
    return [node_id for node_id in nodes if (folder.node(node_id) / UNCLEAN).exists()]


def _owner(path: Path) -> str | None:
    """`CLUSTER-ID/NODE-ID` of a log directory; None if it is not formatted."""
    try:
        lines = (path / "meta.properties").read_text().splitlines()
    except FileNotFoundError:
        return None
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return f"{values.get('cluster.id', '')}/{values.get('node.id', '')}"


def _mounted(file: Path) -> frozenset[str]:
    """Names of the volumes in the file that a process was started with."""
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return frozenset()
    dirs = next((line.partition("=")[2] for line in lines if line.startswith("log.dirs=")), "")
    return frozenset(Path(path).name for path in dirs.split(",") if path)


def _last_line(path: Path) -> str:
    """The last line of a log file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return ""
    return lines[-1][-LINE_CHARS_MAX:] if lines else ""
