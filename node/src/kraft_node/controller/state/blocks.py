"""The blocks of partitions that hold a partition in sync on a broker: four bytes for each block.

A million partitions on thirty brokers would take fifty bytes each as sets of partitions by broker. So only the blocks
to search are stored: up to `BLOCK_PARTITIONS` partitions of one topic. False positives are possible, false negatives
are not. The caller (`PartitionIndex`) verifies with the topics, which have exact data, and reports false positives.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from kraft_protocol.ids import Uuid

BLOCK_PARTITIONS: Final = 256
"""Partitions per block. Searching one block takes some 10 microseconds."""

Block: TypeAlias = tuple[Uuid, int]
"""A topic and the first partition of one of its blocks."""


class BrokerBlocks:
    """Blocks by broker. Every block has a number; each broker has a sorted array of numbers."""

    __slots__ = ("_blocks", "_by_broker", "_free", "_last", "_numbers")

    def __init__(self) -> None:
        self._blocks: list[Uuid | Block | None] = []
        """By number. A topic's first block is identified by the topic alone, because most topics have only one block.
        """
        self._numbers: dict[Uuid | Block, int] = {}
        self._free: list[int] = []
        self._last: dict[Uuid, int] = {}
        """The first partition of the last block, for topics with several blocks."""
        self._by_broker: dict[int, array[int]] = {}

    def add(self, topic_id: Uuid, first: int, brokers: Iterable[int]) -> None:
        """Note that each of these brokers is in sync for a partition in the block of partition `first`."""
        key = _key(topic_id, first)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._number(key)
            if key is not topic_id:
                self._last[topic_id] = max(first, self._last.get(topic_id, 0))
        for broker in brokers:
            known = self._by_broker.get(broker)
            if known is None:
                self._by_broker[broker] = array("I", (number,))
            elif number > known[-1]:
                known.append(number)
            elif number != known[-1]:
                at = bisect_left(known, number)
                if known[at] != number:
                    known.insert(at, number)

    def _number(self, key: Uuid | Block) -> int:
        if self._free:
            number = self._free.pop()
            self._blocks[number] = key
            return number
        self._blocks.append(key)
        return len(self._blocks) - 1

    def discard(self, topic_id: Uuid, first: int, broker: int) -> None:
        """Note that the broker is not in sync for any partition of the block."""
        number = self._numbers.get(_key(topic_id, first))
        known = self._by_broker.get(broker)
        if number is None or known is None:
            return
        at = bisect_left(known, number)
        if at < len(known) and known[at] == number:
            del known[at]
            if not known:
                del self._by_broker[broker]

    def forget(self, topic_id: Uuid) -> None:
        """Note that a topic is gone. Its numbers may stay in brokers' arrays, as false positives, until they are
        reused.
        """
        for first in range(0, self._last.pop(topic_id, 0) + 1, BLOCK_PARTITIONS):
            number = self._numbers.pop(_key(topic_id, first), None)
            if number is not None:
                self._blocks[number] = None
                self._free.append(number)

    def of(self, broker: int) -> Iterator[Block]:
        """The blocks to search for a broker. The caller may discard blocks meanwhile."""
        known = self._by_broker.get(broker)
        for number in known[:] if known else ():
            key = self._blocks[number]
            if isinstance(key, tuple):
                yield key
            elif key is not None:
                yield key, 0


def _key(topic_id: Uuid, number: int) -> Uuid | Block:
    """The identifier of a partition's block."""
    first = number - number % BLOCK_PARTITIONS
    return (topic_id, first) if first else topic_id
