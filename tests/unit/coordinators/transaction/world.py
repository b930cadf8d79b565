"""A transaction coordinator alone: logs in memory, time on command, brokers that answer WriteTxnMarkers on command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft_node.base.env import Env
from kraft_node.base.turns import Turns
from kraft_node.broker.coordinators.transaction.config import TransactionConfig
from kraft_node.broker.coordinators.transaction.coordinator import TransactionCoordinator
from kraft_node.broker.coordinators.transaction.seams import NO_PARTITION, Marker
from kraft_node.broker.metadata_cache import TRANSACTION_STATE
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.coordinators.surroundings import Logs, Time

OFFSETS = "__consumer_offsets"
FIRST_ID = 1000
OWN_NODE = 3


class Link:
    """A broker's inter-broker listener: keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Callable[[Any], None]]] = []

    def send(self, request: Any, version: int | None, done: Callable[[Any], None], timeout_ms: int) -> None:
        assert version is None
        newest = API[ApiKey.WRITE_TXN_MARKERS].max_version
        self.asked.append((codec.decode(type(request), codec.encode(request, newest), newest), done))

    def answer(self, code: ErrorCode = ErrorCode.NONE, **codes: ErrorCode) -> Any:
        """Answer the oldest request, `codes` by topic. Returns it."""
        request, done = self.asked.pop(0)
        answer = WriteTxnMarkersResponse
        done(
            answer(
                markers=[
                    answer.WritableTxnMarkerResult(
                        marker.producer_id,
                        [
                            answer.WritableTxnMarkerTopicResult(
                                topic.name,
                                [
                                    answer.WritableTxnMarkerPartitionResult(number, codes.get(topic.name, code))
                                    for number in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )
        return request

    def fail(self) -> None:
        """Break the connection."""
        self.asked.pop(0)[1](ConnectionResetError("gone"))


class Context:
    """A request's context, which keeps the answer."""

    def __init__(self, api_version: int) -> None:
        self.api_version = api_version
        self.answers: list[Any] = []
        self.abandoned = False

    @property
    def answered(self) -> bool:
        return bool(self.answers)

    def respond(self, response: Any) -> None:
        assert not self.answers
        self.answers.append(response)


class World:
    """One coordinator over `logs`, and the brokers that lead the partitions of user topics."""

    def __init__(self, logs: Logs | None = None, time: Time | None = None, **config: Any) -> None:
        self.time = Time() if time is None else time
        self.logs = Logs() if logs is None else logs
        self.leaders: dict[tuple[str, int], int] = {("a", 0): 1, ("a", 1): 2, ("b", 0): 1, (OFFSETS, 0): 1}
        self.links = {1: Link(), 2: Link()}
        self.written_here: list[tuple[str, int, Marker]] = []
        """Markers that the broker has written itself."""
        self.here: Callable[[Callable[[ErrorCode], None]], None] = lambda done: done(ErrorCode.NONE)
        """What the broker does with their callbacks."""
        self.version = 2
        self.next_id = FIRST_ID
        self.created: list[str] = []
        self.config = TransactionConfig(**config)
        env = Env(self.time, self.time, *[None] * 4)  # type: ignore[arg-type]
        self.coordinator = TransactionCoordinator(
            clock=self.time,
            scheduler=self.time,
            store=self.logs,
            cluster=self,
            config=self.config,
            take_id=self._take_id,
            version=lambda: self.version,
            peers=self._peer,
            node_id=OWN_NODE,
            write_marker=self._write_here,
            turns=Turns(env),
        )

    def _peer(self, node_id: int, _lane: int) -> Any:
        return self.links.get(node_id)

    def _write_here(self, topic: str, index: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        self.written_here.append((topic, index, marker))
        self.here(done)

    def _take_id(self, taker: Callable[[int | KafkaError], None]) -> None:
        self.next_id += 1
        taker(self.next_id - 1)

    # -- the cluster

    def partition_count(self, name: str) -> int | None:
        if name == TRANSACTION_STATE:
            return 1
        return sum(1 for topic, _ in self.leaders if topic == name) or None

    def has_partition(self, name: str, partition: int) -> bool:
        return (name, partition) in self.leaders

    def marker_leader(self, name: str, partition: int) -> int:
        return self.leaders.get((name, partition), NO_PARTITION)

    def create_internal_topic(self, name: str, _ctx: Any) -> None:
        self.created.append(name)

    # -- what happens

    def elect(self, epoch: int = 3) -> World:
        """The broker becomes leader, and has loaded the log."""
        self.coordinator.on_leader(0, epoch)
        self.time.advance(1)
        return self

    def ask(self, request: Any, version: int, *, wait_ms: int = 0) -> Any:
        """The answer through the codec; None without an answer so far."""
        key = ApiKey(type(request).SCHEMA.api_key)
        ctx = Context(version)
        decoded = codec.decode(type(request), codec.encode(request, version), version)
        try:
            response = self.coordinator.handlers[key](ctx, decoded)
        except KafkaError as error:
            response = error_response(decoded, version, error.code, error.message)
        self.time.advance(wait_ms)
        if response is None:
            if not ctx.answers:
                self.unanswered = ctx
                return None
            (response,) = ctx.answers
        return codec.decode(type(response), codec.encode(response, version), version)

    def transaction(self, name: str = "t") -> Any:
        return self.coordinator.decisions.transaction(name)

    # -- requests

    def init(
        self, name: str | None = "t", *, version: int = 5, timeout_ms: int = 60_000, producer: Any = (-1, -1)
    ) -> Any:
        request = InitProducerIdRequest(name, timeout_ms, *(producer if version > 2 else ()))
        return self.ask(request, version)

    def producer(self, name: str = "t") -> tuple[int, int]:
        """Initialize and return the producer."""
        found = self.init(name)
        assert found.error_code == ErrorCode.NONE
        return found.producer_id, found.producer_epoch

    def add(self, producer: Any, *partitions: tuple[str, int], name: str = "t", version: int = 3) -> Any:
        """The code of each partition; of versions from 4 the answer."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(*item) for item in by_topic.items()]
        found = self.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=topics,
            ),
            version,
        )
        return None if found is None else codes_of(found.results_by_topic_v3_and_below)

    def add_for(self, *transactions: tuple[str, Any, tuple[str, int], bool], version: int = 5) -> Any:
        """The codes of (transactional id, producer, partition, whether to verify only), as a broker asks."""
        one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        found = self.ask(
            AddPartitionsToTxnRequest(
                transactions=[
                    one(name, producer[0], producer[1], verify, [topic(partition[0], [partition[1]])])
                    for name, producer, partition, verify in transactions
                ]
            ),
            version,
        )
        if found is None:
            return None
        assert found.error_code == ErrorCode.NONE
        return {result.transactional_id: codes_of(result.topic_results) for result in found.results_by_transaction}

    def add_offsets(self, producer: Any, group: str = "g", *, name: str = "t", version: int = 4) -> Any:
        return self.ask(AddOffsetsToTxnRequest(name, producer[0], producer[1], group), version).error_code

    def end(self, producer: Any, *, commit: bool, name: str = "t", version: int = 5) -> Any:
        """The code, and in version 5 the next producer."""
        found = self.ask(EndTxnRequest(name, producer[0], producer[1], commit), version)
        if found is None:
            return None
        code = ErrorCode(found.error_code)
        return (code, (found.producer_id, found.producer_epoch)) if version >= 5 else code

    def list(self, version: int = 2, **filters: Any) -> Any:
        return self.ask(ListTransactionsRequest(**filters), version)

    def describe(self, *names: str) -> Any:
        return self.ask(DescribeTransactionsRequest(list(names)), 0).transaction_states


def codes_of(topics: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
        for topic in topics
        for row in topic.results_by_partition
    }
