"""The core's requests to other replicas, and the replicas' addresses.

Part of `driver`, which owns it. The voter set (configured, or in the log) has a replica's address; otherwise the
answers of other replicas name the leader's endpoint (KIP-853). The address that the leader of this epoch announces
takes precedence over the log's. The leader may have moved, and a node that cannot reach it cannot read its new address
from the log. The servers of `controller.quorum.bootstrap.servers` have unknown ids, so they get the ids -2, -3, … as
in Kafka. In addition, controllers with endpoints from answers or registrations get the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kraft_node.metadata.own_fields import add_snapshot_end
from kraft_node.raft import events, wire_form
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.messages import (
    INVALID_VOTER_KEY,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    VersionsRequest,
    VoteRequest,
)
from kraft_protocol.errors import ErrorCode, KafkaError, error_name

if TYPE_CHECKING:
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.raft.ready import Send
    from kraft_node.server.quorum.context import DriverContext
    from kraft_node.server.quorum.snapshots import SnapshotLags

log = logging.getLogger("kraft_node.server.quorum.peers")

FIRST_BOOTSTRAP_ID: Final = -2
"""Ids of bootstrap servers decrease from here: -1 means none."""

LEARNED_MAX: Final = 1_000
"""Maximum of endpoints from answers; a quorum has a handful of voters in its whole life."""

FIRST_VERSION_WITH_PRE_VOTE: Final = 2


class QuorumPeer(Protocol):
    """Another node of the quorum; `server.channels.channel.Channel` implements it."""

    def send(self, request: Any, version: int | None, done: Callable[[Any], None], timeout_ms: int) -> None:
        """Calls `done(response)`, or `done(error)` without a response."""


class _Announcement(NamedTuple):
    """The announced address of an epoch's leader, valid to the end of the epoch."""

    epoch: int
    leader_id: int
    where: tuple[str, int]
    by_itself: bool


