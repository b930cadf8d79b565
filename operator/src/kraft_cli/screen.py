"""The output of `kraftcluster up`: events as lines; on a terminal, also the current tables below them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from kraft_operator.report import tables

LASTS_S: Final = 3.0


def greeting(resource: dict[str, Any]) -> str:
    """The first lines for a new user: bootstrap servers and a command to try."""
    servers = resource["local"]["bootstrap"]
    if resource["status"].get("security") == "Tls":
        line = "kraftcluster user add ann --produce '*' --consume '*' && kraftcluster client-config ann"
    elif shutil.which("kcat"):
        line = f"echo hello | kcat -b {servers} -P -t greetings && kcat -b {servers} -C -t greetings -e"
    else:
        line = f"kafka-console-producer.sh --bootstrap-server {servers} --topic greetings"
    return f"\n  bootstrap servers: {servers}\n  try in another terminal: {line}"


class WhileRead:
    """Forwards output while it has a reader: a terminal, a pipe or a connection may close."""

    def __init__(self, shown: Lines, lost: Callable[[], None]) -> None:
        self._shown: Lines | None = shown
        self._lost = lost

    def event(self, text: str) -> None:
        """Show an event. After an OSError, this and all further output is dropped and `lost` is called once."""
        self._show(lambda shown: shown.event(text))

    def status(self, resource: dict[str, Any]) -> None:
        """Show the status, with errors as in `event`."""
        self._show(lambda shown: shown.status(resource))

    def close(self) -> None:
        """End the output, with errors as in `event`."""
        self._show(lambda shown: shown.close())

    def _show(self, show: Callable[[Lines], None]) -> None:
        if self._shown is not None:
            try:
                show(self._shown)
            except OSError:
                self._shown = None
                self._lost()


class Lines:
    """Output to a file or a pipe."""

    def __init__(self, hint: str) -> None:
        self._hint = hint
        self._greeted = False
        self._blocked = ("", 0.0)

    def event(self, text: str) -> None:
        """Print one indented line."""
        click.echo(f"  {text}")

    def status(self, resource: dict[str, Any]) -> None:
        """Print the greeting once the cluster is ready, and each wait that lasts longer than `LASTS_S`."""
        ready = tables.condition(resource, "Ready")
        self._show_blocked(tables.condition(resource, "Degraded"))
        if ready.get("status") == "True" and not self._greeted:
            self._greeted = True
            click.echo(greeting(resource) + f"\n  {self._hint}\n")

    def _show_blocked(self, degraded: Mapping[str, Any]) -> None:
        """Print a wait once, and only if it lasts: right after a change, views are too old to permit the next step."""
        message = degraded["message"] if degraded.get("status") == "True" else ""
        last_message, since = self._blocked
        if message != last_message:
            self._blocked = (message, time.monotonic())
        elif message and since and time.monotonic() - since > LASTS_S:
            self._blocked = (message, 0.0)
            self.event(f"blocked: {message}")

    def close(self) -> None:
        """Do nothing: no tables are kept."""


class Screen(Lines):
    """Output to a terminal."""

    def __init__(self, hint: str) -> None:
        super().__init__(hint)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def event(self, text: str) -> None:
        """Print a dim line above the tables."""
        self._console.print(f"  {text}", markup=False, style="dim")

    def status(self, resource: dict[str, Any]) -> None:
        """Replace the tables. Prints the greeting once the cluster is ready, and waits as `Lines` does."""
        self._show_blocked(tables.condition(resource, "Degraded"))
        if tables.is_ready(resource) and not self._greeted:
            self._greeted = True
            self._console.print(greeting(resource) + f"\n  {self._hint}\n", markup=False, soft_wrap=True)
        self._live.update(tables.summary(resource), refresh=True)

    def close(self) -> None:
        """Remove the tables. Printed lines stay."""
        self._live.stop()
