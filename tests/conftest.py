"""Settings of all tests, and the last lines of a run: failed tests, and how many were skipped for want of a program.

A log that keeps only its end still names the tests that failed, however long their messages are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import hypothesis
import pytest

from tests.peer import IS_MISSING

hypothesis.settings.register_profile("everyday", deadline=None)  # no test asserts a duration
hypothesis.settings.load_profile("everyday")

SKIPPED = "Skipped: "
"""pytest puts it in front of the reason."""


@pytest.hookimpl(wrapper=True, tryfirst=True)  # below pytest's own summary
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    yield
    for kind in ("failed", "error"):
        for report in terminalreporter.getreports(kind):
            terminalreporter.write_line(f"{kind}: {report.nodeid}", red=True)
    skipped = Counter(_reason(report) for report in terminalreporter.getreports("skipped"))
    wanting = {reason: count for reason, count in skipped.items() if IS_MISSING in reason}
    if wanting:
        parts = [_part(reason, wanting[reason]) for reason in sorted(wanting, key=wanting.__getitem__, reverse=True)]
        terminalreporter.write_line(f"not run: {'; '.join(parts)}", yellow=True)


def _reason(report: pytest.TestReport) -> str:
    """The reason of a skip; pytest reports it as (file, line, reason)."""
    return report.longrepr[2].removeprefix(SKIPPED) if isinstance(report.longrepr, tuple) else ""


def _part(reason: str, count: int) -> str:
    what, _, how = reason.partition(IS_MISSING)
    return f"{count} without {what} ({how})"
