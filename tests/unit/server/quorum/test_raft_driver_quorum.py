"""Three drivers and an observer, joined by the protocol's bytes in memory: elections, commits, losses, snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages
from tests.unit.server.quorum.joined import IDS, MOVED, OBSERVER, PORTS, Member, Quorum, Way
from tests.unit.server.quorum.raft_world import MemoryStorage


def test_three_voters_elect_the_first_at_once_and_commit_by_majority() -> None:
    quorum = Quorum().start()
    assert quorum.leader().id == 1
    quorum.append(1, 2)
    assert quorum.images() == {1: 2, 2: 2, 3: 2}
    quorum.members[3].stop()
    quorum.append(3)
    assert quorum.images() == {1: 3, 2: 3}
    quorum.members[2].stop()
    quorum.append(4)
    assert quorum.images() == {1: 3}


@pytest.mark.parametrize("reported", [True, False])
def test_the_next_leader_is_elected_at_once_if_connections_close(reported: bool) -> None:
    quorum = Quorum().start()
    quorum.append(1)
    quorum.leader().stop(reported=reported)
    quorum.world.run(150)
    known = [m.driver.leader_id for m in quorum.members.values() if m.driver is not None]
    assert (set(known) == {2}) == reported
    quorum.world.run(2_600)
    assert quorum.leader().id in (2, 3)
    quorum.append(2)
    assert quorum.images() == {2: 2, 3: 2}


def test_a_returning_leader_follows_and_drops_its_uncommitted_records() -> None:
    quorum = Quorum().start()
    quorum.append(1)
    first = quorum.leader()
    others = [m for m in quorum.members.values() if m is not first]
    for member in others:
        member.stop(reported=False)
    quorum.append(90, 91)
    first.stop()
    for member in others:
        member.start()
    quorum.world.run(1_000)
    quorum.append(2)
    first.start()
    quorum.world.run(1_000)
    assert quorum.images() == {1: 2, 2: 2, 3: 2}
    logs = {bytes(b"".join(m.storage.durable)) for m in quorum.members.values()}
    assert len(logs) == 1


def test_a_stopping_leader_hands_over_to_a_caught_up_voter() -> None:
    quorum = Quorum().start()
    quorum.append(1)
    stopped: list[bool] = []
    first = quorum.leader()
    assert first.driver is not None
    first.driver.shutdown(lambda: stopped.append(True))
    quorum.world.run(100)
    assert stopped == [True]
    first.driver = None
    assert quorum.leader().id == 2
    quorum.append(2)
    assert quorum.images() == {2: 2, 3: 2}


def test_a_leader_outside_the_static_voters_is_followed_at_its_endpoint() -> None:
    """Static voters are being changed: a voter and a broker do not know the new voter, which is elected."""
    quorum = Quorum((*IDS, OBSERVER))
    one, two, three, broker = quorum.members.values()
    two.voters = broker.voters = (1, 2)
    one.start(guards_empty_disk=False)
    three.start(guards_empty_disk=False)
    quorum.world.run(5_000)
    quorum.append(1)
    one.stop()
    two.start(guards_empty_disk=False)
    broker.start()
    quorum.world.run(5_000)
    assert quorum.leader() is three
    quorum.append(2, 3)
    assert quorum.images() == {2: 3, 3: 3, OBSERVER: 3}


def test_a_moved_leader_is_followed_and_records_its_new_endpoint() -> None:
    """Before its election there was no leader to which it could report."""
    quorum = Quorum((*IDS, OBSERVER))
    one, two, three, broker = quorum.members.values()
    broker.dynamic = True
    for member in (one, two, three):
        member.first_voters = IDS
        member.start(guards_empty_disk=False)
    broker.start()
    quorum.world.run(500)
    two.stop()
    quorum.append(1)
    for member in (three, one):
        member.stop()
    three.port = MOVED
    three.start()
    two.start()
    quorum.world.run(5_000)
    assert quorum.leader() is three, "two lacks a record"
    quorum.append(2)
    assert quorum.images() == {2: 2, 3: 2, OBSERVER: 2}
    for member in (two, three, broker):
        assert member.driver is not None
        stated = member.driver.voters.get(3)
        assert stated is not None
        assert stated.endpoints == {"CONTROLLER": ("localhost", MOVED)}


def test_an_endpoint_from_the_leader_has_priority_in_its_epoch_only() -> None:
    quorum = Quorum()
    for member in quorum.members.values():
        member.first_voters = IDS
        member.start(guards_empty_disk=False)
    quorum.world.run(500)
    follower = quorum.members[2].driver
    assert quorum.leader().id == 1
    assert follower is not None
    tell = messages.BeginQuorumEpochRequest
    partition = tell.PartitionData(partition_index=0, leader_id=1, leader_epoch=follower.epoch)
    reported = tell(
        cluster_id="cluster",
        topics=[tell.TopicData("__cluster_metadata", [partition])],
        leader_endpoints=[tell.LeaderEndpoint("CONTROLLER", "localhost", MOVED)],
    )
    follower.peers.learn_leader(reported, follower.epoch)
    assert follower.peers.endpoint_of(1) == ("localhost", MOVED)
    hearsay = messages.VoteResponse.NodeEndpoint(1, "localhost", PORTS[1])
    stale = messages.VoteResponse.PartitionData(0, 0, 1, follower.epoch)
    topics = [messages.VoteResponse.TopicData("__cluster_metadata", [stale])]
    follower.peers._answered(10**6, 3, messages.VoteResponse(0, topics, [hearsay]))
    assert follower.peers.endpoint_of(1) == ("localhost", MOVED), "three repeats what the log states"
    reported.cluster_id, reported.leader_endpoints[0].port = "another", 1
    follower.peers.learn_leader(reported, follower.epoch)
    assert follower.peers.endpoint_of(1) == ("localhost", MOVED)
    quorum.leader().stop()
    quorum.world.run(5_000)
    assert quorum.leader().id == 2
    assert follower.peers.endpoint_of(1) == ("localhost", PORTS[1]), "what the log states, in another epoch"


def test_voters_without_pre_vote_are_asked_for_votes() -> None:
    quorum = Quorum()
    quorum.newest = {"VoteRequest": 1}
    quorum.start()
    assert quorum.leader().id in IDS
    quorum.append(1)
    assert quorum.images() == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_observer_finds_the_leader_and_each_later_one(dynamic: bool) -> None:
    quorum = Quorum().start()
    quorum.append(1)
    observer = quorum.members[OBSERVER] = Member(quorum, OBSERVER, dynamic=dynamic)
    observer.start()
    quorum.world.run(500)
    assert quorum.images()[OBSERVER] == 1
    quorum.leader().stop()
    quorum.world.run(500)
    quorum.append(2)
    quorum.world.run(500)
    assert quorum.leader().id == 2
    assert quorum.images() == {2: 2, 3: 2, OBSERVER: 2}
    assert observer.leaders[-1] == (2, 2)


def test_latecomers_start_with_a_snapshot() -> None:
    quorum = Quorum().start()
    for number in range(40):
        quorum.append(number)
    assert quorum.leader().storage.files
    observer = quorum.members[OBSERVER] = Member(quorum, OBSERVER)
    observer.start()
    quorum.world.run(1_000)
    assert quorum.images()[OBSERVER] == 40
    (snapshot,) = observer.storage.files
    assert observer.storage.start_offset == snapshot.end_offset > 0


def test_a_downloaded_snapshot_removes_older_ones_even_after_a_crash() -> None:
    """With a stale snapshot, a leader told a deposed leader to keep records that had been replaced."""
    quorum = Quorum().start()
    quorum.append(*range(40))
    late = next(member for member in quorum.members.values() if member is not quorum.leader())
    leader = quorum.leader()
    assert late.driver is not None and leader.driver is not None
    for driver in (late.driver, leader.driver):
        driver.snapshots.take()
    quorum.world.run(1_000)
    (old,) = late.storage.files
    late.stop()
    quorum.append(*range(40, 80))
    leader.driver.snapshots.take()
    quorum.world.run(1_000)
    leader.driver.snapshots.policy = SnapshotPolicy(retention_bytes=1)
    leader.driver.snapshots.drop_old()
    (new,) = leader.storage.files
    late.storage.files[SnapshotId(0, 0)] = b""
    late.start()
    quorum.world.run(1_000)
    assert sorted(late.storage.files) == [SnapshotId(0, 0), new]
    late.stop()
    late.storage.files[old] = late.storage.files[new]  # a power loss may bring a deleted file back
    late.start()
    assert sorted(late.storage.files) == [SnapshotId(0, 0), new]
    quorum.world.run(1_000)
    assert late.driver.node.log.snapshots == [new]
    assert quorum.images()[late.id] == 80


def test_the_leader_knows_the_snapshot_lag_of_every_member() -> None:
    quorum = Quorum().start()
    for number in range(40):
        quorum.append(number)
    quorum.world.run(1_000)
    leader = quorum.leader().driver
    assert leader is not None
    lags = leader.snapshot_lags.by_replica()
    assert sorted(lags) == [1, 2, 3]
    for member in quorum.members.values():
        latest = max(snapshot.end_offset for snapshot in member.storage.files)
        assert lags[member.id] == leader.high_watermark - latest < 40
    follower = quorum.members[2].driver
    assert follower is not None
    assert follower.snapshot_lags.by_replica() == {}


def test_a_lone_leader_that_is_joined_gives_the_newcomer_time_to_fetch() -> None:
    """For a leader without other voters, the time in which a majority must fetch had long passed."""
    quorum = Quorum((1, 2))
    for member in quorum.members.values():
        member.first_voters = (1,)
        member.start()
    quorum.world.run(20_000)
    assert quorum.leader().id == 1
    leader = quorum.leader()
    voter = messages.AddRaftVoterRequest(
        cluster_id="cluster",
        timeout_ms=1_000,
        voter_id=2,
        voter_directory_id=Uuid(bytes([2]) * 16),
        listeners=[messages.AddRaftVoterRequest.Listener("CONTROLLER", "localhost", PORTS[2])],
    )
    answers: list[Any] = []
    Way(quorum, quorum.members[2], PORTS[1]).send(voter, None, answers.append, 1_000)
    quorum.world.run(10_000)
    assert [answer.error_code for answer in answers] == [0]
    assert leader.driver is not None
    assert leader.driver.voters.ids == [1, 2]
    assert leader.driver.epoch == 1
    assert leader.leaders == [(-1, 1), (1, 1)]


def test_the_addresses_tried_are_explained() -> None:
    quorum = Quorum()
    quorum.members[2].start()
    quorum.world.run(200)
    driver = quorum.members[2].driver
    assert driver is not None
    assert driver.peers.explain() == (
        "1@localhost:9091 (localhost:9091: refused), 3@localhost:9093 (localhost:9093: refused)"
    )
    observer = Member(quorum, OBSERVER, dynamic=True)
    observer.start()
    quorum.world.run(200)
    assert observer.driver is not None
    assert observer.driver.peers.explain() == "localhost:9092 (answers)"


def test_voters_of_another_cluster_are_ignored() -> None:
    quorum = Quorum().start()
    quorum.members[3].stop()
    quorum.members[3].start()
    stranger = quorum.members[3].driver
    assert stranger is not None
    stranger.cluster_id = stranger.node.cluster_id = "other"
    quorum.append(1)
    quorum.world.run(5_000)
    assert quorum.images() == {1: 1, 2: 1, 3: 0}
    assert quorum.leader().id == 1
    assert "INCONSISTENT_CLUSTER_ID" in stranger.peers.explain()


def test_to_guard_against_empty_disks_a_new_quorum_waits_for_all() -> None:
    quorum = Quorum()
    for node_id in (1, 2):
        quorum.members[node_id].start()
    quorum.world.run(10_000)
    assert all(m.driver is None or m.driver.leader_id == -1 for m in quorum.members.values())
    quorum.members[3].start()
    quorum.world.run(1_000)
    quorum.append(1)
    assert quorum.images() == {1: 1, 2: 1, 3: 1}

    unguarded = Quorum()
    for node_id in (1, 2):
        unguarded.members[node_id].start(guards_empty_disk=False)
    unguarded.world.run(1_000)
    unguarded.append(1)
    assert unguarded.images() == {1: 1, 2: 1}


def test_a_voter_with_a_lost_disk_cannot_elect_away_acknowledged_records() -> None:
    quorum = Quorum().start()
    quorum.append(1)
    quorum.members[3].stop(reported=False)
    quorum.append(2)
    # Records that 2 has acknowledged are also on 1, which is down; 3 lacks them.
    quorum.members[1].stop()
    quorum.members[2].stop()
    quorum.members[2].storage = MemoryStorage()
    quorum.members[2].start()
    quorum.members[3].start()
    quorum.world.run(20_000)
    assert all(m.driver is None or m.driver.leader_id in (-1, 1) for m in quorum.members.values())
    quorum.members[1].start()
    quorum.world.run(20_000)
    assert quorum.leader().id == 1
    assert quorum.images() == {1: 2, 2: 2, 3: 2}


def test_endpoints_are_learned_from_answers() -> None:
    quorum = Quorum().start()
    observer = Member(quorum, OBSERVER, dynamic=True)
    observer.start()
    assert observer.driver is not None
    assert observer.driver.peers.endpoint_of(1) is None
    quorum.world.run(500)
    assert observer.driver.peers.endpoint_of(1) == ("localhost", 9091)
