"""An operator that changes the voters (KIP-853): adds, removes, replaces voters with lost disks, raises kraft.version.

It sends requests through brokers, as Kafka's tool does, and judges nothing while it works: requests may fail for many
good reasons. In the end it restores the number of voters, all with intact disks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.machine import CONTROLLER
from kraft_node.testing.workloads.session import BOOTSTRAP, ClusterSession
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import METADATA_TOPIC_NAME, ZERO_UUID, Uuid
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster, SimMachine

DESCRIBE, ADD, REMOVE, UPDATE_FEATURES = 2, 1, 0, 2
"""API versions."""
VOTERS_MIN: Final = 3
CHANGES_MAX_MS: Final = 4_000
UPGRADE: Final = 1

Voter = tuple[int, bytes]
"""Node id and directory id."""


class VotersOperator:
    """Changes the voters of a dynamic quorum, or makes a static quorum dynamic."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self._cluster = cluster
        self._rng = cluster.world.rng
        self._dynamic = cluster.dynamic

    async def run(self) -> None:
        """Change voters until stopped; then until VOTERS_MIN voters or more have intact disks, or all are static."""
        rng = self._rng
        while not self.stopping:
            await self.session.sleep(500 + rng.random() * 3000)
            if not self._dynamic:
                await self._upgrade()
                continue
            voters, observers = await self._describe()
            dead = [voter for voter in voters if not self._lives(voter)]
            able = [voter for voter in observers if self._lives(voter) and voter[0] not in dict(voters)]
            if dead:
                await self._remove(dead[0])
            elif able and (len(voters) < VOTERS_MIN or rng.random() < 0.5):
                await self._add(rng.choice(able))
            elif self._may_remove() and len(voters) >= VOTERS_MIN and (len(voters) > VOTERS_MIN or rng.random() < 0.3):
                await self._remove(rng.choice(voters))
        while not await self._is_settled():
            await self.session.sleep(500)

    async def _is_settled(self) -> bool:
        voters, observers = await self._describe()
        if not voters:
            return False
        if all(directory == ZERO_UUID for _, directory in voters):
            return True  # still the configured voters
        dead = [voter for voter in voters if not self._lives(voter)]
        able = [voter for voter in observers if self._lives(voter) and voter[0] not in dict(voters)]
        if dead:
            await self._remove(dead[0])
        elif len(voters) < VOTERS_MIN and able:
            await self._add(able[0])
        return not dead and len(voters) >= VOTERS_MIN

    def _machine(self, node_id: int) -> SimMachine | None:
        return next((machine for machine in self._cluster.controllers if machine.config.node_id == node_id), None)

    def _may_remove(self) -> bool:
        """Whether all controllers run, no disk of theirs is stalled, and no voter must stay.

        If one of three voters cannot append, a removal needs it, and nothing commits. A stall may outlast the faults.
        If that voter has also moved, its new address is not in the log: if the leader resigns, no voter can win.
        """
        now_ms = self._cluster.world.now_ms
        able = all(each.running and each.host.stalled_until_ms <= now_ms for each in self._cluster.controllers)
        return able and not self._cluster.voters_stay

    def _lives(self, voter: Voter) -> bool:
        machine = self._machine(voter[0])
        return machine is not None and machine.directory_id == voter[1]

    # -- one request each

    async def _describe(self) -> tuple[list[Voter], list[Voter]]:
        partition = m.DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = m.DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC_NAME, partitions=[partition])
        request = m.DescribeQuorumRequest(topics=[topic])
        answer = await self.session.request(BOOTSTRAP, ApiKey.DESCRIBE_QUORUM, DESCRIBE, request)
        if answer is None or answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            return [], []
        found = answer.topics[0].partitions[0]
        return _keys(found.current_voters), _keys(found.observers)

    async def _add(self, voter: Voter) -> None:
        machine = self._machine(voter[0])
        assert machine is not None
        self.session.note(f"add voter {voter[0]}")
        where = [m.AddRaftVoterRequest.Listener(CONTROLLER, machine.name, machine.controller_port)]
        request = m.AddRaftVoterRequest(
            cluster_id=self._cluster.cluster_id,
            timeout_ms=CHANGES_MAX_MS,
            voter_id=voter[0],
            voter_directory_id=Uuid(voter[1]),
            listeners=where,
            ack_when_committed=self._rng.random() < 0.5,
        )
        self._note(await self.session.request(BOOTSTRAP, ApiKey.ADD_RAFT_VOTER, ADD, request, CHANGES_MAX_MS))

    async def _remove(self, voter: Voter) -> None:
        self.session.note(f"remove voter {voter[0]}")
        request = m.RemoveRaftVoterRequest(
            cluster_id=self._cluster.cluster_id, voter_id=voter[0], voter_directory_id=Uuid(voter[1])
        )
        self._note(await self.session.request(BOOTSTRAP, ApiKey.REMOVE_RAFT_VOTER, REMOVE, request, CHANGES_MAX_MS))

    async def _upgrade(self) -> None:
        self.session.note("raise kraft.version")
        row = m.UpdateFeaturesRequest.FeatureUpdateKey(
            feature="kraft.version", max_version_level=1, upgrade_type=UPGRADE
        )
        request = m.UpdateFeaturesRequest(timeout_ms=CHANGES_MAX_MS, feature_updates=[row])
        answer = await self.session.request(BOOTSTRAP, ApiKey.UPDATE_FEATURES, UPDATE_FEATURES, request, CHANGES_MAX_MS)
        self._note(answer)
        # Without a response the request is repeated: raising a level that is already raised is not an error.
        self._dynamic = answer is not None and answer.error_code == 0

    def _note(self, answer: Any) -> None:
        """The outcome, for the story."""
        outcome = "no answer" if answer is None else ErrorCode(answer.error_code).name
        self.session.note(f"{outcome} {getattr(answer, 'error_message', None) or ''}".rstrip())


def _keys(rows: Any) -> list[Voter]:
    return [(row.replica_id, bytes(row.replica_directory_id)) for row in rows]
