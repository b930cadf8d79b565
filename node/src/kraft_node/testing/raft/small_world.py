"""One machine of `exhaustive`: its events and its appearance to others; the core computes each transition once.

A machine's state is a number. An event's effect on a machine does not depend on other machines. It is therefore
computed once per (state, event) pair with the real core, and cached. Visiting a state of the whole quorum then costs a
dictionary look-up. States that differ only in clocks and request numbers count as one.

Time is a choice, not a clock: a time-out advances the clock until everything is due. The configuration makes sure that
no other part depends on clocks. A response matches the request in flight with the same content.
"""

from __future__ import annotations

import pickle
from random import Random
from typing import Any, Final, NamedTuple

from kraft_node.raft import events
from kraft_node.raft import ready as do
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.membership.voter_changes import VoterSets
from kraft_node.raft.messages import FetchedBatch, FetchRequest, VoteReply, VoteRequest
from kraft_node.raft.node import RaftNode
from kraft_node.raft.roles.states import Role
from kraft_node.testing.raft.laws import require

VOTERS: Final = 3
EPOCHS: Final = 2
LONG_MS: Final = 1_000_000
CONFIG: Final = RaftConfig(request_timeout_ms=1, retry_backoff_ms=0, fetch_max_wait_ms=500)
IDS: Final = tuple(range(1, VOTERS + 1))
ALL: Final = VoterSet(Voter(ReplicaKey(node_id)) for node_id in IDS)
SETS: Final = VoterSets(ALL, None, 0)

Log = tuple[tuple[int, int], ...]
"""(epoch, value) of each record; a LeaderChange has value 0."""


class Fixed:
    """A constant in place of randomness: only the order of events varies."""

    def randrange(self, stop: int) -> int:  # noqa: ARG002
        """Always 0."""
        return 0

    def random_bytes(self, count: int) -> bytes:
        """`count` zeros."""
        return bytes(count)


CHANCE: Final = Fixed()


class Asked(NamedTuple):
    """A request on its way to `receiver`."""

    receiver: int
    asker: int
    life: int
    """The asker's life: a restarted asker waits for no response."""
    request: Any


class Replied(NamedTuple):
    """A response on its way to the asker."""

    asked: Asked
    reply: Any


Message = Asked | Replied


class Led(NamedTuple):
    """For the laws: a leader has opened an epoch on this log."""

    epoch: int
    log: Log


class Voted(NamedTuple):
    """For the laws: a vote was promised."""

    epoch: int
    candidate: int


class Committed(NamedTuple):
    """For the laws: a replica takes this much for committed."""

    log: Log


