"""Mixed clusters: one quorum of our nodes and Apache Kafka's, its brokers with our controllers and the reverse."""

from __future__ import annotations

from functools import partial

import pytest

from kraft_protocol.records.batch import iter_headers
from tests.compat.members import MakeMembers, Members, wait_for
from tests.compat.tools import run_tool

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("mixed")]

OURS, APACHE = "kraftcluster", "apache"


def _caught_up(members: Members) -> None:
    try:
        wait_for("all replicas caught up", lambda: members.all_have(members.quorum().high_watermark))
    except AssertionError as e:
        raise AssertionError(f"{e}: {members.quorum()}\n{members.tails()}") from None


def _make_lead(members: Members, wanted: int) -> None:
    """Elect this controller. No other voter can win, because the third voter lacks the last committed records."""
    leader = members.leader()
    if leader == wanted:
        return
    _caught_up(members)
    (third,) = {1, 2, 3} - {leader, wanted}
    members.nodes[third].kill()
    members.create(f"missing-on-{third}-{members.quorum().leader_epoch}")
    members.nodes[leader].kill()
    members.start(third)
    assert members.leader() == wanted, members.tails()
    members.start(leader)
    _caught_up(members)


def _knows(members: Members, broker: int, topics: set[str]) -> bool:
    return topics <= members.topics(broker)


def _agree(members: Members, *ids: int) -> None:
    """Compare the metadata logs of the members: the bytes are equal up to the shortest end."""
    _caught_up(members)
    logs = [members.metadata_log(node_id) for node_id in ids]
    end = min(map(len, logs))
    first = logs[0][:end]
    assert end > 1000
    assert all(log[:end] == first for log in logs)


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_leadership_moves_in_both_directions_in_a_mixed_quorum(make: MakeMembers, dynamic: bool) -> None:
    members = make((OURS, OURS, APACHE), (OURS, APACHE), dynamic=dynamic).start()
    wait_for("both brokers unfenced", lambda: members.unfenced(101) == members.unfenced(102) == {101, 102})
    members.create("first", 4, via=102)
    moves = 2 if members.leader() == 3 else 3

    _make_lead(members, 3)
    members.create("under-apache", 4, via=101)
    members.create("under-apache-too", 4, via=102)
    _agree(members, 1, 2, 3, 101, 102)

    _make_lead(members, 1)
    members.create("under-ours", 4, via=102)
    wait_for("both brokers unfenced", lambda: members.unfenced(101) == {101, 102})

    members.nodes[1].kill()
    members.create("after-a-kill")
    members.start(1)
    expected = {"first", "under-apache", "under-apache-too", "under-ours", "after-a-kill"}
    for broker in (101, 102):
        wait_for("the broker knows all topics", partial(_knows, members, broker, expected))
    _agree(members, 1, 2, 3, 101, 102)
    epochs = {header.partition_leader_epoch for header in iter_headers(members.metadata_log(1))}
    assert len(epochs) > moves

    path = members.nodes[1].data / "__cluster_metadata-0" / "00000000000000000000.log"
    dumped = run_tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path)).out
    assert dumped.count('"type":"TOPIC_RECORD"') >= 5
    assert dumped.count('"type":"REGISTER_CONTROLLER_RECORD"') >= 3


def test_apaches_broker_works_with_our_controllers(make: MakeMembers) -> None:
    members = make((OURS, OURS, OURS), (APACHE,)).start()
    members.create("a", 3)
    before = members.leader()
    members.nodes[before].kill()
    members.create("b", 3)
    members.start(before)
    members.nodes[101].stop()
    members.start(101)
    wait_for("it is unfenced again", lambda: members.unfenced(101) == {101})
    members.create("c", 3)
    _agree(members, 1, 2, 3, 101)


@pytest.mark.slow
def test_our_broker_works_with_apaches_controllers(make: MakeMembers) -> None:
    members = make((APACHE, APACHE, APACHE), (OURS,)).start()
    members.create("a", 3)
    before = members.leader()
    members.nodes[before].kill()
    members.create("b", 3)
    members.start(before)
    assert members.nodes[101].stop() == 0
    members.start(101)
    wait_for("it is unfenced again", lambda: members.unfenced(101) == {101})
    members.create("c", 3)
    _agree(members, 1, 2, 3, 101)


@pytest.mark.slow
@pytest.mark.parametrize("leader", [1, 3])
def test_latecomers_start_with_a_snapshot_of_the_other_kind(make: MakeMembers, leader: int) -> None:
    small = {"metadata.log.max.record.bytes.between.snapshots": "8000"}
    members = make((OURS, OURS, APACHE), (OURS, OURS, APACHE), overrides=small)
    members.start(1, 2, 3, 101)
    _make_lead(members, leader)
    for number in range(80):
        members.create(f"t{number}", 2)
    late = 103 if leader == 1 else 102
    members.start(late)
    assert members.topics(late) >= {f"t{number}" for number in range(80)}
    folder = members.nodes[late].data / "__cluster_metadata-0"
    (first, *_) = sorted(path.name for path in folder.glob("*.checkpoint"))
    assert int(first.partition("-")[0]) > 0
    assert not (folder / "00000000000000000000.log").exists()
