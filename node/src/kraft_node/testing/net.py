"""A simulated network (`base.net.Net`) of hosts by name.

Fault model: TCP. Bytes arrive in order and once, in pieces and after delays drawn from the seed, or the connection
breaks anywhere between two bytes. A host that crashes resets its connections. `cut` stops traffic between two hosts
until `heal`, `cut_one_way` in one direction; bytes and resets meanwhile wait, as for TCP's retransmission. `delay_ms`
is the maximum travel time of bytes.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kraft_node.base.net import Listener, Outgoing, Receiver, Transport
from kraft_node.testing.world import SimHost, World
from kraft_protocol.buffers import FileSlice

DELAY_MAX_MS: Final = 3.0
FIRST_EPHEMERAL_PORT: Final = 40_000
HIGH_MARK_BYTES: Final = 256 * 1024
ROUNDING_MS: Final = 1e-6
"""Event times are sums of floats; this allows for rounding."""


class SimNetwork:
    """All links between hosts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.transports: set[SimTransport] = set()
        self.cuts: set[frozenset[str]] = set()
        self.deaf: set[tuple[str, str]] = set()
        """(from, to): no bytes arrive."""
        self.delay_ms = DELAY_MAX_MS
        self._next_port = FIRST_EPHEMERAL_PORT

    def host(self, host: SimHost) -> SimNet:
        """The network as the process on `host` sees it."""
        return SimNet(self, host)

    def port(self) -> int:
        """An unused port number for a listener or for one end of a connection; each call returns the next number."""
        self._next_port += 1
        return self._next_port

    def crash(self, host: SimHost) -> None:
        """Remove the host's sockets and notify their peers."""
        for key in [k for k, listener in self.listeners.items() if listener.host is host]:
            del self.listeners[key]
        for transport in self._in_order():
            if transport.host is host:
                transport.vanish()

    def break_some(self, share: float) -> int:
        """Break about that share of all connections for both sides. Returns how many."""
        broken = 0
        for transport in self._in_order():
            if not transport.closed and self.world.rng.random() < share / 2:
                broken += 1
                error = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
                for end in (transport, transport.other):
                    if end is not None:
                        self.world.at(0.0, end.reset, error, host=end.host)
        return broken

    def _in_order(self) -> list[SimTransport]:
        return sorted(self.transports, key=lambda transport: transport.number)

    def cut(self, a: str, b: str) -> None:
        """Stop traffic between two hosts until `heal`."""
        self.cuts.add(frozenset((a, b)))

    def cut_one_way(self, sender: str, receiver: str) -> None:
        """Stop traffic from `sender` to `receiver` until `heal`."""
        self.deaf.add((sender, receiver))

    def reaches(self, sender: str, receiver: str) -> bool:
        """Whether bytes pass in this direction."""
        return frozenset((sender, receiver)) not in self.cuts and (sender, receiver) not in self.deaf

    def heal(self) -> None:
        """Restore all traffic."""
        self.cuts.clear()
        self.deaf.clear()
        for transport in self._in_order():
            self.world.at(0.0, transport.resume_delivery, host=transport.host)


class SimListener:
    """A listening socket."""

    def __init__(self, network: SimNetwork, host: SimHost, port: int, accept: Callable[[Transport], Receiver]) -> None:
        self.network = network
        self.host = host
        self.port = port
        self.accept = accept

    def close(self) -> None:
        """Stop accepting; connections that were opened before stay."""
        self.network.listeners.pop((self.host.name, self.port), None)


