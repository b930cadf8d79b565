"""Sockets on the loop (`base.net`): buffers provided by the receivers, gathered writes, sendfile.

A transport writes at once as much as the socket accepts and keeps the rest in order. While it keeps data, it watches
for writability. Callers limit the buffered data: they check `unsent_bytes` and stop writing.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kraft_node.base.env import Background, read_lane
from kraft_node.base.net import Outgoing, Receiver, Transport
from kraft_node.runtime.connecting import Connecting
from kraft_node.runtime.loop import READABLE, WRITABLE, Loop
from kraft_node.runtime.residency import bring_in, is_resident
from kraft_protocol.buffers import FileSlice

log = logging.getLogger("kraft_node.runtime.net")

ACCEPTS_MAX: Final = 256
"""Maximum of connections accepted in one turn of the loop, so that a storm of them does not starve open connections."""

ACCEPT_PAUSE_MS: Final = 100
"""How long accepting pauses if the process has no free descriptor: retrying at once would spin."""

FILES_RESERVE: Final = 64
"""Descriptors reserved for files, which are opened and closed all the time."""

BACKLOG: Final = 511

JOIN_MAX: Final = 64 * 1024
"""Parts with a smaller total are joined and sent by `send`, which is cheaper than a vector of many small parts."""

IOV_MAX: Final = 512
"""Maximum of parts of one sendmsg; the system's limit is 1024."""

SEND_TURN_MAX: Final = 4 << 20
"""Maximum of bytes that one connection may send in one turn, before other connections get their turn."""

WINDOW_MAX: Final = 1 << 20
"""Maximum of bytes of a file that are sent, or read ahead by a lane, at once."""

MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
"""Tells TCP that more data follows at once, so that a header does not leave in its own packet before its file slice."""

_Part: TypeAlias = "memoryview | FileSlice"


