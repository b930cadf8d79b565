"""What commands work on, and how they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import click

FAILED: Final = 1
WRONG: Final = 2
REFUSED: Final = 3
NOT_THERE: Final = 4

LOOK_S: Final = 0.3


class _Wrong(click.ClickException):
    exit_code = WRONG


class _Refused(click.ClickException):
    exit_code = REFUSED


class _NotThere(click.ClickException):
    exit_code = NOT_THERE


_KINDS: Final = {WRONG: _Wrong, REFUSED: _Refused, NOT_THERE: _NotThere}


def failure(code: int, message: str) -> click.ClickException:
    """What ends the program with a message and an exit code: one of the above, else 1."""
    return _KINDS.get(code, click.ClickException)(message)


class Target(Protocol):
    """One cluster. Raises click.ClickException where it cannot be reached."""

    @property
    def name(self) -> str: ...

    def resource(self) -> dict[str, Any]:
        """With its status, as newest known."""
        ...

    def driven(self) -> None:
        """Raises click.ClickException if nobody would do anything about a request."""
        ...

    def annotate(self, values: Mapping[str, str]) -> None: ...

    def flag(self, name: str, value: bool) -> None:
        """`paused` or `hibernated`."""
        ...

    def ask_replacement(self, item: Mapping[str, Any]) -> None: ...

    def withdraw_replacement(self, name: str) -> None: ...

    def log(self, node: Mapping[str, Any], lines: int, follow: bool) -> Iterator[str]:
        """Lines with their ends. `node` is an entry of the status."""
        ...

    def use(self, nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
        """Node, role, CPU, memory."""
        ...


pause: Callable[[float], None] = time.sleep
"""A name of its own: tests play what happens meanwhile in its place, and other threads sleep, too."""


def wait_for(
    target: Target, timeout_s: float, check: Callable[[dict[str, Any]], str | None], looks_s: float = LOOK_S
) -> None:
    """Until `check` says None to the resource; what else it says is waited for. Raises when time is up."""
    until = time.monotonic() + timeout_s
    while (waits := check(target.resource())) is not None:
        if time.monotonic() > until:
            raise failure(FAILED, f"not done in {timeout_s:g} s, it goes on: {waits}")
        pause(looks_s)
