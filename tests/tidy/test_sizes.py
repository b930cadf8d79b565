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
    # Generated: the keys of Apache Kafka, one a line.
    "protocol/src/kraft_protocol/configs/kafka.py": 560,
    # Every append and fetch of a replica. A call more per request costs throughput.
    "node/src/kraft_node/partition/partition.py": 560,
}
LARGER_FUNCTIONS = {
    # The loop over the partitions of each fetch. A call more per partition costs throughput.
    "node/src/kraft_node/broker/fetch/reader.py:collect": 70,
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
