"""Settings of all tests, and the last lines of a run: failures, second attempts, and what was skipped and why.

A log that keeps only its end still names the tests that failed, however long their messages are. In CI a skip that
`tests/skips.toml` does not explain fails the run.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path

import hypothesis
import pytest

from tests.peer import CI, IS_MISSING

hypothesis.settings.register_profile("everyday", deadline=None)  # no test asserts a duration
hypothesis.settings.load_profile("everyday")

SKIPPED = "Skipped: "
"""pytest puts it in front of the reason."""
EXPLAINED = tomllib.loads((Path(__file__).parent / "skips.toml").read_text())


@pytest.hookimpl(wrapper=True, tryfirst=True)  # below pytest's own summary
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    yield
    for kind in ("failed", "error"):
        for report in terminalreporter.getreports(kind):
            terminalreporter.write_line(f"{kind}: {report.nodeid}", red=True)
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_line(f"second attempt: {report.nodeid}: {_failure(report)}", yellow=True)
    skipped = Counter(_reason(report) for report in terminalreporter.getreports("skipped"))
    wanting = {reason: count for reason, count in skipped.items() if IS_MISSING in reason}
    if wanting:
        parts = [_part(reason, wanting[reason]) for reason in sorted(wanting, key=wanting.__getitem__, reverse=True)]
        terminalreporter.write_line(f"not run: {'; '.join(parts)}", yellow=True)
    if CI:
        for reason in unexplained(skipped):
            line = f"error: {skipped[reason]} skipped without a reason in tests/skips.toml: {reason}"
            terminalreporter.write_line(line, red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not CI or session.exitstatus != pytest.ExitCode.OK:
        return
    if unexplained(_reason(report) for report in reporter.getreports("skipped")):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unexplained(reasons: Iterable[str]) -> list[str]:
    """The reasons of skips that no entry of `tests/skips.toml` begins."""
    return sorted(reason for reason in set(reasons) if not reason.startswith(tuple(EXPLAINED)))


def _reason(report: pytest.TestReport) -> str:
    """The reason of a skip; pytest reports it as (file, line, reason)."""
    return report.longrepr[2].removeprefix(SKIPPED) if isinstance(report.longrepr, tuple) else ""


def _failure(report: pytest.TestReport) -> str:
    """The message with which a test failed, on one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr)).split())[:500]


def _part(reason: str, count: int) -> str:
    what, _, how = reason.partition(IS_MISSING)
    return f"{count} without {what} ({how})"
