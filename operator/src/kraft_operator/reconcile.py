"""One pass over one cluster: read the resource, observe, plan, act, write the status.

The queue's workers call it, one pass per cluster at a time. The planner makes the decisions. The state in memory
(views, last writes, last changes of pods) is found again after a crash.

A cluster without steps rests. Until a watch reports a change, its objects are not read again. A pass only queries the
cluster's own nodes, and plans with the objects of the last whole pass. If a step is due or the status would change,
everything is read again, and only the new objects are acted upon.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.problems import VERSIONS, problems
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply import topics as by_topics
from kraft_operator.apply import users as by_users
from kraft_operator.apply.grants import NotGrantedError
from kraft_operator.apply.kafka import RefusedError
from kraft_operator.apply.kubernetes import NotYetError
from kraft_operator.apply.record import KIND as RECORD
from kraft_operator.apply.record import RecordObject
from kraft_operator.apply.record import name_of as name_of_record
from kraft_operator.apply.templates import TemplateRefusal, templates_in_force
from kraft_operator.beginning import BLOCKED_S, begin
from kraft_operator.events import Events
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.metrics import Metrics
from kraft_operator.observe.cluster import Found, Look, Machines
from kraft_operator.observe.source import MetadataSource
from kraft_operator.one_pass import NotifySteps, Pass, Shared, only_remembers
from kraft_operator.patience import UNKNOWN_S, Patience
from kraft_operator.plan.conditions import conditions
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Observed
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.situation import Situation, situation
from kraft_operator.plan.model.wanted import Wanted
from kraft_operator.plan.nodes.volumes import brokers_to_query
from kraft_operator.plan.planner import plan
from kraft_operator.plan.topics import DeclaredTopics, TopicState, replicas_of
from kraft_operator.protocol import new_client
from kraft_operator.report.status import document, status, version_of
from kraft_operator.reporting import Reporter, now_text, objects_without_cluster
from kraft_operator.security.cluster_security import ClusterSecurity
from kraft_operator.security.keeper import Kept
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.config_check import cluster_config_problems
from kraft_operator.specs.fronts import listener_problems
from kraft_operator.specs.planner_input import wanted_of
from kraft_operator.specs.security import own_certificates
from kraft_operator.specs.windows import window_problems, window_state
from kraft_protocol.client.aio import UnreachableError

log = logging.getLogger("kraft_operator.reconcile")

AGAIN_S: Final = 0.2
"""Seconds after a pass that carried out steps. Meanwhile the cluster's views become newer than the steps."""
WAITING_S: Final = 0.5
"""Seconds between passes that wait for something without events, such as a replica that catches up. Doubled while the
plan waits for the same thing, up to WAITING_S_MAX."""
WAITING_S_MAX: Final = 5.0
PASS_S: Final = 120.0
"""The timeout of a pass in seconds. After that, its views are too old."""
CERTIFICATES_S: Final = 60.0
"""A cluster rests no longer than this if a listener has its own certificate: no watch shows changes of Secrets."""
RESTS_S: Final = 1200.0
"""After this many seconds, everything is read again, to revert manual edits that watches do not show."""


