"""Many open transactions of one coordinator, and their commits after its fail-over.

Each transaction has a transactional id, a partition and a record. After the fail-over they are committed as clients do
it: look the coordinator up, send EndTxn, and repeat both after a pause while the answer is retriable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.clients import frames
from bench.clients.crowd import Connection, Crowd
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

FIND, INIT, ADD, PRODUCE, END = 4, 4, 3, 11, 4
"""API versions of clients that add partitions themselves."""
TRANSACTION_KEYS = 1
TIMEOUT_MS = 600_000
CONNECTIONS = 50
UNDER_WAY_MAX = 20
"""Requests under way on each connection."""
LOOKED_UP = 1_000
"""Transactional ids in a FindCoordinator request."""
RETRY_S = 0.05
RETRIABLE = (14, 15, 16, 51)
"""Load in progress, coordinator not available, not coordinator, concurrent transactions."""


@dataclass
class Transaction:
    """An open transaction."""

    name: str
    producer: frames.Producer = (-1, -1)
    is_committed: bool = False


class Coordinated:
    """Transactions on the brokers with these ports by node id."""

    def __init__(self, ports: dict[int, int], asked: int) -> None:
        """`asked`: the node that looks coordinators up."""
        self._ports = ports
        self._asked = asked
        self._crowd = Crowd()
        self._connections: dict[int, list[Connection]] = {}

    def close(self) -> None:
        """Close all connections."""
        self._crowd.close()

    def _to(self, node_id: int) -> list[Connection]:
        """Connections to a node; empty if it does not accept any."""
        found = [one for one in self._connections.get(node_id, ()) if one.is_open]
        if len(found) < CONNECTIONS:
            try:
                found += [self._crowd.connect(self._ports[node_id]) for _ in range(CONNECTIONS - len(found))]
            except OSError:
                found = []
            self._connections[node_id] = found
        return found

    def _ask_all(
        self, node_id: int, api: ApiKey, version: int, asked: Sequence[tuple[Any, Callable[[Any], None]]]
    ) -> None:
        """Send requests over all connections, and wait for all responses; None for lost ones."""
        connections = self._to(node_id)
        if not connections:
            for _, answered in asked:
                answered(None)
            return
        left = len(asked)

        def counted(answered: Callable[[Any], None]) -> Callable[[Any], None]:
            def call(answer: Any) -> None:
                nonlocal left
                left -= 1
                answered(answer)

            return call

        for number, (message, answered) in enumerate(asked):
            connection = connections[number % len(connections)]
            connection.send(api, version, message, counted(answered))
            if number % len(connections) == len(connections) - 1:
                self._crowd.until(
                    "fewer requests under way", lambda: all(one.under_way < UNDER_WAY_MAX for one in connections)
                )
        self._crowd.until(f"responses to {api.name}", lambda: left == 0)

    # -- look-ups

    def coordinators(self, names: Sequence[str]) -> dict[int, list[str]]:
        """The names by the node id of their coordinator; names without one are missing."""
        found: dict[int, list[str]] = defaultdict(list)

        def collect(answer: Any) -> None:
            for row in () if answer is None else answer.coordinators:
                if row.error_code == 0:
                    found[row.node_id].append(row.key)

        requests = [
            FindCoordinatorRequest(key_type=TRANSACTION_KEYS, coordinator_keys=list(names[at : at + LOOKED_UP]))
            for at in range(0, len(names), LOOKED_UP)
        ]
        self._ask_all(self._asked, ApiKey.FIND_COORDINATOR, FIND, [(request, collect) for request in requests])
        return found

    def names_at(self, node_id: int, count: int, prefix: str) -> list[str]:
        """Transactional ids of one coordinator."""
        found: list[str] = []
        for begin in range(0, 100 * count, count):
            found += self.coordinators([f"{prefix}-{number}" for number in range(begin, begin + count)]).get(
                node_id, []
            )
            if len(found) >= count:
                return found[:count]
        raise AssertionError(f"node {node_id} coordinates {len(found)} of {100 * count} transactional ids")

    # -- transactions

    def open(self, names: Sequence[str], node_id: int, leader: int, topic: str, partitions: int) -> list[Transaction]:
        """Begin a transaction of one record for each id. `leader` leads all partitions of the topic."""
        opened = [Transaction(name) for name in names]
        self._steps(node_id, ApiKey.INIT_PRODUCER_ID, INIT, opened, _init, _initialized)
        add = AddPartitionsToTxnRequest

        def added(number: int, one: Transaction) -> Any:
            return add(
                v3_and_below_transactional_id=one.name,
                v3_and_below_producer_id=one.producer[0],
                v3_and_below_producer_epoch=one.producer[1],
                v3_and_below_topics=[add.AddPartitionsToTxnTopic(topic, [number % partitions])],
            )

        self._steps(node_id, ApiKey.ADD_PARTITIONS_TO_TXN, ADD, opened, added, _added)

        def produced(number: int, one: Transaction) -> Any:
            batch = frames.batch(1, 100, producer=(*one.producer, 0), transactional=True)
            data = ProduceRequest.PartitionProduceData(number % partitions, batch)
            of_topic = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
            return ProduceRequest(one.name, -1, 30_000, [of_topic])

        self._steps(leader, ApiKey.PRODUCE, PRODUCE, opened, produced, _produced)
        return opened

    def _steps(
        self,
        node_id: int,
        api: ApiKey,
        version: int,
        opened: Sequence[Transaction],
        request: Callable[[int, Transaction], Any],
        code_of: Callable[[Transaction, Any], int],
    ) -> None:
        """The same step of all transactions, repeated while the answer is retriable."""
        left = list(enumerate(opened))
        while left:
            again: list[tuple[int, Transaction]] = []

            def answered(place: tuple[int, Transaction], answer: Any, again: list[Any] = again) -> None:
                code = code_of(place[1], answer) if answer is not None else RETRIABLE[0]
                if code in RETRIABLE:
                    again.append(place)
                else:
                    assert code == 0, f"{api.name} of {place[1].name}: error {code}"

            asked = [(request(*place), lambda answer, place=place: answered(place, answer)) for place in left]
            self._ask_all(node_id, api, version, asked)
            left = again
            if left:
                self._crowd.run(RETRY_S)

    def commit(self, opened: Sequence[Transaction]) -> None:
        """Commit all transactions, wherever their coordinator is by now."""
        by_name = {one.name: one for one in opened}
        while by_name:
            for node_id, names in self.coordinators(list(by_name)).items():
                here = [by_name[name] for name in names]
                self._ask_all(node_id, ApiKey.END_TXN, END, [(_end(one), _Ended(one)) for one in here])
            by_name = {name: one for name, one in by_name.items() if not one.is_committed}
            if by_name:
                self._crowd.run(RETRY_S)


class _Ended:
    """Takes the answer to EndTxn."""

    def __init__(self, one: Transaction) -> None:
        self._one = one

    def __call__(self, answer: Any) -> None:
        code = RETRIABLE[0] if answer is None else answer.error_code
        assert code == 0 or code in RETRIABLE, f"EndTxn of {self._one.name}: error {code}"
        self._one.is_committed = code == 0


def _init(_number: int, one: Transaction) -> Any:
    return InitProducerIdRequest(transactional_id=one.name, transaction_timeout_ms=TIMEOUT_MS)


def _initialized(one: Transaction, answer: Any) -> int:
    one.producer = (answer.producer_id, answer.producer_epoch)
    return int(answer.error_code)


def _added(_one: Transaction, answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _produced(_one: Transaction, answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def _end(one: Transaction) -> Any:
    return EndTxnRequest(one.name, *one.producer, committed=True)
