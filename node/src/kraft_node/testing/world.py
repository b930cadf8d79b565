"""Simulated time: an event queue with an order that follows from the seed, and a clock that jumps from event to event.

Every event belongs to a host (a simulated machine) and to a life of the host: events of a crashed process are dropped.
A host can be paused (a stopped process, a blocked loop): its events wait. When it wakes, timers and I/O run in the
order of their times, or all I/O before the first timer, as on a real loop. A process can also die inside an event, at
one of its disk operations: `ProcessDied` unwinds to the queue.

The trace is a list of lines that reads like a story. Its hash covers every line with its time and event count, and is
the same for the same seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kraft_node.base.env import READ_PREFIX, Disk, Env
from kraft_node.base.net import Net

if TYPE_CHECKING:
    from kraft_node.testing.disks.load import Spent

T = TypeVar("T")

EVENTS_MAX: Final = 5_000_000
"""A run with more events is stuck: two parts call each other without end."""

TRACE_MAX: Final = 20_000
"""Lines kept for reading; the hash covers all lines."""

BACKGROUND_MS: Final = 20.0
OPERATIONS_A_MS: Final = 200
"""Disk operations on the loop that take a millisecond, for turns of long work: with all data in memory."""
REPORT_MS: Final = 1.0
"""The maximum delay until the loop learns that a job is finished."""

AFTER_IO: Final = 1 << 40
"""Added to a timer's place in the queue: it runs after all other events at the same moment."""

START_WALL_MS: Final = 1_700_000_000_000


@contextlib.contextmanager
def off_the_loop(disk: Any) -> Iterator[None]:
    """Disk work in this context runs in a lane: it costs the loop nothing."""
    on_loop = disk.spent
    disk.spent = type(on_loop)()
    try:
        yield
    finally:
        disk.spent = on_loop


class ProcessDied(BaseException):
    """The running process ends at this point; `bury` does what its machine does then."""

    def __init__(self, bury: Callable[[], object]) -> None:
        super().__init__("the process dies")
        self.bury = bury


class SimTimer:
    """A call in the queue (`base.env.Timer`)."""

    __slots__ = ("args", "by_scheduler", "function", "host", "is_put_off", "life")

    def __init__(self, function: Callable[..., None], args: tuple[Any, ...], host: SimHost | None) -> None:
        self.by_scheduler = False
        """Whether the process scheduled it; otherwise it comes from the network or a background job."""
        self.is_put_off = False
        """Whether its time has come while its host was paused."""
        self.function: Callable[..., None] | None = function
        self.args = args
        self.host = host
        self.life = host.life if host is not None else 0

    def cancel(self) -> None:
        """Drop the call; its place in the queue stays until its time."""
        self.function = None


