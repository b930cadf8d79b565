"""What every client needs: connections by node, timeouts, metadata, coordinators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_node.testing.client import SimClient
from kraft_node.testing.script import Moment, sleep
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.world import SimHost, World

BOOTSTRAP: Final = -1
TIMEOUT_MS: Final = 3_000.0
"""The client closes a connection without a response for this long."""
PAUSE_MS: Final = 100.0

METADATA_VERSION: Final = 12
COORDINATOR_VERSION: Final = 4
GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""


class Surprise(AssertionError):  # noqa: N818 - says of the node, not of this program, that it is wrong
    """An answer that the protocol does not allow here."""


class Worker(Protocol):
    """A client that works until it is stopped."""

    session: ClusterSession
    stopping: bool

    async def run(self) -> None:
        """Work until `stopping` is set, end the step under way, and return. If it raises, the whole run fails."""
        ...


class ClusterSession:
    """One client's view of the cluster."""

    def __init__(self, cluster: SimCluster, name: str, host: SimHost | None = None) -> None:
        """`host`: the host of another session of the same process."""
        self.name = name
        self.world: World = cluster.world
        self.host: SimHost = host or cluster.client_host(name)
        self._net = cluster.network.host(self.host)
        self._bootstrap = cluster.bootstrap
        self._security = cluster.security
        self._addresses: dict[int, tuple[str, int]] = {}
        self._clients: dict[int, SimClient] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.leader_epochs: dict[tuple[str, int], int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.refuses_older = False
        """Whether a leader of an older epoch than one that was seen is refused, as by Kafka's clients (KIP-320)."""

    def note(self, what: str) -> None:
        """Add a line to the run's story under the client's name."""
        self.world.note(self.name, what)

    def pause(self, duration_ms: float) -> None:
        """Stop the client's process for this time."""
        self.host.pause(duration_ms)

    def sleep(self, duration_ms: float) -> Moment[None]:
        """A moment to await, `duration_ms` milliseconds from now; later if the client's host is paused then."""
        return sleep(self.world, duration_ms, self.host)

    # -- asking

    def request(
        self, node: int, api_key: ApiKey, version: int, request: Any, timeout_ms: float = TIMEOUT_MS
    ) -> Moment[Any]:
        """Send a request to a node. Returns the response, or None if it did not come: then the outcome is unknown."""
        moment: Moment[Any] = Moment()
        client = self._client(node)

        def answered(answer: Any) -> None:
            if answer is None and node == BOOTSTRAP and len(self._bootstrap) > 1 and self._clients.get(node) is client:
                del self._clients[node]  # another bootstrap node may live
            moment.happen(answer)

        client.request(api_key, version, request, answered)

        def give_up() -> None:
            if not moment.happened:
                client.close()
                moment.happen(None)

        self.world.at(timeout_ms, give_up, host=self.host)
        return moment

    def send_one_way(self, node: int, api_key: ApiKey, version: int, request: Any) -> None:
        """Send a request that has no response."""
        self._client(node).request(api_key, version, request, None)

    def _client(self, node: int) -> SimClient:
        client = self._clients.get(node)
        if client is None:
            if node == BOOTSTRAP:
                host, port = self._bootstrap[self.world.rng.randrange(len(self._bootstrap))]
            else:
                host, port = self._addresses[node]
            client = self._clients[node] = SimClient(self._net, host, port, self.name, self._security)
        return client

    def knows(self, node: int) -> bool:
        """Whether the address of a node is known, so that it can be sent requests."""
        return node == BOOTSTRAP or node in self._addresses

    # -- metadata

    async def refresh(self, topics: Sequence[str] | None = None) -> Any:
        """Request metadata of `topics` from any node; the response or None."""
        wanted = None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = await self.request(BOOTSTRAP, ApiKey.METADATA, METADATA_VERSION, request)
        if answer is None:
            self._clients.pop(BOOTSTRAP, None)
            return None
        self._addresses.update((broker.node_id, (broker.host, broker.port)) for broker in answer.brokers)
        for topic in answer.topics:
            if topic.error_code:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            known = [self._learn_leader(topic.name, row) for row in topic.partitions]
            if not all(known):
                self._leave_bootstrap()
        return answer

    def _learn_leader(self, topic: str, row: Any) -> bool:
        """Note the leader of a partition. Returns False for one of an older leader epoch, which is refused."""
        partition = (topic, row.partition_index)
        if self.refuses_older and row.leader_epoch < self.leader_epochs.get(partition, -1):
            self.note(f"refuses leader {row.leader_id} of {topic}-{row.partition_index}: epoch {row.leader_epoch}")
            return False
        if row.leader_id in self._addresses:
            self.leaders[partition], self.leader_epochs[partition] = row.leader_id, row.leader_epoch
        else:
            self.leaders.pop(partition, None)
        return True

    def _leave_bootstrap(self) -> None:
        """Ask another bootstrap node from now on: this one knows less than this client."""
        client = self._clients.pop(BOOTSTRAP, None)
        if client is not None:
            client.close()

    def saw_epoch(self, topic: str, partition: int, epoch: int) -> None:
        """A committed offset has this leader epoch: a leader of an older epoch is out of date."""
        if epoch > self.leader_epochs.get((topic, partition), -1):
            self.leader_epochs[topic, partition] = epoch
            self.forget_leader(topic, partition)

    async def leader(self, topic: str, partition: int) -> int:
        """The partition's leader; retries until a leader is known."""
        while (topic, partition) not in self.leaders:
            await self.refresh([topic])
            if (topic, partition) not in self.leaders:
                await self.sleep(PAUSE_MS)
        return self.leaders[topic, partition]

    def forget_leader(self, topic: str, partition: int) -> None:
        """Forget the leader: it was wrong, or the node does not respond."""
        self.leaders.pop((topic, partition), None)

    async def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """The coordinator of a group, or of a transactional id; retries until it is known."""
        while True:
            request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer = await self.request(BOOTSTRAP, ApiKey.FIND_COORDINATOR, COORDINATOR_VERSION, request)
            if answer is None:
                self._clients.pop(BOOTSTRAP, None)
            else:
                found = answer.coordinators[0]
                if found.error_code == ErrorCode.NONE:
                    self._addresses[found.node_id] = (found.host, found.port)
                    return int(found.node_id)
                self.expect(
                    found.error_code, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
                    what="find coordinator",
                )  # fmt: skip
            await self.sleep(PAUSE_MS)

    def expect(self, code: int, *allowed: ErrorCode, what: str) -> None:
        """Raise Surprise unless `code` is one of `allowed`."""
        if code not in allowed:
            raise Surprise(f"{self.name}: {what} was answered with {ErrorCode(code).name}")
