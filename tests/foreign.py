"""Records which test files start a foreign program, for a run without these programs.

`python -m pytest -p tests.foreign --foreign-files FILE …` writes one path a line. A fresh machine has none of
`tools.bare.HIDDEN`. Only tests that start one of these can behave differently there, so after a whole run
`make test-bare` needs only their files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tools.bare import HIDDEN

FILES = "foreign_files"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--foreign-files", metavar="FILE", help="write to FILE which test files start foreign programs")


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("foreign_files")
    if target:
        config.pluginmanager.register(ForeignFiles(config, Path(target)), "foreign-files")


class ForeignFiles:
    """The test files of this process and, if it controls workers, of theirs.

    A fixture may start a program once for many tests, so every test that takes such a fixture counts.
    """

    def __init__(self, config: pytest.Config, target: Path) -> None:
        self._config = config
        self._target = target
        self._files: set[str] = set()
        self._starts = 0
        self._fixtures: set[Any] = set()
        sys.addaudithook(self._audit)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            executable, command = args[0], args[1]
            names = [executable, *(command[:1] if isinstance(command, (list, tuple)) else str(command).split()[:1])]
            self._starts += any(os.path.basename(os.fsdecode(name)) in HIDDEN for name in names if name)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        before = self._starts
        result = yield
        if self._starts > before:
            self._fixtures.add(fixturedef)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, object, object]:
        before = self._starts
        result = yield
        definitions = item._fixtureinfo.name2fixturedefs.values()
        if self._starts > before or any(one in self._fixtures for several in definitions for one in several):
            self._files.add(item.nodeid.partition("::")[0])
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._files |= set(getattr(node, "workeroutput", {}).get(FILES, ()))

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[FILES] = sorted(self._files)

    def pytest_unconfigure(self) -> None:
        if not hasattr(self._config, "workerinput"):
            self._target.parent.mkdir(exist_ok=True)
            self._target.write_text("".join(f"{file}\n" for file in sorted(self._files)))