class World:
    """All hosts, one queue, one source of randomness."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.events = 0
        self.trace: list[str] = []
        self.running: SimHost | None = None
        """The host of the running event."""
        self.watcher: Callable[[], None] | None = None
        """Called after every event."""
        self.on_spent: Callable[[SimHost, Spent, Callable[..., None]], None] | None = None
        """Called after every event of a host, with the event's disk cost on the loop."""
        self._hash = hashlib.blake2b(digest_size=8)
        self._queue: list[tuple[float, int, SimTimer]] = []
        self._sequence = 0

    def note(self, who: str, what: str) -> None:
        """Add a line to the story."""
        line = f"{self.now_ms:12.3f} {who:<10} {what}"
        self._hash.update(f"{self.events} {line}".encode())
        if len(self.trace) < TRACE_MAX:
            self.trace.append(line)

    @property
    def hash(self) -> str:
        """The hash of all notes so far."""
        return self._hash.hexdigest()

    def at(self, delay_ms: float, function: Callable[..., None], *args: Any, host: SimHost | None = None) -> SimTimer:
        """Call `function` in `delay_ms`; events of one moment keep their order."""
        timer = SimTimer(function, args, host)
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + max(0.0, delay_ms), self._sequence, timer))
        return timer

    def bring_forward(self, host: SimHost) -> None:
        """Let the events that the host's pause has put off run now, in their order, before all later events."""
        self._queue = [
            (self.now_ms if timer.host is host and timer.is_put_off else moment, sequence, timer)
            for moment, sequence, timer in self._queue
        ]
        heapq.heapify(self._queue)

    def step(self, end_ms: float = math.inf) -> bool:
        """Run the next event; False without an event before or at `end_ms`."""
        while self._queue and self._queue[0][0] <= end_ms:
            moment, sequence, timer = heapq.heappop(self._queue)
            host = timer.host
            if timer.function is None or (host is not None and timer.life != host.life):
                continue
            if host is not None and host.paused_until_ms > moment:
                behind = AFTER_IO if timer.by_scheduler and host.wakes_to_io else 0
                heapq.heappush(self._queue, (host.paused_until_ms, sequence + behind, timer))
                timer.is_put_off = True
                continue
            self.now_ms = moment
            self.events += 1
            assert self.events < EVENTS_MAX, f"seed {self.seed}: {EVENTS_MAX} events and no end"
            function, timer.function = timer.function, None
            self.running = host
            spent = getattr(host.disk, "spent", None) if host is not None else None
            if spent is not None:
                spent.clear()
            try:
                function(*timer.args)
            except ProcessDied as death:
                death.bury()
            finally:
                self.running = None
            if spent is not None and self.on_spent is not None:
                assert host is not None
                self.on_spent(host, spent, function)
            if self.watcher is not None:
                self.watcher()
            return True
        return False

    def run(self, until: Callable[[], bool], limit_ms: float) -> bool:
        """Run until `until()` is true, or for `limit_ms` of simulated time. Returns whether it became true."""
        end = self.now_ms + limit_ms
        while not until():
            if not self.step(end):
                self.now_ms = max(self.now_ms, end)
                return until()
        return True

    def rest(self, duration_ms: float) -> None:
        """Let time pass."""
        self.run(lambda: False, duration_ms)


class SimHost:
    """One machine: a disk that outlives crashes, and at most one process at a time."""

    def __init__(self, world: World, name: str, disk: Disk) -> None:
        self.world = world
        self.name = name
        self.disk = disk
        self.life = 0
        """Grows with every crash and start; events of an earlier life are dropped."""
        self.paused_until_ms = 0.0
        """Until then no event runs here: the process is stopped, or its loop is blocked."""
        self.wakes_to_io = False
        """Whether it then handles received data before due timers."""
        self.background_ms = BACKGROUND_MS
        """The maximum duration of a background job."""
        self.stalled_until_ms = 0.0
        """Until then no background job makes progress: the disk does not respond."""
        self.rate = 1.0
        """The clock's rate: seconds it counts per simulated second."""
        self.wall_shift_ms = 0
        """The offset of its calendar."""

    def env(self, net: Net) -> Env:
        """The `Env` of a process that starts on this host now."""
        return Env(
            clock=SimClock(self.world, self),
            scheduler=SimScheduler(self.world, self),
            rng=SimRng(self.world),
            disk=self.disk,
            background=SimBackground(self.world, self),
            net=net,
            boot_id=f"boot-{getattr(self.disk, 'boots', 1)}",  # a power loss of this disk is a reboot
            turn_ms=self._turn_ms,
        )

    def _turn_ms(self) -> int:
        """The duration of the work of the present event, by its disk operations."""
        spent = getattr(self.disk, "spent", None)
        return 0 if spent is None else spent.operations // OPERATIONS_A_MS

    def pause(self, duration_ms: float) -> None:
        """Run no event here for this time. A longer pause that has begun does not get shorter."""
        self.paused_until_ms = max(self.paused_until_ms, self.world.now_ms + duration_ms)

    def wake(self) -> None:
        """End a pause. The events that wait run at once, so later bytes of a connection do not overtake them."""
        if self.paused_until_ms > self.world.now_ms:
            self.paused_until_ms = 0.0
            self.world.bring_forward(self)

    def end_life(self) -> None:
        """Drop all events of the process."""
        self.life += 1


