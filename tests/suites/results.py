"""What a suite found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

GO_RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


@dataclass
class Results:
    """Names of tests by outcome."""

    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Name to the end of the output."""

    def read_go(self, output: str) -> Results:
        """Add the results in the output of a Go test program."""
        for found in GO_RESULT.finditer(output):
            outcome, name = found.groups()
            if outcome == "PASS":
                self.passed.append(name)
            elif outcome == "SKIP":
                self.skipped.append(name)
            else:
                self.failed[name] = output[max(0, found.start() - 600) : found.end()]
        return self

    def surprises(self, known: Mapping[str, str]) -> dict[str, str]:
        """The failed tests that are not `known` to fail."""
        return {name: text for name, text in self.failed.items() if name not in known}
