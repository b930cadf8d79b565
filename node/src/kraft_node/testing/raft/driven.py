"""A process of the Raft simulator that runs the real driver (`server.quorum.driver`) around the core.

Requests and responses travel as the protocol's bytes, records are metadata records, snapshots hold the image. The laws
are the same: they check the storage, the messages and the high watermark. A client proposes through the driver, like
the controller, and checks each promise; each commit is compared with the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kraft_node.base.env import Env
from kraft_node.raft import events, wire_form
from kraft_node.raft.accumulator import BatchTooLarge
from kraft_node.raft.membership.quorum import ReplicaKey, VoterSet
from kraft_node.raft.messages import VersionsRequest
from kraft_node.raft.node import NotLeader
from kraft_node.raft.ready import Ready
from kraft_node.raft.roles.states import Role
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_node.server.faults import FaultHandler, raising
from kraft_node.server.quorum.driver import RaftDriver
from kraft_node.testing.raft import judge
from kraft_node.testing.raft.driven_storage import DrivenStorage
from kraft_node.testing.raft.driven_voters import HOST, is_versions, supported_versions, tool_request
from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.quorum import SimulatedQuorum
from kraft_node.testing.raft.replica import CLUSTER, TICK, Replica
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.control import ControlType, iter_control_records
from kraft_protocol.wire import codec, stored
from kraft_protocol.wire.api import API

LISTENER: Final = "CONTROLLER"
BROKER: Final = 4
"""The resource type of the configuration that the records set."""
RECORD_BYTES: Final = 100
"""The approximate size of a batch of one record in the log."""
DROP_EVERY_MS: Final = 5_000
"""Old snapshots are dropped more often than in production, so that it happens within a simulation's seconds."""
OTHER: Final = 99
"""In the trace: the event loop has called something other than a timer."""


