"""An idempotent producer of whole batches (KIP-98): each partition's batches arrive once and in order.

Batches wait by partition, numbered; a leader gets the first ones of its partitions, a few requests ahead of its
answers, and a batch leaves only when it has been acknowledged. After an error everything that is not acknowledged is
sent again in the same order with the same numbers, so the broker can tell what it has already.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraft_pipeline.client import messages as m
from kraft_pipeline.client.cluster import Cluster, Patience
from kraft_pipeline.client.errors import RETRIABLE, BrokerError

IN_FLIGHT_MAX: Final = 5
"""As many batches of a producer as a broker remembers for telling duplicates."""
DUPLICATE_SEQUENCE_NUMBER: Final = 46
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
ALL: Final = -1

Key = tuple[str, int]


class Producer:
    """Sends batches whose sequences are numbered with `id` and `epoch`. One thread only."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        self._cluster, self._timeout_ms = cluster, timeout_ms
        self.id, self.epoch = cluster.retried("producer id", self._new_id, lambda: cluster.topics(()))
        self._waiting: dict[Key, deque[bytes]] = {}
        self._known: set[Key] = set()
        self.waiting_bytes = 0

    def add(self, topic: str, partition: int, batch: bytes) -> None:
        """Put a batch behind those of its partition; `flush` when `waiting_bytes` are many."""
        self._waiting.setdefault((topic, partition), deque()).append(batch)
        self.waiting_bytes += len(batch)

    def flush(self) -> None:
        """Return when all batches have been acknowledged by all in-sync replicas.

        Raises BrokerError naming the partition that refuses one, ClientError when no leader acknowledges for
        `Settings.retry_s`. What other partitions have been given stays.
        """
        patience = self._patience()
        while self._waiting:
            before = self.waiting_bytes
            error = self._round()
            if error is None:
                continue
            if isinstance(error, BrokerError) and error.code not in RETRIABLE:
                raise error
            if self.waiting_bytes < before:
                patience = self._patience()
            patience.failed(error)
            self._cluster.topics({topic for topic, _ in self._waiting})

    def _patience(self) -> Patience:
        return Patience("producing", self._cluster.settings.retry_s)

    def _new_id(self) -> tuple[int, int]:
        connection = self._cluster.any_connection()
        try:
            error, producer_id, epoch = m.read_init_producer_id(
                connection.ask(m.INIT_PRODUCER_ID, m.init_producer_id())
            )
        except BaseException:
            self._cluster.drop(connection)
            raise
        if error:
            raise BrokerError(error, "producer id")
        return producer_id, epoch

    def _round(self) -> Exception | None:
        """Send a window of batches to each leader and take the answers; the first error, if any."""
        try:
            by_leader: dict[int, list[Key]] = {}
            for key in self._waiting:
                by_leader.setdefault(self._cluster.leader(*key), []).append(key)
        except BrokerError as e:
            return e
        failed: Exception | None = None
        for leader, keys in by_leader.items():
            try:
                failed = self._window(leader, keys) or failed
            except (OSError, BrokerError) as e:
                failed = failed or e
        return failed

    def _window(self, leader: int, keys: list[Key]) -> Exception | None:
        connection = self._cluster.connection(leader)
        windows = self._requests(keys)
        failed: Exception | None = None
        try:
            for parts in windows:
                connection.send(m.PRODUCE, m.produce(parts, acks=ALL, timeout_ms=self._timeout_ms))
            refused: set[Key] = set()
            for _ in windows:
                for key, answer in m.read_produce(connection.receive()).items():
                    if answer.error in {0, DUPLICATE_SEQUENCE_NUMBER} and key not in refused:
                        self._acknowledged(key)
                    elif key not in refused:
                        refused.add(key)
                        what = f"{key[0]}-{key[1]}" + (f": {answer.message}" if answer.message else "")
                        failed = failed or BrokerError(answer.error, what)
        except BaseException:
            self._cluster.drop(connection)
            raise
        return failed

    def _requests(self, keys: list[Key]) -> list[dict[Key, bytes | bytearray]]:
        """The first batches of each partition: one of a partition in a request, requests bounded in bytes.

        Before a partition's first batch has been acknowledged no other one goes out: a leader that refuses the first
        for a passing reason would take the second, as it takes any number from a producer that it does not know, and
        then the first one's never more.
        """
        requests: list[dict[Key, bytes | bytearray]] = []
        for nth in range(IN_FLIGHT_MAX):
            parts: dict[Key, bytes | bytearray] = {}
            size = 0
            for key in keys:
                if len(self._waiting[key]) > nth and len(requests) < IN_FLIGHT_MAX:
                    batch = self._waiting[key][nth]
                    if parts and size + len(batch) > REQUEST_BYTES_MAX:
                        break  # this partition and those after it go in the next round, or their order would change
                    parts[key] = batch
                    size += len(batch)
            if not parts:
                break
            keys = [key for key in parts if key in self._known]
            requests.append(parts)
        return requests

    def _acknowledged(self, key: Key) -> None:
        self._known.add(key)
        self.waiting_bytes -= len(self._waiting[key].popleft())
        if not self._waiting[key]:
            del self._waiting[key]
