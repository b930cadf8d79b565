"""Every order of events of a small quorum of the real core: `python -m kraft_node.testing.raft.exhaustive`.

Three voters, two epochs, one crash, one proposal. In each state, any message in flight may arrive next, any write or
fsync may end, any replica's time may be up, the leader may get a record, one process may crash and start again without
what was not yet durable. States that differ in nothing but clocks and numbers of requests count once; messages that
are sent again while the same ones are in flight count once. Time is a choice, not a clock: a time-out may come in any
state, so often altogether as `--timeouts` says; with fewer the search comes to its end earlier.

The laws are those of `laws`, as far as such a small world has them: one leader and one vote per epoch, a majority has
what is committed, on disk, committed data is the same everywhere and every leader has it.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from typing import Any, Final, NamedTuple

from kraft_node.raft import effects as do
from kraft_node.raft import events
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import LogView
from kraft_node.raft.messages import Batch, VoteReply, VoteRequest
from kraft_node.raft.node import RaftNode
from kraft_node.raft.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.states import Role
from kraft_node.raft.voter_changes import VoterSets
from kraft_node.testing.raft.laws import require

VOTERS: Final = 3
EPOCHS: Final = 2
CRASHES: Final = 1
PROPOSALS: Final = 1
TIMEOUTS: Final = 3
"""Of all replicas together: beside the election at the start enough for another one."""
LONG_MS: Final = 1_000_000
CONFIG: Final = RaftConfig(request_timeout_ms=1, retry_backoff_ms=0, fetch_max_wait_ms=500)
IDS: Final = tuple(range(1, VOTERS + 1))


class Fixed:
    """Chance has no say here: the order of events is what varies."""

    def randrange(self, stop: int) -> int:  # noqa: ARG002
        return 0

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


class Token(NamedTuple):
    """A request on its way, or being answered."""

    asker: int
    life: int
    number: int
    request: Any


class Machine:
    """One replica: core, log as written, and what is durable."""

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.life = 0
        self.log: tuple[tuple[int, int], ...] = ()
        self.durable: tuple[tuple[int, int], ...] = ()
        self.state = QuorumState()
        self.writes: list[QuorumState] = []
        self.flushing: tuple[int, tuple[tuple[int, int], ...]] | None = None
        self.announced = -1
        self.node: Any = None
        self.high_watermark = -1

    def boot(self) -> None:
        self.log = self.durable
        self.writes = []
        self.flushing = None
        self.announced = self.high_watermark = -1
        epochs: dict[int, int] = {}
        for offset, (epoch, _) in enumerate(self.log):
            epochs.setdefault(epoch, offset)
        self.node = RaftNode(
            local=ReplicaKey(self.id),
            voters=ALL,
            log=LogView(0, len(self.log), epochs.items()),
            state=self.state,
            rng=CHANCE,
            cluster_id="c",
            config=CONFIG,
        )

    def freeze(self) -> Frozen:
        """All of it, apart from what is the same for all machines at all times."""
        node = self.node
        role = node.role
        tally = getattr(role, "tally", None)
        own = (self.life, self.log, self.durable, self.state, tuple(self.writes), self.flushing, self.announced)
        mark = hash((own, _fingerprint(node)))
        node.voters = node.config = node.rng = node.voter_sets = node.requests._config = node._amnesia = None
        if tally is not None:
            tally._voters = None
        data = pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        self._complete()
        return Frozen(
            data,
            mark,
            self.durable,
            bool(self.writes),
            self.flushing is not None,
            _may_time_out(node),
            self.announced,
            node.epoch,
            self.life,
        )

    def _complete(self) -> None:
        node = self.node
        node.voters, node.config, node.rng, node.voter_sets = ALL, CONFIG, CHANCE, SETS
        node.requests._config = CONFIG
        tally = getattr(node.role, "tally", None)
        if tally is not None:
            tally._voters = ALL


class Frozen(NamedTuple):
    """A machine that nothing happens to just now, and what others need to know of it."""

    data: bytes
    mark: int
    durable: tuple[tuple[int, int], ...]
    writes: bool
    flushing: bool
    may_time_out: bool
    announced: int
    epoch: int
    life: int

    def thaw(self) -> Machine:
        """The machine."""
        machine: Machine = pickle.loads(self.data)  # noqa: S301 - our own
        machine._complete()
        return machine


class World:
    """A state of the whole quorum. Machines are frozen, but for the one that something happens to."""

    def __init__(self, timeouts: int, crashes: int, proposals: int) -> None:
        self.machines: dict[int, Frozen] = {}
        self.requests: dict[tuple[int, Any], Token] = {}
        """In flight, by receiver and content."""
        self.replies: dict[tuple[Any, Any], tuple[Token, Any]] = {}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.committed: tuple[tuple[int, int], ...] = ()
        self.crashes = crashes
        self.proposals = proposals
        self.timeouts = timeouts
        for node_id in IDS:
            machine = Machine(node_id)
            machine.boot()
            self.step(machine, events.Started())

    def copy(self) -> World:
        """Everything in it never changes, so that a shallow copy will do."""
        twin = World.__new__(World)
        twin.__dict__.update(self.__dict__)
        twin.machines = dict(self.machines)
        twin.requests, twin.replies = dict(self.requests), dict(self.replies)
        twin.leaders, twin.votes = dict(self.leaders), dict(self.votes)
        return twin

    def step(self, machine: Machine, event: events.Event, wait_ms: int = 0) -> None:
        for effect in machine.node.step(event, machine.node.now_ms + wait_ms):
            getattr(self, "_" + type(effect).__name__, _nothing)(machine, effect)
        self.machines[machine.id] = machine.freeze()

    # What may happen next.

    def choices(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = [("deliver", key) for key in self.requests]
        found += [("answer", key) for key in self.replies]
        for node_id, machine in self.machines.items():
            if machine.writes:
                found.append(("write", node_id))
            if machine.flushing:
                found.append(("flush", node_id))
            if self.timeouts and machine.may_time_out:
                found.append(("timeout", node_id))
            if self.crashes:
                found.append(("crash", node_id))
            if self.proposals and machine.announced >= 0:
                found.append(("propose", node_id))
        return found

    def happen(self, choice: tuple[Any, ...]) -> None:
        kind, what = choice
        if kind == "deliver":
            token = self.requests.pop(what)
            self.step(self.machines[what[0]].thaw(), events.Asked(token, token.request))
            return
        if kind == "answer":
            token, reply = self.replies.pop(what)
            asker = self.machines[token.asker]
            if asker.life == token.life:
                self.step(asker.thaw(), events.Answered(token.number, reply))
            return
        machine = self.machines[what].thaw()
        if kind == "write":
            machine.state = machine.writes.pop(0)
            self.step(machine, events.QuorumStateWritten(machine.state))
        elif kind == "flush":
            assert machine.flushing is not None
            offset, machine.durable = machine.flushing
            machine.flushing = None
            self.step(machine, events.Flushed(offset))
        elif kind == "timeout":
            self.timeouts -= 1
            self.step(machine, events.Tick(), LONG_MS)
        elif kind == "crash":
            self.crashes -= 1
            machine.life += 1
            machine.boot()
            self.step(machine, events.Started())
        else:
            self.proposals -= 1
            self.step(machine, events.Propose(machine.announced, [b"1"]))

    # Effects.

    def _WriteQuorumState(self, machine: Machine, effect: do.WriteQuorumState) -> None:  # noqa: N802
        machine.writes.append(effect.state)

    def _AppendLeaderChange(self, machine: Machine, effect: do.AppendLeaderChange) -> None:  # noqa: N802
        known = self.leaders.setdefault(effect.epoch, machine.id)
        require(known == machine.id, "one leader per epoch", f"{known} and {machine.id} in {effect.epoch}")
        require(
            machine.log[: len(self.committed)] == self.committed,
            "leader completeness: a leader has all that was committed",
            f"{machine.id} in {effect.epoch}",
        )
        machine.log += ((effect.epoch, 0),)

    def _Append(self, machine: Machine, effect: do.Append) -> None:  # noqa: N802
        machine.log += tuple((effect.epoch, int(value)) for value in effect.records)

    def _AppendFetched(self, machine: Machine, effect: do.AppendFetched) -> None:  # noqa: N802
        machine.log += tuple(effect.records)

    def _Truncate(self, machine: Machine, effect: do.Truncate) -> None:  # noqa: N802
        require(
            effect.offset >= machine.high_watermark, "nothing below the high watermark is truncated", f"{machine.id}"
        )
        machine.log = machine.log[: effect.offset]

    def _Flush(self, machine: Machine, effect: do.Flush) -> None:  # noqa: N802
        machine.flushing = (effect.offset, machine.log)

    def _Send(self, machine: Machine, effect: do.Send) -> None:  # noqa: N802
        token = Token(machine.id, machine.life, effect.number, effect.request)
        self.requests[effect.node_id, (machine.id, machine.life, effect.request)] = token

    def _Respond(self, machine: Machine, effect: do.Respond) -> None:  # noqa: N802
        token: Any = effect.token
        reply, request = effect.reply, token.request
        if isinstance(reply, VoteReply) and reply.granted and isinstance(request, VoteRequest) and not request.pre_vote:
            known = self.votes.setdefault((request.epoch, machine.id), request.candidate.id)
            require(
                known == request.candidate.id and machine.state.epoch >= request.epoch,
                "votes are on disk before anybody hears of them, and never forgotten",
                f"{machine.id} in {request.epoch}: {known}, {request.candidate.id}",
            )
        self.replies[(*token[:2], request), (machine.id, reply)] = (token, reply)

    def _ReadLog(self, machine: Machine, effect: do.ReadLog) -> None:  # noqa: N802
        records = machine.log[effect.offset :]
        batches = tuple(Batch(at, at + 1, epoch) for at, (epoch, _) in enumerate(records, effect.offset))
        reply: Any = effect.reply
        self._Respond(machine, do.Respond(effect.token, reply._replace(records=records, batches=batches)))

    def _Committed(self, machine: Machine, effect: do.Committed) -> None:  # noqa: N802
        offset = effect.high_watermark
        require(offset > machine.high_watermark, "the high watermark is monotonic", f"{machine.id}")
        machine.high_watermark = offset
        ours = machine.log[:offset]
        require(
            ours[: len(self.committed)] == self.committed[:offset],
            "what is committed is the same everywhere, and never lost",
            f"{machine.id} at {offset}",
        )
        if offset > len(self.committed):
            having = sum(
                (machine.durable if node_id == machine.id else other.durable)[:offset] == ours
                for node_id, other in self.machines.items()
            )
            require(having * 2 > VOTERS, "the high watermark was reached by a majority, on disk", f"{machine.id}")
            self.committed = ours

    def _BecameLeader(self, machine: Machine, effect: do.BecameLeader) -> None:  # noqa: N802
        machine.announced = effect.epoch

    def _LostLeadership(self, machine: Machine, effect: do.LostLeadership) -> None:  # noqa: ARG002, N802
        machine.announced = -1

    # Telling states apart.

    def fingerprint(self) -> int:
        """Equal for states that behave alike."""
        machines = tuple(machine.mark for machine in self.machines.values())
        return hash(
            (
                machines,
                frozenset(self.requests),
                frozenset(self.replies),
                self.crashes,
                self.proposals,
                self.timeouts,
            )
        )


ALL: Final = VoterSet(Voter(ReplicaKey(node_id)) for node_id in IDS)
CHANCE: Final = Fixed()
SETS: Final = VoterSets(ALL, None, 0)


def _nothing(machine: Machine, effect: do.Effect) -> None:
    """Of no interest here."""


def _may_time_out(node: RaftNode) -> bool:
    """Whether another time-out stays within the bound of epochs."""
    return node.epoch < EPOCHS or node.role.role in (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)


def _fingerprint(node: RaftNode) -> Any:
    role: Any = node.role
    tally = getattr(role, "tally", None)
    progress = getattr(role, "progress", None)
    return (
        role.role.value,
        node.epoch,
        node.leader_id,
        node.state,
        node._durable_state,
        node.log.end_offset,
        node.log.flushed_offset,
        node.high_watermark,
        node.flushing,
        node.flush_needed,
        getattr(role, "has_fetched", None),
        None if tally is None else tuple(tally._answers.items()),
        None if progress is None else tuple((v.end_offset, v.told_epoch) for v in progress.voters.values()),
        frozenset(getattr(role, "_heard", ())),
        tuple(sorted((key[0], key[1].__name__) for key, line in node.requests._lines.items() if line.number)),
        tuple(sorted(str(waiting.request) for waiting in node.waiting.values())),
        len(node._held),
    )


class Result(NamedTuple):
    """What a search has seen."""

    states: int
    steps: int
    complete: bool
    committed: int
    """States in which something was committed, so that a search that never gets anywhere is noticed."""


def search(
    states_max: int = 0,
    *,
    timeouts: int = TIMEOUTS,
    crashes: int = CRASHES,
    proposals: int = PROPOSALS,
    every_s: float = 10.0,
    say: Any = print,
) -> Result:
    """Visit every state within the bounds, depth first; 0: all of them. Raises AssertionError that names the law."""
    world = World(timeouts, crashes, proposals)
    seen = {world.fingerprint()}
    stack: list[tuple[World, list[tuple[Any, ...]], tuple[Any, ...] | None]] = [(world, world.choices(), None)]
    steps = committed = 0
    told = begun = time.monotonic()
    while stack:
        parent, choices, _ = stack[-1]
        if not choices:
            stack.pop()
            continue
        choice = choices.pop()
        world = parent.copy()
        steps += 1
        try:
            world.happen(choice)
        except AssertionError:
            say("\n".join(f"{made}" for _, _, made in stack if made) + f"\n{choice}")
            raise
        if any(machine.epoch > EPOCHS for machine in world.machines.values()):
            continue
        mark = world.fingerprint()
        if mark in seen:
            continue
        seen.add(mark)
        committed += bool(world.committed)
        if states_max and len(seen) >= states_max:
            return Result(len(seen), steps, False, committed)
        stack.append((world, world.choices(), choice))
        if time.monotonic() >= told + every_s:
            told = time.monotonic()
            rate = len(seen) / (told - begun)
            say(f"{len(seen):,} states, {steps:,} steps, depth {len(stack)}, {rate:,.0f} states/s")
    return Result(len(seen), steps, True, committed)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kraft_node.testing.raft.exhaustive")
    parser.add_argument("--states", type=int, default=1_000_000, help="stop after so many; 0: visit all")
    parser.add_argument("--timeouts", type=int, default=TIMEOUTS)
    parser.add_argument("--crashes", type=int, default=CRASHES)
    parser.add_argument("--proposals", type=int, default=PROPOSALS)
    options = parser.parse_args()
    result = search(options.states, timeouts=options.timeouts, crashes=options.crashes, proposals=options.proposals)
    print(f"{result.states:,} states, {result.steps:,} steps, complete: {result.complete}, every law held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
