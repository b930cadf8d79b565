"""A voter that names the protocol's largest epoch must not make elections impossible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_node.cli.client import NodeClient
from kraft_node.log.checkpoints import quorum_state
from kraft_node.raft import wire_form
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, VoterSet
from kraft_node.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, Request, VoteRequest
from kraft_protocol.wire.api import ApiKey
from tests.compat.clusters.hostile_voter import HostileVoter
from tests.compat.members import Members, wait_for
from tests.compat.targets import Target

pytestmark = pytest.mark.xdist_group("quorum")

CLIENT = "A voter that names the last epoch"
LAST = 2**31 - 1
HOSTILE = 3
INVALID_REQUEST = 42


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    # A replica with an empty disk would wait for the third voter, which never reports that it is new.
    cluster = Members(tmp_path, brokers=("kraftcluster",), overrides={"quorum.empty.disk.guard": "false"})
    try:
        yield cluster
    finally:
        cluster.stop()


def _error(members: Members, node_id: int, key: ApiKey, request: Request) -> int:
    message = wire_form.request_to_wire(request, ReplicaKey(HOSTILE), VoterSet(()))
    with NodeClient("127.0.0.1", members.nodes[node_id].controller_port) as client:
        response: Any = client.request(key, message)
    return int(response.topics[0].partitions[0].error_code)


def _epoch_on_disk(node: Target) -> int:
    return int(json.loads((node.data / "__cluster_metadata-0" / "quorum-state").read_text())["leaderEpoch"])


def test_requests_and_answers_that_name_the_last_epoch_are_refused(members: Members) -> None:
    """Two voters go on beside the third: topics are created, and both restart and elect a leader."""
    hostile = HostileVoter(members.nodes[HOSTILE].controller_port, LAST)
    try:
        for node_id in (1, 2, 101):
            members.nodes[node_id].launch()
        members.nodes[101].wait_ready()
        members.create("beside-a-hostile-voter")
        wait_for("it has answered", lambda: ApiKey.VOTE in hostile.answered)
        for epoch in (LAST, LAST - 1, 2**30 + 2_000):
            for node_id in (1, 2):
                vote = VoteRequest(epoch, ReplicaKey(HOSTILE), 0, 0)
                assert _error(members, node_id, ApiKey.VOTE, vote) == INVALID_REQUEST
                begin = BeginQuorumEpochRequest(epoch, HOSTILE)
                assert _error(members, node_id, ApiKey.BEGIN_QUORUM_EPOCH, begin) == INVALID_REQUEST
                end = EndQuorumEpochRequest(epoch, HOSTILE, (ReplicaKey(node_id),))
                assert _error(members, node_id, ApiKey.END_QUORUM_EPOCH, end) == INVALID_REQUEST
        for node_id in (1, 2):
            members.nodes[node_id].kill()
            members.nodes[node_id].launch()
            members.create(f"after-{node_id}-restarted")
            assert _epoch_on_disk(members.nodes[node_id]) < 1_000
    finally:
        hostile.close()


def test_a_quorum_state_at_the_last_epoch_is_refused_with_the_remedy(members: Members) -> None:
    node = members.nodes[1]
    node.format()
    file = node.data / "__cluster_metadata-0" / "quorum-state"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(quorum_state.render(QuorumState(LAST), voter_ids=[1, 2, 3]))
    node.launch()
    process = node.process
    assert process is not None
    assert process.wait(60) != 0
    printed = node.tail()
    assert f"quorum-state: leaderEpoch {LAST}" in printed
    assert "Stop all nodes" in printed
    assert "Traceback" not in printed