class Key(NamedTuple):
    """The key of a cluster, a pipeline or another object in a queue."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class _Rest:
    """The result of the last whole pass over a cluster that needs no step."""

    cluster: NamedCluster
    record: Record
    wanted: Wanted
    found: Found
    generation: int
    status: KRaftClusterStatus
    declared: DeclaredTopics
    topics: Mapping[str, TopicState]
    users: by_users.AtRest
    until: float


@dataclass(slots=True)
class _Memory:
    """The state of one cluster between passes. A crash may lose it."""

    look: Look
    teller: Reporter
    secure: ClusterSecurity
    shared: Shared = field(default_factory=Shared)
    patience: Patience = field(default_factory=Patience)
    waits: tuple[str, ...] = ()
    waits_s: float = WAITING_S
    changes: int = 0
    """How many changes the watches have reported."""
    rest: _Rest | None = None

    def source(self, rest: _Rest) -> MetadataSource:
        """The brokers that topics and users of a resting cluster are read from."""
        found = rest.found
        return self.look.source(found.brokers, found.controllers, found.statuses, rest.record.cluster_id)


def _rests_s(cluster: NamedCluster) -> float:
    """How long a cluster may rest, in seconds: at most until a maintenance window opens or closes."""
    longest_s = CERTIFICATES_S if own_certificates(cluster) else RESTS_S
    longest_s *= 1 + random.random() / 10  # noqa: S311  (not all at once)
    now = datetime.now(UTC)
    changes = window_state(cluster.spec.update_strategy.maintenance_windows, now).changes
    return longest_s if changes is None else min(longest_s, (changes - now).total_seconds())


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
        self._machines = Machines(api, clock, allowed=machines)
        self._node_image = node_image
        self._clock = clock
        self._memories: dict[Key, _Memory] = {}
        self._stopping = False

    def stop(self) -> None:
        """Begin no more steps: current passes end after their present step."""
        self._stopping = True

    def touched(self, key: Key, *, users: bool = True) -> None:
        """Note a change of a cluster: the next pass reads its objects again.

        `users` is False if neither a KRaftUser nor a claim of a user has changed.
        """
        memory = self._memories.get(key)
        if memory is not None:
            memory.changes += 1
            memory.rest = None
            if users:
                memory.shared.no_users.changed()

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass. Returns the seconds until the next pass, or None if the cluster is gone."""
        began = self._clock()
        try:
            try:
                async with asyncio.timeout(PASS_S):
                    after_s = await self._glance(key)
                    return after_s if after_s is not None else await self._pass(key)
            except TimeoutError:
                raise ApiError(0, "TooLate", f"a pass takes longer than {PASS_S:g} s, and starts again") from None
        except (ApiError, RefusedError, UnreachableError, NotYetError) as error:
            self._metrics.failed(*key, took_s=self._clock() - began)
            log.warning("pass failed cluster=%s/%s error=%s", *key, error)
            raise

    def forget(self, key: Key) -> None:
        """Drop the state and the metrics of a deleted cluster."""
        memory = self._memories.pop(key, None)
        if memory is not None:
            memory.look.client.close()
            self._metrics.forget(*key)
            self._metrics.clusters.set(len(self._memories))

    def close(self) -> None:
        """Forget all clusters, with their connections."""
        for key in list(self._memories):
            self.forget(key)

    # A whole pass

    async def _pass(self, key: Key) -> float | None:
        began, memory = self._clock(), self._memory(key)
        # Count changes from here on: an object may be read just before it changes.
        memory.rest, changes = None, memory.changes
        resource, there, topics = await asyncio.gather(
            self._api.get("KRaftCluster", *key),
            self._api.get(RECORD, key.namespace, name_of_record(key.name)),
            self._api.list("KRaftTopic", key.namespace),
        )
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            self.forget(key)
            if resource is None:
                await objects_without_cluster(self._api, self._events, *key)
            return None
        found = await self._understand(key, memory, resource)
        if found is None:
            return self._resync_s
        cluster, before = found
        kept = RecordObject(self._api, cluster, there)
        begun = await begin(self._api, memory.teller, memory.secure, resource, cluster, before, kept)
        if isinstance(begun, float):
            return begun
        cluster, record = begun
        try:
            cluster, kept.templates, refused = await templates_in_force(
                self._api, cluster, kept.templates, memory.shared.accepted
            )
        except NotGrantedError as error:
            await memory.teller.wrong(resource, error.reason, str(error))
            return self._resync_s
        await kept.keep(record)
        declared, _ = by_topics.declared(topics, key.name, record.topics)
        annotations = resource["metadata"].get("annotations", {})
        replicas = replicas_of(declared.desired_topics)
        wanted = replace(wanted_of(cluster, annotations, datetime.now(UTC)), topic_replicas=replicas)
        one = self._pass_of(memory, cluster, resource, before, wanted, record, kept)
        observed = await one.observe()
        plan_, failure = await self._planned(one, memory, wanted, observed, refused)
        understood = failure is None or (isinstance(failure, RefusedError | ApiError) and failure.lasting)
        record = one.record  # even if the plan failed halfway, the written record stays in force
        s = situation(record, wanted, observed)
        if understood:
            now, generation = now_text(), resource["metadata"].get("generation", 0)
            after = self._status(cluster, record, s, plan_, before, observed, wanted, generation, now)
            await memory.teller.changes(resource, plan_, before, after)
            await one.report(document(after), now)
            if s is not None:
                await one.withdraw(s)
            looked_after = not cluster.spec.paused and not cluster.spec.hibernated and not self._stopping
            users = await one.objects(topics, record, self._events, plan_.waits) if looked_after else by_users.NOTHING
            changed = failure is not None or refused is not None or plan_.steps or memory.changes != changes
            if users is not None and one.found is not None and not changed:
                until = self._clock() + _rests_s(cluster)
                rest = _Rest(cluster, record, wanted, one.found, generation, after, declared, {}, users, until)
                await self._rest(memory, rest, changes)
        if failure is not None:
            raise failure
        current = conditions(s, plan_)
        self._metrics.passed(*key, plan_, current, took_s=self._clock() - began, now_s=time.time())
        return self._next(memory, plan_, s)

    def _pass_of(
        self,
        memory: _Memory,
        cluster: NamedCluster,
        resource: dict[str, Any],
        before: KRaftClusterStatus,
        wanted: Wanted,
        record: Record,
        kept: RecordObject,
    ) -> Pass:
        def think(observed: Observed) -> tuple[do.Plan, Situation | None]:
            return plan(one.record, wanted, observed, ""), situation(one.record, wanted, observed)

        one = Pass(
            self._api,
            memory.look,
            memory.shared,
            cluster,
            resource,
            before,
            self._clock,
            self._machines,
            lambda: self._stopping,
            think,
            record,
            kept,
            lambda kube: brokers_to_query(one.record, wanted, kube),
        )
        return one

    def _status(
        self,
        cluster: NamedCluster,
        record: Record,
        s: Situation | None,
        plan_: do.Plan,
        before: KRaftClusterStatus,
        observed: Observed,
        wanted: Wanted,
        generation: int,
        now: str,
    ) -> KRaftClusterStatus:
        return status(
            cluster,
            record,
            s,
            plan_,
            before,
            generation=generation,
            now=now,
            version=version_of(observed),
            revision=wanted.revision,
        )

    async def _planned(
        self, one: Pass, memory: _Memory, wanted: Wanted, observed: Observed, refused: TemplateRefusal | None
    ) -> tuple[do.Plan, ApiError | RefusedError | UnreachableError | None]:
        """Plan and act. Returns the last plan and its error, or None.

        A plan that only writes the record does not change anything observed, so the next plan needs no new look.
        """
        fresh_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "_", 1)
        while True:
            kept = await self._certificates(one, memory)
            record = one.record
            plan_ = plan(record, wanted, observed, fresh_id)
            plan_.waits += kept.waits
            for problem in kept.problems:
                plan_.block(*problem)
            plan_.start_none_of(kept.lacking)
            if refused is not None:
                plan_.block(*refused)
                plan_.disrupt_nothing()
            memory.patience.hold(situation(record, wanted, observed), plan_, self._clock())
            self._racks(one.cluster, plan_)
            failure = await self._act(one, plan_)
            if failure is not None or one.record == record or not only_remembers(plan_):
                return plan_, failure

    async def _certificates(self, one: Pass, memory: _Memory) -> Kept:
        """Keep the certificates of a cluster with TLS. New authorities are recorded before any node trusts them."""
        if self._stopping:
            return Kept()
        annotations = one.resource["metadata"].get("annotations", {})
        kept = await memory.secure.keep(one.cluster, annotations, one.record, one.found, one.seen)
        if kept.done:
            await self._events.emit(one.resource, "Normal", "Certificates", "; ".join(kept.done))
        for text in kept.refused:
            await self._events.emit(one.resource, "Warning", "RequestRefused", text)
        known = tuple(sorted({**dict(one.record.authorities), **kept.fingerprints}.items()))
        if known != one.record.authorities:
            await one.recorded(replace(one.record, authorities=known), "certificate authorities")
        return kept

    async def _act(self, one: Pass, plan_: do.Plan) -> ApiError | RefusedError | UnreachableError | None:
        """Carry out a plan. Returns its error, or None. A lasting error is added to the plan as a block."""
        try:
            await one.act(plan_, self._notifier(one.resource))
        except NotYetError as error:
            plan_.waits.append(str(error))
        except (ApiError, RefusedError, UnreachableError) as error:
            if isinstance(error, ApiError | RefusedError) and error.lasting:
                if not any(one.message.startswith(str(error)) for one in plan_.blocked):
                    plan_.block("StepRefused", str(error))
            else:
                await self._events.emit(one.resource, "Warning", "StepFailed", str(error))
            return error
        return None

    async def _understand(
        self, key: Key, memory: _Memory, resource: dict[str, Any]
    ) -> tuple[NamedCluster, KRaftClusterStatus] | None:
        """Read the specification and the former status. Returns None and reports the problem if they are invalid."""
        try:
            # Ignore unknown fields: they may belong to a later version of the definitions.
            spec = KRaftClusterSpec.model_validate(resource["spec"], extra="ignore")
            before = KRaftClusterStatus.model_validate(resource.get("status", {}), extra="ignore")
        except ValidationError as error:
            await memory.teller.wrong(resource, "NotUnderstood", "; ".join(problems(error)) + VERSIONS)
            return None
        wrong = [*cluster_config_problems(spec), *listener_problems(spec, key.name, key.namespace)]
        wrong += window_problems(spec)
        if wrong:
            await memory.teller.wrong(resource, "ConfigNotValid", "; ".join(wrong))
            return None
        cluster = NamedCluster(key.name, key.namespace, resource["metadata"]["uid"], spec, self._node_image)
        if not cluster.image:
            message = "neither spec.image nor the operator's settings name an image: set either"
            await memory.teller.wrong(resource, "NoImage", message)
            return None
        return cluster, before

    def _racks(self, cluster: NamedCluster, plan_: do.Plan) -> None:
        if cluster.spec.rack is not None and not self._machines.allowed:
            text = "spec.rack needs machines' labels, and the operator may not read them"
            plan_.block("RacksUnknown", f"{text}: install it with watch.nodes=true, or leave spec.rack out")

    def _notifier(self, resource: dict[str, Any]) -> NotifySteps:
        async def notify(steps: Sequence[do.Step]) -> None:
            await self._events.steps(resource, steps)

        return notify

    # A pass over a cluster that rests

    async def _rest(self, memory: _Memory, rest: _Rest, changes: int) -> None:
        """Let the cluster rest if all its objects are known and no watch has reported a change since."""
        states = await self._topics(memory, rest) if rest.found.whole else None
        if states is not None and memory.changes == changes:
            memory.rest = replace(rest, topics=states)

    async def _topics(self, memory: _Memory, rest: _Rest) -> Mapping[str, TopicState] | None:
        """The states of the cluster's topics; None if a topic must change or cannot be read."""
        claims = {claim.topic: claim for claim in rest.record.topics}
        spec = rest.cluster.spec
        if spec.paused or spec.hibernated or not (rest.declared.desired_topics or claims):
            return {}
        source = memory.source(rest)
        if not source:
            return None
        try:
            return await by_topics.steady(source, rest.declared, claims, rest.record.cluster_id)
        except UnreachableError:
            return None

    async def _glance(self, key: Key) -> float | None:
        """A short pass over a resting cluster, without requests to the API server; None if a whole pass is due."""
        memory, began = self._memories.get(key), self._clock()
        rest = None if memory is None else memory.rest
        if memory is None or rest is None or rest.until < began or self._stopping:
            return None
        # No watch has reported a change, so the listed objects are still correct now.
        ask, migrates = brokers_to_query(rest.record, rest.wanted, rest.found.kube), rest.record.unfinished_migration
        observed = await memory.look.observed(rest.found, self._clock(), ask, migrates=migrates)
        plan_ = plan(rest.record, rest.wanted, observed, "")
        s = situation(rest.record, rest.wanted, observed)
        memory.patience.hold(s, plan_, self._clock())
        self._racks(rest.cluster, plan_)
        if plan_.steps:
            return None
        after = self._status(
            rest.cluster, rest.record, s, plan_, rest.status, observed, rest.wanted, rest.generation, now_text()
        )
        if document(after) != document(rest.status):
            return None
        if rest.declared.desired_topics or rest.record.topics:
            states = await self._topics(memory, rest)
            if states is None or states != rest.topics:
                return None
        if not await by_users.steady(memory.source(rest), rest.users) or memory.rest is not rest:
            return None
        self._metrics.passed(*key, plan_, conditions(s, plan_), took_s=self._clock() - began, now_s=time.time())
        return self._next(memory, plan_, s)

    # When to look again

    def _next(self, memory: _Memory, plan_: do.Plan, s: Situation | None) -> float:
        if plan_.steps:
            return AGAIN_S
        if plan_.waits:
            return self._backed_off(memory, tuple(plan_.waits))
        if s is not None and (s.wanted.hibernated or s.wanted.paused):
            return self._resync_s
        # A view that is unknown, or older than the pods, may soon be known and may require a step.
        if self._clock() - max(memory.patience.known_at, memory.look.pods_changed_at) >= UNKNOWN_S:
            return BLOCKED_S
        if s is None or s.quorum is None or s.metadata is None:
            return self._backed_off(memory, ("views",))
        return BLOCKED_S if plan_.blocked or s.record.unfinished_migration else self._resync_s

    def _backed_off(self, memory: _Memory, waits: tuple[str, ...]) -> float:
        """The delay until the next pass, doubled while the plan waits for the same. Watches wake it earlier."""
        again = memory.waits == waits
        memory.waits, memory.waits_s = waits, min(memory.waits_s * 2, WAITING_S_MAX) if again else WAITING_S
        return memory.waits_s

    def _memory(self, key: Key) -> _Memory:
        memory = self._memories.get(key)
        if memory is None:
            secure = ClusterSecurity(self._api)
            look = Look(new_client(security=secure.client), self._clock, secure.names)
            memory = self._memories[key] = _Memory(look, Reporter(self._api, self._events), secure)
            self._metrics.clusters.set(len(self._memories))
        return memory
