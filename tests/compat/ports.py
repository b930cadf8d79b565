"""Ports for nodes under test that no other program on the machine takes before the node binds them.

The kernel may give a port that it chose (`bind` to 0) to another test or listener before the node binds it; on a busy
machine a node needs seconds for that. The node then ends, and its cluster waits in vain.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

FIRST: Final = 12_000
LAST: Final = 29_999
"""Below the kernel's ephemeral ports (32768 on) and Kubernetes' NodePorts (30000 on)."""
BLOCK: Final = 200
"""Ports that a process reserves at once, by a lock on one file for as long as it lives."""


class PortBlock:
    """The ports of this process; each is given out in turn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: list[int] = []
        self._ports: list[int] = []
        self._next = 0

    def take(self, count: int) -> list[int]:
        """Free ports, all different. Raises OSError if no free ports are left."""
        found: list[int] = []
        looked = 0
        while len(found) < count:
            if looked >= len(self._ports):
                self._reserve()
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            looked += 1
            if port not in found and _is_free(port):
                found.append(port)
        return found

    def _reserve(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        count = (LAST + 1 - FIRST) // BLOCK
        for index in range(count):
            number = (os.getpid() + index) % count
            handle = os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                continue
            self._locks.append(handle)
            first = FIRST + number * BLOCK
            self._next = len(self._ports)
            self._ports += range(first, first + BLOCK)
            return
        raise OSError(f"all {count} blocks of ports for tests are taken, see {self._folder}")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


OURS: Final = PortBlock(Path(tempfile.gettempdir()) / "kraftcluster-test-ports")


def first_of_a_cluster(brokers: int = 4) -> int:
    """A port for `kraftcluster up --port` with free ports for its nodes: each broker and controller has its hundred."""
    while True:
        first = random.randrange(FIRST, LAST - 100 * brokers)
        with ExitStack() as stack:
            try:
                for port in (first + 100 * number + other for number in range(brokers) for other in (0, 1, 2)):
                    stack.enter_context(socket.create_server(("localhost", port)))
            except OSError:
                continue
        return first
