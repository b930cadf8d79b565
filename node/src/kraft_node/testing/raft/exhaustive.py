"""Every order of events of a small quorum of the real core: `python -m kraft_node.testing.raft.exhaustive`.

Three voters, two epochs, one crash, one proposal. In each state, any message in flight may arrive next, any write or
fsync may end, and any replica may time out. The leader may get a record, and one process may crash and restart without
its undurable data. A message sent again while an equal message is in flight counts once. A time-out may happen in any
state, at most `--timeouts` times in total; with fewer, the search ends earlier.

States are identified by 64 bits of their hash: among ten million states, two different states are confused with a
probability of 1 in 400,000. Promises (votes, leaders, committed records) are part of the state.

These laws of `laws` apply here: one leader and one vote per epoch; a majority has committed data on disk; committed
data is the same everywhere and every leader has it. Points 2, 5 and 8 of the contract apply, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from random import Random
from typing import Any, Final, NamedTuple

from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.small_world import (
    EPOCHS,
    IDS,
    VOTERS,
    Asked,
    Committed,
    EventOutcome,
    Led,
    Log,
    Machines,
    Replied,
    Voted,
)

CRASHES: Final = 1
PROPOSALS: Final = 1
TIMEOUTS: Final = 3
"""For all replicas together: the first election, and enough time-outs for another election."""

SLICE: Final = 500
"""States found from one root before the search moves to the next root."""

STACKS_MAX: Final = 2_000
"""Roots at a time: each keeps some dozens of states."""

Choice = tuple[int, int | str]
"""A machine (from 0), and the number of a message for it or the name of another event."""


class Promises(NamedTuple):
    """Facts that must stay true."""

    leaders: tuple[tuple[int, int], ...] = ()
    """(epoch, node id)"""
    votes: tuple[tuple[int, int, int], ...] = ()
    """(epoch, voter, candidate)"""
    committed: Log = ()


class SearchState(NamedTuple):
    """The state of the whole quorum; immutable."""

    machines: tuple[int, ...]
    messages: frozenset[int]
    promises: Promises
    timeouts: int
    crashes: int
    proposals: int


class SearchWorld:
    """Computes successor states. Raises AssertionError naming the law if a law is broken."""

    def __init__(self) -> None:
        self.machines = Machines()

    def first(self, timeouts: int, crashes: int, proposals: int) -> SearchState:
        """The initial state: all machines have started on empty disks. The numbers are budgets for the whole search."""
        started = [self.machines.first(node_id) for node_id in IDS]
        sent = frozenset(number for outcome in started for number in outcome.sent)
        return SearchState(tuple(one.after for one in started), sent, Promises(), timeouts, crashes, proposals)

    def choices(self, state: SearchState) -> list[Choice]:
        """All events that may happen next: a message arrives, or a machine does what its state and budgets allow."""
        found: list[Choice] = []
        for number in sorted(state.messages):
            message = self.machines.messages[number]
            receiver = message.receiver if isinstance(message, Asked) else message.asked.asker
            found.append((receiver - 1, number))
        left = {"timeout": state.timeouts, "crash": state.crashes, "propose": state.proposals}
        for index, machine in enumerate(state.machines):
            found += [(index, what) for what in self.machines.kept[machine].choices if left.get(what, 1)]
        return found

    def after(self, state: SearchState, choice: Choice) -> SearchState | None:
        """The next state; None if it is beyond the bound of epochs."""
        index, what = choice
        outcome = self.machines.outcome(state.machines[index], what)
        machines = (*state.machines[:index], outcome.after, *state.machines[index + 1 :])
        if self.machines.kept[outcome.after].epoch > EPOCHS:
            self._judge(state.promises, index, machines, outcome)
            return None
        messages = state.messages - {what} if isinstance(what, int) else state.messages
        if outcome.sent:
            messages = messages.union(number for number in outcome.sent if self._is_awaited(number, machines))
        promises = self._judge(state.promises, index, machines, outcome) if outcome.judged else state.promises
        timeouts, crashes, proposals = state[3:]
        if what == "timeout":
            timeouts -= 1
        elif what == "crash":
            crashes -= 1
            messages = frozenset(number for number in messages if self._is_awaited(number, machines))
        elif what == "propose":
            proposals -= 1
        return SearchState(machines, messages, promises, timeouts, crashes, proposals)

    def _is_awaited(self, number: int, machines: tuple[int, ...]) -> bool:
        """Whether a process awaits the message: after a crash, responses to earlier requests are dropped."""
        message = self.machines.messages[number]
        if isinstance(message, Asked):
            return True
        return self.machines.kept[machines[message.asked.asker - 1]].life == message.asked.life

    def _judge(self, promises: Promises, index: int, machines: tuple[int, ...], outcome: EventOutcome) -> Promises:
        for what in outcome.judged:
            if isinstance(what, Led):
                promises = _judge_leader(promises, IDS[index], what)
            elif isinstance(what, Voted):
                promises = _judge_vote(promises, IDS[index], what)
            else:
                promises = self._judge_commit(promises, IDS[index], machines, what)
        return promises

    def _judge_commit(self, promises: Promises, node_id: int, machines: tuple[int, ...], made: Committed) -> Promises:
        known, ours = promises.committed, made.log
        shorter = min(len(known), len(ours))
        require(
            ours[:shorter] == known[:shorter],
            "committed records are equal on all nodes, and never lost",
            f"{node_id} at {len(ours)}",
        )
        if len(ours) <= len(known):
            return promises
        having = sum(self.machines.kept[machine].durable[: len(ours)] == ours for machine in machines)
        require(having * 2 > VOTERS, "the high watermark was reached by a majority, on disk", f"{node_id}")
        return promises._replace(committed=ours)

    def describe(self, choice: Choice) -> str:
        """The choice as text."""
        index, what = choice
        if isinstance(what, str):
            return f"{IDS[index]}: {what}"
        message = self.machines.messages[what]
        if isinstance(message, Replied):
            return f"{IDS[index]} is answered by {message.asked.receiver}: {message.reply}"
        return f"{IDS[index]} is asked by {message.asker}: {message.request}"


def _judge_leader(promises: Promises, node_id: int, led: Led) -> Promises:
    known = dict(promises.leaders).get(led.epoch, node_id)
    require(known == node_id, "one leader per epoch", f"{known} and {node_id} in {led.epoch}")
    # A leader elected late, by old votes, may lack what newer leaders have committed.
    committed = tuple(record for record in promises.committed if record[0] < led.epoch)
    require(
        led.log[: len(committed)] == committed,
        "leader completeness: a leader has all committed records",
        f"{node_id} in {led.epoch}",
    )
    return promises._replace(leaders=tuple(sorted({*promises.leaders, (led.epoch, node_id)})))


def _judge_vote(promises: Promises, node_id: int, voted: Voted) -> Promises:
    for epoch, voter, candidate in promises.votes:
        if (epoch, voter) == (voted.epoch, node_id):
            require(candidate == voted.candidate, "votes are never forgotten", f"{node_id} in {epoch}: {candidate}")
    return promises._replace(votes=tuple(sorted({*promises.votes, (voted.epoch, node_id, voted.candidate)})))


class SearchResult(NamedTuple):
    """The statistics of a search."""

    states: int
    steps: int
    complete: bool
    committed: int
    """States with committed records; 0 shows that a search gets nowhere."""
    depth: int
    core_steps: int
    """Distinct steps of a machine."""


class SearchNode:
    """A state with unexplored successors."""

    __slots__ = ("before", "choice", "choices", "depth", "state")

    def __init__(
        self, state: SearchState, choices: list[Choice], choice: Choice | None, before: SearchNode | None
    ) -> None:
        self.state = state
        self.choices = choices
        self.choice = choice
        """The event that led to it."""
        self.before = before
        self.depth: int = 0 if before is None else before.depth + 1


class Search:
    """Visits no state twice, depth first, so that memory holds visited states and few pending states.

    The search takes turns among many roots and picks choices at random. So a search that is cut off has sampled all
    regions, not a single region.
    """

    def __init__(self, world: SearchWorld, first: SearchState) -> None:
        self.world = world
        self.seen = {hash(first)}
        self.steps = self.committed = self.depth = 0
        self._random = Random(1).random
        self._tried: tuple[SearchNode, Choice] | None = None
        """The last event, and the state in which it happened."""
        self._stacks: deque[list[SearchNode]] = deque([[SearchNode(first, world.choices(first), None, None)]])

    def run(self, states_max: int) -> bool:
        """Search until `states_max` states are visited. Returns whether the visited states are all states."""
        while self._stacks:
            if not self._dig(self._stacks[0], min(states_max, len(self.seen) + SLICE)):
                self._split(self._stacks[0])
                self._stacks.rotate(-1)
            else:
                self._stacks.popleft()
            if len(self.seen) >= states_max:
                return not self._stacks
        return True

    def _dig(self, stack: list[SearchNode], states_max: int) -> bool:
        """Whether this root has no unexplored states left."""
        world, seen = self.world, self.seen
        while stack:
            node = stack[-1]
            choices = node.choices
            if not choices:
                stack.pop()
                continue
            chosen = int(self._random() * len(choices))
            choice, choices[chosen] = choices[chosen], choices[-1]
            choices.pop()
            self.steps += 1
            self._tried = node, choice
            after = world.after(node.state, choice)
            if after is None:
                continue
            mark = hash(after)
            if mark in seen:
                continue
            seen.add(mark)
            self.committed += bool(after.promises.committed)
            found = SearchNode(after, world.choices(after), choice, node)
            stack.append(found)
            self.depth = max(self.depth, found.depth)
            if len(seen) >= states_max:
                return False
        return True

    def _split(self, stack: list[SearchNode]) -> None:
        """Make a new root from an unexplored successor of the stack's earliest state."""
        if len(self._stacks) < STACKS_MAX:
            earliest = next((node for node in stack[:-1] if node.choices), None)
            if earliest is not None:
                beside = SearchNode(earliest.state, earliest.choices, earliest.choice, earliest.before)
                earliest.choices = []
                self._stacks.append([beside])

    def story(self) -> str:
        """The events up to the last one, which broke the law if one is broken."""
        if self._tried is None:
            return ""
        node: SearchNode | None = self._tried[0]
        lines = [self.world.describe(self._tried[1])]
        while node is not None and node.choice is not None:
            lines.append(self.world.describe(node.choice))
            node = node.before
        return "\n".join(reversed(lines))

    def result(self, *, complete: bool) -> SearchResult:
        """The statistics so far; `complete`: no state within the bounds is left."""
        core_steps = self.world.machines.core_steps
        return SearchResult(len(self.seen), self.steps, complete, self.committed, self.depth, core_steps)


