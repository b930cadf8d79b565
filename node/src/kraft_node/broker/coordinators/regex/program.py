"""Compiles a pattern, and matches names with an automaton, which makes its states on demand."""

from __future__ import annotations

from typing import Final

from kraft_node.broker.coordinators.regex import alphabet
from kraft_node.broker.coordinators.regex.syntax import (
    BEGIN,
    BOUNDARY,
    END,
    NO_BOUNDARY,
    UNBOUNDED,
    Characters,
    Choice,
    Condition,
    Node,
    PatternError,
    Repeat,
    Sequence,
    parse,
)

MAX_INSTRUCTIONS: Final = 4_000
"""A counted repetition becomes that many copies. The time for one character of a name is at most in proportion to
this."""
MAX_STATES: Final = 500
"""Beyond this the automaton forgets its states and begins anew."""
TOO_LARGE: Final = f"expression needs more than {MAX_INSTRUCTIONS} steps"

_TAKE, _FORK, _CHECK, _MATCH = range(4)
_Instruction = tuple[int, int, int]
"""Kind; the characters, the condition, or the first branch; the next instruction, or the second branch."""


class Pattern:
    """A compiled pattern. Raises PatternError (see `syntax`) if it is not valid."""

    __slots__ = ("_conditional", "_first", "_program", "_states", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler()
        start = compiler.add(parse(text), compiler.emit(_MATCH, 0, 0))
        self._program = compiler.program
        self._conditional = any(kind == _CHECK for kind, _, _ in self._program)
        self._first = _State((start,), None)
        self._states: dict[tuple[tuple[int, ...], bool | None], _State] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        state = self._first
        for character in name:
            following = state.following.get(character)
            if following is None:
                following = self._step(state, character)
            if not following.threads:
                return False
            state = following
        if state.accepts is None:
            state.accepts = any(self._program[i][0] == _MATCH for i in self._reached(state, None))
        return state.accepts

    def _step(self, state: _State, character: str) -> _State:
        bit = alphabet.BITS.get(character, alphabet.OTHER)
        is_word = bool(alphabet.WORD & bit)
        program = self._program
        threads = {
            program[i][2] for i in self._reached(state, is_word) if program[i][0] == _TAKE and program[i][1] & bit
        }
        key = (tuple(sorted(threads)), is_word if self._conditional else False)
        following = self._states.get(key)
        if following is None:
            if len(self._states) >= MAX_STATES:
                self._states.clear()
                self._first.following.clear()
                state.following.clear()
            following = self._states[key] = _State(*key)
        state.following[character] = following
        return following

    def _reached(self, state: _State, next_is_word: bool | None) -> set[int]:
        """The instructions that are reached without taking a character; None: at the end of the name."""
        program = self._program
        before, after = bool(state.after_word), bool(next_is_word)
        holds = {
            BEGIN: state.after_word is None,
            END: next_is_word is None,
            BOUNDARY: before != after,
            NO_BOUNDARY: before == after,
        }
        reached = set(state.threads)
        todo = list(state.threads)
        while todo:
            kind, first, second = program[todo.pop()]
            if kind == _FORK:
                ways: tuple[int, ...] = (first, second)
            elif kind == _CHECK and holds[first]:
                ways = (second,)
            else:
                continue
            for way in ways:
                if way not in reached:
                    reached.add(way)
                    todo.append(way)
        return reached


class _State:
    """A state of the automaton: the instructions that come next, and whether the latest character belongs to a word
    (None: at the beginning).
    """

    __slots__ = ("accepts", "after_word", "following", "threads")

    def __init__(self, threads: tuple[int, ...], after_word: bool | None) -> None:
        self.threads = threads
        self.after_word = after_word
        self.following: dict[str, _State] = {}
        self.accepts: bool | None = None


class _Compiler:
    """Makes instructions from the end to the beginning: each part gets the instruction that follows it."""

    def __init__(self) -> None:
        self.program: list[_Instruction] = []

    def emit(self, kind: int, first: int, second: int) -> int:
        if len(self.program) >= MAX_INSTRUCTIONS:
            raise PatternError(TOO_LARGE)
        self.program.append((kind, first, second))
        return len(self.program) - 1

    def add(self, node: Node, following: int) -> int:
        """The first instruction of `node`, which goes on with `following`."""
        if isinstance(node, Characters):
            return self.emit(_TAKE, node.mask, following)
        if isinstance(node, Condition):
            return self.emit(_CHECK, node.kind, following)
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                following = self.add(part, following)
            return following
        if isinstance(node, Choice):
            start = self.add(node.parts[-1], following)
            for part in reversed(node.parts[:-1]):
                start = self.emit(_FORK, self.add(part, following), start)
            return start
        return self._repeat(node, following)

    def _repeat(self, node: Repeat, following: int) -> int:
        if node.most == UNBOUNDED:
            loop = self.emit(_FORK, following, following)
            self.program[loop] = (_FORK, self.add(node.part, loop), following)
            start = loop
        else:
            start = following
            for _ in range(node.most - node.least):
                start = self.emit(_FORK, self.add(node.part, start), following)
        for _ in range(node.least):
            start = self.add(node.part, start)
        return start
