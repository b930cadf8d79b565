"""The KRaftTopics and KRaftUsers of a local cluster, reconciled after each pass, as on Kubernetes."""

from __future__ import annotations

from collections.abc import Callable

from kraft_local.folder import Folder, Memory
from kraft_local.topics import LocalTopics
from kraft_local.users import Bootstrap, LocalUsers
from kraft_operator.observe.source import MetadataSource
from kraft_operator.specs.cluster import NamedCluster
from kraft_protocol.client.aio import UnreachableError


class LocalObjects:
    """The topics and users of one cluster."""

    def __init__(
        self, folder: Folder, memory: Memory, name: str, show: Callable[[str], None], bootstrap: Bootstrap
    ) -> None:
        self.topics = LocalTopics(folder, memory, name, show)
        self.users = LocalUsers(folder, memory, show, bootstrap)
        self.change = False
        """Whether the next pass is due soon."""

    async def run(self, source: MetadataSource, cluster: NamedCluster) -> None:
        """Carry out one batch of changes of topics and of users, once a broker is ready. Raises UnreachableError."""
        self.change = self.topics.any or self.users.any
        if not source or cluster.spec.paused or cluster.spec.hibernated or not self.change:
            return
        topics = await self.topics.run(source)
        self.change = await self.users.run(source, cluster) or topics

    async def lines(self, source: MetadataSource, cluster: NamedCluster) -> list[str]:
        """Messages about planned changes of topics and users; empty if no broker is ready."""
        if not source:
            return []
        try:
            users = await self.users.lines(source, cluster)
            return [*await self.topics.lines(source), *users]
        except UnreachableError as error:
            return [f"topics and users: {error}"]