def descriptors_max() -> int:
    """The maximum of open descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


class SocketTransport:
    """One connected TCP socket."""

    __slots__ = (
        "_armed",
        "_background",
        "_closing",
        "_fd",
        "_has_waited",
        "_held",
        "_is_reading",
        "_loop",
        "_mask",
        "_out",
        "_receiver",
        "_sock",
        "_unsent",
        "_warm_to",
        "peer",
    )

    def __init__(self, loop: Loop, background: Background, sock: socket.socket, peer: tuple[str, int]) -> None:
        self._loop = loop
        self._background = background
        self._is_reading = False
        self._warm_to = -1  # how far a lane has read ahead in the file of the first part
        self._sock: socket.socket | None = sock
        self._fd = sock.fileno()
        self._receiver: Receiver | None = None
        self.peer = peer
        self._out: deque[_Part] | None = None
        self._has_waited = False  # `drained` is due: the queue has waited for the socket or the disk
        self._unsent = 0
        self._held = 0  # the part of it that uses memory
        self._mask = READABLE
        self._armed = READABLE  # what the loop watches: the mask, plus READABLE in a pause until bytes arrive
        self._closing = False

    def start(self, receiver: Receiver) -> None:
        """Start reading for `receiver`."""
        self._receiver = receiver
        self._armed = self._mask
        if self._sock is not None:
            self._loop.watch(self._fd, self._mask, self._ready)

    def callback_name(self) -> str:
        """For the log line of a slow callback: the last action of the receiver."""
        more = getattr(self._receiver, "callback_name", None)
        receiver = type(self._receiver).__name__
        return f"receiver={receiver} peer={self.peer[0]}:{self.peer[1]}" + (f" {more()}" if more is not None else "")

    # Reading

    def _ready(self, events: int) -> None:
        if events & WRITABLE and self._out:
            self._flush()
        if events & ~WRITABLE and self._sock is not None:
            if self._mask & READABLE:
                self._read()
                return
            if self._armed & READABLE:
                self._arm()
            if events & ~(READABLE | WRITABLE):  # the peer is gone while reading is paused
                self._lost(ConnectionResetError(errno.ECONNRESET, "connection reset while reading was paused"))

    def _read(self) -> None:
        receiver, sock = self._receiver, self._sock
        assert receiver is not None
        assert sock is not None
        try:
            count = sock.recv_into(receiver.get_buffer(-1))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as e:
            self._lost(e)
            return
        except Exception:
            log.exception("connection closed after a failure peer=%s:%d", *self.peer)
            self._lost(None)
            return
        if not count:
            self._lost(None)
            return
        try:
            receiver.buffer_updated(count)
        except Exception:
            log.exception("connection closed after a failure peer=%s:%d", *self.peer)
            self._lost(None)

    def pause_reading(self) -> None:
        """Deliver no bytes. The loop watches until the next bytes arrive, which saves system calls."""
        self._watch(self._mask & ~READABLE)

    def resume_reading(self) -> None:
        """Deliver bytes again; without effect after `close`."""
        if not self._closing:
            self._watch(self._mask | READABLE)

    def _watch(self, mask: int) -> None:
        self._mask = mask
        # A pause costs no system call: most clients send nothing before they have the answer, which ends the pause.
        if mask != self._armed and mask | READABLE != self._armed:
            self._arm()

    def _arm(self) -> None:
        self._armed = self._mask
        if self._sock is not None and self._receiver is not None:
            self._loop.rewatch(self._fd, self._mask)

    # Writing

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket has not accepted yet, including file slices; 0 once it is closed."""
        return self._unsent

    @property
    def held_bytes(self) -> int:
        """The part of `unsent_bytes` in memory: without file slices."""
        return self._held

    def write(self, parts: Sequence[Outgoing]) -> None:
        """Send what the socket accepts and queue the rest; ignored after `close`. Socket errors end the connection."""
        sock = self._sock
        if sock is None or self._closing:
            return
        if not self._out:
            size = _plain_size(parts)
            if 0 <= size <= JOIN_MAX:
                data = parts[0] if len(parts) == 1 else b"".join(parts)  # type: ignore[arg-type]
                try:
                    sent = sock.send(data)  # type: ignore[arg-type]
                except (BlockingIOError, InterruptedError):
                    sent = 0
                except OSError as e:
                    self._lost_soon(e)
                    return
                if sent != size:
                    self._keep((memoryview(data)[sent:],))  # type: ignore[arg-type]
                return
        self._keep(parts)

    def _keep(self, parts: Sequence[Outgoing]) -> None:
        out = self._out
        if out is None:
            out = self._out = deque()
        was_empty = not out
        for part in parts:
            if isinstance(part, FileSlice):
                size = part.length
                item: _Part = part
                if size and part.file.fileno() < 0:
                    item = memoryview(part.read())
            else:
                item = memoryview(part).cast("B") if not isinstance(part, memoryview) else part
                size = item.nbytes
            if size:
                out.append(item)
                self._unsent += size
                if item.__class__ is memoryview:
                    self._held += size
        if was_empty:
            self._flush()

    def _flush(self) -> None:
        """Send as much as the socket accepts; watch for writability while data is left."""
        out = self._out
        if self._is_reading:
            return  # `_read_ahead` continues
        assert out is not None
        budget = SEND_TURN_MAX
        try:
            while out and budget > 0 and self._sock is not None:
                first = out[0]
                sent = self._send_file(first, out) if isinstance(first, FileSlice) else self._send_plain(out)
                if sent == 0:
                    break
                self._unsent -= sent
                budget -= sent
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as e:
            self._lost_soon(e)
            return
        if out:
            self._has_waited = True
            self._watch(self._mask & ~WRITABLE if self._is_reading else self._mask | WRITABLE)
            return
        self._out = None
        if self._has_waited:
            self._has_waited = False
            self._watch(self._mask & ~WRITABLE)
            if self._receiver is not None and not self._closing:
                self._receiver.drained()
        if self._closing:
            self._lost_soon(None)

    def _send_file(self, part: FileSlice, out: deque[_Part]) -> int:
        fd, position, length = part.file.fileno(), part.position, part.length
        if position >= self._warm_to:
            length = min(length, WINDOW_MAX)
            if not is_resident(fd, position, length):
                self._read_ahead(part, length)
                return 0
        elif self._warm_to > position:
            length = min(length, self._warm_to - position)
        sent = os.sendfile(self._fd, fd, position, length)
        if sent == 0:  # the promised bytes are gone (the file was truncated): the stream cannot continue
            raise OSError(errno.EIO, f"{part.file.path} ended at {part.position}, {part.length} bytes early")
        if sent == part.length:
            out.popleft()
            self._warm_to = -1
        else:
            out[0] = FileSlice(part.file, position + sent, part.length - sent)
        return sent

    def _read_ahead(self, part: FileSlice, length: int) -> None:
        """Let a lane read the start of the first part into memory, then send it. The loop does not wait."""
        file, position = part.file, part.position
        self._is_reading = True

        def done(result: BaseException | None) -> None:
            self._is_reading = False
            if self._sock is None:
                return
            if isinstance(result, OSError):
                self._lost_soon(result)
                return
            self._warm_to = position + length
            self._flush()

        lane = read_lane(file.path, file.fileno())
        self._background.submit(lane, lambda: bring_in(file.fileno(), position, length), done)

    def _send_plain(self, out: deque[_Part]) -> int:
        assert self._sock is not None
        batch: list[memoryview] = []
        flags = 0
        for part in out:
            if isinstance(part, FileSlice):
                flags = MSG_MORE
                break
            batch.append(part)
            if len(batch) == IOV_MAX:
                break
        sent = total = self._sock.sendmsg(batch, (), flags)
        self._held -= sent
        for part in batch:
            if sent < part.nbytes:
                if sent:
                    out[0] = part[sent:]
                break
            sent -= part.nbytes
            out.popleft()
        return total

    # The end

    @property
    def closed(self) -> bool:
        """Whether the socket is gone; False while queued data is still being sent after `close`."""
        return self._sock is None

    def close(self) -> None:
        """Stop reading and send the queued data, then close and report the loss."""
        if self._sock is None or self._closing:
            return
        self._closing = True
        self.pause_reading()
        if not self._out:
            self._lost_soon(None)

    def abort(self) -> None:
        """Close now and drop the queued data. The loss is reported in a later callback."""
        self._lost_soon(None)

    def _lost_soon(self, error: OSError | None) -> None:
        """Report the loss later: the receiver may be the caller and must finish first."""
        self._shut()
        self._loop.call_soon(self._notify_lost, error)

    def _lost(self, error: OSError | None) -> None:
        self._shut()
        self._notify_lost(error)

    def _shut(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.unwatch(self._fd)
            sock.close()
        self._closing = True
        self._out = None
        self._unsent = self._held = 0

    def _notify_lost(self, error: OSError | None) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.connection_lost(error)


def _plain_size(parts: Sequence[Outgoing]) -> int:
    """The bytes in `parts`; -1 if they are too many to join or not all in memory."""
    size = 0
    for part in parts:
        if part.__class__ is FileSlice:
            return -1
        size += len(part)  # type: ignore[arg-type]
        if size > JOIN_MAX:
            return -1 if len(parts) > 1 else size
    return size


class SocketListener:
    """A bound, listening socket."""

    def __init__(self, net: SocketNet, sock: socket.socket, accept: Callable[[Transport], Receiver]) -> None:
        self._net = net
        self._loop = net.loop
        self._sock: socket.socket | None = sock
        self._accept = accept
        self.port = int(sock.getsockname()[1])
        self._loop.watch(sock.fileno(), READABLE, self._ready)

    def _ready(self, _events: int) -> None:
        for _ in range(ACCEPTS_MAX):
            if (sock := self._sock) is None:  # `accept` may close the listener
                return
            try:
                connection, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                log.error("cannot accept connections port=%d error=%s", self.port, e)
                self._loop.rewatch(sock.fileno(), 0)
                self._loop.call_later(ACCEPT_PAUSE_MS, self._resume)
                return
            if connection.fileno() >= self._net.connections_below:
                connection.close()
                log.error("connection refused port=%d reason=the other descriptors are kept for files", self.port)
                continue
            self._net.adopt(connection, (address[0], address[1]), self._accept)

    def _resume(self) -> None:
        if self._sock is not None:
            self._loop.rewatch(self._sock.fileno(), READABLE)

    def close(self) -> None:
        """Stop accepting and free the port; allowed if it is closed already. Connections stay."""
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.unwatch(sock.fileno())
            sock.close()


class SocketNet:
    """Listens and connects (`base.net.Net`).

    `send_buffer` and `receive_buffer` are the kernel's bytes per socket; -1: the kernel adapts them to the throughput.
    """

    def __init__(self, loop: Loop, background: Background) -> None:
        self.loop = loop
        self._background = background
        self.send_buffer = -1
        self.receive_buffer = -1
        self.backlog = BACKLOG
        self.connections_below = descriptors_max() - FILES_RESERVE
        """New connections with this or a higher descriptor are refused: logs must continue even with many clients."""

    def listen(self, host: str, port: int, accept: Callable[[Transport], Receiver]) -> SocketListener:
        """Bind and listen. An empty `host` means all addresses of this machine, v4 and v6. Of a name's addresses, the
        first IPv4 address counts, as in Java."""
        where = host or "::"
        # As bytes, because a text would load the tables of international names: most of a megabyte.
        name = where.encode() if where.isascii() else where
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as e:
            raise OSError(e.errno, f"cannot resolve {where}: {e.strerror}") from None
        try:
            family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
            sock = self._bound(family, address, dual=not host)
        except OSError:
            if host:
                raise
            sock = self._bound(socket.AF_INET, ("", port), dual=False)  # a machine without IPv6
        return SocketListener(self, sock, accept)

    def _bound(self, family: int, address: tuple[object, ...], *, dual: bool) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
            if self.receive_buffer >= 0:  # accepted sockets inherit it, and the window scale is agreed on before accept
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
            sock.bind(address)
            sock.listen(self.backlog)
        except OSError as e:
            sock.close()
            raise OSError(e.errno, f"cannot listen on {address[0]}:{address[1]}: {e.strerror}") from None
        return sock

    def connect(
        self, host: str, port: int, connected: Callable[[Transport], Receiver], failed: Callable[[OSError], None]
    ) -> None:
        """Resolve the name in the background, connect, then call `connected` or `failed`."""

        def made(sock: socket.socket, name: tuple[str, int]) -> None:
            if not self.adopt(sock, (name[0], name[1]), connected):
                failed(OSError(errno.ECONNRESET, f"{host}:{port} closed the connection at once"))

        Connecting(self.loop, self._background, (host, port), made, failed).start()

    def adopt(self, sock: socket.socket, peer: tuple[str, int], accept: Callable[[Transport], Receiver]) -> bool:
        """Make a transport of a connected socket. Returns False if it is closed already, or was refused."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.send_buffer >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer)
        except OSError as e:
            log.debug("connection closed before it was adopted peer=%s:%d error=%s", *peer, e)
            sock.close()
            return False
        host = peer[0].removeprefix("::ffff:")  # an IPv4 peer on a dual-stack socket
        transport = SocketTransport(self.loop, self._background, sock, (host, peer[1]))
        try:
            receiver = accept(transport)
        except Exception:
            log.exception("connection refused after a failure peer=%s:%d", *peer)
            sock.close()
            return False
        transport.start(receiver)
        return True
