"""The last lines of a run of tests, made by a run of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tiers import BUDGET_S

TESTS = Path(__file__).parents[2]


def run(
    folder: Path, test: str, *options: str, ci: bool, budget_s: float = BUDGET_S
) -> subprocess.CompletedProcess[str]:
    """Run the text of a test below a copy of the settings of these tests, with this budget."""
    (folder / "tests").mkdir()
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    for name in ("__init__.py", "conftest.py", "costly.toml", "peer.py", "skips.toml", "tiers.py"):
        shutil.copy(TESTS / name, folder / "tests" / name)
    budget = folder / "tests" / "tiers.py"
    budget.write_text(budget.read_text().replace(f"BUDGET_S = {BUDGET_S}", f"BUDGET_S = {budget_s}"))
    (folder / "tests" / "test_it.py").write_text(test)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(TESTS.parent)])}
    environment.pop("CI", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "tests"]
    if ci:
        environment["CI"] = "true"
    return subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)


SKIPS = "import pytest\ndef test_it():\n    pytest.skip('{}')\n"


def test_a_skip_without_an_explanation_fails_a_run_in_ci(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPS.format("it is Sunday"), ci=True)
    assert done.returncode == 1, done.stdout
    assert "error: 1 skipped without a reason in tests/skips.toml: it is Sunday" in done.stdout


def test_a_skip_without_an_explanation_passes_elsewhere(tmp_path: Path) -> None:
    assert run(tmp_path, SKIPS.format("it is Sunday"), ci=False).returncode == 0


def test_an_explained_skip_passes_in_ci(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPS.format("helm is missing: get it"), ci=True)
    assert done.returncode == 0, done.stdout
    assert "not run: 1 without helm (get it)" in done.stdout


def test_a_second_attempt_is_shown_with_its_cause(tmp_path: Path) -> None:
    test = "from pathlib import Path\nmark = Path('mark')\ndef test_it():\n    again = mark.exists()\n"
    test += "    mark.touch()\n    assert again, 'the first time'\n"
    done = run(tmp_path, test, "--reruns", "1", ci=True)
    assert done.returncode == 0, done.stdout
    assert "second attempt: tests/test_it.py::test_it: AssertionError: the first time" in done.stdout
