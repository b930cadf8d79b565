"""An operator who moves replicas between the log directories of their brokers (KIP-113) under load.

Law `moved`: a minute after all faults and requests, no move is under way, each replica is in the directory that the
metadata names, and no directory has a copy of it. It holds if no disk is rotten and all directories work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.whole.operators import ChangesOperator
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid, uuid_text
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from kraft_node.testing.machine import SimCluster, SimMachine

VERSION: Final = 2
PAUSE_MS: Final = 1_000.0
MOVED_MAX: Final = 4
"""Replicas that one request moves, at most."""
ALLOWED: Final = (
    ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)  # fmt: skip


class DirectoryOperator(ChangesOperator):
    """Moves some replicas of one broker at a time."""

    def __init__(
        self, cluster: SimCluster, name: str, rng: random.Random, partitions: Callable[[], Sequence[tuple[str, int]]]
    ) -> None:
        """`partitions`: the replicas to move."""
        super().__init__(cluster, name, rng, PAUSE_MS)
        self._partitions = partitions

    async def change(self) -> None:
        """Request moves of replicas of one broker into one of its directories."""
        rng, request = self._rng, m.AlterReplicaLogDirsRequest
        machine = rng.choice(self._cluster.brokers)
        partitions = self._partitions()
        chosen = rng.sample(partitions, rng.randint(1, min(MOVED_MAX, len(partitions))))
        path = rng.choice(machine.config.log_dirs)
        topics = [request.AlterReplicaLogDirTopic(name=topic, partitions=[index]) for topic, index in chosen]
        directory = request.AlterReplicaLogDir(path=path, topics=topics)
        await self.session.refresh([])
        if not self.session.knows(machine.config.node_id):
            return
        answer = await self.session.request(
            machine.config.node_id, ApiKey.ALTER_REPLICA_LOG_DIRS, VERSION, request(dirs=[directory])
        )
        if answer is None:
            return
        rows = [(topic.topic_name, row) for topic in answer.results for row in topic.partitions]
        for topic, row in rows:
            self.session.expect(row.error_code, *ALLOWED, what=f"move of {topic}-{row.partition_index}")
        begun = [f"{topic}-{row.partition_index}" for topic, row in rows if row.error_code == ErrorCode.NONE]
        self.changes += len(begun)
        self.session.note(f"moves {', '.join(begun) or 'nothing'} of {machine.name} to {path}")


def unmoved(machine: SimMachine) -> str | None:
    """Why the moves of a broker have not ended; None if they have."""
    node = machine.node
    if node is None or node.broker is None:
        return f"{machine.name} does not run"
    broker = node.broker
    if len(broker.moves):
        return f"{machine.name} still has {len(broker.moves)} moves between directories"
    if len(broker.logs.futures):
        return f"{machine.name} still has copies of {broker.logs.futures.partitions()}"
    for partition in broker.replicas.opened():
        state = broker.image.topics.partition(partition.topic_id, partition.index)
        if state is None or machine.config.node_id not in state.replicas:
            continue
        named, found = state.directory(machine.config.node_id), Uuid(partition.log.dir.id)
        if bytes(named)[:15] != bytes(15) and named != found:
            name = f"{partition.topic}-{partition.index}"
            place = f"{partition.log.dir.path} ({uuid_text(found)})"
            return f"{name} of {machine.name} is in {place}, the metadata names {uuid_text(named)}"
    return None


__all__ = ["DirectoryOperator", "unmoved"]
