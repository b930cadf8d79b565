"""The mutants that `tools.mutants` draws, and the report of their hunts."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants import hunt as hunting
from tools.mutants import page
from tools.mutants.cores import CORES, Broken, Core, Simulator, find, planted_bugs
from tools.mutants.sites import Mutant, mutants_of

SOURCE = '''
LIMIT = 5

class Log:
    def append(self, size: int, most: int = 7) -> bool:
        """Append; 3 is no number here."""
        assert size > 0, "law"
        logger.info("size %d", 4)
        if size >= most and not self.closed:
            raise ValueError(f"{size + 1} is too much")
        self.end = max(self.end, size) + 1
        self.flush(size)
        return True
'''


def _kinds(mutants: list[Mutant]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for mutant in mutants:
        found.setdefault(mutant.kind, []).append((mutant.old, mutant.new))
    return found


def test_each_kind_of_change_is_found_once_at_its_place() -> None:
    assert _kinds(mutants_of("log.py", SOURCE)) == {
        "condition": [("size >= most and not self.closed", "True"), ("size >= most and not self.closed", "False")],
        "logic": [
            ("size >= most and not self.closed", "(size >= most or not self.closed)"),
            ("not self.closed", "(self.closed)"),
        ],
        "comparison": [("size >= most", "(size > most)")],
        "deletion": [
            ('raise ValueError(f"{size + 1} is too much")', "pass"),
            ("self.end = max(self.end, size) + 1", "pass"),
            ("self.flush(size)", "pass"),
        ],
        "arithmetic": [("max(self.end, size) + 1", "(max(self.end, size) - 1)")],
        "extreme": [("max", "min")],
        "number": [("1", "2")],
        "result": [("return True", "return False")],
    }


def test_laws_log_lines_defaults_and_constants_of_modules_are_left_alone() -> None:
    numbers = [mutant.old for mutant in mutants_of("log.py", SOURCE) if mutant.kind == "number"]
    assert numbers == ["1"]


def test_a_mutant_changes_nothing_else_also_after_letters_beyond_ascii() -> None:
    source = 'def f(a):\n    """ä"""\n    x = "ö"; return a < 2\n'
    (mutant,) = [mutant for mutant in mutants_of("f.py", source) if mutant.kind == "comparison"]
    assert mutant.plant(source) == 'def f(a):\n    """ä"""\n    x = "ö"; return (a <= 2)\n'
    assert mutant.name == "f.py:f:comparison:0"


@pytest.mark.parametrize("name", CORES)
def test_the_mutants_of_a_core_compile_and_have_names_of_their_own(name: str) -> None:
    core = CORES[name]
    mutants = core.mutants()
    assert len(mutants) > 500
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    for mutant in random.Random(1).sample(mutants, 40):
        source = (hunting.ROOT / core.package / mutant.file).read_text()
        compile(mutant.plant(source), mutant.file, "exec")


def test_a_mutant_is_found_by_its_name() -> None:
    mutant = CORES["partition"].mutants()[10]
    assert find(mutant.name) == (CORES["partition"], mutant)
    bug = planted_bugs()[0][1]
    assert find(bug.name)[1] == bug
    with pytest.raises(KeyError):
        find("raft/nothing.py:f:number:0")


class _Seeds:
    """A simulator whose seeds break a law if the product does not add up."""

    @staticmethod
    def command(first: int, count: int) -> list[str]:
        judged = f"print('seed', {first + 2}); sys.exit(added.plus(2) != 4 and {count} > 2)"
        return ["-c", f"import added, sys; {judged}"]

    @staticmethod
    def read(output: str) -> Broken | None:
        return Broken(int(output.split()[1]), "law: sums") if output else None


def _core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int) -> Core:
    package = tmp_path / "src" / "added"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def plus(n):\n    return n + 2\n")
    simulator = Simulator("sums", seeds, 1.0, _Seeds.command, _Seeds.read)
    monkeypatch.setattr(hunting, "ROOT", tmp_path)
    monkeypatch.setattr(hunting, "SIMULATORS", {"sums": simulator})
    return Core("sums", "src/added", ("*.py",), ("sums",), ())


def test_a_hunt_ends_with_the_seed_that_broke_a_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = _core(tmp_path, monkeypatch, seeds=10)
    monkeypatch.setattr(hunting, "_check_original", lambda _simulator, _seed: None)
    mutants = mutants_of("__init__.py", "def plus(n):\n    return n + 2\n")
    (wrong,) = [mutant for mutant in mutants if mutant.kind == "number"]
    end = hunting.hunt(core, wrong, random.Random(5))
    assert (end.outcome, end.by, end.seeds, end.detail) == (hunting.LAW, "sums", 3, "law: sums")


def test_a_process_without_a_verdict_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = _core(tmp_path, monkeypatch, seeds=10)
    broken = Mutant("__init__.py", "plus", "deletion", 0, 1, 0, 3, "def", "dfe")
    end = hunting.hunt(core, broken, random.Random(5))
    assert (end.outcome, end.seeds) == (hunting.DIED, 0)
    assert "SyntaxError" in end.detail


def test_what_seeds_do_not_find_is_left_to_unit_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = _core(tmp_path, monkeypatch, seeds=6)
    same = Mutant("__init__.py", "plus", "number", 0, 1, 0, 3, "def", "def")
    monkeypatch.setattr(hunting, "_failed_test", lambda _core, _path: "tests/test_sums.py::test_plus")
    assert hunting.hunt(core, same, random.Random(5))[:3] == (hunting.TESTS, "tests/test_sums.py::test_plus", 6)
    monkeypatch.setattr(hunting, "_failed_test", lambda _core, _path: "")
    assert hunting.hunt(core, same, random.Random(5))[:3] == (hunting.SURVIVED, "", 6)


def test_the_copy_with_the_mutant_is_imported_in_place_of_the_product() -> None:
    core, mutant = CORES["raft"], CORES["raft"].mutants()[0]
    with hunting.planted(core, mutant) as path:
        ended = hunting._python(["-c", "import kraft_node; print(kraft_node.__file__)"], path, 60)
    assert ended.stdout.startswith(str(path))


def test_the_report_counts_outcomes_and_shows_open_survivors() -> None:
    lines = [page.Line("raft", f"raft/a.py:f:number:{n}", "law", "raft", n, "1", "2") for n in (1, 3, 90)]
    lines.append(page.Line("raft", "raft/a.py:g:number:0", "survived", "", 1000, "x | 1", "x | 2"))
    lines.append(page.Line("raft", "raft/a.py:h:number:0", "survived", "", 1000, "1", "2"))
    head = {"commit": "0" * 40, "seed": 7, "begun_at": "now", "sites": {"raft": 5000}, "drawn": {"raft": 5}}
    pages = page.written([page.Run("a.jsonl", head, lines, [])], {"raft/a.py:h:number:0": "equivalent: a limit"})
    assert "| raft | 5,000 | 5 | 3 | 0 | 0 | 2 | 23% to 88% | 3, 90 |" in pages["README.md"]
    assert "| `raft/a.py:g:number:0` | `x ¦ 1` → `x ¦ 2` | nothing | not examined yet |" in pages["README.md"]
    assert "| `raft/a.py:h:number:0` | `1` → `2` | nothing | equivalent: a limit |" in pages["README.md"]
    assert pages["seeds.svg"].count("<polyline") == 1


def test_the_report_is_made_from_the_files_alone() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tools.mutants", "page", "--check"],
        cwd=hunting.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