class SimTransport:
    """One end of a connection."""

    def __init__(self, network: SimNetwork, host: SimHost, peer: tuple[str, int]) -> None:
        self.network = network
        self.host = host
        self.number = network.port()
        self._peer = peer
        self.other: SimTransport | None = None
        self.receiver: Receiver | None = None
        self.closed = False
        self._reading = True
        self._inbox = bytearray()
        self._ended = False
        self._error: OSError | None = None
        self._in_flight = 0
        self._leaving: deque[tuple[float, int]] = deque()
        """Bytes in flight, with their arrival times."""
        self._last_arrival_ms = 0.0
        self._was_high = False
        network.transports.add(self)

    @property
    def peer(self) -> tuple[str, int]:
        """Host name and port of the other end; a listening side sees the connection's own number as the port."""
        return self._peer

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and are still on their way. A cut link holds bytes back only after that."""
        leaving, now_ms = self._leaving, self.network.world.now_ms
        while leaving and leaving[0][0] <= now_ms + ROUNDING_MS:
            self._in_flight -= leaving.popleft()[1]
        return self._in_flight

    @property
    def held_bytes(self) -> int:
        """Equal to `unsent_bytes`: file slices are read when they are written."""
        return self.unsent_bytes

    def accepted(self, listener: SimListener) -> None:
        """Notify the listening side of the connection."""
        if not self.closed:
            self.receiver = listener.accept(self)
            self.resume_delivery()

    def write(self, parts: Sequence[Outgoing]) -> None:
        """Send the bytes of all parts now, or nothing if this end is closed.

        If a file slice cannot be read, the stream ends for both sides.
        """
        if self.closed or self.other is None:
            return
        try:
            raw = b"".join(p.read() if isinstance(p, FileSlice) else bytes(p) for p in parts)
        except OSError as e:
            # The file's disk is dead: as on a real socket, the stream cannot continue.
            self._send(None)
            self._lost_soon(e)
            return
        self._was_high = self._was_high or self.unsent_bytes + len(raw) > HIGH_MARK_BYTES
        self._send(raw)

    def _send(self, raw: bytes | None) -> None:
        """Send bytes, or None for the end; they arrive after a delay and in order."""
        world, other = self.network.world, self.other
        assert other is not None
        arrival = max(self._last_arrival_ms, world.now_ms + world.rng.random() * self.network.delay_ms)
        self._last_arrival_ms = arrival
        world.at(arrival - world.now_ms, other.arrive, self, raw, host=other.host)
        if raw is not None:
            self._in_flight += len(raw)
            self._leaving.append((arrival, len(raw)))
            if self._was_high:
                world.at(arrival - world.now_ms, self._left, host=self.host)

    def _left(self) -> None:
        if self._was_high and self.unsent_bytes <= HIGH_MARK_BYTES // 2 and self.receiver is not None:
            self._was_high = False
            self.receiver.drained()

    def arrive(self, _sender: SimTransport, raw: bytes | None) -> None:
        """Take bytes from the network, None for the end of the stream, and deliver as far as possible.

        Bytes that a reset has overtaken are lost, like those before them.
        """
        if self._error is not None:
            return
        if raw is None:
            self._ended = True
        else:
            self._inbox += raw
        self.resume_delivery()

    def resume_delivery(self) -> None:
        """Hand over the bytes that have arrived, in pieces."""
        rng = self.network.world.rng
        while self._inbox and self._reading and not self.closed and self.receiver is not None and not self._is_cut():
            view = self.receiver.get_buffer(-1)
            size = min(len(view), len(self._inbox))
            if rng.random() < 0.3:
                size = rng.randrange(1, size + 1)
            view[:size] = self._inbox[:size]
            del self._inbox[:size]
            self.receiver.buffer_updated(size)
        if self._ended and self.receiver is not None and not self._inbox and not self.closed and not self._is_cut():
            self._lost(self._error)

    def _is_cut(self) -> bool:
        return self.other is not None and not self.network.reaches(self.other.host.name, self.host.name)

    def pause_reading(self) -> None:
        """Keep arriving bytes in the inbox; the end of the stream waits behind them."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver waiting bytes in an event of their own, never within this call."""
        self._reading = True
        self.network.world.at(0.0, self.resume_delivery, host=self.host)

    def close(self) -> None:
        """Send the end of the stream behind all written bytes; `connection_lost` follows here in a later event."""
        if not self.closed:
            if self.other is not None:
                self._send(None)
            self._lost_soon(None)

    def abort(self) -> None:
        """Close at once: bytes on their way arrive, unless the reset overtakes them."""
        if not self.closed:
            self._reset_other()
            self._lost_soon(None)

    def _lost_soon(self, error: OSError | None) -> None:
        self.closed = True
        self.network.transports.discard(self)
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            self.network.world.at(0.0, receiver.connection_lost, error, host=self.host)

    def _lost(self, error: OSError | None) -> None:
        self.closed = True
        self.network.transports.discard(self)
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.connection_lost(error)

    def vanish(self) -> None:
        """Remove this end with its process; the other end is notified."""
        self.closed = True
        self.receiver = None
        self.network.transports.discard(self)
        self._reset_other()

    def _reset_other(self) -> None:
        other = self.other
        if other is not None and not other.closed:
            error = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            self.network.world.at(
                self.network.world.rng.random() * self.network.delay_ms, other.reset, error, host=other.host
            )

    def reset(self, error: OSError) -> None:
        """Reset the connection once this side is reachable; bytes that arrived and were not read are lost."""
        if not self.closed:
            self._inbox.clear()
            self._ended, self._error = True, error
            self.resume_delivery()


class SimNet:
    """The network of one process (`base.net.Net`)."""

    def __init__(self, network: SimNetwork, host: SimHost) -> None:
        self._network = network
        self._host = host

    def listen(self, host: str, port: int, accept: Callable[[Transport], Receiver]) -> Listener:
        """Listen on this host; `host` is only used in messages. Raises EADDRINUSE if the port is taken."""
        port = port or self._network.port()
        key = (self._host.name, port)
        if key in self._network.listeners:
            raise OSError(errno.EADDRINUSE, f"address in use: {host}:{port}")
        listener = self._network.listeners[key] = SimListener(self._network, self._host, port, accept)
        return listener

    def connect(
        self,
        host: str,
        port: int,
        connected: Callable[[Transport], Receiver],
        failed: Callable[[OSError], None],
    ) -> None:
        """Connect after a random delay; refused without a listener there, or if either direction is cut."""
        world = self._network.world
        name = self._host.name if host in {"localhost", "127.0.0.1"} else host
        delay = world.rng.random() * self._network.delay_ms
        world.at(delay, self._connect, name, port, connected, failed, host=self._host)

    def _connect(
        self,
        name: str,
        port: int,
        connected: Callable[[Transport], Receiver],
        failed: Callable[[OSError], None],
    ) -> None:
        listener = self._network.listeners.get((name, port))
        network, own = self._network, self._host.name
        if listener is None or not network.reaches(own, name) or not network.reaches(name, own):
            failed(ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused: {name}:{port}"))
            return
        near = SimTransport(self._network, self._host, (name, port))
        far = SimTransport(self._network, listener.host, (self._host.name, near.number))
        near.other, far.other = far, near
        near.receiver = connected(near)
        self._network.world.at(0.0, far.accepted, listener, host=far.host)
