"""The state of an idempotent producer without I/O (KIP-98): sequence numbers, and batches until they are acknowledged.

Batches queue by partition with sequence numbers. A leader receives the first batches of its partitions in a few
pipelined requests (`Window`). A batch leaves its queue when it is acknowledged. After an error all unacknowledged
batches are sent again in the same order with the same numbers, so the broker recognizes duplicates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kraft_protocol.client.errors import BrokerError
from kraft_protocol.client.requests import Key, ProduceAnswer
from kraft_protocol.errors import ErrorCode

IN_FLIGHT_MAX: Final = 5
"""Batches per producer that a broker remembers to detect duplicates."""
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
SEQUENCES: Final = 1 << 31
"""Sequence numbers begin again at 0 after the last 32-bit one."""
_STORED: Final = frozenset({0, int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)})


class ProducerSequence(NamedTuple):
    """An idempotent producer, and the sequence number of the first record; all -1 for a producer without."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1

    def after(self, records: int) -> ProducerSequence:
        """The identity after the next `records` records."""
        if self.sequence < 0:
            return self
        return self._replace(sequence=(self.sequence + records) % SEQUENCES)


class Unacknowledged:
    """Batches by partition, in the order of their sequence numbers."""

    __slots__ = ("_known", "_waiting", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        """The size of all batches."""
        self._waiting: dict[Key, deque[bytes]] = {}
        self._known: set[Key] = set()
        """Partitions with an acknowledged batch: their leaders know the producer."""

    def add(self, key: Key, batch: bytes) -> None:
        """Queue a batch."""
        self._waiting.setdefault(key, deque()).append(batch)
        self.bytes += len(batch)

    @property
    def partitions(self) -> Collection[Key]:
        """The partitions with batches."""
        return self._waiting.keys()

    def window(self, keys: Iterable[Key]) -> Window:
        """The requests to one leader with the first batches of its partitions `keys`."""
        return Window(self, self._requests(list(keys)))

    def _requests(self, keys: list[Key]) -> list[dict[Key, bytes]]:
        """Requests with one batch of each partition, bounded in bytes.

        The second batch of a partition waits until its first batch ever is acknowledged. Otherwise the leader could
        refuse the first for a retriable reason and accept the second. It accepts any sequence number from an unknown
        producer. Then it would never accept the first.
        """
        requests: list[dict[Key, bytes]] = []
        for nth in range(IN_FLIGHT_MAX):
            parts: dict[Key, bytes] = {}
            size = 0
            for key in keys:
                if len(self._waiting[key]) > nth and len(requests) < IN_FLIGHT_MAX:
                    batch = self._waiting[key][nth]
                    if parts and size + len(batch) > REQUEST_BYTES_MAX:
                        break  # this and later partitions wait for the next window, which keeps their order
                    parts[key] = batch
                    size += len(batch)
            if not parts:
                break
            keys = [key for key in parts if key in self._known]
            requests.append(parts)
        return requests

    def acknowledged(self, key: Key) -> None:
        """Remove the first batch of a partition."""
        self._known.add(key)
        self.bytes -= len(self._waiting[key].popleft())
        if not self._waiting[key]:
            del self._waiting[key]


class Window:
    """Requests that are sent to a leader before it responds to the first of them."""

    __slots__ = ("_batches", "_refused", "error", "requests")

    def __init__(self, batches: Unacknowledged, requests: list[dict[Key, bytes]]) -> None:
        self.requests = requests
        """The batch of each partition in each request, in the order of sending."""
        self.error: BrokerError | None = None
        """The first refusal. All batches of the partition from the refused batch on stay queued."""
        self._batches = batches
        self._refused: set[Key] = set()

    def answered(self, answers: Mapping[Key, ProduceAnswer]) -> None:
        """Process the response to the oldest request."""
        for key, answer in answers.items():
            if key in self._refused:
                continue
            if answer.error in _STORED:
                self._batches.acknowledged(key)
            else:
                self._refused.add(key)
                what = f"{key[0]}-{key[1]}" + (f": {answer.message}" if answer.message else "")
                self.error = self.error or BrokerError(answer.error, what)
