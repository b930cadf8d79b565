"""The quorum as its leader tells it, in answers as a real one gave them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kraft_operator.kafka.client import Address, Client
from kraft_operator.observe.kafka import quorum_as_told

NOW = 1_795_280_305_577


def _replica(node_id: int, disk: int, *, end: int = 223, ago_ms: int = 300) -> dict[str, Any]:
    at = NOW - ago_ms
    return {"id": node_id, "directory": bytes([disk]) * 16, "end": end, "fetched": at, "caught_up": at}


class Answers:
    """A client that has one answer."""

    def __init__(self, voters: list[dict[str, Any]], observers: list[dict[str, Any]]) -> None:
        told = {"error": 0, "leader": 1, "epoch": 1, "high_watermark": 223, "voters": voters, "observers": observers}
        self.answer = {"error": 0, "topics": [{"partitions": [told]}], "cluster_id": "c"}

    async def ask(self, *_: object, **__: object) -> dict[str, Any]:
        return self.answer


def _observers(voters: list[dict[str, Any]], observers: list[dict[str, Any]]) -> dict[int, bytes]:
    client = cast(Client, Answers(voters, observers))
    found = asyncio.run(quorum_as_told(client, Address("localhost", 9093)))
    assert found is not None
    quorum, _, _ = found
    return {node_id: one.directory for node_id, one in quorum.observers.items()}


def test_the_former_disk_of_a_voter_is_not_taken_for_its_new_one() -> None:
    """It was: the voter was removed and added three times a second, until its former self was forgotten."""
    former, present = _replica(2, 1, ago_ms=92_907), _replica(2, 2)
    leader = _replica(1, 9, ago_ms=0)
    assert _observers([leader, former], [present]) == {2: present["directory"]}, "the voter has another disk now"
    assert _observers([leader, present], [former]) == {}, "the voter is the one that runs"


def test_of_two_disks_of_one_node_the_one_that_fetches_counts() -> None:
    """A controller whose disk was replaced was seen as behind for five minutes, until its former self was forgotten."""
    voters = [_replica(1, 1, ago_ms=0), _replica(2, 2)]
    former, present = _replica(3, 3, end=39, ago_ms=92_907), _replica(3, 4)
    for observers in ([former, present], [present, former]):
        client = cast(Client, Answers(voters, observers))
        found = asyncio.run(quorum_as_told(client, Address("localhost", 9093)))
        assert found is not None
        quorum, _, _ = found
        assert (quorum.observers[3].lag, quorum.observers[3].behind_ms) == (0, 300)
        assert quorum.observers[3].directory == present["directory"]
