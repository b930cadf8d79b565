"""TCP between the members, so that a test can cut it in one direction or both.

Each member listens on its own port and advertises another one, on which the proxy listens. The proxy finds the member
behind a connection by the owner of its socket. A cut therefore works between two members and in one direction, like a
firewall rule.

A cut withholds bytes and closes no connection. Bytes are not lost; after the healing the proxy forwards them, as TCP
would retransmit them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

CLIENT = "client"
"""The name of what belongs to no member."""

CHUNK_BYTES = 256 * 1024

# From linux/netlink.h and linux/inet_diag.h.
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
NLMSG_ERROR = 2
ALL_STATES = 0xFFFFFFFF
NO_COOKIE = (0xFFFFFFFF, 0xFFFFFFFF)
INODE_AT = 16 + 4 + 48 + 16
"""Of an answer: after both headers, the addresses, and four numbers that nobody asked for."""
NETLINK_S = 5.0

SETTLING_STEPS = 8
"""Steps of the loop within which a connection that was accepted has its task, and one that was aborted is closed."""


class Proxy:
    """All routes of one cluster, served by one thread."""

    def __init__(self, pids: Callable[[], dict[int, str]]) -> None:
        """Prepare the proxy; `pids()` returns the members' current names by process id."""
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
        """A port that forwards to the member's own port."""
        return int(self._call(self._route(name, target_port)))

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Withhold bytes from the first to the second member of each pair, until `heal` with the same pairs."""
        self._call(self._change(Counter(pairs), 1))

    def heal(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Undo one `cut`."""
        self._call(self._change(Counter(pairs), -1))

    def reset(self, name: str) -> int:
        """Close every connection to or from a member at once; returns their number."""
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
            # A task that is cancelled before its first step runs no code, so it cannot close its connection.
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
        # A closed server leaks a connection that it has just accepted. So stop accepting, take the tasks, and close
        # then.
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
        peer, here = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        source = owner(peer[1], here[1], self._pids())
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
        # A close is a segment like any other: a cut withholds it as well.
        await self._open(source, target)
        raise ConnectionResetError


async def _settle() -> None:
    for _ in range(SETTLING_STEPS):
        await asyncio.sleep(0)


def owner(port: int, to_port: int, pids: dict[int, str]) -> str:
    """The member that owns the loopback connection between the two ports."""
    inode = _inode(port, to_port)
    for pid, name in pids.items():
        with contextlib.suppress(OSError):
            for handle in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if inode and os.readlink(f"/proc/{pid}/fd/{handle}") == f"socket:[{inode}]":
                        return name
    return CLIENT


def _inode(port: int, to_port: int) -> int | None:
    """The inode of the socket that connects the ports: asked of the kernel, or else looked up in its table.

    The table has a line for each connection, also for those of the last minute. A suite of tests leaves twenty thousand
    lines behind. Reading them takes a fifth of a second, in which the proxy forwards nothing.
    """
    try:
        return inode_by_netlink(port, to_port)
    except OSError:
        return inode_by_table(port, to_port)


def inode_by_netlink(port: int, to_port: int) -> int | None:
    """Returns None if the connection does not exist. Raises OSError if the kernel cannot be asked (sock_diag(7))."""
    loopback = socket.inet_aton("127.0.0.1").ljust(16, b"\0")
    wanted = struct.pack(">HH", port, to_port) + loopback + loopback + struct.pack("=III", 0, *NO_COOKIE)
    body = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ALL_STATES) + wanted
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(NETLINK_S)
        asking.send(struct.pack("=IHHII", 16 + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body)
        answer = asking.recv(65536)
    _, kind = struct.unpack_from("=IH", answer)
    if kind == NLMSG_ERROR:
        (error,) = struct.unpack_from("=i", answer, 16)
        if -error == errno.ENOENT:
            return None
        raise OSError(-error, "sock_diag")
    (inode,) = struct.unpack_from("=I", answer, INODE_AT)
    return int(inode)


def inode_by_table(port: int, to_port: int) -> int | None:
    """The same from /proc."""
    local, remote = f":{port:04X}", f":{to_port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(local) and fields[2].endswith(remote) and fields[3] == "01":
                return int(fields[9])
    return None