def search(
    states_max: int = 0,
    *,
    timeouts: int = TIMEOUTS,
    crashes: int = CRASHES,
    proposals: int = PROPOSALS,
    every: int = 100_000,
    say: Any = print,
) -> SearchResult:
    """Visit every state within the bounds; `states_max` 0: no limit. Raises AssertionError naming the broken law."""
    world = SearchWorld()
    searching = Search(world, world.first(timeouts, crashes, proposals))
    begun = time.monotonic()
    complete = False
    try:
        while not complete and not 0 < states_max <= len(searching.seen):
            target = len(searching.seen) + every
            complete = searching.run(min(target, states_max) if states_max else target)
            seconds = time.monotonic() - begun
            say(
                f"{len(searching.seen):,} states, {searching.steps:,} steps ({world.machines.core_steps:,} different "
                f"ones of {len(world.machines.kept):,} states of a machine), depth {searching.depth}, {seconds:.0f} s, "
                f"{searching.steps / seconds:,.0f} steps/s"
            )
    except AssertionError:
        say(searching.story())
        raise
    return searching.result(complete=complete)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m kraft_node.testing.raft.exhaustive")
    parser.add_argument("--states", type=int, default=2_000_000, help="stop after so many; 0: visit all")
    parser.add_argument("--timeouts", type=int, default=TIMEOUTS)
    parser.add_argument("--crashes", type=int, default=CRASHES)
    parser.add_argument("--proposals", type=int, default=PROPOSALS)
    options = parser.parse_args()
    result = search(options.states, timeouts=options.timeouts, crashes=options.crashes, proposals=options.proposals)
    print(
        f"{result.states:,} states, {result.steps:,} steps, depth {result.depth}, "
        f"complete: {result.complete}, every law held"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
