"""The quorum as its leader reports it, in recorded answers."""

from __future__ import annotations

import asyncio
from typing import cast

from kraft_operator.observe.kafka import reported_quorum
from kraft_protocol.client.aio import Address, Client
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m

NOW = 1_795_280_305_577


Replica = m.DescribeQuorumResponse.ReplicaState


def _replica(node_id: int, disk: int, *, end: int = 223, ago_ms: int = 300) -> Replica:
    at = NOW - ago_ms
    return Replica(node_id, Uuid(bytes([disk]) * 16), end, at, at)


class Answers:
    """A client with one answer to each request."""

    def __init__(self, voters: list[Replica], observers: list[Replica]) -> None:
        reported = m.DescribeQuorumResponse.PartitionData(0, 0, None, 1, 1, 223, voters, observers)
        self.quorum = m.DescribeQuorumResponse(
            topics=[m.DescribeQuorumResponse.TopicData("__cluster_metadata", [reported])]
        )

    async def request(self, _: Address, request: object) -> object:
        if isinstance(request, m.DescribeQuorumRequest):
            return self.quorum
        return m.DescribeClusterResponse(cluster_id="c")


def _observers(voters: list[Replica], observers: list[Replica]) -> dict[int, bytes]:
    client = cast(Client, Answers(voters, observers))
    found = asyncio.run(reported_quorum(client, Address("localhost", 9093)))
    assert found is not None
    quorum, _, _ = found
    return {node_id: one.directory for node_id, one in quorum.observers.items()}


def test_a_voters_former_disk_is_not_taken_for_its_new_disk() -> None:
    """The voter was removed and added three times a second, until its former disk was forgotten."""
    former, present = _replica(2, 1, ago_ms=92_907), _replica(2, 2)
    leader = _replica(1, 9, ago_ms=0)
    assert _observers([leader, former], [present]) == {2: present.replica_directory_id}, (
        "the voter has another disk now"
    )
    assert _observers([leader, present], [former]) == {}, "the voter is the one that runs"


def test_of_two_disks_of_a_node_the_fetching_one_counts() -> None:
    """A controller with a replaced disk appeared to lag for five minutes, until its former disk was forgotten."""
    voters = [_replica(1, 1, ago_ms=0), _replica(2, 2)]
    former, present = _replica(3, 3, end=39, ago_ms=92_907), _replica(3, 4)
    for observers in ([former, present], [present, former]):
        client = cast(Client, Answers(voters, observers))
        found = asyncio.run(reported_quorum(client, Address("localhost", 9093)))
        assert found is not None
        quorum, _, _ = found
        assert (quorum.observers[3].lag, quorum.observers[3].behind_ms) == (0, 300)
        assert quorum.observers[3].directory == present.replica_directory_id