class DrivenReplica(Replica):
    """A machine with its disk, and the driver on it while its process runs."""

    def __init__(self, sim: SimulatedQuorum, node_id: int) -> None:
        super().__init__(sim, node_id)
        self.driver: RaftDriver | None = None
        self.wires: dict[int, tuple[Any, int, bytes]] = {}
        """By number: the bytes of each request sent."""
        self._calls: dict[int, Callable[[Any], None]] = {}
        self._number = 0
        self._defect: BaseException | None = None

    # Life.

    def boot(self) -> None:
        """Start a driver on the open disk. A defect during the start is raised; a failing disk ends the process."""
        sim = self.sim
        self._calls.clear()
        every = min(sim.snapshot_every, 1_000) * RECORD_BYTES
        dynamic = sim.is_dynamic
        driver = RaftDriver(
            DrivenLoop(self).env(),
            DrivenStorage(self, self.writes_itself),
            local=self.key,
            voters=VoterSet(()) if dynamic else self.configured,
            cluster_id=CLUSTER,
            config=sim.config,
            policy=SnapshotPolicy(max_new_record_bytes=every, retention_bytes=4 * every),
            peers=self._find,
            bootstrap_servers=[(HOST, node_id) for node_id in sim.replicas] if dynamic else (),
            guards_empty_disk=self.id not in sim.old_peers,
            faults=Ends(self),
        )
        driver.own = self.own if dynamic or sim.is_upgradable else None
        driver.on_leader.append(self._led)
        driver.on_lost_leadership.append(self._lost)
        driver.on_commit.append(self._applied)
        self.driver = driver
        life = self.life
        driver.start()
        self._check_defect()
        if self.life == life:
            self.node = driver.node
            self.was_amnesiac = self.node.is_amnesiac
            self.settle(self.node, OTHER, 0)
            driver.env.scheduler.call_later(DROP_EVERY_MS, self._drop_old)

    def _find(self, node_id: int) -> Way | None:
        """The link to a replica; with dynamic voters, by the endpoint that the driver knows."""
        if not (self.sim.is_dynamic or self.sim.is_upgradable):
            return Way(self, node_id)
        assert self.driver is not None
        where = self.driver.peers.endpoint_of(node_id)
        return None if where is None else Way(self, where[1])

    def ends(self, where: str, error: BaseException) -> None:
        """End the process (contract 10); an error other than a failing disk is a defect."""
        if not isinstance(error, OSError):
            self._defect = error
            return
        assert self.driver is not None
        self.node = self.driver.node
        self.sim.note(f"{self.id} stops: {where}: {error}")
        self.lose_power()
        if self.sim.calm:
            # Paused while its disk failed, it learned of that only after everything had healed.
            self.later(0, self.start_once)

    def _drop_old(self) -> None:
        assert self.driver is not None
        self.driver.env.scheduler.call_later(DROP_EVERY_MS, self._drop_old)
        self.driver.snapshots.drop_old()

    # Called by the event loop.

    def is_timer(self, function: Callable[..., None]) -> bool:
        """Whether the event loop runs it as a timer: only calls of `call_later` are timers."""
        return function == self.fire

    def fire(self, call: Call) -> None:
        """Run a due timer."""
        if call.function is not None:
            self.enter(TICK, call.function, *call.args)

    def fire_soon(self, call: Call) -> None:
        """Run a deferred call."""
        if call.function is not None:
            self.enter(OTHER, call.function, *call.args)

    def enter(self, kind: int, function: Callable[..., None], *args: Any) -> None:
        """Call into the driver, then judge."""
        if self.node is None:
            return
        life = self.life
        self.sim.events += 1
        function(*args)
        self._check_defect()
        if self.life == life:
            self.settle(self.node, kind, 0)

    def _check_defect(self) -> None:
        """Raise the error that ended the driver: the boundaries around its work would swallow it."""
        if self._defect is not None:
            raise self._defect

    def settle(self, node: Any, kind: int, count: int) -> None:
        """Check a high watermark that has moved; then judge the step like a step of a bare core."""
        self._check_high_watermark()
        super().settle(node, kind, count)

    def _check_high_watermark(self) -> None:
        """Check a high watermark that may have moved."""
        assert self.driver is not None
        node, laws = self.driver.node, self.sim.laws
        if node.high_watermark > self.high_watermark:
            leads = laws.leaders.get(node.epoch) == self.id
            laws.advanced(self, node.high_watermark, node.voters if leads else None)
            self.high_watermark = node.high_watermark

    def step(self, event: events.Event) -> None:
        """Deliver a simulator event for a core through the driver's interfaces."""
        driver = self.driver
        if self.node is None or driver is None:
            return
        if self.sim.story is not None:
            self.sim.story.add_step(self.sim.now_us, self.sim.events, self.id, self.node, _readable(event), Ready())
        match event:
            case events.Requested(token, _):
                self.enter(OTHER, self._receive, token)
            case events.Answered(number, response):
                self._answered(number, ConnectionResetError("closed") if response is None else response)
            case events.Unsupported(number):
                self._answered(number, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
            case events.Disconnected(node_id):
                self.enter(OTHER, driver.disconnected, node_id)
            case events.Resign(epoch):
                self.enter(OTHER, driver.resign, epoch)
            case events.Shutdown():
                self.enter(OTHER, driver.shutdown, lambda: self.later(0, self._stopped))
            case events.UpgradeVersion(epoch, level):
                self.enter(OTHER, driver.upgrade_kraft_version, epoch, level, False)
            case events.Propose(epoch, batches):
                self.enter(OTHER, self._propose, epoch, batches)
            case events.Tick():
                self.enter(TICK, driver.step, event)
            case events.Cancelled():
                pass  # the driver does not learn of it: its response is lost
            case _:
                raise AssertionError(f"nothing gives a driver {event}")

    # Messages.

    def ask(self, node_id: int, message: Any, done: Callable[[Any], None], timeout_ms: int) -> None:
        """Send a request in the newest version."""
        assert self.driver is not None
        self.node = self.driver.node
        judge.words(self)
        spec = API[message.SCHEMA.api_key]
        data = codec.encode(message, spec.max_version)
        if is_versions(spec):
            request: Any = VersionsRequest({})
        else:
            request = wire_form.request_from_wire(codec.decode(spec.request, data, spec.max_version))
            judge.fetch(self, request)
        self._number += 1
        number = self._number
        self._calls[number] = done
        self.wires[number] = (spec, spec.max_version, data)
        self.later(timeout_ms * 1000, self._answered, number, TimeoutError("no answer"))
        self.sim.network.request(self, number, node_id, request)

    def _answered(self, number: int, response: Any) -> None:
        done = self._calls.pop(number, None)
        if done is not None:
            self.enter(OTHER, done, response)

    def _receive(self, token: Any) -> None:
        assert self.driver is not None
        is_tool = token.number < 0
        spec, version, data = (
            tool_request(self.key, self.sim.voters, token.request) if is_tool else token.asker.wires[token.number]
        )
        ctx: Any = Context(self, token, spec, version)
        if is_versions(spec):
            # The listener answers in any state of the core: the response names no votes and epochs.
            self.sim.network.answer(self, token, supported_versions())
            return
        response = self.driver.handlers()[spec.key](ctx, codec.decode(spec.request, data, version))
        if response is not None:
            ctx.respond(response)

    def respond(self, token: Any, spec: Any, version: int, response: Any) -> None:
        """Send a response."""
        judge.words(self)
        response = codec.decode(spec.response, codec.encode(response, version), version)
        judge.vote(self, token, wire_form.reply_from_wire(response))
        self.tokens.pop(token, None)
        self.sim.network.answer(self, token, response)

    # The log.

    def writes_itself(self, data: bytes, header: Any) -> bool:
        """Whether a batch about to be written is the leader's own, rather than fetched."""
        assert self.driver is not None
        node, laws = self.driver.node, self.sim.laws
        epoch = header.partition_leader_epoch
        if not node.is_leader and node.role.role is not Role.RESIGNED:  # it may resign in the step that writes
            return False
        controls = list(iter_control_records(data, header)) if header.is_control else []
        laws.upgrades += bool(controls) and controls[0].type is ControlType.KRAFT_VERSION
        if controls:
            self.leading_since_ms = self.local_us() // 1000  # other voters have the whole time to fetch
        if controls and controls[0].type is ControlType.LEADER_CHANGE:
            change = codec.decode(stored.LeaderChangeMessage, bytes(controls[0].value), 0)
            granting = tuple(ReplicaKey(voter.voter_id) for voter in change.granting_voters)
            if any(key.id == self.id for key in granting):
                laws.voted(self, epoch, self.id)
            laws.elected(self, epoch, granting, node.voters)
        require(
            laws.leaders.get(epoch) == self.id and epoch == node.epoch,
            "only the leader of an epoch writes records of it",
            f"{self.id} in {epoch}",
        )
        return True

    # The client: it proposes as the controller does.

    def _propose(self, epoch: int, batches: Sequence[Sequence[bytes]]) -> None:
        driver = self.driver
        assert driver is not None
        numbers = tuple(int(number) for numbers in batches for number in numbers)
        records = [stored.ConfigRecord(BROKER, "1", "n", str(number)) for number in numbers]
        try:
            prepared = driver.prepare(epoch, records)
        except (NotLeader, BatchTooLarge):
            return
        first = prepared.first_offset
        require(
            first > driver.image.offset and prepared.last_offset == first + len(numbers) - 1,
            "offsets that are promised are not taken",
            f"{self.id} promises {first} to {prepared.last_offset} in {epoch}, applied {driver.image.offset}",
        )
        self.promised.append((first, epoch, numbers))
        driver.schedule(prepared)

    def _led(self, epoch: int) -> None:
        require(self.sim.laws.leaders.get(epoch) == self.id, "one leader per epoch", f"{self.id}")
        self.announced_epoch = epoch

    def _lost(self, epoch: int) -> None:
        require(self.announced_epoch == epoch, "only an announced epoch is revoked", f"{self.id}")
        self.announced_epoch = -1
        self.promised.clear()

    def _applied(self, last: int) -> None:
        """Check that the image agrees with the log."""
        self._check_high_watermark()
        assert self.driver is not None
        self.check_promises(last + 1)
        log, offset = self.disk.log, last
        while offset >= log.start and log.entries:
            entry = log.entries[log.index_of(offset)]
            number = entry.values[offset - entry.base]
            if number > 0:
                known = (self.driver.image.configs.get((BROKER, "1")) or {}).get("n")
                what = f"{self.id} at {last}: {known}, the log says {number}"
                require(known == str(number), "the image equals the committed records", what)
                return
            offset -= 1


def _readable(event: events.Event) -> events.Event:
    if isinstance(event, events.Answered) and event.reply is not None:
        return event._replace(reply=wire_form.reply_from_wire(event.reply))
    return event


class Ends(FaultHandler):
    """Errors that end a driver: a failing disk ends its process, any other error ends the simulation."""

    def __init__(self, replica: DrivenReplica) -> None:
        super().__init__(raising)
        self._replica = replica

    def fatal(self, where: str, error: BaseException) -> None:
        """End the process of the replica, or keep the defect, which `enter` then raises."""
        self._replica.ends(where, error)

    def count(self, where: str, error: BaseException) -> None:
        """Raises AssertionError: nothing is refused in the simulator, so each counted defect ends the run."""
        raise AssertionError(f"law: nothing is refused here: {where}") from error


class Call:
    """A timer, or a deferred call."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.function: Callable[..., None] | None = function
        self.args = args

    def cancel(self) -> None:
        """Drop the call; its place in the queue stays."""
        self.function = None


class DrivenLoop:
    """The `Env` of one life: the replica's clock, the simulation's randomness and queue, lanes of background work."""

    def __init__(self, replica: DrivenReplica) -> None:
        self._replica = replica
        self._lanes: dict[str, int] = {}

    def env(self) -> Env:
        """It has no disk and no network: the storage and the links to other replicas replace them."""
        missing: Any = None
        return Env(self, self, self, missing, self, missing)

    def monotonic_ms(self) -> int:
        """Milliseconds of the replica's own clock, which drifts and jumps."""
        return self._replica.local_us() // 1000

    def wall_ms(self) -> int:
        """Milliseconds since 1970: a fixed start plus the machine's simulated calendar."""
        return 1_700_000_000_000 + self._replica.wall_ms()

    def randrange(self, stop: int) -> int:
        """A number from 0 to `stop` (excluded) from the simulation's seed."""
        return self._replica.sim.randrange(stop)

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes from the simulation's seed."""
        return self._replica.sim.random_bytes(count)

    def call_soon(self, function: Callable[..., None], *args: Any) -> Call:
        """Queue the call for this moment; dropped if the process ends."""
        call = Call(function, args)
        self._replica.later(0, self._replica.fire_soon, call)
        return call

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> Call:
        """Queue the call for `delay_ms` from now by the replica's clock; later changes of its rate do not move it."""
        call = Call(function, args)
        self._replica.later(int(delay_ms * 1_000_000) // self._replica.rate + 1, self._replica.fire, call)
        return call

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Jobs of a lane run in order; the loop learns of their end a little later."""
        replica = self._replica
        now = replica.sim.now_us
        self._lanes[lane] = at_us = max(self._lanes.get(lane, 0), now) + replica.io_us()

        def finish() -> None:
            result: Any = None
            try:
                result = work()
            except OSError as e:
                result = e
            replica.later(replica.sim.rng.randrange(200), replica.enter, OTHER, done, result)

        replica.later(at_us - now, finish)


class Way:
    """A link from one replica to another, like `server.channels.channel.Channel`."""

    __slots__ = ("_node_id", "_replica")

    def __init__(self, replica: DrivenReplica, node_id: int) -> None:
        self._replica = replica
        self._node_id = node_id

    def send(self, request: Any, version: int | None, done: Callable[[Any], None], timeout_ms: int) -> None:  # noqa: ARG002
        """Send in the newest version, whatever `version` says. `done` gets the response or the error."""
        self._replica.ask(self._node_id, request, done, timeout_ms)


class Context:
    """Replaces a RequestContext."""

    __slots__ = ("_replica", "_spec", "api_key", "api_version", "listener", "token")

    def __init__(self, replica: DrivenReplica, token: Any, spec: Any, version: int) -> None:
        self._replica = replica
        self._spec = spec
        self.token = token
        self.api_key = spec.key
        self.api_version = version
        self.listener = LISTENER

    def respond(self, response: Any) -> None:
        """Answer over the simulated network, which may lose, delay or garble the response."""
        self._replica.respond(self.token, self._spec, self.api_version, response)


__all__ = ["DrivenReplica"]