class RaftPeers:
    """Sends requests for one driver."""

    __slots__ = (
        "_ahead",
        "_announced",
        "_bootstrap",
        "_driver",
        "_find",
        "_joining",
        "_learned",
        "_listener",
        "_problems",
        "_snapshot_lags",
    )

    def __init__(
        self,
        driver: DriverContext,
        snapshot_lags: SnapshotLags,
        find: Callable[[int], QuorumPeer | None],
        listener: str,
        bootstrap: Sequence[tuple[str, int]],
    ) -> None:
        self._driver = driver
        self._snapshot_lags = snapshot_lags
        self._find = find
        self._listener = listener
        self._bootstrap = list(bootstrap)
        self._learned: dict[int, tuple[str, int]] = {}
        self._joining: tuple[int, tuple[str, int]] | None = None
        """The replica that will become a voter, and its announced address."""
        self._announced: _Announcement | None = None
        """For this epoch, or an earlier epoch."""
        self._ahead: _Announcement | None = None
        """For a later epoch, which the core may refuse (`raft.epochs`)."""
        self._problems: dict[int, str] = {}
        """Why the last request to a node was not answered."""

    @property
    def bootstrap_ids(self) -> list[int]:
        """The nodes that may know the leader, besides the voters; empty without configured servers."""
        servers = [FIRST_BOOTSTRAP_ID - index for index in range(len(self._bootstrap))]
        return [*servers, *sorted(set(self._learned) - {self._driver.local.id})] if servers else []

    def use(self, find: Callable[[int], QuorumPeer | None]) -> None:
        """Use these channels from now on."""
        self._find = find

    def channel(self, node_id: int) -> QuorumPeer | None:
        """The channel to another voter; None if its address is unknown."""
        return self._find(node_id)

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None:
        """The address of the controller, if known."""
        index = FIRST_BOOTSTRAP_ID - node_id
        if 0 <= index < len(self._bootstrap):
            return self._bootstrap[index]
        announced = self._announced_address(node_id)
        if announced is not None:
            return announced
        voter = self._driver.voters.get(node_id)
        if voter is not None and voter.endpoints:
            return voter.endpoints.get(self._listener) or next(iter(voter.endpoints.values()))
        if self._joining is not None and self._joining[0] == node_id:
            return self._joining[1]
        return self._learned.get(node_id)

    def learn(self, node_id: int, host: str, port: int) -> None:
        """A message has named a controller's endpoint."""
        if node_id >= 0 and host and port > 0 and (node_id in self._learned or len(self._learned) < LEARNED_MAX):
            self._learned[node_id] = (host, port)
            self._note_learned(node_id)

    def learn_leader(self, request: Any, epoch: int) -> None:
        """The leader of the epoch announces its address; it may not be among our voters."""
        leader_id, endpoints = wire_form.announced_leader(request)
        if endpoints and request.cluster_id in (None, self._driver.cluster_id):
            where = endpoints.get(self._listener) or next(iter(endpoints.values()))
            self.learn(leader_id, *where)
            self._note_announcement(_Announcement(epoch, leader_id, where, by_itself=True))

    def _note_announcement(self, announced: _Announcement) -> None:
        """Keep the leader's announcement: other nodes may repeat an older address from the log."""
        self._use_ahead()
        before = self._announced
        if announced.epoch > self._driver.epoch:
            self._ahead = announced
        elif before is None or (announced.epoch, announced.by_itself) >= (before.epoch, before.by_itself):
            self._announced = announced

    def _use_ahead(self) -> None:
        """The core has adopted the later epoch, or a still later epoch."""
        if self._ahead is not None and self._ahead.epoch <= self._driver.epoch:
            self._announced, self._ahead = self._ahead, None

    def _announced_address(self, node_id: int) -> tuple[str, int] | None:
        """The announced address of the node if it leads this epoch. Static voters keep their configured address."""
        self._use_ahead()
        driver, announced = self._driver, self._announced
        if (
            announced is None
            or (announced.epoch, announced.leader_id) != (driver.epoch, node_id)
            or not driver.has_stated_voters
        ):
            return None
        return announced.where

    def with_leader(self, voters: VoterSet, leader_id: int) -> VoterSet:
        """The voters, with the leader's announced address: this is reported to other nodes."""
        driver, stated = self._driver, voters.get(leader_id)
        if stated is not None and not driver.has_stated_voters:
            return voters
        if driver.own is not None and leader_id == driver.local.id:
            endpoints = driver.own.endpoints
        else:
            where = self._announced_address(leader_id) or (self._learned.get(leader_id) if stated is None else None)
            endpoints = {} if where is None else {self._listener: where}
        if not endpoints or (stated is not None and stated.endpoints == endpoints):
            return voters
        return voters.with_voter(Voter(ReplicaKey(leader_id), endpoints))

    def _note_learned(self, node_id: int) -> None:
        """Once a node has contact, it does not need its configured servers (KIP-631, "Nodes")."""
        driver = self._driver
        if self._bootstrap and driver.started and node_id not in driver.node.bootstrap_ids:
            driver.learned(node_id)

    def learn_registered(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Committed metadata has changed: registered controllers may know the leader."""
        if not self._bootstrap or not (delta.controllers or delta.is_snapshot):
            return
        for controller in image.controllers.values():
            endpoint = controller.endpoints.get(self._listener)
            if endpoint is not None:
                self.learn(controller.id, endpoint.host, endpoint.port)

    def explain(self) -> str:
        """The controllers that get the requests, and why they did not answer, for people."""
        words = []
        driver = self._driver
        for node_id in sorted({*driver.voters.ids, *self.bootstrap_ids, *self._learned}):
            where = self.endpoint_of(node_id)
            if where is not None and node_id != driver.local.id:
                words.append(f"{self._name(node_id)} ({self._problems.get(node_id, 'answers')})")
        return ", ".join(words) or "no controller is configured"

    def send(self, message: Send) -> None:
        """Carry out a `Send`: exactly one `Answered` or `Unsupported` follows later."""
        driver = self._driver
        number, node_id, request = message
        if isinstance(request, VersionsRequest):
            where = request.endpoints.get(self._listener) or next(iter(request.endpoints.values()))
            self._joining = (node_id, where)
        peer = self._find(node_id)
        if peer is None:
            self._note(node_id, "its address is not known")
            driver.env.scheduler.call_soon(driver.step, events.Answered(number, None))
            return

        def done(response: Any) -> None:
            if isinstance(response, BaseException):
                self._note(node_id, str(response))
                if isinstance(response, KafkaError) and response.code == ErrorCode.UNSUPPORTED_VERSION:
                    driver.step(events.Unsupported(number))
                else:
                    driver.step(events.Answered(number, None))
            else:
                self._answered(number, node_id, response)

        voters = driver.voters
        if isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            voters = self.with_leader(voters, driver.local.id)
        message = wire_form.request_to_wire(request, driver.local, voters)
        if isinstance(request, FetchRequest):
            add_snapshot_end(message, self._snapshot_lags.own_end)
        version = FIRST_VERSION_WITH_PRE_VOTE if isinstance(request, VoteRequest) and request.pre_vote else None
        peer.send(message, version, done, driver.config.request_timeout_ms)

    def _note(self, node_id: int, problem: str | None) -> None:
        """Store why a node does not answer; log it if the reason has changed."""
        if problem is None:
            if self._problems.pop(node_id, None) is not None:
                log.info("controller answers again node=%s", self._name(node_id))
        elif self._problems.get(node_id) != problem:
            self._problems[node_id] = problem
            log.info("controller does not answer node=%s error=%s", self._name(node_id), problem)

    def _name(self, node_id: int) -> str:
        where = self.endpoint_of(node_id)
        name = "" if node_id < 0 else f"{node_id}@"
        return f"{name}?" if where is None else f"{name}{where[0]}:{where[1]}"

    def _answered(self, number: int, node_id: int, response: Any) -> None:
        driver = self._driver
        if response.error_code:
            self._note(node_id, error_name(response.error_code))
        else:
            self._note(node_id, None)
        try:
            reply = wire_form.reply_from_wire(response)
        except ValueError as e:
            self._note(node_id, f"it answers what cannot be read: {e}")
            reply = None
        for node in getattr(response, "node_endpoints", None) or ():
            self.learn(node.node_id, node.host, node.port)
            if reply is not None and node.node_id == reply.leader_id and node.host and node.port > 0:
                by_itself = node_id == reply.leader_id
                self._note_announcement(_Announcement(reply.epoch, reply.leader_id, (node.host, node.port), by_itself))
        if reply is not None and reply.error == INVALID_VOTER_KEY:
            self._note(node_id, "its node id or directory differs from the voter set")
        driver.step(events.Answered(number, reply))
