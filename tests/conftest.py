"""Settings of all tests, and the last lines of a run: failures, second attempts, skips and their reasons, costs.

A log that keeps only its end still names the tests that failed, however long their messages are. In CI a skip that
`tests/skips.toml` does not explain fails the run. The same holds for an everyday test that costs too much
(`tests/tiers.py`).
"""

from __future__ import annotations

import gc
import tomllib
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path

import hypothesis
import pytest

from tests import tiers
from tests.peer import CI, IS_MISSING

hypothesis.settings.register_profile("everyday", deadline=None, max_examples=tiers.examples(100))  # without durations
hypothesis.settings.load_profile("everyday")

SKIPPED = "Skipped: "
"""pytest puts it in front of the reason."""
EXPLAINED = tomllib.loads((Path(__file__).parent / "skips.toml").read_text())


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(tiers.Costs(), "costs")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what is loaded from garbage collection.

    The modules and tests of a worker are a gigabyte that stays. Each full collection would look through it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of a module in one worker if they share a fixture: other workers would make it again."""
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        if item.get_closest_marker("xdist_group") is None and _shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0].replace("/", ".")))


def _shares_a_fixture(item: pytest.Item) -> bool:
    definitions = getattr(item, "_fixtureinfo", None)
    named = definitions.name2fixturedefs.values() if definitions else ()
    return any(one.scope in {"class", "module"} for several in named for one in several)


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
    if is_everyday(terminalreporter.config):
        found = tiers.costs_of(terminalreporter.getreports(""))
        terminalreporter.write_line(f"processor time of the tests: {sum(found.values()):.0f} s")
        for test, cost_s in tiers.over_budget(found).items():
            text = f"{test}: {cost_s:.0f} s of processor time, the budget is {tiers.BUDGET_S:.0f} s (tests/tiers.py)"
            terminalreporter.write_line(text, yellow=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not CI or session.exitstatus != pytest.ExitCode.OK:
        return
    dear = is_everyday(session.config) and tiers.over_budget(tiers.costs_of(reporter.getreports("")), tiers.FATAL_S)
    if dear or unexplained(_reason(report) for report in reporter.getreports("skipped")):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def is_everyday(config: pytest.Config) -> bool:
    """Whether the run leaves out the slow tests."""
    return bool(config.getoption("markexpr") == "not slow")


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
