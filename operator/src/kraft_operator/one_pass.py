"""The work of one pass over one cluster: observe, carry out steps, write the status.

The reconciler calls it after it has read the resource and planned. A pass keeps no state of its own: the record, the
resource's status and the given `Look` outlive it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply import kafka as by_kafka
from kraft_operator.apply import topics as by_topics
from kraft_operator.apply import users as by_users
from kraft_operator.apply.fence import Think, look_again
from kraft_operator.apply.fronts import FrontRefusedError
from kraft_operator.apply.kubernetes import (
    Hands,
    InTheWayError,
    KubeStep,
    NotYetError,
    ServiceRefusedError,
)
from kraft_operator.apply.objects import difference
from kraft_operator.apply.record import KIND as RECORD
from kraft_operator.apply.record import BadRecordError, RecordObject, UserRecord, name_of_users
from kraft_operator.apply.topic_objects import TopicObjects
from kraft_operator.apply.user_objects import UserObjects, all_users
from kraft_operator.events import Events
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.observe import objects
from kraft_operator.observe.cluster import Found, ListedObjects, Look, Machines
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Kube, Observed
from kraft_operator.plan.model.record import Claim, Record, UserClaim
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.nodes.replace import done_before
from kraft_operator.plan.users import UserState
from kraft_operator.specs.cluster import NamedCluster, digest
from kraft_operator.specs.planner_input import REPLACE, requests_of
from kraft_operator.specs.user_access import internal_users

log = logging.getLogger("kraft_operator.reconcile")

SHARED_S: Final = 300.0
"""Seconds between two checks of services and budgets without changes. The check reverts manual edits."""

USERS_S: Final = 60.0
"""Seconds between two looks for KRaftUsers of a cluster without users. A reported change of a user ends them."""

NotifySteps = Callable[[Sequence[do.Step]], Awaitable[None]]
"""Called with steps of one kind that were carried out together."""
KAFKA_STEPS: Final = (
    do.SetConfig,
    do.SetFeature,
    do.Throttle,
    do.Reassign,
    do.Unregister,
    do.AddVoter,
    do.RemoveVoter,
    do.Cordon,
    do.MoveLogs,
)


def only_remembers(plan_: do.Plan) -> bool:
    """Whether a plan only writes the record and needs no second look for it."""
    return plan_.guarded is None and len(plan_.steps) == 1 and isinstance(plan_.steps[0], do.Remember)


@dataclass(slots=True)
class NoUsers:
    """Whether a cluster certainly has neither KRaftUsers nor claims of users, so that a pass need not read them."""

    changes: int = 0
    """How many changes of KRaftUsers or claims the watches have reported."""
    until: float = float("-inf")

    def changed(self) -> None:
        """Note a change that a watch has reported: the next pass reads."""
        self.changes += 1
        self.until = float("-inf")

    def found(self, changes: int, until: float) -> None:
        """Note a look that found nothing and began after `changes` changes. A later change makes it void."""
        if self.changes == changes:
            self.until = until


@dataclass(slots=True)
class Shared:
    """What passes over a cluster share: when, and for which state, the shared objects were last written."""

    marks: str = ""
    at: float = float("-inf")
    accepted: dict[str, str] = field(default_factory=dict)
    """Digests of the pods that Kubernetes has accepted in a dry run, by pool."""
    no_users: NoUsers = field(default_factory=NoUsers)


@dataclass(slots=True)
class Pass:
    """The state of one pass."""

    api: Api
    look: Look
    shared: Shared
    cluster: NamedCluster
    resource: dict[str, Any]
    before: KRaftClusterStatus
    clock: Callable[[], float]
    machines: Machines
    stopping: Callable[[], bool]
    """Whether the operator stops, so that no step may begin."""
    think: Think
    """Plans again, for the second look."""
    record: Record
    """The record in force."""
    kept: RecordObject
    ask: Callable[[Kube], Collection[int]]
    """Returns the brokers that must report their log directories."""
    seen: ListedObjects = field(default_factory=ListedObjects)
    found: Found | None = None

    async def _share(self, held: frozenset[str]) -> None:
        """Write services and budgets if they may have to change."""
        nodes = [[node.id, node.controller, node.broker, node.stopped] for node in self.record.nodes]
        marks = digest([self.resource["metadata"].get("generation"), nodes, sorted(self.seen.services), sorted(held)])
        now = self.clock()
        if self.shared.marks == marks and now - self.shared.at < SHARED_S:
            return
        await Hands(self.api, self.cluster, self.record, self.seen).share(held)
        self.shared.marks, self.shared.at = marks, now

    async def observe(self) -> Observed:
        """Observe everything. Returns all views with their ages."""
        listed_at = self.clock()
        self.found, self.seen = await self.look.objects(self.api, self.cluster, self.machines)
        ask, migrates = self.ask(self.found.kube), self.record.unfinished_migration
        return await self.look.observed(self.found, listed_at, ask, migrates=migrates)

    async def act(self, plan_: do.Plan, notify: NotifySteps) -> None:
        """Write the shared objects, then carry out the plan's steps in order, steps of one kind together.

        A lasting refusal (a volume that cannot grow, a quota) or a missing precondition does not delay other steps.
        The steps of a plan do not depend on each other. It is raised at the end.
        """
        refused: ApiError | NotYetError | None = None
        if not self.cluster.spec.paused and not only_remembers(plan_) and not self.stopping():
            try:
                await self._share(plan_.held)
            except (ApiError, NotYetError) as error:
                if isinstance(error, ApiError) and not error.lasting:
                    raise
                refused = error
        if plan_.guarded is not None:
            if isinstance(refused, ServiceRefusedError | FrontRefusedError):
                raise refused
            await self._carry_out_guarded(plan_, notify)
        else:
            self.look.tried = tuple(plan_.steps)
            refused = await self._each(plan_.steps, notify) or refused
        if refused is not None:
            raise refused

    async def _carry_out_guarded(self, plan_: do.Plan, notify: NotifySteps) -> None:
        """Carry out a guarded step once: after a second look, and before the views are too old."""

        permit = await look_again(plan_, self.observe, self.think, self.clock)
        if permit is None or await self._is_another():
            plan_.waits.append(f"{type(plan_.guarded).__name__}: a second look found that something has changed")
            plan_.steps.clear()
            return
        plan_.steps, late = permit.plan.steps, f"{type(plan_.guarded).__name__}: the views are too old for this step"
        left_s = permit.expires_at - self.clock()
        if left_s <= 0:
            raise ApiError(0, "TooLate", late)
        try:
            async with asyncio.timeout(left_s):
                refused = await self._each(plan_.steps, notify)
        except TimeoutError:
            raise ApiError(0, "TooLate", late) from None
        if refused is not None:
            raise refused

    async def _is_another(self) -> bool:
        """Whether the resource has changed since the pass began, for example because it was paused."""
        there = await self.api.get("KRaftCluster", self.cluster.namespace, self.cluster.name)
        before, after = self.resource["metadata"], (there or {}).get("metadata", {})
        return "deletionTimestamp" in after or any(
            before.get(key) != after.get(key) for key in ("uid", "generation", "annotations")
        )

    async def _each(self, planned: Iterable[do.Step], notify: NotifySteps) -> ApiError | NotYetError | None:
        """Carry out steps in order, steps of one kind together. Returns the first lasting refusal or wait, or None."""
        refused: ApiError | NotYetError | None = None
        for kind, steps in itertools.groupby(planned, key=type):
            if self.stopping():
                return refused or NotYetError("the operator stops")
            try:
                if kind is do.Remember:
                    for step in steps:
                        assert isinstance(step, do.Remember)
                        self.record = await self._remember(step)
                else:
                    await self._all(list(steps), notify)
            except (ApiError, NotYetError) as error:
                if kind is do.Remember or (isinstance(error, ApiError) and not error.lasting):
                    raise
                refused = refused or error
        return refused

    async def _all(self, steps: Sequence[do.Step], notify: NotifySteps) -> None:
        """Carry out steps of one kind at once. Reports the completed steps, even if others fail."""
        hands = Hands(self.api, self.cluster, self.record, self.seen)

        async def one(step: do.Step) -> None:
            log.info("step begins cluster=%s/%s step=%s", self.cluster.namespace, self.cluster.name, step)
            if isinstance(step, KAFKA_STEPS):
                await self._by_kafka(step)
            else:
                assert isinstance(step, KubeStep)
                await hands.carry_out(step)

        try:
            results = await asyncio.gather(*map(one, steps), return_exceptions=True)
        finally:
            self.look.written_at = self.clock()
        done = [step for step, result in zip(steps, results, strict=True) if result is None]
        if done:
            await notify(done)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _by_kafka(self, step: by_kafka.KafkaStep) -> None:
        pods = list(self.seen.pods.values())
        controllers = objects.controllers(pods)
        # The quorum gets the node's host name, because a pod's address does not outlive the pod.
        named = {i: address._replace(host=self.cluster.host(i)) for i, address in controllers.items()}
        ask = list(objects.brokers(pods).values()) or list(controllers.values())
        if isinstance(step, do.AddVoter | do.RemoveVoter):
            quorum = self.look.view.quorum.value
            leader = [] if quorum is None or quorum.leader not in controllers else [controllers[quorum.leader]]
            ask = [*leader, *ask]
        if isinstance(step, by_kafka.OWN_STEPS):
            own = objects.brokers(pods).get(step.node)
            ask = [] if own is None else [own]
        quorum = self.look.view.quorum.value
        await by_kafka.carry_out(self.look.client, step, ask, quorum=quorum, controllers=named)

    @property
    def source(self) -> MetadataSource:
        """The brokers that topics and users are read from."""
        pods = list(self.seen.pods.values())
        brokers, controllers = objects.brokers(pods), objects.controllers(pods)
        return self.look.source(brokers, controllers, objects.statuses(pods), self.record.cluster_id)

    async def topics(self, found: list[dict[str, Any]], record: Record, events: Events) -> bool:
        """Reconcile the namespace's KRaftTopics. Returns whether the next pass is due soon."""
        claims = {claim.topic: claim for claim in record.topics}
        declared, states = by_topics.declared(found, self.cluster.name, record.topics)
        source = self.source
        if not (declared.desired_topics or states or claims):
            return False

        async def remember(now: Mapping[str, Claim]) -> None:
            owned = replace(record, topics=tuple(now[topic] for topic in sorted(now)))
            await self._remember(do.Remember(owned, "topics that are deleted with their resources"))

        keeper = TopicObjects(self.api, events, self.cluster.namespace, found, self.resource, remember)
        await keeper.report_states(states)
        if not source or not (declared.desired_topics or claims):
            return bool(declared.desired_topics or claims)
        return await by_topics.TopicPass(source, keeper, record.cluster_id).run(declared, claims)

    async def objects(
        self, topics: list[dict[str, Any]], record: Record, events: Events, waits: list[str]
    ) -> by_users.AtRest | None:
        """Reconcile the KRaftTopics and KRaftUsers of the namespace, and add to `waits` what changes.

        Returns the users at rest; None if the cluster may not rest.
        """
        topics_change = await self.topics(topics, record, events)
        users_change, at_rest = await self.users(events)
        waits += ["topics change"] * topics_change + ["users change"] * users_change
        return None if topics_change else at_rest

    async def users(self, events: Events) -> tuple[bool, by_users.AtRest | None]:
        """Reconcile the namespace's KRaftUsers. Returns whether the next pass is due soon, and users at rest.

        The users are None if the cluster may not rest. Claims that cannot be read stop only the work on users, and the
        KRaftUsers say so.
        """
        namespace, began, changes = self.cluster.namespace, self.clock(), self.shared.no_users.changes
        if began < self.shared.no_users.until:
            return False, by_users.NOTHING
        found, there = await asyncio.gather(
            all_users(self.api, namespace), self.api.get(RECORD, namespace, name_of_users(self.cluster.name))
        )
        if found is None:
            return False, by_users.NOTHING
        kept = UserRecord(self.api, self.cluster, there)
        try:
            claims = kept.read()
        except (BadRecordError, InTheWayError, NotYetError) as error:
            await self._without_claims(found, str(error), events)
            return True, None
        if not (found or claims):
            self.shared.no_users.found(changes, began + USERS_S)
            return False, by_users.NOTHING
        internal = internal_users(self.cluster)
        declared, states = by_users.declared(found, self.cluster.name, claims.values(), internal)
        keys = dict(self.record.authorities)
        keeper = UserObjects(self.api, events, self.cluster, found, self.resource, kept.keep, keys)
        await keeper.report_states(states)
        if not (declared.desired_users or claims):
            return False, by_users.NOTHING
        source = self.source
        if not source:
            return True, None
        return await by_users.UserPass(source, keeper).run(declared, claims)

    async def _without_claims(self, found: list[dict[str, Any]], why: str, events: Events) -> None:
        """Report that the claims of users cannot be read: nothing of a user may change."""
        declared, states = by_users.declared(found, self.cluster.name)
        states |= {one.resource: UserState(False, "RecordNotUnderstood", why) for one in declared.desired_users}

        async def keep(_: Mapping[str, UserClaim]) -> None:
            raise AssertionError("law: unread claims are not replaced")

        await UserObjects(self.api, events, self.cluster, found, self.resource, keep).report_states(states)

    async def withdraw(self, s: Situation) -> None:
        """Remove the annotations that requested replacements which are done."""
        asked, _ = requests_of(self.resource["metadata"].get("annotations", {}))
        keys = [REPLACE + request.name for request in asked if done_before(s, request)]
        if keys:
            patch = {"metadata": {"annotations": dict.fromkeys(keys)}}
            try:
                self.resource = await self.api.patch("KRaftCluster", self.cluster.namespace, self.cluster.name, patch)
            except ApiError as error:  # the request no longer has an effect, and the next pass removes it
                log.warning(
                    "finished requests were not removed cluster=%s/%s error=%s",
                    self.cluster.namespace,
                    self.cluster.name,
                    error,
                )

    # The status

    async def recorded(self, record: Record, why: str) -> None:
        """Write the record, and put it in force. Raises ApiError 409 if another writer has changed it."""
        self.record = await self._remember(do.Remember(record, why))

    async def _remember(self, step: do.Remember) -> Record:
        """Write the record. Raises ApiError 409 if another writer has changed it."""
        log.info("record is written cluster=%s/%s reason=%s", self.cluster.namespace, self.cluster.name, step.why)
        await self.kept.keep(step.record)
        return step.record

    async def report(self, after: dict[str, Any], now: str) -> None:
        """Write the status if it differs. The time of the pass alone does not count as a difference."""
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
