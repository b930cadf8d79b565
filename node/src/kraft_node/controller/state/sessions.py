"""Broker leases and control states: the time of each broker's last heartbeat (KIP-631).

A broker holds a lease of `session_timeout_ms`, renewed by registration and by each heartbeat. This is soft state: only
the active controller keeps it, in memory, and a new active controller starts afresh. Every unfenced broker then gets a
full lease.

A broker with a closed connection is probably dead: a running broker sends a heartbeat over a new connection, ours at
once, those of Apache Kafka within their interval. So once the controller notices the closed connection, the lease ends
within a shorter time (`ClosedLimits`). Kafka always waits for the full lease. Fencing too early costs a change of
leaders, but never a record: broker epochs and leader epochs protect records.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, Protocol

CHECKS_PER_LEASE: Final = 8
CHECKS_PER_CLOSED: Final = 4
NO_OFFSET: Final = -1
OFFSET_MAX: Final = (1 << 63) - 1

CLOSED_KEY: Final = "broker.session.closed.timeout.ms"
REPLACE_KEY: Final = "broker.session.replace.on.restart"
INTERVALS: Final = 1.5
"""Default time, in heartbeat intervals, for a broker with a closed connection to send a heartbeat over a new
connection."""
RENEWAL_INTERVALS: Final = 0.25
"""The same for a broker that promises to do so at once: half a second, if a heartbeat is sent every two seconds. A busy
machine may keep a process from its processor for a good part of that."""


class ClosedLimits(NamedTuple):
    """The rest of a lease once the broker's connection is closed, in milliseconds."""

    other: int
    renewing: int
    """For a broker that promises to renew its lease at once (`own_fields.promise_renewal`)."""


def closed_limits_of(text: str, heartbeat_interval_ms: int, session_timeout_ms: int) -> ClosedLimits:
    """The value of CLOSED_KEY: empty for the defaults, 0 for the full lease. Raises ValueError."""
    if not text.strip():
        default = [int(intervals * heartbeat_interval_ms) for intervals in (INTERVALS, RENEWAL_INTERVALS)]
        return ClosedLimits(*(min(ms, session_timeout_ms) for ms in default))
    if not text.strip().isdecimal():
        raise ValueError(f"{CLOSED_KEY}={text} must be a number of milliseconds, or 0 for the whole lease")
    limit = int(text) or session_timeout_ms
    return ClosedLimits(limit, limit)


class Link(Protocol):
    """A connection of a broker."""

    @property
    def lost(self) -> bool:
        """Whether the connection has been closed."""


