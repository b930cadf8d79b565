"""The producer's windows, against a broker that refuses batches on command."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_protocol.client import produce
from kraft_protocol.client.cluster import Settings
from kraft_protocol.client.errors import BrokerError
from kraft_protocol.client.idempotence import IN_FLIGHT_MAX

Key = tuple[str, int]


class Broker:
    """A connection and a cluster in one: keeps batches by partition, with a leader's rule for sequences."""

    def __init__(self, refusals: list[dict[Key, int]]) -> None:
        self.settings = Settings("a:1", retry_s=5)
        self.log: dict[Key, list[bytes]] = {}
        self.most_in_flight = 0
        self._refusals = refusals
        self._answers: list[dict[Key, Any]] = []

    # what the producer needs of a cluster
    def retried(self, what: str, ask: Any, mend: Any) -> tuple[int, int]:
        return 7, 0

    def leader(self, topic: str, partition: int) -> int:
        return 1

    def topics(self, names: Any) -> None: ...

    def connection(self, node: int) -> Broker:
        return self

    # what it needs of a connection; a batch here is its sequence number
    def send(self, parts: dict[Key, bytes]) -> None:
        refused = self._refusals.pop(0) if self._refusals else {}
        self._answers.append({key: self._append(key, batch, refused.get(key, 0)) for key, batch in parts.items()})
        self.most_in_flight = max(self.most_in_flight, len(self._answers))

    def receive(self) -> dict[Key, Any]:
        return self._answers.pop(0)

    def _append(self, key: Key, batch: bytes, refused: int) -> Any:
        log = self.log.setdefault(key, [])
        error = refused
        if not error and log and int(batch) <= int(log[-1]):
            error = 46
        elif not error and log and int(batch) != int(log[-1]) + 1:
            error = 45
        elif not error:
            log.append(batch)
        return produce.m.ProduceAnswer(error, 0, "")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(produce.m, "produce", lambda parts, **_: parts)
    monkeypatch.setattr(produce.m, "read_produce", lambda answer: answer)
    return Broker


def sent(broker: Any, batches: int, *keys: Key) -> dict[Key, list[bytes]]:
    producer = produce.Producer(broker)
    for i in range(batches):
        for key in keys:
            producer.add(*key, b"%d" % i)
    producer.flush()
    assert producer.waiting_bytes == 0
    return broker.log  # type: ignore[no-any-return]


ALL = [b"%d" % i for i in range(12)]


def test_batches_arrive_in_order_and_some_are_ahead_of_the_answers(broker: Any) -> None:
    made = broker([])
    assert sent(made, 12, ("t", 0), ("t", 1)) == {("t", 0): ALL, ("t", 1): ALL}
    assert made.most_in_flight == IN_FLIGHT_MAX


def test_no_batch_overtakes_a_refused_first_batch(broker: Any) -> None:
    """A leader accepts any first sequence of an unknown producer: the second batch would shut out the first."""
    assert sent(broker([{("t", 0): 6}]), 12, ("t", 0), ("t", 1)) == {("t", 0): ALL, ("t", 1): ALL}


@pytest.mark.parametrize("nth", range(8))
def test_a_batch_with_a_retriable_error_is_sent_again_with_later_ones(broker: Any, nth: int) -> None:
    refusals: list[dict[Key, int]] = [{} for _ in range(nth)] + [{("t", 0): 6}]
    assert sent(broker(refusals), 12, ("t", 0), ("t", 1)) == {("t", 0): ALL, ("t", 1): ALL}


def test_a_permanent_error_names_its_partition(broker: Any) -> None:
    with pytest.raises(BrokerError, match=r"t-1: MESSAGE_TOO_LARGE \(10\)"):
        sent(broker([{}, {("t", 1): 10}]), 12, ("t", 0), ("t", 1))
