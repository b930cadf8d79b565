"""The `Env` of a real process."""

from __future__ import annotations

import os
import time

from kraft_node.base.env import Env
from kraft_node.runtime.background import ThreadBackground
from kraft_node.runtime.disk import RealDisk
from kraft_node.runtime.loop import Loop
from kraft_node.runtime.net import SocketNet


class RealClock:
    """The machine's clocks."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        """CLOCK_MONOTONIC, rounded down. On Linux it stands still while the machine is suspended."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """The system's clock, rounded down; NTP and administrators can set it."""
        return time.time_ns() // 1_000_000


class RealRng:
    """The kernel's random numbers."""

    __slots__ = ()

    def random_bytes(self, count: int) -> bytes:
        """Bytes from os.urandom, which are good enough for secrets."""
        return os.urandom(count)

    def randrange(self, stop: int) -> int:
        """A random number below `stop`, uniform to within 2^-64."""
        if stop <= 0:
            raise ValueError(f"randrange needs a positive bound, not {stop}")
        size = (stop.bit_length() + 7) // 8 + 8
        return int.from_bytes(os.urandom(size), "big") % stop


BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str | None:
    """The kernel's id of this boot; None without /proc."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip() or None
    except OSError:
        return None


class RealEnv:
    """A loop, and the `Env` based on it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.background = ThreadBackground(self.loop)
        self.net = SocketNet(self.loop, self.background)
        self.env = Env(
            clock=RealClock(),
            scheduler=self.loop,
            rng=RealRng(),
            disk=RealDisk(),
            background=self.background,
            net=self.net,
            boot_id=boot_id(),
            lag=self.loop.lag,
        )

    def close(self, wait_s: float = 5.0) -> None:
        """Finish background work and close the loop, after the loop has stopped."""
        self.background.close(wait_s)
        self.loop.close()