class ControlState(Enum):
    """The state of a broker as the controller sees it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def fenced(self) -> bool:
        """Whether the broker counts as fenced in this state. A broker in controlled shutdown does not."""
        return self in (ControlState.FENCED, ControlState.SHUTDOWN_NOW)


class _Lease:
    __slots__ = ("contact_ms", "epoch", "fenced", "link", "lost_ms", "offset", "renews", "shutdown_offset")

    def __init__(self, epoch: int, fenced: bool) -> None:
        self.epoch = epoch
        self.fenced = fenced
        self.contact_ms: int | None = None
        """Monotonic time of the last contact; None before the first, or once the session was found expired."""
        self.link: Link | None = None
        """The connection of the last heartbeat; None if unknown."""
        self.lost_ms: int | None = None
        """When the controller noticed that the link is closed."""
        self.renews = False
        """Whether the broker promises a heartbeat over another connection at once."""
        self.offset = NO_OFFSET
        """The metadata offset that the broker reported."""
        self.shutdown_offset = NO_OFFSET
        """All other brokers must have replayed this offset before the broker may stop: the end of the records that move
        its leaders.
        """


class Sessions:
    """The leases of all registered brokers."""

    __slots__ = ("_brokers", "closed_limits", "timed_out", "timeout_ms")

    def __init__(self, timeout_ms: int, closed_limits: ClosedLimits) -> None:
        self.timeout_ms = timeout_ms
        self.closed_limits = closed_limits
        self.timed_out = 0
        """Number of sessions that expired since the start (TimedOutBrokerHeartbeatCount)."""
        self._brokers: dict[int, _Lease] = {}

    @property
    def check_period_ms(self) -> int:
        """How often expired leases should be looked for, so that each is found soon after its end."""
        return max(1, min(self.timeout_ms // CHECKS_PER_LEASE, min(self.closed_limits) // CHECKS_PER_CLOSED))

    def clear(self) -> None:
        """Forget all leases: leadership has begun or ended."""
        self._brokers.clear()

    def register(self, broker_id: int, epoch: int, fenced: bool, now_ms: int | None) -> None:
        """A broker was registered, or its registration was replayed (`now_ms` None: this is not a contact)."""
        lease = self._brokers.get(broker_id)
        if lease is None or lease.epoch != epoch:
            lease = self._brokers[broker_id] = _Lease(epoch, fenced)
        lease.fenced = fenced
        if now_ms is not None:
            lease.contact_ms = now_ms

    def remove(self, broker_id: int) -> None:
        """Forget the lease of an unregistered broker; harmless if it has none."""
        self._brokers.pop(broker_id, None)

    def contact(
        self, broker_id: int, epoch: int, now_ms: int, link: Link | None = None, *, renews: bool = False
    ) -> None:
        """Note contact with the broker, over `link`. `renews`: it promises another heartbeat at once if that closes."""
        lease = self._brokers.get(broker_id)
        if lease is not None and lease.epoch == epoch:
            lease.contact_ms = now_ms
            lease.link = link
            lease.lost_ms = None
            lease.renews = renews

    def is_valid(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether that incarnation's lease is valid."""
        lease = self._brokers.get(broker_id)
        return lease is not None and lease.epoch == epoch and self._runs(lease, now_ms)

    def _runs(self, lease: _Lease, now_ms: int) -> bool:
        if lease.contact_ms is None or now_ms - lease.contact_ms >= self.timeout_ms:
            return False
        if lease.link is None or not lease.link.lost:
            return True
        if lease.lost_ms is None:
            lease.lost_ms = now_ms
        limits = self.closed_limits
        return now_ms - lease.lost_ms < (limits.renewing if lease.renews else limits.other)

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """A broker (id, epoch) with an expired session, reported once; None if no session has expired."""
        for broker_id, lease in self._brokers.items():
            if lease.contact_ms is not None and not self._runs(lease, now_ms):
                lease.contact_ms = None
                self.timed_out += 1
                return broker_id, lease.epoch
        return None

    def touch(self, broker_id: int, fenced: bool, offset: int) -> None:
        """Store the result of the broker's last heartbeat."""
        lease = self._brokers[broker_id]
        lease.fenced = fenced
        lease.offset = offset
        if fenced:
            lease.shutdown_offset = NO_OFFSET

    def set_fenced(self, broker_id: int, fenced: bool) -> None:
        """Store whether the broker is fenced. Fencing ends its controlled shutdown. Ignored without a lease."""
        lease = self._brokers.get(broker_id)
        if lease is not None:
            self.touch(broker_id, fenced, lease.offset)

    def start_shutdown(self, broker_id: int, offset: int) -> None:
        """The broker may stop once every active broker has replayed `offset`; the first reported offset counts."""
        lease = self._brokers[broker_id]
        if lease.shutdown_offset < 0:
            lease.shutdown_offset = offset

    def state(self, broker_id: int) -> ControlState:
        """Whether a registered broker is fenced, unfenced or in controlled shutdown (KIP-631)."""
        lease = self._brokers[broker_id]
        if lease.shutdown_offset >= 0:
            return ControlState.CONTROLLED_SHUTDOWN
        return ControlState.FENCED if lease.fenced else ControlState.UNFENCED

    def may_leave(self, broker_id: int) -> bool:
        """Whether all active brokers know that the broker in controlled shutdown no longer leads any partition."""
        lowest = min((s.offset for s in self._brokers.values() if not s.fenced and s.shutdown_offset < 0), default=None)
        return (OFFSET_MAX if lowest is None else lowest) >= self._brokers[broker_id].shutdown_offset
