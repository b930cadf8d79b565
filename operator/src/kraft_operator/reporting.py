"""Reports beside the status of a pass: warning events, and the reason if nothing is done.

The reconciler calls it. Each new problem causes one event.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.status import KRaftClusterStatus, MigrationStatus
from kraft_operator.apply import topics as by_topics
from kraft_operator.apply import users as by_users
from kraft_operator.apply.objects import difference
from kraft_operator.apply.topic_objects import TopicObjects, cluster_missing
from kraft_operator.apply.user_objects import UserObjects, all_users, users_without_cluster
from kraft_operator.events import Events
from kraft_operator.kube.client import Api
from kraft_operator.observe import objects
from kraft_operator.plan.model import steps as do
from kraft_operator.specs.cluster import NamedCluster

log = logging.getLogger("kraft_operator.reconcile")

Object = dict[str, Any]
Reasons = tuple[tuple[str, str], ...]
"""Reason and message of each problem."""


def now_text() -> str:
    """The present time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class Reporter:
    """Reports of one cluster, kept between passes."""

    api: Api
    events: Events
    emitted: Reasons = ()

    async def wrong(self, resource: Object, reason: str, message: str) -> None:
        """Report that the operator does nothing: by an event, and by the condition Degraded."""
        await self.once(resource, ((reason, message),))
        status, generation = resource.get("status", {}), resource["metadata"].get("generation", 0)
        others = [one for one in status.get("conditions", ()) if one["type"] != "Degraded"]
        former = objects.condition_of(resource, "Degraded")
        degraded = {
            "type": "Degraded",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": former["lastTransitionTime"] if former.get("status") == "True" else now_text(),
            "observedGeneration": generation,
        }
        change = difference(status, {**status, "conditions": [*others, degraded], "observedGeneration": generation})
        if change:
            namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
            await self.api.patch("KRaftCluster", namespace, name, {"status": change}, "status")

    async def changes(
        self, resource: Object, plan: do.Plan, before: KRaftClusterStatus, after: KRaftClusterStatus
    ) -> None:
        """Post an event for each new block of a plan, and for each change of a migration from ZooKeeper."""
        await self.once(resource, tuple((one.reason, one.message) for one in plan.blocked))
        for text in migration_changes(before.migration, after.migration):
            await self.events.emit(resource, "Normal", "Migration", text, combine=False)

    async def once(self, resource: Object, emitted: Reasons) -> None:
        """Post an event for each reason and message that the last report did not have."""
        for reason, message in emitted:
            if (reason, message) not in self.emitted:
                metadata = resource["metadata"]
                log.info(
                    "event resource=%s/%s reason=%s message=%s",
                    metadata["namespace"],
                    metadata["name"],
                    reason,
                    message,
                )
                await self.events.emit(resource, "Warning", reason, message)
        self.emitted = emitted


def migration_changes(before: MigrationStatus | None, after: MigrationStatus | None) -> list[str]:
    """The text of an Event about changes in a migration from ZooKeeper."""
    if after is None:
        return []
    former = before or MigrationStatus.model_validate({"phase": after.phase})
    changes = []
    if before is None or former.phase != after.phase:
        changes.append(f"phase {after.phase}")
    if former.state != after.state and after.state:
        changes.append(f"state {after.state}")
    if former.driver != after.driver and after.driver:
        changes.append(f"driver {after.driver}")
    if former.brokers_on_zookeeper != after.brokers_on_zookeeper:
        changes.append(f"brokers with ZooKeeper: {', '.join(map(str, after.brokers_on_zookeeper)) or 'none'}")
    return ["; ".join(changes)] if changes else []


async def objects_without_cluster(api: Api, events: Events, namespace: str, name: str) -> None:
    """Write the statuses of the KRaftTopics and KRaftUsers without an existing cluster."""
    owner = {"metadata": {"name": name, "namespace": namespace}}
    topics = await api.list("KRaftTopic", namespace)
    declared, states = by_topics.declared(topics, name)
    states |= cluster_missing(name, (one.resource for one in declared.desired_topics))
    await TopicObjects(api, events, namespace, topics, owner, _no_claims).report_states(states)
    users = await all_users(api, namespace) or []
    of_users, wrong = by_users.declared(users, name)
    wrong |= users_without_cluster(name, (one.resource for one in of_users.desired_users))
    cluster = NamedCluster(name, namespace, "", KRaftClusterSpec.model_construct())
    await UserObjects(api, events, cluster, users, owner, _no_claims).report_states(wrong)


async def _no_claims(_: Mapping[str, Any]) -> None:
    """Ignore claims, because a missing cluster has no record."""
