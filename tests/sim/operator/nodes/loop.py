"""The operator's process on simulated time: `asyncio` as one host of a `kraft_node.testing.world.World`.

The world drives: each turn of this event loop is one of its events, and connections go over its network. So the
operator runs among the nodes' events, sees what they answer as late as any client, and dies or stands still like them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kraft_node.testing.net import SimNetwork, SimTransport
from kraft_node.testing.world import SimHost, SimTimer, World

TURNS_TO_END: Final = 1000
"""Turns that a process's tasks get to end after a death; nothing they do then has an effect."""


class ProcessLoop(asyncio.SelectorEventLoop):
    """The event loop of one process of the operator."""

    def __init__(self, world: World, network: SimNetwork, host: SimHost) -> None:
        self.world = world
        self.host = host
        self.network = network
        self.dead = False
        self._connections: list[_Connection] = []
        self._turn: SimTimer | None = None
        self._in_turn = False
        super().__init__()

    def time(self) -> float:
        return self.world.now_ms / 1000

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = super().call_soon(callback, *args, context=context)
        self._schedule(0.0)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        timer = super().call_at(when, callback, *args, context=context)
        self._schedule(0.0)  # the turn schedules the next one for the first timer
        return timer

    def _schedule(self, delay_ms: float) -> None:
        if self._in_turn or self.dead:
            return
        if self._turn is not None:
            self._turn.cancel()
        self._turn = self.world.at(delay_ms, self._take_turn, host=self.host)

    def _take_turn(self) -> None:
        self._turn = None
        self._once()
        if self._ready:  # type: ignore[attr-defined]
            self._schedule(0.0)
        elif self._scheduled:  # type: ignore[attr-defined]
            due = self._scheduled[0].when()  # type: ignore[attr-defined]
            self._schedule(max(0.0, due - self.time()) * 1000)

    def _once(self) -> None:
        """Run what is ready and due now, and no more."""
        self._in_turn = True
        try:
            super().call_soon(self.stop)
            self.run_forever()
        finally:
            self._in_turn = False

    def die(self) -> None:
        """End the process at once: peers see its connections reset, and its tasks do nothing more."""
        self.dead = True
        self.host.end_life()
        self.network.crash(self.host)
        for connection in self._connections:
            connection.vanish()
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(TURNS_TO_END):
            if not asyncio.all_tasks(self):
                break
            self._once()
        self.close()

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect over the simulated network; TLS is not simulated."""
        opened: asyncio.Future[tuple[_Connection, asyncio.Protocol]] = self.create_future()

        def connected(transport: Any) -> _Connection:
            connection = _Connection(transport)
            self._connections = [one for one in self._connections if not one.is_closing()]
            self._connections.append(connection)
            if opened.cancelled():
                transport.close()
            else:
                connection.protocol = protocol_factory()
                connection.protocol.connection_made(connection)
                opened.set_result((connection, connection.protocol))
            return connection

        def failed(error: OSError) -> None:
            if not opened.done():
                opened.set_exception(error)

        self.network.host(self.host).connect(host, port, connected, failed)
        return await opened


class _Connection(asyncio.Transport):
    """A connection, for both sides: the receiver of the network, and the transport of `asyncio`'s protocol."""

    def __init__(self, raw: SimTransport) -> None:
        super().__init__()
        self.protocol: asyncio.Protocol | None = None
        self._raw = raw
        self._buffer = bytearray(64 * 1024)
        self._is_closing = False

    # The network's receiver

    def get_buffer(self, _size_hint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> None:
        if self.protocol is not None:
            self.protocol.data_received(bytes(self._buffer[:count]))

    def vanish(self) -> None:
        """The process is gone: nothing is delivered any more."""
        self._is_closing, self.protocol = True, None

    def drained(self) -> None:
        pass

    def connection_lost(self, error: OSError | None) -> None:
        self._is_closing = True
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    # The protocol's transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.peer if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        self._raw.write([bytes(data)])

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def close(self) -> None:
        self._is_closing = True
        self._raw.close()

    def abort(self) -> None:
        self.close()
