"""KRaftTopics as objects of Kubernetes: statuses, events, claims, and the proof that a resource was deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kraft_operator.apply.objects import difference
from kraft_operator.apply.topics import status
from kraft_operator.events import Events
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.plan.model.record import Claim
from kraft_operator.plan.topics import TopicState

log = logging.getLogger("kraft_operator.topics")

UNREPORTED: Final = frozenset({"Changing", "Creating", "ReplicasMove"})
"""Reasons of topics that are not ready yet and need no help. They cause no event."""


@dataclass(slots=True)
class TopicObjects:
    """The `TopicKeeper` of one cluster on Kubernetes, for one pass."""

    api: Api
    events: Events
    namespace: str
    resources: list[dict[str, Any]]
    """All KRaftTopics of the namespace, as last seen."""
    cluster: dict[str, Any]
    """The KRaftCluster. It gets the events about deleted KRaftTopics."""
    write_claims: Callable[[Mapping[str, Claim]], Awaitable[object]]

    async def remember(self, claims: Mapping[str, Claim]) -> None:
        """Write the claims into the record."""
        await self.write_claims(claims)

    async def report_states(self, states: Mapping[str, TopicState]) -> None:
        """Write the statuses that differ, and a warning event for each new problem that needs help."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        names = [one["metadata"]["name"] for one in self.resources]
        reports = [self._report_one(number, states[name], now) for number, name in enumerate(names) if name in states]
        await asyncio.gather(*reports)

    async def _report_one(self, number: int, state: TopicState, now: str) -> None:
        resource = self.resources[number]
        metadata, before = resource["metadata"], resource.get("status", {})
        after = status(state, resource, now)
        change = difference(before, after)
        if not change:
            return
        condition: Mapping[str, Any] = next(iter(before.get("conditions", ())), {})
        new = (condition.get("reason"), condition.get("message", "")) != (state.reason, state.message)
        if new and not state.ready and state.reason not in UNREPORTED:
            log.warning(
                "KRaftTopic has a problem resource=%s/%s reason=%s message=%s",
                self.namespace,
                metadata["name"],
                state.reason,
                state.message,
            )
            await self.events.emit({"kind": "KRaftTopic", **resource}, "Warning", state.reason, state.message)
        try:
            patched = await self.api.patch("KRaftTopic", self.namespace, metadata["name"], {"status": change}, "status")
        except ApiError as error:
            if error.status != 404:  # the resource was deleted meanwhile
                raise
            return
        self.resources[number] = patched

    async def gone(self, claims: Collection[Claim]) -> set[str]:
        """Topics without a resource, as a new list of the resources proves. The pass may have listed them minutes ago.

        Writes an event for each topic.
        """
        known = {_name_and_uid(one) for one in self.resources}
        there = {_name_and_uid(one) for one in await self.api.list("KRaftTopic", self.namespace)}
        if there - known:
            return set()  # the next pass reads the new resources first
        found = set()
        for claim in claims:
            if (claim.resource, claim.uid) in there:
                continue
            text = f"topic {claim.topic} (id {claim.id}) is deleted"
            reason = f"the KRaftTopic {claim.resource} (uid {claim.uid}) is gone, and its deletionPolicy was Delete"
            await self._emit("DeletingTopic", f"{text}: {reason}")
            found.add(claim.topic)
        return found

    async def kept(self, claims: Collection[Claim]) -> None:
        """Write an event for each topic that stays although its claim ends."""
        for claim in claims:
            whose = claim.resource or "that an older operator did not name"
            text = f"topic {claim.topic} (id {claim.id}) stays. Its KRaftTopic {whose} no longer exists"
            advice = "its deletionPolicy was Delete, so delete the topic yourself if it is not needed"
            await self._emit("TopicKept", f"{text}; {advice}")

    async def _emit(self, reason: str, message: str) -> None:
        log.info(
            "event resource=%s/%s reason=%s message=%s",
            self.namespace,
            self.cluster["metadata"]["name"],
            reason,
            message,
        )
        await self.events.emit(self.cluster, "Normal", reason, message, combine=False)


def _name_and_uid(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["metadata"]["name"], one["metadata"].get("uid", "")


def cluster_missing(name: str, desired_topics: Iterable[str]) -> dict[str, TopicState]:
    """The states of KRaftTopics without an existing KRaftCluster. `desired_topics` are the names of the resources."""
    text = f"KRaftCluster {name} does not exist in this namespace: create it, or delete this KRaftTopic"
    return {desired: TopicState(False, "ClusterMissing", text) for desired in desired_topics}
