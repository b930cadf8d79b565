"""Whether overlapping operations can be put into one order that a sequential model allows.

An operation takes effect at one moment between its call and its return. An operation with unknown outcome (a timeout)
may take effect at any moment after its call, or never. Operations on different keys are judged separately:
linearizability is local (Herlihy & Wing 1990, theorem 1). So a history is linearizable if its part for every key is
linearizable.

The search is Wing & Gong's with Lowe's cache of visited (placed operations, state) pairs. Its cost is exponential only
in the number of overlapping operations, and bounded by `STATES_MAX`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

STATES_MAX: Final = 2_000_000
"""States remembered per key: about 400 MB. A history that needs more has too much overlap to be judged."""

NEVER: Final = float("inf")
"""`returned` of an operation with unknown outcome."""


@dataclass(frozen=True, slots=True)
class HistoryOperation:
    """One call. `result` is the caller's result, None if `returned` is NEVER."""

    process: str
    key: str
    called: float
    returned: float
    action: str
    argument: Any = None
    result: Any = None

    def __str__(self) -> str:
        result = "?" if self.returned == NEVER else repr(self.result)
        argument = "" if self.argument is None else f", {self.argument!r}"
        when = f"[{self.called:.3f}, {self.returned:.3f}]"
        return f"{when} {self.process}: {self.action}({self.key}{argument}) -> {result}"


Model = Callable[[Hashable, str, Any], Iterable[tuple[Any, Hashable]]]
"""(state, action, argument) -> the allowed (result, next state) pairs; the first state is None."""


class TooHard(Exception):  # noqa: N818 - says of the history, not of the program, that it cannot be judged
    """The history needs more than STATES_MAX states."""


def violations(history: Iterable[HistoryOperation], model: Model) -> list[str]:
    """One text per key with operations that have no order that the model allows; empty if the history is linearizable.

    Raises TooHard if a key's history needs more than STATES_MAX states.
    """
    by_key: dict[str, list[HistoryOperation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    found = []
    for key, operations in sorted(by_key.items()):
        longest = _search(operations, model)
        if longest is not None:
            found.append(_text(key, operations, longest))
    return found


def _search(operations: list[HistoryOperation], model: Model) -> list[HistoryOperation] | None:
    """None if a valid order exists; otherwise the longest valid beginning."""
    operations.sort(key=lambda o: (o.called, o.returned))
    must = sum(1 << i for i, o in enumerate(operations) if o.returned != NEVER)
    best: list[int] = []
    seen: set[tuple[int, Hashable]] = {(0, None)}
    path: list[int] = []
    choices = [_steps(operations, 0, None, model)]
    states: list[tuple[int, Hashable]] = [(0, None)]
    if not must:
        return None
    while choices:
        step = next(choices[-1], None)
        if step is None:
            choices.pop()
            states.pop()
            if path:
                path.pop()
            continue
        index, state = step
        placed = states[-1][0] | 1 << index
        if placed & must == must:
            return None
        if (placed, state) in seen:
            continue
        if len(seen) >= STATES_MAX:
            raise TooHard(f"key {operations[0].key!r}: more than {STATES_MAX} states")
        seen.add((placed, state))
        path.append(index)
        if len(path) > len(best):
            best = path.copy()
        states.append((placed, state))
        choices.append(_steps(operations, placed, state, model))
    return [operations[i] for i in best]


def _steps(operations: Sequence[HistoryOperation], placed: int, state: Hashable, model: Model) -> Any:
    """The operations that may be next: operations that were called before any other remaining operation has returned.

    An operation with an unknown outcome is placed only if it changes the state; of equal operations, the first call is
    placed. Without that, a server that stays silent for long makes a history that cannot be judged.
    """
    deadline = NEVER
    for index, operation in enumerate(operations):
        if placed >> index & 1:
            continue
        if operation.called > deadline:
            break
        deadline = min(deadline, operation.returned)
    tried: list[tuple[str, Any]] = []
    for index, operation in enumerate(operations):
        if placed >> index & 1:
            continue
        if operation.called > deadline:
            break
        is_unknown = operation.returned == NEVER
        if is_unknown:
            what = (operation.action, operation.argument)
            if what in tried:
                continue
            tried.append(what)
        for result, after in model(state, operation.action, operation.argument):
            if (after != state) if is_unknown else (result == operation.result):
                yield index, after


def _text(key: str, operations: Sequence[HistoryOperation], longest: Sequence[HistoryOperation]) -> str:
    placed = set(map(id, longest))
    lines = [f"not linearizable: {key}: {len(longest)} of {len(operations)} operations can be put in order:"]
    lines += [f"  {operation}" for operation in longest]
    lines += ["and none of these can be next:"]
    lines += [f"  {operation}" for operation in operations if id(operation) not in placed]
    return "\n".join(lines)


CREATED: Final = "created"
EXISTS: Final = "exists"
DELETED: Final = "deleted"
UNKNOWN: Final = "unknown"
DONE: Final = "done"


def topic_model(state: Hashable, action: str, argument: Any) -> Iterable[tuple[Any, Hashable]]:
    """A topic's state: None, or (partitions, config value).

    Actions: `create` (partitions), `delete`, `grow` (new number of partitions), `set` (a config's value), `get` (its
    result is the state).
    """
    if action == "get":
        yield state, state
    elif action == "create":
        yield (EXISTS, state) if state is not None else (CREATED, (argument, None))
    elif state is None:
        yield UNKNOWN, None
    else:
        partitions, value = cast("tuple[int, Any]", state)
        if action == "delete":
            yield DELETED, None
        elif action == "set":
            yield DONE, (partitions, argument)
        elif action == "grow":
            yield (DONE, (argument, value)) if argument > partitions else (EXISTS, state)
        else:
            raise ValueError(f"unknown action: {action}")


__all__ = [
    "CREATED", "DELETED", "DONE", "EXISTS", "NEVER", "UNKNOWN",
    "HistoryOperation", "TooHard", "topic_model", "violations",
]  # fmt: skip
