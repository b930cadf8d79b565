"""KRaftTopics of a file, reconciled by the supervisor in each pass, as by the reconciler on Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kraft_local.folder import Folder, Memory
from kraft_operator.apply import topics
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model.record import Claim
from kraft_operator.plan.topics import DeclaredTopics, TopicState, plan_topics


class LocalTopics:
    """The `TopicKeeper` of a local cluster. Resources have no uid; their names identify them."""

    def __init__(self, folder: Folder, memory: Memory, name: str, show: Callable[[str], None]) -> None:
        self._folder = folder
        self._memory = memory
        self._name = name
        self._show = show

    @property
    def resources(self) -> list[dict[str, Any]]:
        """The KRaftTopics as objects, with their last status."""
        return [
            {
                "metadata": {"name": name, "generation": self._memory.generation},
                "spec": spec,
                "status": self._memory.topic_states.get(name, {}),
            }
            for name, spec in self._memory.topics.items()
        ]

    @property
    def claims(self) -> dict[str, Claim]:
        """The claims on topics, by topic, from the memory."""
        return {claim.topic: claim for claim in self._memory.record.topics}

    @property
    def any(self) -> bool:
        """Whether the cluster has KRaftTopics, or topics that are deleted with a former one."""
        return bool(self.resources or self.claims)

    def declared(self) -> DeclaredTopics:
        """The declared topics. All are valid, because an invalid file is refused."""
        return topics.declared(self.resources, self._name)[0]

    async def run(self, source: MetadataSource) -> bool:
        """Carry out a batch. Returns whether more work is due. Raises UnreachableError."""
        one = topics.TopicPass(source, self, self._memory.record.cluster_id)
        return await one.run(self.declared(), self.claims)

    async def lines(self, source: MetadataSource) -> list[str]:
        """Messages about the planned changes, which are not carried out. Raises UnreachableError."""
        declared, claims = self.declared(), self.claims
        names = sorted({*claims, *(desired.topic for desired in declared.desired_topics)})
        cluster_id = self._memory.record.cluster_id
        _, seen = await source.first(lambda address: topics.look(source.client, address, names, cluster_id))
        return plan_topics(declared, seen, claims).lines

    # The keeper

    async def remember(self, claims: Mapping[str, Claim]) -> None:
        """Store the claims, durably."""
        owned = tuple(claims[topic] for topic in sorted(claims))
        self._memory.record = replace(self._memory.record, topics=owned)
        self._folder.remember(self._memory)

    async def report_states(self, states: Mapping[str, TopicState]) -> None:
        """Store the statuses of the KRaftTopics of the file, if they differ."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = {
            one["metadata"]["name"]: topics.status(states[one["metadata"]["name"]], one, now)
            if one["metadata"]["name"] in states
            else one["status"]
            for one in self.resources
        }
        if found != self._memory.topic_states:
            self._memory.topic_states = found
            self._folder.remember(self._memory)

    async def gone(self, claims: Collection[Claim]) -> set[str]:
        """All topics of the claims: a KRaftTopic that is not in the file is certainly gone. Announces each deletion."""
        for claim in claims:
            self._show(f"topic {claim.topic} is deleted: KRaftTopic {claim.resource} has left the file")
        return {claim.topic for claim in claims}

    async def kept(self, claims: Collection[Claim]) -> None:
        """Announce each topic that stays although its KRaftTopic has left the file."""
        for claim in claims:
            self._show(f"topic {claim.topic} stays, although its KRaftTopic has left the file")
