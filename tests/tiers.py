"""Sizes of random tests: a part every day, the whole at night. tests/README.md has the rule."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

TIMES = int(os.environ.get("KRAFT_TIMES", "0"))
"""How many times the examples of a property are tried; 0: the everyday part of them. `make test-properties` sets it."""
PART = 3
EXAMPLES_MIN = 10


def seeds(values: Iterable[int], everyday: int) -> list[Any]:
    """Parameters of a test: the first `everyday` values, and the others with the mark `slow`."""
    return [value if at < everyday else pytest.param(value, marks=pytest.mark.slow) for at, value in enumerate(values)]


def examples(count: int) -> int:
    """How many examples Hypothesis tries of a property. Other inputs are tried in each run."""
    return count * TIMES if TIMES else min(count, max(EXAMPLES_MIN, count // PART))
