"""Three controllers and three brokers of ours, each a process: what Apache Kafka's tools see, and nodes that stop."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.compat.members import Members, wait_for
from tests.compat.tools import run_tool

pytestmark = pytest.mark.xdist_group("quorum")

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    cluster = Members(tmp_path_factory.mktemp("quorum"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def _whole(members: Members) -> None:
    """Wait until all nodes run, have registered and have caught up."""
    for node_id, node in members.nodes.items():
        if node.process is None:
            members.start(node_id)
    wait_for("all brokers unfenced", lambda: members.unfenced(101) == {101, 102, 103})
    wait_for("all replicas caught up", lambda: members.all_have(members.quorum().high_watermark))


def _is_unfenced(members: Members, node_id: int) -> bool:
    return node_id in members.unfenced(101)


@pytest.mark.peer
def test_apaches_tool_describes_the_quorum_through_brokers_and_controllers(members: Members) -> None:
    _whole(members)
    leader = members.leader()
    for where in (("--bootstrap-server", members.bootstrap), ("--bootstrap-controller", members.bootstrap_controllers)):
        status = run_tool(QUORUM, *where, "describe", "--status").text
        assert re.search(rf"LeaderId:\s+{leader}\n", status)
        assert [int(i) for i in re.findall(r'"id": (\d+)', status.split("CurrentVoters")[1])[:3]] == [1, 2, 3]
        assert "CONTROLLER://127.0.0.1:" in status
        rows = run_tool(QUORUM, *where, "describe", "--replication").text.splitlines()[1:]
        roles = {int(row.split()[0]): row.split()[-1] for row in rows if row.strip()}
        expected = {1: "Follower", 2: "Follower", 3: "Follower", leader: "Leader"}
        assert roles == {**expected, 101: "Observer", 102: "Observer", 103: "Observer"}


def test_the_next_topic_is_created_after_the_active_controller_was_killed(members: Members) -> None:
    _whole(members)
    before = members.leader()
    members.nodes[before].kill()
    members.create("after-a-kill", 3)
    after = members.leader()
    assert after != before
    wait_for("all brokers have seen it", lambda: all("after-a-kill" in members.topics(n) for n in members.broker_ids))
    members.start(before)
    _whole(members)
    wait_for("equal logs", lambda: members.metadata_log(before)[:4000] == members.metadata_log(after)[:4000])


def test_a_silent_active_controller_is_replaced_and_follows_after_its_return(members: Members) -> None:
    _whole(members)
    before = members.leader()
    process = members.nodes[before].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        members.create("after-a-silence")
        assert members.leader() != before
    finally:
        process.send_signal(signal.SIGCONT)
    _whole(members)
    assert members.leader() != before
    members.create("after-its-return")


def test_a_stopping_leader_hands_over_before_it_ends(members: Members) -> None:
    _whole(members)
    before = members.leader()
    epoch = members.quorum().leader_epoch
    assert members.nodes[before].stop() == 0
    assert members.leader() != before
    assert wait_for("a leader", members.quorum).leader_epoch > epoch
    members.create("after-a-hand-over")


def test_a_restarted_broker_replaces_its_killed_process_at_once(members: Members) -> None:
    _whole(members)
    for node_id in (102, 103):
        members.nodes[node_id].kill()
        printed_before = members.nodes[node_id].log.stat().st_size
        members.start(node_id)
        wait_for("it is unfenced", partial(_is_unfenced, members, node_id))
        lines = members.nodes[node_id].log.read_text()[printed_before:]
        assert "broker is registered" in lines
        assert "DUPLICATE_BROKER_REGISTRATION" not in lines, "it waited for the lease of its former self"
        assert "after-a-kill" in members.topics(node_id) or members.topics(node_id) == members.topics(101)


def test_all_members_are_restarted_one_after_the_other(members: Members) -> None:
    _whole(members)
    members.create("before-rolling", 6)
    for node_id in members.nodes:
        assert members.nodes[node_id].stop() == 0, members.nodes[node_id].tail()
        members.start(node_id)
        wait_for("it has caught up", lambda: members.all_have(members.quorum().high_watermark))
        members.create(f"while-rolling-{node_id}")
    _whole(members)
    expected = {"before-rolling"} | {f"while-rolling-{node_id}" for node_id in members.nodes}
    assert all(expected <= members.topics(node_id) for node_id in members.broker_ids)


def test_a_quorum_recovers_after_two_of_three_controllers_were_killed(members: Members) -> None:
    _whole(members)
    gone = [members.leader(), *[n for n in members.controller_ids if n != members.leader()]][:2]
    for node_id in gone:
        members.nodes[node_id].kill()
    for node_id in gone:
        members.nodes[node_id].launch()
    members.create("after-a-lost-majority")
    _whole(members)


def test_a_broker_without_a_controller_names_the_addresses_it_tried(tmp_path: Path) -> None:
    alone = Members(tmp_path, brokers=("kraftcluster",), overrides={"initial.broker.registration.timeout.ms": "1500"})
    broker = alone.nodes[101]
    broker.launch()
    assert broker.process is not None
    try:
        assert broker.process.wait(90) == 1
    finally:
        alone.stop()
    last = broker.tail().strip().splitlines()[-1]
    for node_id in alone.controller_ids:
        assert f"{node_id}@127.0.0.1:{alone.nodes[node_id].controller_port}" in last
    assert "Connection refused" in last


def test_combined_nodes_form_a_quorum(tmp_path: Path) -> None:
    members = Members(tmp_path, brokers=(), combined=True)
    try:
        members.start()
        members.create("a", 3)
        before = members.leader()
        members.nodes[before].kill()
        others = [node_id for node_id in members.controller_ids if node_id != before]
        members.create("b", 3, via=others[0])
        wait_for("the other one leads", lambda: members.leader() in others)
        wait_for("everybody knows", lambda: all("b" in members.topics(node_id) for node_id in others))
        members.start(before)
        wait_for("all brokers unfenced", lambda: members.unfenced(others[0]) == {1, 2, 3})
        for node_id in members.controller_ids:
            assert members.nodes[node_id].stop() == 0
            members.start(node_id)
        members.create("c", 3)
        wait_for(
            "everybody knows all of them",
            lambda: all({"a", "b", "c"} <= members.topics(node_id) for node_id in members.controller_ids),
        )
    finally:
        members.stop()
