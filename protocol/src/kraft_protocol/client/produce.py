"""An idempotent producer of whole batches on blocking sockets: each partition's batches are stored once and in order.

`idempotence` decides which batches are sent. Here are the connections, the leaders and the retries.
"""

from __future__ import annotations

from typing import Final

from kraft_protocol.client import requests as m
from kraft_protocol.client.cluster import Cluster, RetryBudget
from kraft_protocol.client.errors import RETRIABLE, BrokerError
from kraft_protocol.client.idempotence import Unacknowledged
from kraft_protocol.client.topology import by_leader
from kraft_protocol.client.transactions import ClientTransaction

ALL: Final = -1


class Producer:
    """Sends batches that are encoded with the producer's `id` and `epoch`. One thread only."""

    def __init__(
        self, cluster: Cluster, *, timeout_ms: int = 30_000, transaction: ClientTransaction | None = None
    ) -> None:
        """With `transaction`, batches must be encoded as transactional, and belong to it."""
        self._cluster, self._timeout_ms, self._transaction = cluster, timeout_ms, transaction
        if transaction is None:
            self.id, self.epoch = cluster.retried("producer id", self._new_id, lambda: cluster.topics(()))
        else:
            self.id, self.epoch = transaction.id, transaction.epoch
        self._batches = Unacknowledged()

    @property
    def waiting_bytes(self) -> int:
        """The size of all batches that are not acknowledged."""
        return self._batches.bytes

    def add(self, topic: str, partition: int, batch: bytes) -> None:
        """Queue a batch. Call `flush` when `waiting_bytes` grows too large."""
        self._batches.add((topic, partition), batch)

    def flush(self) -> None:
        """Return when all batches have been acknowledged by all in-sync replicas.

        Raises BrokerError with the partition that refuses a batch, and ClientError if no batch is acknowledged for
        `Settings.retry_s`. Batches of other partitions that were acknowledged stay stored.
        """
        budget = self._retry_budget()
        while self._batches.partitions:
            before = self.waiting_bytes
            error = self._round()
            if error is None:
                continue
            if isinstance(error, BrokerError) and error.code not in RETRIABLE:
                raise error
            if self.waiting_bytes < before:
                budget = self._retry_budget()
            budget.failed(error)
            self._cluster.topics({topic for topic, _ in self._batches.partitions})

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget("producing", self._cluster.settings.retry_s)

    def _new_id(self) -> tuple[int, int]:
        with self._cluster.dropping(self._cluster.any_connection()) as connection:
            error, producer_id, epoch = m.read_init_producer_id(connection.request(m.init_producer_id()))
        if error:
            raise BrokerError(error, "producer id")
        return producer_id, epoch

    def _round(self) -> Exception | None:
        """Send a window of batches to each leader and receive the responses. Returns an error, or None."""
        try:
            leaders = by_leader({key: self._cluster.leader(*key) for key in self._batches.partitions})
        except BrokerError as e:
            return e
        failed: Exception | None = None
        for leader, keys in leaders.items():
            try:
                failed = self._window(leader, keys) or failed
            except (OSError, BrokerError) as e:
                failed = failed or e
        return failed

    def _window(self, leader: int, keys: list[m.Key]) -> BrokerError | None:
        window, name = self._batches.window(keys), None
        if self._transaction is not None:
            name = self._transaction.name
            self._transaction.add({key for parts in window.requests for key in parts})
        connection = self._cluster.connection(leader)
        try:
            for parts in window.requests:
                connection.send(m.produce(parts, acks=ALL, timeout_ms=self._timeout_ms, transactional_id=name))
            for _ in window.requests:
                window.answered(m.read_produce(connection.receive()))
        except BaseException:
            self._cluster.drop(connection)
            raise
        return window.error
