"""Generates Python source line by line: indentation, unique names, and runs of fixed-size values merged into one
struct.

Only `compiler` and its subclasses use it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class FunctionSource:
    """Lines of a function, and the global names that they use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._count = 0
        self._run: list[tuple[str, str]] = []

    def unique(self, prefix: str) -> str:
        """An unused local name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def line(self, text: str) -> None:
        """Add a line of code at the present indentation."""
        assert not self._run, "a run of fixed-size values is still open"
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Open the block `head:`; lines written inside the context are indented by one level."""
        self.line(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._depth -= 1

    def constant(self, prefix: str, value: Any) -> str:
        """A global name for `value`."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    # -- runs: (struct code, variable or expression), in order

    def add(self, code: str, what: str) -> None:
        """Append a value of struct code `code` to the open run."""
        self._run.append((code, what))

    def take_run(self) -> list[tuple[str, str]]:
        """Close the open run and return it."""
        run, self._run = self._run, []
        return run

    def read_run(self) -> None:
        """Generate code that reads the open run at `pos`."""
        run = self.take_run()
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self.line(f"{run[0][1]} = buf[pos]; pos += 1")
            return
        layout = self._struct(run)
        names = ", ".join(name for _, name in run) + ("," if len(run) == 1 else "")
        unpack = self.constant(f"U_{_spelt(run)}_", layout.unpack_from)
        self.line(f"{names} = {unpack}(buf, pos); pos += {layout.size}")

    def write_run(self, run: list[tuple[str, str]], out: str) -> None:
        """Write the statement that appends `run` to the bytearray `out`."""
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self.line(f"{out}.append({run[0][1]})")
            return
        pack = self.constant(f"P_{_spelt(run)}_", self._struct(run).pack)
        self.line(f"{out} += {pack}({', '.join(what for _, what in run)})")

    def _struct(self, run: list[tuple[str, str]]) -> struct.Struct:
        layout = ">" + "".join(code for code, _ in run)
        return _STRUCTS.setdefault(layout, struct.Struct(layout))

    def function(self, head: str) -> Any:
        """Compile the lines as the body of `head` (a def line) and return the function."""
        assert not self._run
        text = head + "\n" + "\n".join(self.lines) + "\n"
        scope = dict(self.names)
        exec(compile(text, "<wire>", "exec"), scope)  # noqa: S102  # our own text, from our own schemas
        return scope[head.split("(", maxsplit=1)[0].removeprefix("def ")]


_STRUCTS: dict[str, struct.Struct] = {}


def _spelt(run: list[tuple[str, str]]) -> str:
    """A run's struct codes as part of a Python name."""
    return "".join(code for code, _ in run).replace("?", "z")
