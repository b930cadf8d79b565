"""The file of a run: one JSON value a line, written once and only added to.

The first line is the header: protocol, order of steps, rows, servers, environment. Every step appends `begun`, then
`sample`, `failed` or `skipped`. A step with a result never gets a second one, so no sample can be replaced. An
interrupted run continues in the same file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
ENDS = ("sample", "failed", "skipped")
Key = tuple[int, str, str]
"""Round from 1 on, scenario, server."""


class JournalError(Exception):
    """The file cannot be used; the message has the reason and the remedy."""


@dataclass
class Run:
    """The content of a file: the header, the steps' results, and how often each step was begun."""

    name: str
    header: dict[str, Any]
    ends: dict[Key, dict[str, Any]] = field(default_factory=dict)
    begun: dict[Key, int] = field(default_factory=dict)
    continued: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    torn: int = 0
    """Lines truncated by a kill."""

    @property
    def plan(self) -> list[Key]:
        """The steps in order."""
        return [(at, scenario, server) for at, scenario, server in self.header["plan"]]

    def left(self) -> list[Key]:
        """The steps without a result."""
        return [key for key in self.plan if key not in self.ends]

    def values(self, row: str, server: str) -> dict[int, float]:
        """Round -> the row's figure on that server."""
        return {
            key[0]: end["figures"][row]
            for key, end in self.ends.items()
            if key[2] == server and end["kind"] == "sample" and row in end["figures"]
        }


def read(path: Path) -> Run:
    """Read a run from a file. Raises JournalError if the file is not a run of this format."""
    try:
        lines = path.read_text().split("\n")
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    try:
        header = json.loads(lines[0])
    except ValueError as error:
        raise JournalError(f"{path.name}: line 1 is not JSON: {error}") from None
    if header.get("kind") != "header" or header.get("format") != FORMAT:
        raise JournalError(f"{path.name}: not a run of format {FORMAT}; its header is {str(header)[:80]}")
    run = Run(path.stem, header)
    for text in lines[1:]:
        if text:
            _take(run, text)
    return run


def _take(run: Run, text: str) -> None:
    try:
        line = json.loads(text)
    except ValueError:
        run.torn += 1
        return
    kind = line["kind"]
    if kind == "finished":
        run.finished = True
    elif kind == "continued":
        run.continued.append(line)
    elif kind == "begun":
        key = _key(line)
        run.begun[key] = run.begun.get(key, 0) + 1
    elif kind in ENDS:
        if _key(line) in run.ends:
            raise JournalError(f"{run.name}: two ends of step {_key(line)}; the file was edited")
        run.ends[_key(line)] = line


def _key(line: dict[str, Any]) -> Key:
    return line["round"], line["scenario"], line["server"]


class Journal:
    """The file of a current run."""

    def __init__(self, path: Path, run: Run) -> None:
        self.path = path
        self.run = run

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> Journal:
        """Create a file. Raises JournalError if it exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {"kind": "header", "format": FORMAT, **header}
        try:
            with path.open("x") as out:
                out.write(json.dumps(whole) + "\n")
        except FileExistsError:
            raise JournalError(
                f"{path} exists; samples are never replaced. Choose another name, or go on with `resume {path}`"
            ) from None
        return cls(path, read(path))

    @classmethod
    def resume(cls, path: Path) -> Journal:
        """Continue a file. Raises JournalError if the run is finished."""
        run = read(path)
        if run.finished:
            raise JournalError(f"{path} is finished; nothing is measured again")
        if not path.read_bytes().endswith(b"\n"):
            with path.open("a") as out:
                out.write("\n")
        return cls(path, run)

    def add(self, kind: str, **values: Any) -> None:
        """Append a line and make it durable. Raises JournalError if the step already has a result."""
        line = {"kind": kind, **values}
        if kind in ENDS and _key(line) in self.run.ends:
            raise JournalError(f"{self.path}: step {_key(line)} has an end; samples are never replaced")
        text = json.dumps(line)
        with self.path.open("a") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(out.fileno())
        _take(self.run, text)


def runs(folder: Path) -> Iterator[Run]:
    """All runs in a folder, oldest first."""
    yield from sorted((read(path) for path in folder.glob("*.jsonl")), key=lambda run: run.header["begun_at"])
