"""Records which tests depend on a foreign program, for a run without these programs.

`python -m pytest -p tests.foreign --foreign-tests FILE …` writes one test id a line. A fresh machine has none of
`tools.bare.HIDDEN`. Only tests that start or look for one of these, or look for Apache Kafka's folder, can behave
differently there, so after a whole run `make test-bare` needs only these tests.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tools import peers
from tools.bare import HIDDEN

TESTS = "foreign_tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--foreign-tests", metavar="FILE", help="write to FILE which tests depend on foreign programs")


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption(TESTS)
    if target:
        config.pluginmanager.register(ForeignTests(config, Path(target)), "foreign-tests")


class ForeignTests:
    """The tests of this process and, if it controls workers, of theirs.

    A fixture may start a program once for many tests, so every test that takes such a fixture counts.
    """

    def __init__(self, config: pytest.Config, target: Path) -> None:
        self._config = config
        self._target = target
        self._tests: set[str] = set()
        self._uses = 0
        self._fixtures: set[Any] = set()
        sys.addaudithook(self._audit)
        shutil.which = self._counted(shutil.which, lambda name="", *_: os.path.basename(name) in HIDDEN)
        peers.home = self._counted(peers.home, lambda: True)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            executable, command = args[0], args[1]
            names = [executable, *(command[:1] if isinstance(command, (list, tuple)) else str(command).split()[:1])]
            self._uses += any(os.path.basename(os.fsdecode(name)) in HIDDEN for name in names if name)

    def _counted(self, function: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        def call(*args: Any, **keys: Any) -> Any:
            self._uses += counts(*args)
            return function(*args, **keys)

        return call

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        before = self._uses
        result = yield
        if self._uses > before:
            self._fixtures.add(fixturedef)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, object, object]:
        before = self._uses
        result = yield
        definitions = item._fixtureinfo.name2fixturedefs.values()
        if self._uses > before or any(one in self._fixtures for several in definitions for one in several):
            self._tests.add(_without_group(item.nodeid))
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._tests |= set(getattr(node, "workeroutput", {}).get(TESTS, ()))

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[TESTS] = sorted(self._tests)

    def pytest_unconfigure(self) -> None:
        if not hasattr(self._config, "workerinput"):
            self._target.parent.mkdir(exist_ok=True)
            self._target.write_text("".join(f"{test}\n" for test in sorted(self._tests)))


def _without_group(test: str) -> str:
    """The id without the name of its group, which xdist appends in workers."""
    at = test.rfind("@")
    return test[:at] if at > test.rfind("]") and at > 0 else test
