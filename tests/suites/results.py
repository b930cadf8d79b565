"""What a suite found."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GO_RESULT = re.compile(r"^( *)--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
RUST_RESULT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.MULTILINE)


OUTCOMES = Path(__file__).with_name("outcomes.toml")
HEAD = "# What the suites found. Written by `python -m tests.suites --record`, shown in docs/compatibility.md.\n"


def record(suite: str, server: str, results: Results) -> None:
    """Note the counts of a suite for the page of compatibility."""
    found = tomllib.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    found.setdefault(suite, {})[server] = results.cell()
    lines = [HEAD]
    for name, cells in found.items():
        lines += [f'["{name}"]', *(f'{key} = "{cell}"' for key, cell in cells.items()), ""]
    OUTCOMES.write_text("\n".join(lines))


@dataclass
class Results:
    """Names of tests by outcome."""

    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Name to the end of the output."""

    def read_go(self, output: str, *, methods: bool = False) -> Results:
        """Add the results in the output of a Go test program. `methods`: the suite has its tests as methods, which Go
        reports as parts of one test."""
        for found in GO_RESULT.finditer(output):
            indent, outcome, name = found.groups()
            if indent and not (methods and name.count("/") == 1):
                continue
            if outcome == "PASS":
                self.passed.append(name)
            elif outcome == "SKIP":
                self.skipped.append(name)
            else:
                self.failed[name] = output[max(0, found.start() - 600) : found.end()]
        return self

    def read_rust(self, program: str, output: str) -> Results:
        """Add the results in the output of a test program of Rust."""
        for found in RUST_RESULT.finditer(output):
            name = f"{program}/{found[1]}"
            if found[2] == "ok":
                self.passed.append(name)
            elif found[2] == "ignored":
                self.skipped.append(name)
            else:
                begin = output.find(f"---- {found[1]} std")
                self.failed[name] = output[begin : begin + 2000] if begin >= 0 else found[0]
        return self

    def cell(self) -> str:
        """The counts, as docs/compatibility.md shows them."""
        counts = [str(len(self.passed))]
        if self.skipped:
            counts.append(f"{len(self.skipped)} skipped")
        if self.failed:
            counts.append(f"{len(self.failed)} known to fail")
        return f"passed ({', '.join(counts)})"

    def surprises(self, known: Mapping[str, str]) -> dict[str, str]:
        """The failed tests that are not `known` to fail."""
        return {name: text for name, text in self.failed.items() if name not in known}
