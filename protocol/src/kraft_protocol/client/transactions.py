"""A transaction of a transactional id on blocking sockets: partitions, a group's offset, and the end (KIP-98).

Requests have versions without the changes of `transaction.version` 2, so brokers since 3.1 serve them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import BrokerError
from kraft_protocol.client.requests import Key
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as w

T = TypeVar("T")
FENCED: Final = frozenset({int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.PRODUCER_FENCED)})
"""Codes after which another producer has this transactional id, or the coordinator has aborted the transaction."""


class StoredOffset(NamedTuple):
    """A committed offset of a group with the text that its committer stored."""

    key: Key
    offset: int
    metadata: str


class ClientTransaction:
    """Begins with its construction, which fences older producers of the id and aborts their transactions.

    One thread only. Methods raise BrokerError, with a code of FENCED if a newer producer has the id, and ClientError if
    no coordinator answers for `Settings.retry_s`.
    """

    def __init__(self, cluster: Cluster, name: str, *, timeout_ms: int) -> None:
        """`name`: the transactional id. The coordinator aborts the transaction after `timeout_ms`."""
        self._cluster, self.name = cluster, name
        body = w.InitProducerIdRequest(name, timeout_ms, -1, -1)

        def read(answer: w.InitProducerIdResponse) -> tuple[int, int]:
            self._check(answer.error_code)
            return answer.producer_id, answer.producer_epoch

        self.id, self.epoch = self._ask(body, read)
        self._added: set[Key] = set()

    def add(self, keys: Collection[Key]) -> None:
        """Add partitions before the first batch for them is sent."""
        new = set(keys) - self._added
        if not new:
            return
        topic = w.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        topics = [topic(name, sorted(p for t, p in new if t == name)) for name in sorted({name for name, _ in new})]
        body = w.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )

        def check(answer: w.AddPartitionsToTxnResponse) -> None:
            codes = {
                one.partition_error_code: f"{result.name}-{one.partition_index}"
                for result in answer.results_by_topic_v3_and_below
                for one in result.results_by_partition
            }
            refused = codes.keys() - {0, int(ErrorCode.OPERATION_NOT_ATTEMPTED)}
            for code in sorted(refused or codes.keys() - {0}):
                self._check(code, f"partition {codes[code]} of ")

        self._ask(body, check)
        self._added |= new

    def store(self, group: str, offsets: Sequence[StoredOffset]) -> None:
        """Commit offsets of a group without members together with the transaction, at most one for each topic."""
        body = w.AddOffsetsToTxnRequest(self.name, self.id, self.epoch, group)
        self._ask(body, lambda answer: self._check(answer.error_code, f"group {group} of "))
        at, topics = w.TxnOffsetCommitRequest, []
        for (topic, number), offset, metadata in offsets:
            partition = at.TxnOffsetCommitRequestPartition(number, offset, committed_metadata=metadata)
            topics.append(at.TxnOffsetCommitRequestTopic(topic, [partition]))

        def attempt() -> None:
            with self._cluster.dropping(self._cluster.coordinator(group)) as connection:
                answer = connection.request(at(self.name, group, self.id, self.epoch, topics=topics))
            for found in answer.topics:
                for one in found.partitions:
                    self._check(one.error_code, f"offset of group {group} of ")

        self._cluster.retried(f"offset of group {group}", attempt, lambda: self._cluster.topics(()))

    def commit(self) -> None:
        """Commit. After an exception other than FENCED it is unknown whether the transaction is committed."""
        self._end(committed=True)

    def abort(self) -> None:
        """Abort."""
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        body = w.EndTxnRequest(self.name, self.id, self.epoch, committed)
        self._ask(body, lambda answer: self._check(answer.error_code))

    def _check(self, code: int, what: str = "") -> None:
        if code:
            raise BrokerError(code, f"{what}transaction {self.name}")

    def _ask(self, body: Any, read: Callable[..., T]) -> T:
        """Send a request to the coordinator until it answers without a retriable error; return what `read` returns."""

        def attempt() -> T:
            with self._cluster.dropping(self._cluster.coordinator(self.name, transactional=True)) as connection:
                return read(connection.request(body))

        return self._cluster.retried(f"transaction {self.name}", attempt, lambda: self._cluster.topics(()))


def stored_offsets(cluster: Cluster, group: str) -> list[StoredOffset]:
    """All committed offsets of a group. Waits for transactions that are about to commit offsets. Raises ClientError."""
    wanted = w.OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=None)
    body = w.OffsetFetchRequest(groups=[wanted], require_stable=True)

    def attempt() -> list[StoredOffset]:
        with cluster.dropping(cluster.coordinator(group)) as connection:
            (found,) = connection.request(body).groups
        rows = [(topic.name, one) for topic in found.topics for one in topic.partitions]
        for code in (found.error_code, *(one.error_code for _, one in rows)):
            if code:
                raise BrokerError(code, f"offsets of group {group}")
        return [StoredOffset((name, p.partition_index), p.committed_offset, p.metadata or "") for name, p in rows]

    return cluster.retried(f"offsets of group {group}", attempt, lambda: cluster.topics(()))
