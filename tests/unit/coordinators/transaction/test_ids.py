"""Transactional ids after a load: what is read at once, what later, and what a damaged value costs."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from kraft_node.broker.coordinators.transaction import ids
from kraft_node.broker.coordinators.transaction.ids import TransactionalIds, loaded
from kraft_node.broker.coordinators.transaction.records import encode_name, encode_values
from kraft_node.broker.coordinators.transaction.states import RESTING, Transaction, TransactionState, Values
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.coordinator import UnknownRecordTypeError

ENDED = Values(7, 1, 60_000, TransactionState.COMPLETE_COMMIT, update_ms=5)
OPEN = ENDED._replace(state=TransactionState.ONGOING, partitions=frozenset({("t", 0)}))
STORED = [*sorted(RESTING, key=lambda state: state.value), TransactionState.ONGOING, TransactionState.PREPARE_COMMIT]


def load(known: TransactionalIds, name: str, values: Values | None) -> None:
    known.load(loaded(encode_name(name), None if values is None else encode_values(values, 2)))


def test_a_load_reads_only_the_last_value_of_ids_in_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    decode = ids.decode_values
    monkeypatch.setattr(ids, "decode_values", lambda value: read.append(value) or decode(value))
    known = TransactionalIds()
    for values in (OPEN, ENDED):
        for name in ("ended", "open"):
            load(known, name, values)
    load(known, "open", OPEN)
    assert len(list(known.read_unfinished())) == len(read) == 1
    assert [found.name for found in known.used()] == ["open"]
    assert len(known) == 2
    ended = known.get("ended")
    assert ended is not None
    assert ended.values == ENDED
    assert known.get("ended") is ended
    assert len(read) == 2


@pytest.mark.parametrize("seed", range(20))
def test_ids_are_as_if_every_record_was_read(seed: int) -> None:
    rng = random.Random(seed)
    known, expected = TransactionalIds(), dict[str, Values]()
    for _ in range(100):
        name = f"id-{rng.randrange(10)}"
        values = None if rng.random() < 0.2 else OPEN._replace(state=rng.choice(STORED), epoch=rng.randrange(9))
        load(known, name, values)
        expected.pop(name, None)
        if values is not None:
            expected[name] = (
                values if values.state is not TransactionState.EMPTY else values._replace(partitions=frozenset())
            )
    list(known.read_unfinished())
    assert {one.name for one in known.used()} == {n for n, values in expected.items() if values.state not in RESTING}
    for name in rng.sample(sorted(expected), len(expected) // 2):
        found = known.get(name)
        assert found is not None
        assert found.values == expected[name]
    assert {one.name: one.values for one in known.all()} == expected
    assert len(known) == len(expected)
    assert known.get("other") is None


def test_ids_that_come_or_go_while_all_are_listed() -> None:
    known = TransactionalIds()
    for name in ("a", "b", "c"):
        load(known, name, ENDED)
    listed = known.all()
    assert next(listed).name == "a"
    assert known.get("c") is not None
    assert known.get("b") is not None
    known.remove("b")
    known["d"] = Transaction("d", ENDED)
    assert [one.name for one in listed] == ["c"]


def test_an_id_longer_than_a_record_allows_is_unknown() -> None:
    known = TransactionalIds()
    load(known, "a", ENDED)
    assert known.get("x" * 40_000) is None


def test_a_damaged_value_costs_its_id_or_the_load(caplog: pytest.LogCaptureFixture) -> None:
    known = TransactionalIds()
    key, value = encode_name("a"), encode_values(ENDED, 0)
    known.load(loaded(key, value[:-1]))
    load(known, "b", ENDED)
    with pytest.raises(KafkaError, match="cannot be read") as caught:
        known.get("a")
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    caplog.clear()
    assert [one.name for one in known.all()] == ["b"]
    assert "cannot be read" in caplog.text
    assert len(known) == 2
    known.load(loaded(key, encode_values(OPEN, 0)[:-1]))
    with pytest.raises(ValueError, match="TransactionLogValue"):
        list(known.read_unfinished())


@pytest.mark.parametrize("value", [b"", b"\0\0", b"\0\x09" + bytes(40), b"\0\0" + bytes(14) + b"\x63" + bytes(30)])
def test_a_value_without_a_known_state_is_refused_at_once(value: bytes) -> None:
    with pytest.raises(ValueError):
        loaded(encode_name("a"), value)


def test_a_key_of_another_type_is_recognised() -> None:
    with pytest.raises(UnknownRecordTypeError):
        loaded(b"\0\x05abc", None)


def test_open_transactions_cost_the_same_however_many_were_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    value = encode_values(OPEN, 2)
    monkeypatch.setattr(ids, "decode_values", lambda _: OPEN)
    known = TransactionalIds()
    for number in range(50_000):
        known.load(ids.Loaded(encode_name(str(number)), value, rests=False))
    steps, seconds = known.read_unfinished(), []
    for _ in range(100):
        begun = time.process_time()
        assert sum(1 for _ in itertools.islice(steps, 500)) == 500
        seconds.append(time.process_time() - begun)
    assert next(steps, "all are read") == "all are read"
    assert min(seconds[-20:]) < 4 * min(seconds[:20])
