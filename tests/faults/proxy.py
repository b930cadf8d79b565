"""TCP between the members, so that it can be cut one way or both.

Each member listens on a port of its own and is known to everybody by another one, where the proxy listens. The proxy
finds out which member a connection comes from by the owner of its socket, so that a cut can be between two members, in
one direction only, as a firewall's rule would make it.

A cut withholds bytes: nothing is closed, nothing is lost; after the healing they go on, as TCP would send them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

CLIENT = "client"
"""The name of what belongs to no member."""

CHUNK_BYTES = 256 * 1024

SETTLING_STEPS = 8
"""Steps of the loop within which a connection that was accepted has its task, and one that was aborted is closed."""


class Proxy:
    """All the routes of one cluster, served by a thread of its own."""

    def __init__(self, pids: Callable[[], dict[int, str]]) -> None:
        """`pids()` gives the members' names by process id, as of now."""
        self._pids = pids
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._healed = asyncio.Event()
        self._writers: dict[asyncio.StreamWriter, tuple[str, str]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy")
        self._thread.start()

    def route(self, name: str, target_port: int) -> int:
        """A port that leads to the member's own one."""
        return int(self._call(self._route(name, target_port)))

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Withhold what goes from the first of each pair to the second, until `heal` is called with the same pairs."""
        self._call(self._change(Counter(pairs), 1))

    def heal(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Take one `cut` back."""
        self._call(self._change(Counter(pairs), -1))

    def reset(self, name: str) -> int:
        """Close every connection to or from a member at once; how many there were."""
        return int(self._call(self._reset(name)))

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _route(self, name: str, target_port: int) -> int:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task that is cancelled before its first step runs none of its code: it cannot close what it was given.
            task = self._loop.create_task(self._carry(name, target_port, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: writer.transport.abort())

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=CHUNK_BYTES)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _change(self, pairs: Counter[tuple[str, str]], sign: int) -> None:
        for pair, count in pairs.items():
            self._cuts[pair] += sign * count
        self._cuts = +self._cuts
        self._healed.set()
        self._healed = asyncio.Event()

    async def _reset(self, name: str) -> int:
        found = [writer for writer, ends in self._writers.items() if name in ends]
        for writer in found:
            writer.transport.abort()
        return len(found)

    async def _close(self) -> None:
        # A closed server leaks what it has just accepted; so it accepts no more, has its tasks, and is closed then.
        for server in self._servers:
            self._loop.remove_reader(server.sockets[0].fileno())
        await _settle()
        for server in self._servers:
            server.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await _settle()

    async def _open(self, source: str, target: str) -> None:
        """Wait while bytes from source to target are withheld."""
        while (source, target) in self._cuts:
            await self._healed.wait()

    async def _carry(self, target: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = _owner(writer.get_extra_info("peername")[1], self._pids())
        onward: asyncio.StreamWriter | None = None
        self._writers[writer] = (source, target)
        try:
            await self._open(source, target)
            await self._open(target, source)
            answers, onward = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK_BYTES)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(source, target, reader, onward))
                both.create_task(self._pump(target, source, answers, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.pop(writer, None)
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()

    async def _pump(self, source: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._open(source, target)
            writer.write(data)
            await writer.drain()
        # A close is a segment like any other: it does not pass a cut either.
        await self._open(source, target)
        raise ConnectionResetError


async def _settle() -> None:
    for _ in range(SETTLING_STEPS):
        await asyncio.sleep(0)


def _owner(port: int, pids: dict[int, str]) -> str:
    """The member whose process has the loopback connection from this port."""
    inode = _inode(port)
    for pid, name in pids.items():
        with contextlib.suppress(OSError):
            for handle in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if inode and os.readlink(f"/proc/{pid}/fd/{handle}") == f"socket:[{inode}]":
                        return name
    return CLIENT


def _inode(port: int) -> str | None:
    local = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(local) and fields[3] == "01":
                return fields[9]
    return None
