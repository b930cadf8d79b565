"""Adding, removing and updating voters (KIP-853): a leader's answers."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.raft import events, wire_form
from kraft_node.raft import messages as m
from kraft_node.raft import ready as do
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.membership.voter_changes import VoterSets, why_not_upgrade
from kraft_node.raft.membership.voter_history import decode_voters, encode_voters
from kraft_node.raft.node import RaftNode
from kraft_node.raft.roles.states import Role
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API, ApiKey
from tests.unit.raft.host import QuietHost

ONE, TWO, THREE = (Voter(ReplicaKey(n, Uuid(bytes([n]) * 16)), {"CONTROLLER": ("host", 9000 + n)}) for n in (1, 2, 3))


class Chance:
    def randrange(self, stop: int) -> int:
        return 0

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


class Leader(QuietHost):
    """A lone leader with a fast disk."""

    def __init__(self, kraft_version: int = 1, own: Voter = ONE) -> None:
        super().__init__()
        self.answers: dict[Any, int] = {}
        self.stated: list[VoterSet] = []
        self.versions: list[int | None] = []
        self.supports: m.VersionsReply | None = m.VersionsReply(m.NONE, (0, 1))
        self.asked: list[m.VersionsRequest] = []
        self.cannot_be_reached = False
        self.own = own
        self.node = self.make(kraft_version)
        self.tell(events.Started())

    def make(self, kraft_version: int) -> RaftNode:
        return RaftNode(
            local=ONE.key,
            voters=VoterSet([ONE]),
            log=LogView(),
            state=QuorumState(),
            rng=Chance(),
            cluster_id="c",
            kraft_version=kraft_version,
            own=self.own,
        )

    def send(self, message: Any) -> None:
        """Requests for supported versions are answered, others are not."""
        if isinstance(message, do.Respond):
            self.answers[message.token] = message.reply.error
        elif isinstance(message, do.Send) and self.cannot_be_reached:
            self.tell(events.Answered(message.number, None))
        elif isinstance(message, do.Send) and isinstance(message.request, m.VersionsRequest):
            self.asked.append(message.request)
            if self.supports is not None:
                self.tell(events.Answered(message.number, self.supports))

    def append(self, batch: Any) -> None:
        if isinstance(batch, do.AppendVoters):
            self.stated.append(batch.voters)
            self.versions.append(batch.kraft_version)

    def ask(self, token: str, request: m.Request) -> int | None:
        self.tell(events.Requested(token, request))
        return self.answers.get(token)

    def fetch(self, voter: Voter, token: str = "fetch") -> None:
        log = self.node.log
        self.tell(
            events.Requested(token, m.FetchRequest(self.node.epoch, voter.key, log.end_offset, self.node.epoch, 1, 0))
        )


def test_static_voters_do_not_change() -> None:
    leader = Leader(kraft_version=0)
    assert leader.ask("add", m.AddVoterRequest(TWO, 1000)) == m.UNSUPPORTED_VERSION
    assert leader.ask("remove", m.RemoveVoterRequest(ONE.key)) == m.UNSUPPORTED_VERSION
    assert leader.ask("update", m.UpdateVoterRequest(leader.node.epoch, ONE)) == m.NONE


def test_a_replica_that_has_caught_up_is_added_and_answered_when_committed() -> None:
    leader = Leader()
    assert leader.ask("early", m.AddVoterRequest(TWO, 1000)) == m.REQUEST_TIMED_OUT
    leader.fetch(TWO)
    assert leader.ask("add", m.AddVoterRequest(TWO, 1000)) is None
    assert leader.stated == [VoterSet([ONE, TWO])]
    assert leader.ask("again", m.RemoveVoterRequest(TWO.key)) == m.REQUEST_TIMED_OUT
    leader.fetch(TWO)
    assert leader.answers["add"] == m.NONE
    assert leader.ask("twice", m.AddVoterRequest(TWO, 1000)) == m.DUPLICATE_VOTER


def test_a_change_that_is_not_committed_in_time_times_out() -> None:
    leader = Leader()
    leader.fetch(TWO)
    assert leader.ask("add", m.AddVoterRequest(TWO, 1000)) is None
    leader.now_ms = leader.node.config.request_timeout_ms
    leader.tell(events.Tick())
    assert leader.answers["add"] == m.REQUEST_TIMED_OUT
    assert leader.ask("next", m.RemoveVoterRequest(TWO.key)) == m.REQUEST_TIMED_OUT, "it may still be committed"


def test_a_new_voter_is_asked_for_its_versions_first() -> None:
    leader = Leader()
    leader.fetch(TWO)
    leader.supports = None
    assert leader.ask("add", m.AddVoterRequest(TWO, 60_000)) is None
    assert leader.asked == [m.VersionsRequest(TWO.endpoints)]
    assert leader.stated == []
    assert leader.ask("meanwhile", m.RemoveVoterRequest(ONE.key)) == m.REQUEST_TIMED_OUT
    leader.now_ms = leader.node.config.request_timeout_ms
    leader.tell(events.Tick())
    assert leader.answers["add"] == m.REQUEST_TIMED_OUT, "it has not answered"
    leader.now_ms += leader.node.config.retry_backoff_ms
    leader.supports = m.VersionsReply(m.NONE, (1, 3))
    assert leader.ask("again", m.AddVoterRequest(TWO, 60_000)) is None
    assert leader.stated == [VoterSet([ONE, TWO._replace(kraft_versions=(1, 3))])], (
        "stated as it said, not as was asked"
    )


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (m.VersionsReply(m.UNSUPPORTED_VERSION), m.REQUEST_TIMED_OUT),
        (m.VersionsReply(m.NONE, None), m.INVALID_REQUEST),
        (m.VersionsReply(m.NONE, (0, 0)), m.INVALID_REQUEST),
        (m.VersionsReply(m.NONE, (2, 3)), m.INVALID_REQUEST),
    ],
)
def test_a_voter_without_the_needed_version_is_not_added(reply: m.VersionsReply, error: int) -> None:
    leader = Leader()
    leader.fetch(TWO)
    leader.supports = reply
    assert leader.ask("add", m.AddVoterRequest(TWO, 1000)) == error
    assert leader.stated == []
    assert leader.node.leader.pending_change is None


def test_an_unreachable_voter_is_not_added() -> None:
    leader = Leader()
    leader.fetch(TWO)
    leader.cannot_be_reached = True
    assert leader.ask("add", m.AddVoterRequest(TWO, 1000)) == m.REQUEST_TIMED_OUT
    assert leader.ask("at once", m.AddVoterRequest(TWO, 1000)) == m.REQUEST_TIMED_OUT, "it is left alone for a moment"


NAMELESS = ReplicaKey(2)
UNSOUND: list[m.Request] = [
    m.AddVoterRequest(TWO._replace(key=NAMELESS), 1000),
    m.AddVoterRequest(TWO._replace(key=ReplicaKey(-1, TWO.key.directory)), 1000),
    m.AddVoterRequest(TWO._replace(endpoints={}), 1000),
    m.AddVoterRequest(TWO._replace(endpoints={"OTHER": ("host", 1)}), 1000),
    m.RemoveVoterRequest(NAMELESS),
    m.UpdateVoterRequest(1, TWO._replace(key=NAMELESS)),
    m.UpdateVoterRequest(1, TWO._replace(endpoints={"OTHER": ("host", 1)})),
    m.UpdateVoterRequest(1, TWO._replace(kraft_versions=(2, 1))),
]


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("request_", UNSOUND, ids=lambda request: type(request).__name__)
def test_a_request_without_a_replica_is_refused_first(request_: m.Request, kraft_version: int) -> None:
    leader = Leader(kraft_version)
    assert leader.node.epoch == 1
    assert leader.ask("odd", request_) == m.INVALID_REQUEST


def test_only_the_named_voter_is_removed_and_never_the_last() -> None:
    leader = Leader()
    assert leader.ask("last", m.RemoveVoterRequest(ONE.key)) == m.VOTER_NOT_FOUND
    leader.fetch(TWO)
    leader.ask("add", m.AddVoterRequest(TWO, 1000))
    leader.fetch(TWO)
    assert leader.ask("other", m.RemoveVoterRequest(ReplicaKey(2, Uuid(b"x" * 16)))) == m.VOTER_NOT_FOUND
    assert leader.ask("unknown", m.RemoveVoterRequest(ReplicaKey(7, Uuid(b"x" * 16)))) == m.VOTER_NOT_FOUND


def of_three() -> Leader:
    """A leader of three voters, all caught up."""
    leader = Leader()
    for number, voter in enumerate((TWO, THREE)):
        leader.fetch(voter)
        assert leader.ask(f"add {number}", m.AddVoterRequest(voter, 1000)) is None
        for follower in (TWO, THREE):
            leader.fetch(follower)
        assert leader.answers[f"add {number}"] == m.NONE
    return leader


def test_a_removal_needs_a_majority_of_the_remaining_voters() -> None:
    """The leader of three voters removed the second while the third was down. Nothing was committed any more, and no
    voter could be elected once the leader stopped (simulated groups, seed 63)."""
    leader = of_three()
    leader.now_ms += leader.node.config.fetch_timeout_ms
    leader.fetch(TWO)
    assert leader.ask("needed", m.RemoveVoterRequest(TWO.key)) == m.REQUEST_TIMED_OUT
    assert leader.stated[-1] == VoterSet([ONE, TWO, THREE])
    leader.fetch(THREE)
    assert leader.ask("not needed", m.RemoveVoterRequest(TWO.key)) is None
    assert leader.stated[-1] == VoterSet([ONE, THREE])


def test_a_voter_that_is_gone_can_be_removed() -> None:
    leader = of_three()
    leader.now_ms += leader.node.config.fetch_timeout_ms
    leader.fetch(TWO)
    assert leader.ask("gone", m.RemoveVoterRequest(THREE.key)) is None
    leader.fetch(TWO)
    assert leader.answers["gone"] == m.NONE


def test_a_leader_does_not_remove_itself_while_others_are_silent() -> None:
    leader = of_three()
    leader.now_ms += leader.node.config.fetch_timeout_ms
    leader.fetch(TWO)
    assert leader.ask("itself", m.RemoveVoterRequest(ONE.key)) == m.REQUEST_TIMED_OUT


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    leader = Leader()
    leader.fetch(TWO)
    leader.ask("add", m.AddVoterRequest(TWO, 1000))
    leader.fetch(TWO)
    assert leader.ask("remove", m.RemoveVoterRequest(ONE.key)) is None
    assert leader.node.role.role is Role.LEADER
    leader.fetch(TWO)
    assert leader.answers["remove"] == m.NONE
    assert leader.node.role.role is Role.RESIGNED


def test_endpoints_are_updated_at_once() -> None:
    leader = Leader()
    moved = ONE._replace(endpoints={"CONTROLLER": ("elsewhere", 1)})
    assert leader.ask("stale", m.UpdateVoterRequest(leader.node.epoch - 1, moved)) == m.FENCED_LEADER_EPOCH
    assert leader.ask("update", m.UpdateVoterRequest(leader.node.epoch, moved)) == m.NONE
    assert leader.stated == [VoterSet([moved])]


@pytest.mark.parametrize("change", [{"endpoints": {"CONTROLLER": ("elsewhere", 1)}}, {"kraft_versions": (0, 2)}])
def test_a_leader_that_differs_from_the_log_updates_its_own_entry(change: dict[str, Any]) -> None:
    """It has no leader to send the update to."""
    own = ONE._replace(**change)
    leader = Leader(own=own)
    assert leader.stated == [VoterSet([own])]
    assert leader.node.high_watermark == leader.node.log.end_offset, "it is made durable by itself"
    leader.fetch(TWO)
    assert leader.ask("add", m.AddVoterRequest(TWO, 1000)) is None, "it stands in nobody's way"
    assert leader.stated[1:] == [VoterSet([own, TWO])]
    assert Leader(kraft_version=0, own=own).stated == [], "static voters are configured"


REQUESTS: list[tuple[ApiKey, m.Request]] = [
    (ApiKey.ADD_RAFT_VOTER, m.AddVoterRequest(TWO, 1000, False, "c")),
    (ApiKey.REMOVE_RAFT_VOTER, m.RemoveVoterRequest(TWO.key, "c")),
    (ApiKey.UPDATE_RAFT_VOTER, m.UpdateVoterRequest(3, TWO._replace(kraft_versions=(0, 2)), "c")),
]


@pytest.mark.parametrize(("key", "request_"), REQUESTS, ids=lambda value: getattr(value, "name", ""))
def test_voter_changes_survive_a_round_trip(key: ApiKey, request_: m.Request) -> None:
    version = API[key].max_version
    sent = codec.encode(wire_form.request_to_wire(request_, ONE.key, VoterSet([ONE])), version)
    assert wire_form.request_from_wire(codec.decode(API[key].request, sent, version)) == request_
    answer = wire_form.voter_change_to_wire(key, m.VoterChangeReply(m.DUPLICATE_VOTER, 4, 1), VoterSet([ONE]), "X")
    got = codec.decode(API[key].response, codec.encode(answer, version), version)
    assert wire_form.reply_from_wire(got) == m.VoterChangeReply(m.DUPLICATE_VOTER)


def test_voter_sets_survive_a_round_trip() -> None:
    voters = VoterSet([ONE, TWO._replace(kraft_versions=(0, 1))])
    assert decode_voters(encode_voters(voters)) == voters


class StaticLeader(Leader):
    """A leader, one of two static voters with unknown directory ids."""

    def __init__(self) -> None:
        super().__init__(kraft_version=0)

    def make(self, kraft_version: int) -> RaftNode:
        del kraft_version
        static = [Voter(ReplicaKey(v.key.id), v.endpoints) for v in (ONE, TWO)]
        return RaftNode(
            local=ONE.key,
            voters=VoterSet(static),
            log=LogView(),
            state=QuorumState(),
            rng=Chance(),
            cluster_id="c",
            own=ONE,
        )

    def send(self, message: Any) -> None:
        super().send(message)
        if isinstance(message, do.Send) and isinstance(message.request, m.VoteRequest):
            granted = m.VoteReply(m.NONE, message.request.epoch, -1, True)
            self.tell(events.Answered(message.number, granted))


def led() -> StaticLeader:
    leader = StaticLeader()
    leader.fetch(TWO)
    leader.fetch(TWO)
    assert leader.node.leader.announced
    return leader


def test_static_voters_report_their_identity_to_the_leader() -> None:
    leader = led()
    epoch = leader.node.epoch
    stranger = TWO._replace(key=ReplicaKey(7, Uuid(b"x" * 16)))
    assert leader.ask("stranger", m.UpdateVoterRequest(epoch, stranger)) == m.VOTER_NOT_FOUND
    assert leader.ask("nowhere", m.UpdateVoterRequest(epoch, TWO._replace(endpoints={}))) == m.INVALID_REQUEST
    nameless = TWO._replace(key=ReplicaKey(2))
    assert leader.ask("nameless", m.UpdateVoterRequest(epoch, nameless)) == m.INVALID_REQUEST
    assert "2 has not confirmed" in (why_not_upgrade(leader.node, 1) or "")
    assert leader.ask("update", m.UpdateVoterRequest(epoch, TWO)) == m.NONE
    assert why_not_upgrade(leader.node, 1) is None
    assert leader.stated == [], "it is kept in mind only"


def test_an_upgrade_states_the_same_voters_with_their_directories() -> None:
    leader = led()
    leader.ask("update", m.UpdateVoterRequest(leader.node.epoch, TWO))
    before = leader.node.high_watermark
    leader.tell(events.UpgradeVersion(leader.node.epoch, 1))
    assert leader.stated == [VoterSet([ONE, TWO])]
    assert leader.versions == [1]
    assert leader.node.voters == VoterSet([ONE, TWO])
    assert leader.ask("remove", m.RemoveVoterRequest(TWO.key)) == m.REQUEST_TIMED_OUT, "it is not committed"
    leader.fetch(TWO)
    assert leader.node.high_watermark == before + 2
    assert leader.ask("now", m.RemoveVoterRequest(TWO.key)) == m.NONE
    assert leader.stated[-1] == VoterSet([ONE])


def test_an_outdated_voter_or_a_changed_disk_refuses_an_upgrade() -> None:
    leader = led()
    epoch = leader.node.epoch
    leader.ask("old", m.UpdateVoterRequest(epoch, TWO._replace(kraft_versions=(0, 0))))
    assert why_not_upgrade(leader.node, 1) == "2 would not"
    leader.ask("new", m.UpdateVoterRequest(epoch, TWO))
    leader.fetch(TWO._replace(key=ReplicaKey(2, Uuid(b"y" * 16))))
    assert why_not_upgrade(leader.node, 1) == "2 has not confirmed its support yet"


def test_a_truncated_upgrade_is_undone() -> None:
    static = VoterSet([Voter(ReplicaKey(1)), Voter(ReplicaKey(2))])
    sets = VoterSets(static, None, 0)
    assert sets.kraft_version == 0
    sets.stated(7, VoterSet([ONE, TWO]))
    assert (sets.kraft_version, sets.current) == (1, VoterSet([ONE, TWO]))
    sets.truncated(7)
    assert (sets.kraft_version, sets.current) == (0, static)
    again = VoterSets(static, [(7, VoterSet([ONE, TWO]))], 1)
    assert again.kraft_version == 1
    again.truncated(7)
    assert (again.kraft_version, again.current) == (0, static), "found in the log at a start"
    sets.replaced(40, VoterSet([ONE, TWO]))
    assert sets.kraft_version == 1


def test_a_snapshot_without_voters_undoes_an_upgrade() -> None:
    """The snapshot's log never had the upgrade: this node's record of it was not committed."""
    static = VoterSet([Voter(ReplicaKey(1)), Voter(ReplicaKey(2))])
    sets = VoterSets(static, None, 0)
    sets.stated(7, VoterSet([ONE, TWO]))
    sets.replaced(40, None)
    assert (sets.kraft_version, sets.current) == (0, static)


def test_a_static_follower_reports_once_to_each_leader() -> None:
    node = RaftNode(
        local=ONE.key,
        voters=VoterSet([Voter(ReplicaKey(1)), Voter(ReplicaKey(2))]),
        log=LogView(),
        state=QuorumState(),
        rng=Chance(),
        cluster_id="c",
        own=ONE,
    )
    reported = []
    host = QuietHost()
    host.node = node
    host.tell(events.Started())
    for epoch in (1, 2):
        host.tell(events.Requested("begin", m.BeginQuorumEpochRequest(epoch, 2, None, "c")))
        for _ in range(6):
            host.now_ms += node.config.fetch_timeout_ms // 2
            fetch = host.requests(m.FetchRequest)[-1]
            host.tell(events.Answered(fetch.number, m.FetchReply(m.NONE, node.epoch, 2, 0)))
            for update in host.requests(m.UpdateVoterRequest):
                reported.append(update.request)
                host.tell(events.Answered(update.number, m.VoterChangeReply(m.NONE, node.epoch, 2)))
    assert [(request.epoch, request.voter) for request in reported] == [(1, ONE), (2, ONE)]
