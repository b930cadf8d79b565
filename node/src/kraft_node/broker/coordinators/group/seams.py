"""The interface of the coordinators to the topics and brokers of the cluster (`runtime.seams` has that to the logs).

`coordinators.store` implements it on the metadata image; tests implement it in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.runtime.machine import TransactionalProducer
    from kraft_node.log.producers.verification import Guard
    from kraft_protocol.errors import KafkaError
    from kraft_protocol.ids import Uuid


class ClientEndpoint(NamedTuple):
    """The address of a broker for clients."""

    node_id: int
    host: str
    port: int


class ClusterView(Protocol):
    """The topics and brokers of the metadata image; every call costs O(1)."""

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic; None if it does not exist."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic; None if no topic has the id."""

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic exists and has the partition."""

    def partition_count(self, name: str) -> int | None:
        """The number of partitions; None if the topic does not exist."""

    def partition_racks(self, name: str) -> Iterable[list[str]]:
        """The racks of the replicas of each partition, as far as brokers have one."""

    def topic_names(self) -> list[str]:
        """The names of all topics."""

    def metadata_offset(self) -> int:
        """The offset of the latest record of the metadata that was applied."""

    def leader_endpoint(self, name: str, partition: int, listener: str) -> ClientEndpoint | None:
        """The partition's leader on the listener; None while it has no live leader."""

    def create_internal_topic(self, name: str, context: RequestContext) -> None:
        """Start creating the topic; returns at once. Errors are logged, and repeated calls are harmless."""


class Transactions(Protocol):
    """The transaction coordinators of the cluster, and the log's knowledge of open transactions."""

    def verify(
        self,
        partition: int,
        transactional_id: str,
        producer: TransactionalProducer,
        done: Callable[[Guard | KafkaError | None], None],
        *,
        adds: bool,
        names_abortable: bool,
    ) -> None:
        """Find out whether the producer's transaction may write to the partition of `__consumer_offsets`.

        `done` gets the guard for the write (None if the transaction is open there already), or the error. It may be
        called before this returns. `adds`: the producer has not added the partition to its transaction itself.
        `names_abortable`: the client knows TRANSACTION_ABORTABLE.
        """
