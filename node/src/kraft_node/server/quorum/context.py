"""The base of the driver: its core and storage, its hooks, and the handling of failures, for the parts that it owns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft_node.metadata.loader import MetadataLoader
from kraft_node.raft.membership.voter_history import VoterHistory

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.metadata.prepared import Prepared
    from kraft_node.raft import events
    from kraft_node.raft.config import RaftConfig
    from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
    from kraft_node.raft.node import RaftNode
    from kraft_node.raft.storage import MetadataStorage
    from kraft_node.server.faults import FaultHandler

Hook = Callable[[int], None]


class DriverContext(ABC):
    """The driver, for its parts."""

    def __init__(
        self,
        env: Env,
        storage: MetadataStorage,
        local: ReplicaKey,
        voters: VoterSet,
        cluster_id: str,
        config: RaftConfig,
        faults: FaultHandler,
    ) -> None:
        self.env = env
        self.storage = storage
        self.local = local
        self._voters = voters
        self.cluster_id = cluster_id
        self.config = config
        self.faults = faults
        self.loader = MetadataLoader()
        self.history = VoterHistory()
        """kraft.version and voters as the log states them; `voters` are the voters that count."""
        self.own: Voter | None = None
        """This node described as a voter; set before the start if it may become a voter (KIP-853)."""
        self.on_commit: list[Hook] = []
        self.on_leader: list[Hook] = []
        self.on_lost_leadership: list[Hook] = []
        self.on_leader_changed: list[Callable[[int, int], None]] = []
        self._node: RaftNode | None = None
        self.failed = False
        """The driver has stopped: the node ends."""
        self.stepping = False
        """Whether the work of a step is being carried out."""
        self.scheduling: Prepared | None = None
        """The records that are being passed to the core."""

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.loader.image

    @property
    def node(self) -> RaftNode:
        """The core, for queries only."""
        assert self._node is not None, "law: started first"
        return self._node

    @property
    def started(self) -> bool:
        """Whether the core exists."""
        return self._node is not None

    @property
    def voters(self) -> VoterSet:
        """The current voters."""
        return self._voters if self._node is None else self._node.voters

    @property
    def has_stated_voters(self) -> bool:
        """Whether the log states the voters, not the configuration."""
        return self.node.voter_sets.kraft_version >= 1

    @property
    def leader_id(self) -> int:
        """The leader as far as known; -1: unknown."""
        return self.node.leader_id

    @property
    def epoch(self) -> int:
        """The epoch of the quorum as far as this node knows. It never decreases."""
        return self.node.epoch

    @abstractmethod
    def step(self, event: events.Event, *, deliver: bool = True) -> None:
        """Pass an event to the core, and carry out the resulting work."""

    @abstractmethod
    def learned(self, node_id: int) -> None:
        """A controller with an unknown id exists: it may know the leader."""

    @abstractmethod
    def fail(self, what: str, error: BaseException) -> None:
        """Contract 10: the state on disk or in memory is unknown from now on."""

    def guarded(self, what: str, work: Callable[[], None]) -> None:
        """Run work that is not a step, with the same error handling."""
        if self.failed:
            return
        try:
            work()
        except Exception as e:
            self.fail(what, e)

    @abstractmethod
    def finish_shutdown(self) -> None:
        """All writes are finished: close, and notify the waiter."""