class SimClock:
    """Simulated time since the world's start, as one host's clocks show it: clocks drift, and the calendar jumps."""

    def __init__(self, world: World, host: SimHost) -> None:
        self._world = world
        self._host = host

    def monotonic_ms(self) -> int:
        """Milliseconds since the world's start, at the rate of the host's clock."""
        return int(self._world.now_ms * self._host.rate)

    def wall_ms(self) -> int:
        """Milliseconds since 1970: a fixed start, the host's monotonic time, and the offset of its calendar."""
        return START_WALL_MS + self._host.wall_shift_ms + self.monotonic_ms()


class SimRng:
    """The world's randomness."""

    def __init__(self, world: World) -> None:
        self._world = world

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes from the world's seed; each draw changes the rest of the run."""
        return self._world.rng.randbytes(count)

    def randrange(self, stop: int) -> int:
        """A number from 0 to `stop` (excluded) from the world's seed; each draw changes the rest of the run."""
        return self._world.rng.randrange(stop)


class SimScheduler:
    """Timers of one process."""

    def __init__(self, world: World, host: SimHost) -> None:
        self._world = world
        self._host = host

    def call_soon(self, function: Callable[..., None], *args: Any) -> SimTimer:
        """Queue the call for this moment, after the events already queued for it; dropped if the process ends."""
        return self._world.at(0.0, function, *args, host=self._host)

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> SimTimer:
        """Queue the call for `delay_ms` milliseconds of the host's clock from now; dropped if the process ends."""
        timer = self._world.at(delay_ms / self._host.rate, function, *args, host=self._host)
        timer.by_scheduler = True
        return timer


class SimBackground:
    """Lanes of one process: a job takes a random time, jobs of a lane keep their order.

    The work itself happens at the end of the time, in one moment. The loop learns of it a little later, and other
    events run in between. A crash happens before a job, between two of its disk operations, or before the loop learns
    of it.
    """

    def __init__(self, world: World, host: SimHost) -> None:
        self._world = world
        self._host = host
        self._waiting: dict[str, deque[tuple[float, Callable[[], Any], Callable[[Any], None]]]] = {}
        self._reported_ms: dict[str, float] = {}

    def submit(self, lane: str, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Queue the job: it ends after a random time, a stall of the disk, and the write-back of dirty bytes, for which
        only reads need not wait.

        If the process ends before, the job does not run, or its result is dropped.
        """
        waiting = self._waiting.setdefault(lane, deque())
        waiting.append((self._world.rng.random(), work, done))
        if len(waiting) == 1:
            self._begin(lane)

    def _begin(self, lane: str) -> None:
        """Begin the first job of the lane. Its time depends on the disk of now, which may have been slow before."""
        world, host = self._world, self._host
        share, work, done = self._waiting[lane][0]
        disk: Any = host.disk
        stalled_ms = max(0.0, host.stalled_until_ms - world.now_ms)
        backlog_ms = 0.0 if lane.startswith(READ_PREFIX) else disk.memory.backlog_ms()
        duration_ms = stalled_ms + share * host.background_ms + backlog_ms
        world.at(duration_ms, self._work, lane, work, done, host=host)

    def _work(self, lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        result: Any
        stalled_ms = self._host.stalled_until_ms - self._world.now_ms
        if stalled_ms > 0.0:
            self._world.at(stalled_ms, self._work, lane, work, done, host=self._host)
            return
        disk: Any = self._host.disk
        with off_the_loop(disk):
            try:
                result = work()
            except Exception as e:  # the real thread passes it to `done`, too
                result = e
        self._waiting[lane].popleft()
        if self._waiting[lane]:
            self._begin(lane)
        world = self._world
        reported_ms = max(world.now_ms + world.rng.random() * REPORT_MS, self._reported_ms.get(lane, 0.0))
        self._reported_ms[lane] = reported_ms
        world.at(reported_ms - world.now_ms, done, result, host=self._host)