class Machine:
    """One replica: core, written log, and durable state."""

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.life = 0
        self.log: Log = ()
        self.durable: Log = ()
        self.state = QuorumState()
        self.writes: list[QuorumState] = []
        self.flushing: tuple[int, Log] | None = None
        self.announced = -1
        self.node: Any = None
        self.high_watermark = -1
        self.held: list[do.Message] = []
        self.done: list[Any] = []
        """The effects of the last event that concern other machines or the laws."""

    def boot(self) -> None:
        """Start the process from its durable state; undurable records and held messages are gone."""
        self.log = self.durable
        self.writes = []
        self.flushing = None
        self.held = []
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
        self.step(events.Started())

    def step(self, event: events.Event, wait_ms: int = 0) -> None:
        """Give the core an event, `wait_ms` after the last one, and carry out the effects."""
        do.carry_out(self.node.step(event, self.node.now_ms + wait_ms), self)

    # Events.

    def asked(self, message: Asked) -> None:
        """Deliver a request; the message itself is the token of its response."""
        self.step(events.Requested(message, message.request))

    def replied(self, message: Replied) -> None:
        """Deliver a response if an equal request of this life is in flight; otherwise drop it."""
        asked = message.asked
        line = self.node.requests._lines.get((asked.receiver, type(asked.request)))
        if asked.life == self.life and line is not None and line.number and line.request == asked.request:
            self.step(events.Answered(line.number, message.reply))

    def write(self) -> None:
        """End the oldest write of the quorum state."""
        self.state = self.writes.pop(0)
        self.step(events.QuorumStateWritten(self.state))

    def sync(self) -> None:
        """End the fsync under way: the log as of its begin is durable."""
        assert self.flushing is not None
        offset, self.durable = self.flushing
        self.flushing = None
        self.step(events.Flushed(offset))

    def timeout(self) -> None:
        """Advance the clock until every timer is due."""
        self.step(events.Tick(), LONG_MS)

    def crash(self) -> None:
        """Kill the process and start it again; responses to its earlier requests no longer count."""
        self.life += 1
        self.boot()

    def propose(self) -> None:
        """Give the leader a record with the value 1."""
        self.step(events.Propose(self.announced, [[b"1"]]))

    # The effects of a step.

    def save_state(self, state: QuorumState) -> None:
        """Begin a write of the quorum state; `write` ends it."""
        self.writes.append(state)

    def append(self, batch: do.LogAppend) -> None:
        """Add records to the log, not yet durable. For the laws, `Led` holds the log before the LeaderChange."""
        if isinstance(batch, do.AppendLeaderChange):
            self.done.append(Led(batch.epoch, self.log))
            self.log += ((batch.epoch, 0),)
        elif isinstance(batch, do.Append):
            self.log += tuple((batch.epoch, int(value)) for value in batch.records)
        elif isinstance(batch, do.AppendFetched):
            self.log += tuple(batch.records)
        else:
            raise AssertionError(f"the voters stay the same here: {batch}")

    def truncate(self, offset: int) -> None:
        """Remove the records from `offset` on. Raises LawBroken below the high watermark."""
        require(offset >= self.high_watermark, "nothing below the high watermark is truncated", f"{self.id}")
        self.log = self.log[:offset]

    def flush(self, offset: int) -> None:
        """Begin an fsync of the present log; `sync` ends it."""
        self.flushing = (offset, self.log)

    def send(self, message: do.Message) -> None:
        """Collect the message in `done`. Raises LawBroken while a quorum state is not yet on disk."""
        require(not self.writes, "vote and epoch are on disk before words leave (contract 2)", f"{self.id}")
        if isinstance(message, do.Send):
            self._ask(message)
        elif isinstance(message, do.Respond):
            self._respond(message)
        else:
            assert isinstance(message, do.ReadLog)
            records = self.log[message.offset :]
            batches = tuple(FetchedBatch(at, at + 1, epoch) for at, (epoch, _) in enumerate(records, message.offset))
            reply: Any = message.reply
            self._respond(do.Respond(message.token, reply._replace(records=records, batches=batches)))

    def _ask(self, message: do.Send) -> None:
        request = message.request
        if isinstance(request, FetchRequest):
            require(
                self.durable[: request.offset] == self.log[: request.offset],
                "a voter fetches from where its log is on disk (contract 5 and 8)",
                f"{self.id} from {request.offset}",
            )
        self.done.append(Asked(message.node_id, self.id, self.life, request))

    def _respond(self, message: do.Respond) -> None:
        token: Any = message.token
        reply, request = message.reply, token.request
        if isinstance(reply, VoteReply) and reply.granted and isinstance(request, VoteRequest) and not request.pre_vote:
            require(self.state.epoch >= request.epoch, "a vote is on disk before any node learns of it", f"{self.id}")
            self.done.append(Voted(request.epoch, request.candidate.id))
        self.done.append(Replied(token, reply))

    def committed(self, offset: int) -> None:
        """Collect the committed log for the laws. Raises LawBroken unless the high watermark grows."""
        require(offset > self.high_watermark, "the high watermark is monotonic", f"{self.id}")
        self.high_watermark = offset
        self.done.append(Committed(self.log[:offset]))

    def became_leader(self, epoch: int) -> None:
        """Allow proposals in `epoch`."""
        self.announced = epoch

    def lost_leadership(self, epoch: int) -> None:  # noqa: ARG002
        """Allow no more proposals."""
        self.announced = -1

    def _nothing(self, what: Any) -> None:
        """Ignored here."""

    proposed = leader_changed = set_timer = write_part = finish_snapshot = remove_snapshots = _nothing

    def shut_down(self) -> None:
        """Raises AssertionError: no event of the search asks for a shutdown."""
        raise AssertionError("no node stops here")

    # State identity.

    def mark(self) -> int:
        """Equal for states that behave alike."""
        own = (
            self.id,
            self.life,
            self.log,
            self.durable,
            self.state,
            tuple(self.writes),
            self.flushing,
            tuple(self.held),
        )
        return hash((own, self.announced, self.high_watermark, _mark_of_core(self.node)))

    def freeze(self) -> Kept:
        """The whole state, except for parts that are the same for all machines at all times."""
        node = self.node
        tally = getattr(node.role, "tally", None)
        node.voters = node.config = node.rng = node.voter_sets = node.requests._config = node._amnesia = None
        if tally is not None:
            tally._voters = None
        return Kept(
            pickle.dumps(self, pickle.HIGHEST_PROTOCOL),
            self.durable,
            self.life,
            node.epoch,
            self._choices(),
        )

    def _choices(self) -> tuple[str, ...]:
        node = self.node
        # Another time-out must stay within the bound of epochs.
        may_time_out = node.epoch < EPOCHS or node.role.role in (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)
        possible = (
            ("write", self.writes),
            ("sync", self.flushing),
            ("timeout", may_time_out),
            ("crash", True),
            ("propose", self.announced >= 0),
        )
        return tuple(what for what, is_possible in possible if is_possible)


