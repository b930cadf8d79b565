"""Files, functions and folders stay small enough to be read in one go.

The lists of larger ones only shrink: lower a number or remove an entry. Split new code instead.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import PurePosixPath

from tests.tidy.sources import python_files, text, tree

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FOLDER_FILES_MAX = 25

LARGER_FILES = {
    "protocol/src/kraft_protocol/configs/kafka.py": 560,
    "node/src/kraft_node/log/manager/directory.py": 520,
    "node/src/kraft_node/log/manager/log_manager.py": 520,
    "node/src/kraft_node/partition/partition.py": 560,
    "node/src/kraft_node/server/node.py": 580,
}
LARGER_FUNCTIONS = {
    "node/src/kraft_node/broker/broker.py:__init__": 75,
    "node/src/kraft_node/broker/fetch/reader.py:collect": 70,
    "node/src/kraft_node/testing/workloads/fetching.py:_fetch_from": 65,
    "operator/src/kraft_operator/reconcile.py:_pass": 75,
    "pipeline/src/kraft_pipeline/tables/specs/table_spec.py:parse": 65,
    "tests/golden/broker/test_admin_parity.py:test_answers_about_quotas_and_users_match": 65,
    "tests/property/controller/test_change_parity.py:case": 70,
    "tests/unit/broker/replication/test_log_dir_moves.py:test_the_copy_equals_its_log_after_any_changes": 65,
    "tests/unit/operator/world.py:apply": 70,
    "tests/unit/operator/world.py:observe": 65,
}
LARGER_FOLDERS: dict[str, int] = {}


def _file_sizes() -> dict[str, int]:
    return {name: text(name).count("\n") for name in python_files()}


def _function_sizes() -> dict[str, int]:
    """Lines of each function, by file and name; the largest, if a file has several of the same name."""
    found: dict[str, int] = {}
    for name in python_files():
        for node in ast.walk(tree(name)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                key = f"{name}:{node.name}"
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                found[key] = max(found.get(key, 0), lines)
    return found


def _folder_sizes() -> dict[str, int]:
    return Counter(str(PurePosixPath(name).parent) for name in python_files())


def _problems(sizes: dict[str, int], limit: int, larger: dict[str, int], what: str) -> list[str]:
    found = [
        f"{name} has {size} {what}, at most {larger.get(name, limit)} are allowed: split it"
        for name, size in sizes.items()
        if size > larger.get(name, limit)
    ]
    found += [
        f"{name} is within the limit or gone: take it off the list" for name in larger if sizes.get(name, 0) <= limit
    ]
    return found


def test_files_are_small() -> None:
    assert _problems(_file_sizes(), FILE_LINES_MAX, LARGER_FILES, "lines") == []


def test_functions_are_small() -> None:
    assert _problems(_function_sizes(), FUNCTION_LINES_MAX, LARGER_FUNCTIONS, "lines") == []


def test_folders_are_small() -> None:
    assert _problems(_folder_sizes(), FOLDER_FILES_MAX, LARGER_FOLDERS, "files") == []


def test_the_check_of_sizes_finds_violations() -> None:
    assert len(_problems({"a": 501}, 500, {}, "lines")) == 1
    assert len(_problems({"a": 551}, 500, {"a": 550}, "lines")) == 1
    assert _problems({"a": 549}, 500, {"a": 550}, "lines") == []
    assert len(_problems({"a": 400}, 500, {"a": 550}, "lines")) == 1
    assert len(_problems({}, 500, {"a": 550}, "lines")) == 1
