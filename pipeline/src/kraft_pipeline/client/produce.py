"""An idempotent producer of whole batches (KIP-98): each partition's batches are stored once and in order.

Batches queue by partition with sequence numbers. Each leader receives the first batches of its partitions in a few
pipelined requests. A batch leaves its queue when it is acknowledged. After an error all unacknowledged batches are sent
again in the same order with the same numbers, so the broker recognizes duplicates.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraft_protocol.client import requests as m
from kraft_protocol.client.cluster import Cluster, Patience
from kraft_protocol.client.errors import RETRIABLE, BrokerError

IN_FLIGHT_MAX: Final = 5
"""Batches per producer that a broker remembers to detect duplicates."""
DUPLICATE_SEQUENCE_NUMBER: Final = 46
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
ALL: Final = -1

Key = tuple[str, int]


class Producer:
    """Sends batches that are encoded with the producer's `id` and `epoch`. One thread only."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        self._cluster, self._timeout_ms = cluster, timeout_ms
        self.id, self.epoch = cluster.retried("producer id", self._new_id, lambda: cluster.topics(()))
        self._waiting: dict[Key, deque[bytes]] = {}
        self._known: set[Key] = set()
        self.waiting_bytes = 0

    def add(self, topic: str, partition: int, batch: bytes) -> None:
        """Queue a batch. Call `flush` when `waiting_bytes` grows too large."""
        self._waiting.setdefault((topic, partition), deque()).append(batch)
        self.waiting_bytes += len(batch)

    def flush(self) -> None:
        """Return when all batches have been acknowledged by all in-sync replicas.

        Raises BrokerError with the partition that refuses a batch, and ClientError if no batch is acknowledged for
        `Settings.retry_s`. Batches of other partitions that were acknowledged stay stored.
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
            error, producer_id, epoch = m.read_init_producer_id(connection.ask(m.init_producer_id()))
        except BaseException:
            self._cluster.drop(connection)
            raise
        if error:
            raise BrokerError(error, "producer id")
        return producer_id, epoch

    def _round(self) -> Exception | None:
        """Send a window of batches to each leader and receive the responses. Returns an error, or None."""
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
                connection.send(m.produce(parts, acks=ALL, timeout_ms=self._timeout_ms))
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
        """Requests with the first batches of each partition, one batch per partition and request, bounded in bytes.

        The second batch of a partition waits until its first batch ever is acknowledged. Otherwise, if the leader
        refused the first for a retriable reason, it would accept the second, because it accepts any sequence number
        from an unknown producer. Then it would never accept the first.
        """
        requests: list[dict[Key, bytes | bytearray]] = []
        for nth in range(IN_FLIGHT_MAX):
            parts: dict[Key, bytes | bytearray] = {}
            size = 0
            for key in keys:
                if len(self._waiting[key]) > nth and len(requests) < IN_FLIGHT_MAX:
                    batch = self._waiting[key][nth]
                    if parts and size + len(batch) > REQUEST_BYTES_MAX:
                        break  # this and later partitions wait for the next round, which keeps their order
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