class Kept(NamedTuple):
    """A machine at rest, and what others need to know of it."""

    data: bytes
    durable: Log
    life: int
    epoch: int
    choices: tuple[str, ...]
    """Possible events besides messages."""

    def thaw(self) -> Machine:
        """The machine."""
        machine: Machine = pickle.loads(self.data)  # noqa: S301 - our own
        node = machine.node
        node.voters, node.config, node.rng, node.voter_sets = ALL, CONFIG, CHANCE, SETS
        node.requests._config = CONFIG
        tally = getattr(node.role, "tally", None)
        if tally is not None:
            tally._voters = ALL
        return machine


def _mark_of_core(node: RaftNode) -> Any:
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
        node._settling,
        getattr(role, "has_fetched", None),
        getattr(role, "announced", None),
        tuple(sorted(getattr(role, "unacknowledged", ()))),
        None if tally is None else tuple(tally._answers.items()),
        None if progress is None else tuple((v.end_offset, v.has_reported_epoch) for v in progress.voters.values()),
        tuple(sorted(getattr(role, "_heard", ()))),
        tuple(
            sorted((key[0], key[1].__name__, line.request) for key, line in node.requests._lines.items() if line.number)
        ),
        frozenset(node.waiting),
    )


class EventOutcome(NamedTuple):
    """The effect of an event on a machine."""

    after: int
    sent: tuple[int, ...]
    """Messages, by number."""
    judged: tuple[Any, ...]
    """`Led`, `Voted` and `Committed`, in their order."""


class Machines:
    """All machine states seen so far, and the effects of events on them."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.messages: dict[int, Message] = {}
        self.core_steps = 0
        self._states: dict[int, int] = {}
        self._numbers: dict[Message, int] = {}
        self._outcomes: dict[tuple[int, int | str], EventOutcome] = {}
        self._rng = Random(1)

    def first(self, node_id: int) -> EventOutcome:
        """A machine that starts for the first time."""
        machine = Machine(node_id)
        machine.boot()
        return self._keep(machine)

    def outcome(self, state: int, what: int | str) -> EventOutcome:
        """`what` is the number of a message, or one of the machine's choices."""
        found = self._outcomes.get((state, what))
        if found is None:
            found = self._outcomes[state, what] = self._compute(state, what)
        return found

    def _compute(self, state: int, what: int | str) -> EventOutcome:
        self.core_steps += 1
        machine = self.kept[state].thaw()
        if isinstance(what, str):
            getattr(machine, what)()
        else:
            message = self.messages[what]
            if isinstance(message, Asked):
                machine.asked(message)
            else:
                machine.replied(message)
        return self._keep(machine)

    def _keep(self, machine: Machine) -> EventOutcome:
        done, machine.done = machine.done, []
        mark = machine.mark()
        state = self._states.get(mark)
        if state is None:
            state = self._states[mark] = len(self.kept)
            self.kept.append(machine.freeze())
        sent = tuple(self._number(what) for what in done if isinstance(what, Message))
        return EventOutcome(state, sent, tuple(what for what in done if not isinstance(what, Message)))

    def _number(self, message: Message) -> int:
        number = self._numbers.get(message)
        if number is None:
            # Random, so that sets of them have distinct hashes.
            number = self._numbers[message] = self._rng.getrandbits(60)
            self.messages[number] = message
        return number
