"""One pass over one cluster: read the resource, observe, plan, act, tell.

Who calls it: the queue's workers, one pass a cluster at a time. It decides nothing itself: that is the planner's. What
it remembers (views, what was last written, when pods last changed) is found anew after a crash.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.problems import VERSIONS, problems
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply import kafka as by_kafka
from kraft_operator.apply import topics as by_topics
from kraft_operator.apply.fence import looked_again
from kraft_operator.apply.kubernetes import Hands, InTheWayError, KubeStep, NotYetError, Seen, ServiceRefusedError
from kraft_operator.apply.objects import difference
from kraft_operator.apply.record import BadRecordError, RecordObject
from kraft_operator.apply.topic_objects import TopicObjects, cluster_missing
from kraft_operator.events import Events
from kraft_operator.kafka.client import Client, RefusedError, UnreachableError
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.metrics import Metrics
from kraft_operator.observe import objects
from kraft_operator.observe.kafka import View
from kraft_operator.observe.status import Statuses
from kraft_operator.plan import steps as do
from kraft_operator.plan.conditions import conditions
from kraft_operator.plan.levels import name_of
from kraft_operator.plan.observed import Observed
from kraft_operator.plan.observed import Seen as Aged
from kraft_operator.plan.planner import plan
from kraft_operator.plan.record import Claim, Record
from kraft_operator.plan.situation import Situation, situation
from kraft_operator.plan.topics import replicas_of
from kraft_operator.plan.wanted import Wanted
from kraft_operator.report.status import document, status
from kraft_operator.specs.cluster import INSTANCE, Cluster, digest
from kraft_operator.specs.wishes import REPLACE, wishes

log = logging.getLogger("kraft_operator.reconcile")

AGAIN_S: Final = 0.2
"""After a pass that did something: so long, views of the cluster become newer than what was done."""
WAITING_S: Final = 0.5
"""While something is waited for that no event tells of, such as a replica that catches up; doubled for the same."""
WAITING_S_MAX: Final = 5.0
PASS_S: Final = 120.0
"""A pass that takes longer is given up: what it has seen is too old to go on with."""
LEAVES_S: Final = 1.0
"""While the garbage collector has not been there yet."""
BLOCKED_S: Final = 5.0
UNKNOWN_S: Final = 10.0
"""Views that are missing or too old for no longer than this are waited for; then somebody should know."""
UNKNOWN: Final = frozenset({"QuorumUnknown", "PartitionsUnknown"})
SHARED_S: Final = 300.0
"""Services and budgets are read so often when nothing has changed: who edits them by hand is corrected then."""

KAFKA_STEPS: Final = (
    do.SetConfig,
    do.SetFeature,
    do.Throttle,
    do.Reassign,
    do.Unregister,
    do.AddVoter,
    do.RemoveVoter,
)


class Key(NamedTuple):
    """Which cluster."""

    namespace: str
    name: str


@dataclass(slots=True)
class _Memory:
    """Of one cluster between passes; worth nothing after a crash."""

    client: Client
    view: View
    statuses: Statuses = field(default_factory=Statuses)
    written_at: float = float("-inf")
    pods_changed_at: float = float("-inf")
    pods: frozenset[tuple[str, bool, int]] | None = None
    shared_at: float = float("-inf")
    shared: str = ""
    told: tuple[tuple[str, str], ...] = ()
    known_at: float = float("-inf")
    """When quorum and metadata were last both known well enough."""
    waits: tuple[str, ...] = ()
    waits_s: float = WAITING_S
    tried: tuple[do.Step, ...] = ()
    """Steps that were carried out last, or refused; without those that are guarded."""


class Reconciler:
    """All clusters of this operator."""

    def __init__(
        self,
        api: Api,
        events: Events,
        metrics: Metrics,
        *,
        resync_s: float = 30.0,
        machines: bool = False,
        node_image: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._events = events
        self._metrics = metrics
        self._resync_s = resync_s
        self._machines = machines
        self._node_image = node_image
        self._clock = clock
        self._memories: dict[Key, _Memory] = {}

    async def reconcile(self, key: Key) -> float | None:
        """One pass; seconds until the next one, None when the cluster is gone."""
        began = self._clock()
        try:
            try:
                async with asyncio.timeout(PASS_S):
                    return await self._pass(key)
            except TimeoutError:
                raise ApiError(0, "TooLate", f"a pass takes longer than {PASS_S:g} s, and is begun anew") from None
        except (ApiError, RefusedError, UnreachableError, NotYetError) as error:
            self._metrics.failed(*key, took_s=self._clock() - began)
            log.warning("%s/%s: %s", *key, error)
            raise

    def forget(self, key: Key) -> None:
        """It is gone: nothing is kept of it."""
        memory = self._memories.pop(key, None)
        if memory is not None:
            memory.client.close()
            self._metrics.forget(*key)
            self._metrics.clusters.set(len(self._memories))

    def close(self) -> None:
        for key in list(self._memories):
            self.forget(key)

    async def _pass(self, key: Key) -> float | None:
        began = self._clock()
        resource = await self._api.get("KRaftCluster", *key)
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            self.forget(key)
            if resource is None:
                await self._tell_topics_without(key)
            return None
        memory = self._memory(key)
        found = await self._understand(key, memory, resource)
        if found is None:
            return self._resync_s
        cluster, before = found
        spec = cluster.spec
        kept = RecordObject(self._api, cluster)
        try:
            record = await kept.read(before)
        except (BadRecordError, InTheWayError) as error:
            await self._tell_wrong(key, memory, resource, "RecordNotUnderstood", str(error))
            return BLOCKED_S
        except NotYetError as error:
            await self._tell_wrong(key, memory, resource, "RecordLeaves", str(error))
            return LEAVES_S
        await kept.keep(record)
        topics = await self._api.list("KRaftTopic", key.namespace)
        wanted = replace(
            wishes(cluster, resource["metadata"].get("annotations", {})),
            topic_replicas=replicas_of(by_topics.declared(topics, key.name)[0].wishes),
        )
        one = _Pass(self._api, memory, cluster, resource, before, self._clock, self._machines, record, kept, wanted)
        observed = await one.observe()
        fresh_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "_", 1)
        plan_ = plan(record, wanted, observed, fresh_id)
        self._patience(memory, situation(record, wanted, observed), plan_)
        if spec.rack is not None and not self._machines:
            text = "spec.rack asks for racks, and the operator may not read machines' labels: install it with"
            plan_.block("RacksUnknown", f"{text} watch.nodes=true, or leave spec.rack out")
        failure = await self._act(one, plan_)
        understood = failure is None or (isinstance(failure, RefusedError | ApiError) and failure.lasting)
        record = one.record  # also of a plan that was not done to its end: what was remembered stays so
        s = situation(record, wanted, observed)
        told = conditions(s, plan_)
        if understood:
            await self._tell_blocked(memory, resource, plan_)
            features = observed.metadata.value.features if observed.metadata.value is not None else {}
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            after = status(
                cluster,
                record,
                s,
                plan_,
                before,
                generation=resource["metadata"].get("generation", 0),
                now=now,
                version=name_of(features["metadata.version"]) if "metadata.version" in features else "",
                revision=wanted.revision,
            )
            await one.report(document(after), now)
            await one.withdraw(s.replaced() if s is not None else frozenset())
            if not spec.paused and not spec.hibernated and await one.topics(topics, record, self._events):
                plan_.waits.append("topics change")
        if failure is not None:
            raise failure
        self._metrics.passed(*key, plan_, told, took_s=self._clock() - began, now_s=time.time())
        return self._next(memory, plan_, s)

    async def _act(self, one: _Pass, plan_: do.Plan) -> ApiError | RefusedError | UnreachableError | None:
        """Do it. What it failed with; where that lasts, the plan says so."""
        try:
            await one.act(plan_, self._told(one.resource))
        except NotYetError as error:
            plan_.waits.append(str(error))
        except (ApiError, RefusedError, UnreachableError) as error:
            if isinstance(error, ApiError | RefusedError) and error.lasting:
                plan_.block("StepRefused", str(error))
            else:
                await self._events.tell(one.resource, "Warning", "StepFailed", str(error))
            return error
        return None

    async def _understand(
        self, key: Key, memory: _Memory, resource: dict[str, Any]
    ) -> tuple[Cluster, KRaftClusterStatus] | None:
        """What is wanted, and the status of before; None, and told, where that makes no sense: nothing is done then."""
        try:
            # What a later version of the definitions has besides is for a later operator.
            spec = KRaftClusterSpec.model_validate(resource["spec"], extra="ignore")
            before = KRaftClusterStatus.model_validate(resource.get("status", {}), extra="ignore")
        except ValidationError as error:
            await self._tell_wrong(key, memory, resource, "NotUnderstood", "; ".join(problems(error)) + VERSIONS)
            return None
        cluster = Cluster(key.name, key.namespace, resource["metadata"]["uid"], spec, self._node_image)
        if not cluster.image:
            message = "neither spec.image nor the operator names an image: set one of them"
            await self._tell_wrong(key, memory, resource, "NoImage", message)
            return None
        return cluster, before

    async def _tell_wrong(self, key: Key, memory: _Memory, resource: dict[str, Any], reason: str, message: str) -> None:
        """That nothing is done, by an event and by the one condition that is sure."""
        await self._tell_once(memory, resource, ((reason, message),))
        status, generation = resource.get("status", {}), resource["metadata"].get("generation", 0)
        others = [one for one in status.get("conditions", ()) if one["type"] != "Degraded"]
        was = objects.condition_of(resource, "Degraded")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        degraded = {
            "type": "Degraded",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": was["lastTransitionTime"] if was.get("status") == "True" else now,
            "observedGeneration": generation,
        }
        change = difference(status, {**status, "conditions": [*others, degraded], "observedGeneration": generation})
        if change:
            await self._api.patch("KRaftCluster", *key, {"status": change}, "status")

    async def _tell_topics_without(self, key: Key) -> None:
        """That the cluster of these KRaftTopics is not there."""
        found = await self._api.list("KRaftTopic", key.namespace)
        declared, states = by_topics.declared(found, key.name)
        states |= cluster_missing(key.name, (one.resource for one in declared.wishes))
        owner = {"metadata": {"name": key.name, "namespace": key.namespace}}
        await TopicObjects(self._api, self._events, key.namespace, found, owner, _no_claims).tell(states)

    def _patience(self, memory: _Memory, s: Situation | None, plan_: do.Plan) -> None:
        """Who asks a moment after something was done hears nothing new yet: that is no reason for an alarm."""
        now = self._clock()
        if s is not None and s.quorum is not None and s.metadata is not None:
            memory.known_at = now
        if now - memory.known_at < UNKNOWN_S:
            plan_.waits += [one.message for one in plan_.blocked if one.reason in UNKNOWN]
            plan_.blocked = [one for one in plan_.blocked if one.reason not in UNKNOWN]

    def _told(self, resource: dict[str, Any]) -> Callable[[do.Step], Any]:
        async def tell(step: do.Step) -> None:
            await self._events.step(resource, step)

        return tell

    def _next(self, memory: _Memory, plan_: do.Plan, s: Situation | None) -> float:
        if plan_.steps:
            return AGAIN_S
        if plan_.waits:
            return self._backed_off(memory, tuple(plan_.waits))
        if s is not None and (s.wanted.hibernated or s.wanted.paused):
            return self._resync_s
        # What is unknown now, or older than the pods, may be known in a moment, and may ask for something.
        if self._clock() - max(memory.known_at, memory.pods_changed_at) >= UNKNOWN_S:
            return BLOCKED_S
        if s is None or s.quorum is None or s.metadata is None:
            return self._backed_off(memory, ("views",))
        return BLOCKED_S if plan_.blocked else self._resync_s

    def _backed_off(self, memory: _Memory, waits: tuple[str, ...]) -> float:
        """Twice as long each time for the same; pods, claims and jobs wake the cluster before that."""
        again = memory.waits == waits
        memory.waits, memory.waits_s = waits, min(memory.waits_s * 2, WAITING_S_MAX) if again else WAITING_S
        return memory.waits_s

    async def _tell_blocked(self, memory: _Memory, resource: dict[str, Any], plan_: do.Plan) -> None:
        """An event for each thing that has become blocked, once."""
        await self._tell_once(memory, resource, tuple((one.reason, one.message) for one in plan_.blocked))

    async def _tell_once(self, memory: _Memory, resource: dict[str, Any], told: tuple[tuple[str, str], ...]) -> None:
        for reason, message in told:
            if (reason, message) not in memory.told:
                log.info(
                    "%s/%s: %s: %s", resource["metadata"]["namespace"], resource["metadata"]["name"], reason, message
                )
                await self._events.tell(resource, "Warning", reason, message)
        memory.told = told

    def _memory(self, key: Key) -> _Memory:
        memory = self._memories.get(key)
        if memory is None:
            client = Client()
            memory = self._memories[key] = _Memory(client, View(client, self._clock))
            self._metrics.clusters.set(len(self._memories))
        return memory


@dataclass(slots=True)
class _Pass:
    """What one pass has in hand."""

    api: Api
    memory: _Memory
    cluster: Cluster
    resource: dict[str, Any]
    before: KRaftClusterStatus
    clock: Callable[[], float]
    machines: bool
    record: Record
    """In force."""
    kept: RecordObject
    wanted: Wanted
    seen: Seen = field(default_factory=Seen)

    async def _share(self, held: frozenset[str]) -> None:
        """Services and budgets, when they may have to change."""
        nodes = [[node.id, node.controller, node.broker, node.stopped] for node in self.record.nodes]
        marks = digest([self.resource["metadata"].get("generation"), nodes, sorted(self.seen.services), sorted(held)])
        now = self.clock()
        if self.memory.shared == marks and now - self.memory.shared_at < SHARED_S:
            return
        await Hands(self.api, self.cluster, self.record, self.seen).share(held)
        self.memory.shared, self.memory.shared_at = marks, now

    async def observe(self) -> Observed:
        """Everything, each with its age."""
        namespace, name = self.cluster.namespace, self.cluster.name
        selector = f"{INSTANCE}={name},app.kubernetes.io/name=kraftcluster"
        listed_at = self.clock()
        pods, claims, jobs, configs = await asyncio.gather(
            self.api.list("Pod", namespace, selector),
            self.api.list("PersistentVolumeClaim", namespace, selector),
            self.api.list("Job", namespace, selector),
            self.api.list("ConfigMap", namespace, selector),
        )
        pods, jobs = objects.ours(self.cluster, pods), objects.ours(self.cluster, jobs)
        job_pods = await self.api.list("Pod", namespace, f"{selector}-format") if jobs else []
        services = await self.api.list("Service", namespace, selector) if self.cluster.external else []
        names = [one["metadata"]["name"] for one in services]
        mine = [one for one in claims if objects.others(self.cluster, one) is None]
        self.seen = Seen(
            {number: dict(one) for number, one in objects.by_node(pods)}, mine, list(map(dict, jobs)), names
        )
        shape = objects.shape(pods)
        if shape != self.memory.pods:
            self.memory.pods, self.memory.pods_changed_at = shape, listed_at
        told = await self.memory.statuses.of(objects.processes(pods))
        racks = await self._racks()
        kube = objects.kube(self.cluster, pods, claims, jobs, racks, job_pods, services, configs, told)
        await self.memory.view.look(objects.controllers(pods), objects.brokers(pods), objects.statuses(pods))
        now = self.clock()
        return Observed(
            Aged(kube, _ms(now - listed_at)),
            self.memory.view.quorum,
            self.memory.view.metadata,
            since_write_ms=_ms(now - self.memory.written_at),
            since_pod_change_ms=_ms(now - self.memory.pods_changed_at),
            tried=self.memory.tried,
        )

    async def _racks(self) -> dict[str, str]:
        rack = self.cluster.spec.rack
        if rack is None or not self.machines:
            return {}
        machines = await self.api.list("Node", None)
        return {one["metadata"]["name"]: one["metadata"].get("labels", {}).get(rack.node_label, "") for one in machines}

    async def act(self, plan_: do.Plan, tell: Callable[[do.Step], Any]) -> None:
        """What all nodes share, then the plan's steps in their order, those of one kind together.

        What Kubernetes refuses until somebody changes something (a volume that cannot grow, a quota), or has not got
        yet, holds up no other step: no step of a plan counts with another one of it. It is raised at the end.
        """
        refused: ApiError | NotYetError | None = None
        if not self.cluster.spec.paused:
            try:
                await self._share(plan_.held)
            except (ApiError, NotYetError) as error:
                if isinstance(error, ApiError) and not error.lasting:
                    raise
                refused = error
        if plan_.guarded is not None:
            if isinstance(refused, ServiceRefusedError):
                raise refused
            await self._guarded(plan_, tell)
        else:
            self.memory.tried = tuple(plan_.steps)
            refused = await self._each(plan_.steps, tell) or refused
        if refused is not None:
            raise refused

    async def _guarded(self, plan_: do.Plan, tell: Callable[[do.Step], Any]) -> None:
        """What disrupts or gives up a disk: after a second look, before its views are too old, and not repeated."""

        def think(observed: Observed) -> tuple[do.Plan, Situation | None]:
            s = situation(self.record, self.wanted, observed)
            return plan(self.record, self.wanted, observed, ""), s

        permit = await looked_again(plan_, self.observe, think, self.clock)
        if permit is None or await self._is_another():
            plan_.waits.append(f"{type(plan_.guarded).__name__}: a second look found that something has changed")
            plan_.steps.clear()
            return
        plan_.steps, late = permit.plan.steps, f"{type(plan_.guarded).__name__}: what is known is too old to do it now"
        left_s = permit.expires_at - self.clock()
        if left_s <= 0:
            raise ApiError(0, "TooLate", late)
        try:
            async with asyncio.timeout(left_s):
                refused = await self._each(plan_.steps, tell)
        except TimeoutError:
            raise ApiError(0, "TooLate", late) from None
        if refused is not None:
            raise refused

    async def _is_another(self) -> bool:
        """Whether somebody has changed the resource since the pass began: paused it, or skips a node."""
        there = await self.api.get("KRaftCluster", self.cluster.namespace, self.cluster.name)
        was, now = self.resource["metadata"], (there or {}).get("metadata", {})
        return "deletionTimestamp" in now or any(
            was.get(key) != now.get(key) for key in ("uid", "generation", "annotations")
        )

    async def _each(self, planned: Iterable[do.Step], tell: Callable[[do.Step], Any]) -> ApiError | NotYetError | None:
        """Steps in their order, those of one kind together; what was refused for good, or is to wait."""
        refused: ApiError | NotYetError | None = None
        for kind, steps in itertools.groupby(planned, key=type):
            try:
                if kind is do.Remember:
                    for step in steps:
                        assert isinstance(step, do.Remember)
                        self.record = await self._remember(step)
                else:
                    await self._all(list(steps), tell)
            except (ApiError, NotYetError) as error:
                if kind is do.Remember or (isinstance(error, ApiError) and not error.lasting):
                    raise
                refused = refused or error
        return refused

    async def _all(self, steps: Iterable[do.Step], tell: Callable[[do.Step], Any]) -> None:
        hands = Hands(self.api, self.cluster, self.record, self.seen)

        async def one(step: do.Step) -> None:
            log.info("%s/%s: %s", self.cluster.namespace, self.cluster.name, step)
            if isinstance(step, KAFKA_STEPS):
                await self._by_kafka(step)
            else:
                assert isinstance(step, KubeStep)
                await hands.carry_out(step)
            await tell(step)

        try:
            results = await asyncio.gather(*map(one, steps), return_exceptions=True)
        finally:
            self.memory.written_at = self.clock()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _by_kafka(self, step: by_kafka.KafkaStep) -> None:
        pods = list(self.seen.pods.values())
        controllers = objects.controllers(pods)
        # As the quorum's members will know it, by its name: a pod's address does not outlive it.
        named = {i: address._replace(host=self.cluster.host(i)) for i, address in controllers.items()}
        ask = list(objects.brokers(pods).values()) or list(controllers.values())
        if isinstance(step, do.AddVoter | do.RemoveVoter):
            quorum = self.memory.view.quorum.value
            leader = [] if quorum is None or quorum.leader not in controllers else [controllers[quorum.leader]]
            ask = [*leader, *ask]
            if isinstance(step, do.RemoveVoter):
                ask = ask[:1]  # it disrupts: not repeated
        quorum = self.memory.view.quorum.value
        await by_kafka.carry_out(self.memory.client, step, ask, quorum=quorum, controllers=named)

    async def topics(self, found: list[dict[str, Any]], record: Record, events: Events) -> bool:
        """The namespace's KRaftTopics; whether the next pass should look again soon."""
        claims = {claim.topic: claim for claim in record.topics}
        declared, states = by_topics.declared(found, self.cluster.name, record.topics)
        brokers = list(objects.brokers(self.seen.pods.values()).values())
        if not (declared.wishes or states or claims):
            return False

        async def remember(now: Mapping[str, Claim]) -> None:
            owned = replace(record, topics=tuple(now[topic] for topic in sorted(now)))
            await self._remember(do.Remember(owned, "topics that go with their resources"))

        keeper = TopicObjects(self.api, events, self.cluster.namespace, found, self.resource, remember)
        await keeper.tell(states)
        if not brokers or not (declared.wishes or claims):
            return bool(declared.wishes or claims)
        one = by_topics.Pass(self.memory.client, brokers[0], keeper, record.cluster_id)
        return await one.run(declared, claims)

    async def withdraw(self, replaced: frozenset[str]) -> None:
        """Requests by annotation end with the replacement that they ask for."""
        done = replaced | {item.name for item in self.record.replacements if item.done}
        there = self.resource["metadata"].get("annotations", {})
        keys = [key for key in there if key.startswith(REPLACE) and key.removeprefix(REPLACE) in done]
        if keys:
            patch = {"metadata": {"annotations": dict.fromkeys(keys)}}
            try:
                self.resource = await self.api.patch("KRaftCluster", self.cluster.namespace, self.cluster.name, patch)
            except ApiError as error:  # it asks for nothing any more: the next pass removes it
                log.warning("%s/%s: requests that are done stay: %s", self.cluster.namespace, self.cluster.name, error)

    # The status

    async def _remember(self, step: do.Remember) -> Record:
        """Write the record; another writer's change makes it fail."""
        log.info("%s/%s: Remember: %s", self.cluster.namespace, self.cluster.name, step.why)
        await self.kept.keep(step.record)
        return step.record

    async def report(self, after: dict[str, Any], now: str) -> None:
        """Write the status where it differs; the time of the pass only then."""
        there = self.resource.get("status", {})
        stamp = after.pop("lastReconcileTime", None)
        change = difference({k: v for k, v in there.items() if k != "lastReconcileTime"}, after)
        if change or stamp is None:
            await self._patch({**change, "lastReconcileTime": now})

    async def _patch(self, change: dict[str, Any]) -> None:
        metadata = {"resourceVersion": self.resource["metadata"]["resourceVersion"]}
        self.resource = await self.api.patch(
            "KRaftCluster",
            self.cluster.namespace,
            self.cluster.name,
            {"metadata": metadata, "status": change},
            "status",
        )


async def _no_claims(_: Mapping[str, Claim]) -> None:
    """Of a cluster that is not there, nothing is remembered."""


def _ms(seconds: float) -> int:
    return 2**31 if seconds == float("inf") else round(seconds * 1000)
