"""The judge of linearizability against planted histories, and against a search of every order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from kraft_node.testing.histories import linearizability
from kraft_node.testing.histories.linearizability import (
    CREATED,
    DELETED,
    DONE,
    EXISTS,
    NEVER,
    UNKNOWN,
    HistoryOperation,
    TooHard,
    topic_model,
    violations,
)


def _op(
    called: float, returned: float, action: str, result: Any = None, argument: Any = None, key: str = "t"
) -> HistoryOperation:
    return HistoryOperation("p", key, called, returned, action, argument, result)


def _good(*operations: HistoryOperation) -> bool:
    return not violations(operations, topic_model)


def test_sequential_operations_are_linearizable() -> None:
    assert _good(
        _op(0, 1, "create", CREATED, 3),
        _op(2, 3, "create", EXISTS, 3),
        _op(4, 5, "get", (3, None)),
        _op(6, 7, "set", DONE, "x"),
        _op(8, 9, "get", (3, "x")),
        _op(10, 11, "grow", DONE, 5),
        _op(12, 13, "grow", EXISTS, 5),
        _op(14, 15, "delete", DELETED),
        _op(16, 17, "delete", UNKNOWN),
        _op(18, 19, "get", None),
        _op(20, 21, "set", UNKNOWN, "x"),
    )


def test_a_stale_read_is_a_violation() -> None:
    found = violations([_op(0, 1, "create", CREATED, 3), _op(2, 3, "get", None)], topic_model)
    assert len(found) == 1
    assert found[0].startswith("not linearizable: t: 1 of 2 operations can be put in order:")
    assert "get(t)" in found[0]


def test_overlapping_calls_may_take_effect_in_either_order() -> None:
    assert _good(_op(0, 10, "create", CREATED, 3), _op(1, 9, "get", None))
    assert _good(_op(0, 10, "create", CREATED, 3), _op(1, 9, "get", (3, None)))


def test_two_successful_creations_are_a_violation() -> None:
    assert not _good(_op(0, 10, "create", CREATED, 3), _op(1, 9, "create", CREATED, 3))


def test_a_value_that_disappears_is_a_violation() -> None:
    assert not _good(
        _op(0, 1, "create", CREATED, 1),
        _op(2, 20, "set", DONE, "new"),
        _op(3, 4, "get", (1, "new")),
        _op(5, 6, "get", (1, None)),
    )


def test_an_operation_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    lost = _op(0, NEVER, "create", None, 3)
    assert _good(lost, _op(1, 2, "get", None), _op(3, 4, "get", (3, None)))
    assert _good(lost, _op(1, 2, "get", None), _op(3, 4, "get", None))
    assert not _good(lost, _op(1, 2, "get", (3, None)), _op(3, 4, "get", None))
    assert _good(lost)


def test_an_operation_takes_no_effect_before_its_call() -> None:
    assert not _good(_op(0, 1, "get", (3, None)), _op(2, 3, "create", CREATED, 3))


def test_keys_are_checked_separately() -> None:
    found = violations([_op(0, 1, "create", CREATED, 1, "a"), _op(0, 1, "delete", DELETED, None, "b")], topic_model)
    assert [text.split(":")[1].strip() for text in found] == ["b"]


def test_a_history_that_is_too_hard_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "STATES_MAX", 10)
    calls = [_op(0, 100, "set", UNKNOWN, str(n)) for n in range(12)]
    with pytest.raises(TooHard, match="'t': more than 10 states"):
        violations([*calls, _op(0, 100, "get", (9, None))], topic_model)


def test_a_history_with_a_long_silence_is_checked() -> None:
    """Node seed 400016: 78 unanswered calls of a topic, while a clean stop waits for a slow disk."""
    silent = [_op(n, NEVER, *((("create", None, n % 3 + 1), ("delete", None))[n % 2])) for n in range(80)]
    assert _good(*silent, _op(100, 101, "get", (3, None)))
    assert not _good(*silent, _op(100, 101, "get", (4, None)))


def _tried(operations: Sequence[HistoryOperation]) -> bool:
    """The same by a search of every order and every choice of the unknown calls."""
    known = [o for o in operations if o.returned != NEVER]
    unknown = [o for o in operations if o.returned == NEVER]
    for size in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, size):
            if any(_allowed(order) for order in itertools.permutations([*known, *chosen])):
                return True
    return False


def _allowed(order: Sequence[HistoryOperation]) -> bool:
    if any(later.returned < earlier.called for i, earlier in enumerate(order) for later in order[i + 1 :]):
        return False
    state: Hashable = None
    for operation in order:
        ((result, state),) = topic_model(state, operation.action, operation.argument)
        if operation.returned != NEVER and result != operation.result:
            return False
    return True


@pytest.mark.parametrize("seed", range(300))
def test_the_search_agrees_with_trying_every_order(seed: int) -> None:
    rng = random.Random(seed)
    results: dict[str, list[Any]] = {
        "create": [CREATED, EXISTS],
        "delete": [DELETED, UNKNOWN],
        "set": [DONE, UNKNOWN],
        "get": [None, (1, None), (1, "x")],
    }
    operations = []
    for _ in range(rng.randint(1, 6)):
        called = rng.randrange(12)
        unknown = rng.random() < 0.2
        action = rng.choice(list(results))
        argument = {"create": 1, "set": "x"}.get(action)
        result = None if unknown else rng.choice(results[action])
        operations.append(_op(called, NEVER if unknown else called + rng.randint(1, 6), action, result, argument))
    assert _good(*operations) == _tried(operations)
