"""Responses with absurd epochs, from a damaged or hostile peer (`raft.epochs` defines the epochs that a replica
accepts).

The laws must still hold. No replica accepts an epoch that leaves no epoch for elections. No log holds records of an
epoch that its leader does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from kraft_node.raft.epochs import EPOCH_MAX, FREE_MAX, LEAP_MAX
from kraft_protocol.records.batch import iter_headers

FAR_OFF: Final = (2**31 - 1, EPOCH_MAX, FREE_MAX + 2 * LEAP_MAX, -1, -(2**31))
EPOCH_POSITION: Final = 12
"""The position of the leader's epoch in a batch: four bytes that the CRC does not cover."""


def garble(reply: Any, rng: Random) -> Any:
    """The response with one wrong epoch. A bare core's response is copied; a protocol message is changed in place."""
    if isinstance(reply, tuple):
        return reply._replace(epoch=rng.choice(FAR_OFF)) if "epoch" in reply._fields else reply  # type: ignore[attr-defined]
    places = list(_places(reply))
    if places:
        rng.choice(places)(rng.choice(FAR_OFF))
    return reply


def _places(message: Any) -> Iterator[Any]:
    """Setters for each epoch in a response."""
    leader = getattr(message, "current_leader", None)
    if leader is not None:
        yield lambda epoch: setattr(leader, "leader_epoch", epoch)
    for topic in getattr(message, "responses", ()) or getattr(message, "topics", ()):
        for partition in topic.partitions:
            yield from _of_partition(partition)


def _of_partition(partition: Any) -> Iterator[Any]:
    for name, field in (
        ("leader_epoch", partition),
        ("leader_epoch", getattr(partition, "current_leader", None)),
        ("epoch", getattr(partition, "snapshot_id", None)),
    ):
        if hasattr(field, name):
            yield lambda epoch, field=field, name=name: setattr(field, name, epoch)
    diverging = getattr(partition, "diverging_epoch", None)
    if diverging is not None:
        # Not a lower epoch: it would order a truncation of committed records, which ends the node.
        yield lambda epoch: setattr(diverging, "epoch", max(epoch, FREE_MAX))
    if getattr(partition, "records", None):
        yield lambda epoch: setattr(partition, "records", _renamed(bytes(partition.records), epoch))


def _renamed(records: bytes, epoch: int) -> bytes:
    """The batches with `epoch` as the leader epoch of the last batch."""
    data = bytearray(records)
    *_, last = iter_headers(records)
    start = last.position + EPOCH_POSITION
    data[start : start + 4] = epoch.to_bytes(4, "big", signed=True)
    return bytes(data)


__all__ = ["garble"]
