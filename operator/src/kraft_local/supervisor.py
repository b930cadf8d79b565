"""The supervisor of a local cluster: it observes, plans, acts and reports in a loop until it must stop.

It uses the same planner as on Kubernetes, and the same rules for changes. If it is killed, nodes run on, and the next
supervisor continues from the memory and new observations. `kraftcluster up` calls it.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kraft_local.files import local_aspects
from kraft_local.folder import Folder, fresh_id, stamp
from kraft_local.mode import in_mode, mode_of, without_issuers
from kraft_local.objects import LocalObjects
from kraft_local.ports import CONTROLLER, HOST, HTTP, NoPortError, key
from kraft_local.probe import all_not_ready
from kraft_local.processes import Processes
from kraft_local.protocols import Display, ViewSource
from kraft_local.resource_file import API_VERSION, KIND, BadResourceError, parsed, read, values, with_requests
from kraft_local.security import LocalSecurity
from kraft_local.world import Starts, World, unclean
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply import kafka
from kraft_operator.apply.fence import look_again
from kraft_operator.apply.kafka import RefusedError
from kraft_operator.observe.kafka import View
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Aged, Kube, Observed
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.situation import Situation, is_controller, situation
from kraft_operator.plan.model.steps import Plan
from kraft_operator.plan.model.wanted import Wanted
from kraft_operator.plan.nodes.volumes import brokers_to_query
from kraft_operator.plan.planner import plan
from kraft_operator.plan.topics import replicas_of
from kraft_operator.protocol import new_client
from kraft_operator.report.status import document, status, step_text, version_of
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.mode import in_force
from kraft_operator.specs.planner_input import wanted_of
from kraft_protocol.client.aio import Address, UnreachableError

BUSY_S: Final = 0.2
"""Seconds between passes while something is under way."""
SETTLED_S: Final = 2.0
"""Seconds between passes otherwise. The end of a process, a changed file or a request ends the wait."""
LOOK_S: Final = 0.1
LOOKS_MAX: Final = 8
LOOKS_AHEAD: Final = 8
"""The most decisions that a preview follows."""
FOREVER_MS: Final = 2**31


Probe = Callable[[Mapping[int, Address]], Awaitable[dict[int, str]]]
"""Returns the nodes that are not ready, with the reasons."""


class Supervisor:
    """The supervisor of one cluster. The caller holds its lock. Without `acts`, it only observes and needs no lock."""

    def __init__(
        self,
        folder: Folder,
        file: Path,
        shown: Display,
        *,
        processes: Starts | None = None,
        offset: int = 0,
        clock: Callable[[], float] = time.monotonic,
        acts: bool = True,
        view: ViewSource | None = None,
        probe: Probe = all_not_ready,
    ) -> None:
        self.folder = folder
        self.file = file
        self._shown = shown
        self._clock = clock
        self.memory = folder.memory()
        if not folder.exists():
            self.memory.offset, self.memory.uid = offset, str(uuid.uuid4())
        self.world = World(folder, self.memory, processes or Processes(), clock, show=shown.event, acts=acts)
        self._security = LocalSecurity(folder, self.memory, shown.event)
        self.client = new_client(security=self._security.client)
        self._view: ViewSource = view or View(self.client, clock)
        self._probe = probe
        self._text: str | None = None
        self._newer: str | None = None
        """The text of the file when it last differed from `_text`."""
        self._wrong: BadResourceError | None = None
        """The problems of the text."""
        self._requests = folder.requests()
        self._pods: dict[int, tuple[bool, str]] = {}
        self._changed_at = self._wrote_at = -float(FOREVER_MS)
        self._before = KRaftClusterStatus()
        self._trouble = ""
        if not self.memory.topic_states:  # an older version kept them in the status
            self.memory.topic_states = (folder.status() or {}).get("topics", {})
        self._objects = LocalObjects(folder, self.memory, self.name, shown.event, self._bootstrap)
        self.ready = False
        self.last = Plan()
        self._tried: tuple[do.Step, ...] = ()

    # The file

    def load(self, *, at_once: bool = True) -> None:
        """Read the file and put it in force. If it is invalid, raises BadResourceError; the former file stays in force.

        Unless `at_once`, the file must be the same in two passes, because an editor may be writing it."""
        text = read(self.file)
        if text == self._text:
            self._newer = text
            if self._wrong is not None:
                raise self._wrong
            return
        if not at_once and text != self._newer:
            self._newer = text
            return
        self._text, self._newer, self._wrong = text, text, None
        try:
            self._take_over(text)
        except BadResourceError as error:
            self._wrong = error
            raise

    def _take_over(self, text: str) -> None:
        memory = self.memory
        id_, mode = memory.record.cluster_id, self.mode
        resource = parsed(text, str(self.file), memory.accepted, memory.topics, memory.users, id_, mode)
        if resource.name != self.name:
            raise BadResourceError(f"{self.file}: metadata.name: it is {self.name} that runs here, not {resource.name}")
        if resource.other_kinds:
            kinds = ", ".join(resource.other_kinds)
            self._shown.event(f"{self.file}: only the operator on Kubernetes acts on {kinds}")
        record = self._in_mode(resource.spec)
        accepted = values(resource.spec)
        in_force = (memory.accepted, memory.annotations, memory.topics, memory.users)
        changed = (accepted, resource.annotations, resource.topics, resource.users) != in_force
        if changed or record != memory.record:
            self.memory.generation += changed
            if changed and self.memory.accepted is not None:
                self._shown.event(f"{self.file} has changed: generation {self.memory.generation}")
            memory.accepted, memory.annotations = accepted, resource.annotations
            memory.topics, memory.users = resource.topics, resource.users
            memory.record = record
            self.folder.remember(self.memory)

    @property
    def mode(self) -> str:
        """The security mode of the cluster; empty before it has begun."""
        return mode_of(self.memory.record)

    def _in_mode(self, spec: KRaftClusterSpec) -> Record:
        running = any(process.alive for process in self.world.processes().values())
        return in_mode(self.file, self.folder, self.memory.record, spec, stopped=not running)

    def _follow_mode(self) -> None:
        """Change the mode once the last node of a hibernated cluster has stopped."""
        if self._spec().hibernated:
            record = self._in_mode(self._spec())
            if record != self.memory.record:
                self.memory.record = record
                self.folder.remember(self.memory)

    def _reload(self) -> None:
        """Read the file and the requests in a pass. A problem of the file is reported once."""
        self._requests = self.folder.requests()
        try:
            self.load(at_once=False)
            self._trouble = ""
        except BadResourceError as error:
            if self._trouble != str(error):
                self._trouble = str(error)
                self._shown.event(f"not taken over:\n{error}")

    @property
    def name(self) -> str:
        """The name of the cluster's folder, which its file must have as `metadata.name`."""
        return self.folder.root.name

    @property
    def cluster(self) -> NamedCluster:
        """The cluster by the specification in force."""
        return NamedCluster(self.name, "default", self.memory.uid, in_force(self._spec(), self.memory.record))

    def _spec(self) -> KRaftClusterSpec:
        """The specification of the file, with the requests of the command line."""
        assert self.memory.accepted is not None, "load comes first"
        return without_issuers(with_requests(KRaftClusterSpec.model_validate(self.memory.accepted), self._requests))

    def annotations(self) -> dict[str, str]:
        """The annotations of the file and of the requests."""
        return {**self.memory.annotations, **self._requests.annotations}

    # A pass

    async def observe(self) -> Observed:
        """Observe processes, quorum and metadata. Returns all views with their ages."""
        cluster, asked_at = self.cluster, self._clock()
        running = {node_id: p for node_id, p in self.world.processes().items() if p.alive}
        statuses = {i: address for i in running if (address := self.address(i, HTTP)) is not None}
        not_ready = await self._probe(statuses)
        kube = self.world.kube(cluster, not_ready)
        self._note(kube, {node_id: process.started for node_id, process in running.items()})
        await self._view.look(self.controllers(kube), self.brokers(kube), statuses)
        ask = brokers_to_query(self.memory.record, self.wanted(), kube)
        if ask:
            asked = {i: one for i, one in self.brokers(kube).items() if i in ask and kube.pods[i].ready}
            await self._view.look_at_disks(asked, lambda path: Path(path).name)
        migrates = self.memory.record.unfinished_migration
        if migrates:
            asked = {i: one for i, one in statuses.items() if i in self.controllers(kube)}
            await self._view.look_at_migration(asked)
        now = self._clock()
        return Observed(
            Aged(kube, round((now - asked_at) * 1000)),
            self._view.quorum,
            self._view.metadata,
            since_write_ms=min(FOREVER_MS, round((now - self._wrote_at) * 1000)),
            since_pod_change_ms=min(FOREVER_MS, round((now - self._changed_at) * 1000)),
            disks=self._view.disks if ask else {},
            migration=self._view.migration if migrates else Aged(),
            tried=self._tried,
        )

    def _note(self, kube: Kube, starts: dict[int, str]) -> None:
        """Note when a pod last became ready or disappeared."""
        pods = {i: (pod.ready, starts.get(i, "")) for i, pod in kube.pods.items()}
        ready_before = {i: start for i, (ready, start) in self._pods.items() if ready}
        ready_now = {i: start for i, (ready, start) in pods.items() if ready}
        if ready_before != ready_now or self._pods.keys() - pods.keys():
            self._changed_at = self._clock()
        self._pods = pods

    def address(self, node_id: int, listener: str) -> Address | None:
        """The address of a node's listener on this machine; None if the node has no port for the listener."""
        port = self.memory.ports.get(key(node_id, listener))
        return None if port is None else Address(HOST, port)

    def controllers(self, kube: Kube) -> dict[int, Address]:
        """Addresses of running controllers by node id."""
        running = [i for i, pod in kube.pods.items() if pod.running and is_controller(pod)]
        return {i: address for i in running if (address := self.address(i, CONTROLLER)) is not None}

    def brokers(self, kube: Kube) -> dict[int, Address]:
        """Addresses of running brokers by node id: their internal listeners."""
        inner = next(one.name for one in self.cluster.listeners if one.type == "Internal")
        running = [i for i, pod in kube.pods.items() if pod.running and "broker" in pod.aspects.get("roles", "")]
        return {i: address for i in running if (address := self.address(i, inner)) is not None}

    def _ready_brokers(self, kube: Kube) -> dict[int, Address]:
        return {i: address for i, address in self.brokers(kube).items() if kube.pods[i].ready}

    def _source(self, observed: Observed) -> MetadataSource:
        """The brokers that topics and users are read from."""
        kube = observed.kube.value or Kube()
        brokers, controllers = self._ready_brokers(kube), self.controllers(kube).values()
        statuses = {i: address for i in brokers if (address := self.address(i, HTTP)) is not None}
        cluster_id = self.memory.record.cluster_id
        return MetadataSource(self.client, brokers, controllers=controllers, statuses=statuses, cluster_id=cluster_id)

    def wanted(self) -> Wanted:
        """The wanted state, as on Kubernetes, without aspects that do not apply to processes."""
        cluster = self.cluster
        topic_replicas = replicas_of(self._objects.topics.declared().desired_topics)
        wanted = replace(wanted_of(cluster, self.annotations(), datetime.now(UTC)), topic_replicas=topic_replicas)
        pools = []
        for one in wanted.pools:
            pool = cluster.pool(one.name)
            assert pool is not None
            assert one.of_controllers is not None
            controllers = replace(one.of_controllers, aspects=local_aspects(cluster, pool, broker=False))
            mine = local_aspects(cluster, pool, broker=True)
            pools.append(replace(one, aspects=mine, of_controllers=controllers))
        return replace(wanted, pools=tuple(pools))

    async def once(self) -> Plan:
        """Run one pass. Returns its plan."""
        self._reload()
        self._follow_mode()
        await self._secure()
        observed, wanted = await self.observe(), self.wanted()
        before = self.memory.record
        self.last = self._security.report(plan(before, wanted, observed, fresh_id()))
        if self.last.guarded is not None:
            await self._look_again(wanted)
        else:
            self._tried = tuple(self.last.steps)
        for step in self.last.steps:
            self._wrote_at = self._clock()
            if not await self._do(step, observed):
                break
        self._withdraw()
        await self._reconcile_objects(observed)
        resource = self._status_document(observed, wanted, before)
        self.folder.write_status(resource)
        self._shown.status(resource)
        return self.last

    async def _look_again(self, wanted: Wanted) -> None:
        """Observe and plan again before a guarded step. The step is carried out only if the plan is the same."""
        record = self.memory.record

        def think(observed: Observed) -> tuple[Plan, Situation | None]:
            return plan(record, wanted, observed, ""), situation(record, wanted, observed)

        permit = await look_again(self.last, self.observe, think, self._clock)
        if permit is None or permit.expires_at <= self._clock():
            name = type(self.last.guarded).__name__
            self.last.waits.append(f"{name}: a second look found that something has changed")
            self.last.steps.clear()
        else:
            self.last = permit.plan

    async def _secure(self) -> None:
        """Keep the certificates. New authorities are recorded before any node trusts them."""
        record, running = self.memory.record, [i for i, p in self.world.processes().items() if p.alive]
        await self._security.keep(self.cluster, self.annotations(), running)
        if self.memory.record != record:
            self.folder.remember(self.memory)

    def _withdraw(self) -> None:
        """Remove requests of the command line for replacements that are done."""
        done = {(item.name, item.node, item.by) for item in self.memory.record.replacements if item.done}

        def is_open(one: Mapping[str, Any]) -> bool:
            return (one["name"], one["node"], one["by"]) not in done

        if not all(map(is_open, self._requests.replacements)):
            with self.folder.changing_requests() as requests:
                requests.replacements = list(filter(is_open, requests.replacements))
            self._requests = self.folder.requests()

    async def _reconcile_objects(self, observed: Observed) -> None:
        try:
            await self._objects.run(self._source(observed), self.cluster)
        except (RefusedError, UnreachableError) as error:
            self.last.waits.append(f"topics and users: {error}")

    def _bootstrap(self, listener: str) -> str:
        """The addresses of all brokers at a listener."""
        brokers = [node.id for node in self.memory.record.nodes if node.broker and not node.stopped]
        return ",".join(str(found) for i in brokers if (found := self.address(i, listener)) is not None)

    async def look(self) -> dict[str, Any]:
        """Observe and plan without acting. Returns the resource with its status and the plan."""
        observed, wanted = await self.observe(), self.wanted()
        for _ in range(LOOKS_MAX):
            s = situation(self.memory.record, wanted, observed)
            if s is not None and s.quorum is not None and s.metadata is not None:
                break
            # Only views newer than the first observation of the processes count, and brokers lag a little.
            await asyncio.sleep(BUSY_S)
            observed = await self.observe()
        record, new_id, decided = self.memory.record, fresh_id(), list[do.Step]()
        for _ in range(LOOKS_AHEAD):
            self.last = plan(record, wanted, observed, new_id)
            if not self.last.steps or not isinstance(self.last.steps[-1], do.Remember):
                break
            # Assume that the record is written, and plan the steps that follow from it.
            decided += self.last.steps
            record = self.last.steps[-1].record
        self.last.steps[:0] = [step for step in decided if step not in self.last.steps]
        self.memory.record = record
        resource = self._status_document(observed, wanted, record)
        lines = await self._objects.lines(self._source(observed), self.cluster)
        resource["status"]["plan"] = [*resource["status"].get("plan", []), *lines]
        return resource

    async def _do(self, step: do.Step, observed: Observed) -> bool:
        """Carry out a step. Returns whether it was done; if not, the next pass plans it again."""
        cluster = self.cluster
        try:
            if not self.world.carry_out(cluster, step):
                await self._send(step, observed)
        except (RefusedError, UnreachableError, NoPortError, OSError) as error:
            self.last.block("StepFailed", f"{step_text(step)}: {error}")
            return False
        finally:
            self._wrote_at = self._clock()
        if not isinstance(step, do.CreateVolume | do.MarkFormatted):
            self._shown.event(step_text(step))
        return True

    async def _send(self, step: do.Step, observed: Observed) -> None:
        kube = observed.kube.value or Kube()
        controllers = self.controllers(kube)
        ask = [*self._ready_brokers(kube).values(), *controllers.values()]
        if isinstance(step, kafka.OWN_STEPS):
            ask = [one for i, one in self.brokers(kube).items() if i == step.node]
        await kafka.carry_out(
            self.client,
            step,  # type: ignore[arg-type]  # the world has done all others
            ask,
            quorum=observed.quorum.value,
            controllers=controllers,
        )

    def _status_document(self, observed: Observed, wanted: Wanted, before: Record) -> dict[str, Any]:
        found = status(
            self.cluster,
            self.memory.record,
            situation(before, wanted, observed),
            self.last,
            self._before,
            generation=self.memory.generation,
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            version=version_of(observed),
            revision=wanted.revision,
        )
        self._before = found
        ready = next(condition for condition in found.conditions if condition.type == "Ready")
        self.ready = ready.status == "True" and not any(isinstance(step, do.Remember) for step in self.last.steps)
        metadata = {"name": self.name, "generation": self.memory.generation, "annotations": self.annotations()}
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": metadata,
            "spec": values(self._spec()),
            "status": document(found),
            "topics": {one["metadata"]["name"]: one["status"] for one in self._objects.topics.resources},
            "local": self.local(),
        }

    def local(self) -> dict[str, Any]:
        """Status of local clusters only: addresses and processes of nodes, and the problems of the file."""
        listener = self.cluster.spec.listeners[0].name
        return {
            "bootstrap": self._bootstrap(listener),
            "folder": str(self.folder.root),
            "file": str(self.file),
            "trouble": self._trouble,
            "ports": self.memory.ports,
            "pids": {str(i): p.pid for i, p in self.world.processes().items() if p.alive},
            "driver": os.getpid(),
        }

    # The loop

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop` is set."""
        while not stop.is_set():
            try:
                done = await self.once()
            except Exception:  # a bug must not end the supervision of the nodes
                self._shown.event(f"this pass has failed; the next one follows\n{traceback.format_exc()}")
                await self._pause(SETTLED_S, stop)
                continue
            changes = self._objects.change or self._newer != self._text
            busy = bool(done.steps or done.waits or not self.ready or changes)
            await self._pause(BUSY_S if busy else SETTLED_S, stop)

    async def _pause(self, seconds: float, stop: asyncio.Event) -> None:
        """Wait until the time is over, something changes, or `stop` is set."""
        until, signature = self._clock() + seconds, self._signature()
        while not stop.is_set() and self._clock() < until and self._signature() == signature:
            try:
                await asyncio.wait_for(stop.wait(), min(LOOK_S, seconds))
            except TimeoutError:
                continue

    def _signature(self) -> object:
        alive = frozenset((i, p.pid) for i, p in self.world.processes().items() if p.alive)
        return alive, stamp(self.file), stamp(self.folder.root / "requests.json")

    async def stop_all(self, at_once: asyncio.Event) -> bool:
        """Stop all nodes, brokers first, because their clean stop needs the controllers.

        Setting `at_once` kills the remaining nodes; so does the end of their grace period. Returns whether all running
        nodes stopped cleanly."""
        cluster = self.cluster
        running = [*self._alive(True), *self._alive(False)]
        for brokers in (True, False):
            while alive := self._alive(brokers):
                if at_once.is_set():
                    for node_id in alive:
                        self.world.kill(node_id)
                self.world.stop(cluster, alive)
                self.world.kube(cluster, {})
                await asyncio.sleep(BUSY_S / 2)
        self.world.kube(cluster, {})
        return not unclean(self.folder, running)

    def _alive(self, brokers: bool) -> list[int]:
        """Node ids of running processes with the role broker, or of all others."""
        found = self.world.processes().items()
        return [i for i, p in found if p.alive and ("broker" in p.what.get("roles", "")) is brokers]
