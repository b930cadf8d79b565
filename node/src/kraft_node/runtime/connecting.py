"""Making a connection: tries the addresses of a name in order, until one answers.

If an address does not answer soon, the next address is tried in parallel (RFC 8305, section 5). After the last
address, the name is resolved again. A replaced pod has a new address, and names change only seconds later. Waiting for
the old address would delay acknowledgements for as long.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from kraft_node.base.env import Background
from kraft_node.runtime.loop import WRITABLE, Loop, TimerHandle

ALONE_MS: Final = 500.0
"""How long only one address is tried: longer than a round trip between continents."""

SYN_AGAIN: Final = 1
"""How often the kernel retries a silent address: it gives up after 3 s (its default of six retries takes two
minutes)."""

TCP_SYNCNT: Final = getattr(socket, "TCP_SYNCNT", None)

_Address: TypeAlias = "tuple[int, tuple[str, int]]"
"""Family, and the address for the socket."""


class Connecting:
    """Calls `made` with the socket of the first address that answers and the peer's address, or `failed`."""

    def __init__(
        self,
        loop: Loop,
        background: Background,
        where: tuple[str, int],
        made: Callable[[socket.socket, tuple[str, int]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._background = background
        self._where = where
        self._family = _numeric_family(where[0])
        self._made = made
        self._failed = failed
        self._known: set[_Address] = set()
        self._next: list[_Address] = []
        self._waiting: list[socket.socket] = []
        self._alone: TimerHandle | None = None
        self._looks_up = False
        self._is_over = False
        self._error = OSError(errno.EHOSTUNREACH, "no address")

    def start(self) -> None:
        """Resolve the name and try its addresses."""
        if self._family is None:
            self._look_up()
        else:
            self._loop.call_soon(self._learn, [(self._family, self._where)])

    def _look_up(self) -> None:
        host, port = self._where

        def resolve() -> list[_Address]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [(int(entry[0]), entry[4]) for entry in found]  # type: ignore[misc]

        def resolved(result: list[_Address] | BaseException) -> None:
            self._looks_up = False
            if isinstance(result, BaseException):
                self._error = result if isinstance(result, OSError) else OSError(errno.EINVAL, f"{host}: {result}")
                result = []
            self._learn(result)

        self._looks_up = True
        self._background.submit("resolve", resolve, resolved)

    def _learn(self, found: list[_Address]) -> None:
        if self._is_over:
            return
        self._next += [address for address in found if address not in self._known]
        self._known.update(found)
        self._go_on()

    def _go_on(self) -> None:
        """Try the next address; fail after the last address if no attempt is pending."""
        while self._next:
            try:
                sock = _begin(*self._next.pop(0))
            except OSError as e:  # also without a free descriptor, or without IPv6
                self._error = e
                continue
            self._waiting.append(sock)
            self._loop.watch(sock.fileno(), WRITABLE, partial(self._ready, sock))
            break
        if self._waiting:
            if self._alone is not None:
                self._alone.cancel()
            self._alone = self._loop.call_later(ALONE_MS, self._beside)
        elif not self._looks_up:
            self._stop()
            self._failed(self._error)

    def _beside(self) -> None:
        if self._next:
            self._go_on()
        elif self._family is None and not self._looks_up:
            self._look_up()

    def _ready(self, sock: socket.socket, _events: int) -> None:
        self._loop.unwatch(sock.fileno())
        self._waiting.remove(sock)
        try:
            if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            peer = sock.getpeername()  # raises if the peer has closed the connection already
        except OSError as e:
            sock.close()
            self._error = e
            self._go_on()
        else:
            self._stop()
            self._made(sock, peer)

    def _stop(self) -> None:
        self._is_over = True
        if self._alone is not None:
            self._alone.cancel()
        for sock in self._waiting:
            self._loop.unwatch(sock.fileno())
            sock.close()


def _begin(family: int, address: tuple[str, int]) -> socket.socket:
    """A socket that is connecting. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if TCP_SYNCNT is not None:
            sock.setsockopt(socket.IPPROTO_TCP, TCP_SYNCNT, SYN_AGAIN)
        code = sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except OSError:
        sock.close()
        raise
    return sock


def _numeric_family(host: str) -> int | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return int(family)
    return None
