"""The target of commands, and their exit codes."""

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
    """An error that ends the program with a message and an exit code."""
    return _KINDS.get(code, click.ClickException)(message)


class Target(Protocol):
    """A cluster. Methods raise click.ClickException if it cannot be reached."""

    @property
    def name(self) -> str:
        """The cluster's `metadata.name`."""
        ...

    def resource(self) -> dict[str, Any]:
        """The resource with its newest status."""
        ...

    def driven(self) -> None:
        """Raise click.ClickException if no supervisor would handle a request."""
        ...

    def annotate(self, values: Mapping[str, str]) -> None:
        """Set these annotations of the resource; others stay."""
        ...

    def flag(self, name: str, value: bool) -> None:
        """Set the field `paused` or `hibernated`."""
        ...

    def request_replacement(self, item: Mapping[str, Any]) -> None:
        """Request the replacement of a node, without waiting. `item` is an entry of `spec.replacements`."""
        ...

    def withdraw_replacement(self, name: str) -> None:
        """Withdraw the request of this name; harmless if it does not exist."""
        ...

    def log(self, node: Mapping[str, Any], lines: int, follow: bool) -> Iterator[str]:
        """Lines of a node's log, with line ends. `node` is an entry of the status."""
        ...

    def use(self, nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
        """Node, role, CPU and memory of each node."""
        ...


pause: Callable[[float], None] = time.sleep
"""Sleep. A function of its own, so that tests can replace it without changing `time.sleep` of other threads."""


def wait_for(
    target: Target, timeout_s: float, check: Callable[[dict[str, Any]], str | None], looks_s: float = LOOK_S
) -> None:
    """Wait until `check` returns None for the resource. Until then it returns the text of the condition that the
    command waits for.

    Raises after the time-out.
    """
    until = time.monotonic() + timeout_s
    while (waits := check(target.resource())) is not None:
        if time.monotonic() > until:
            raise failure(FAILED, f"not done in {timeout_s:g} s, it continues: {waits}")
        pause(looks_s)
