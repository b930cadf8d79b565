"""A few of the random values of `python -m tests.fuzz.pipeline.tables` in every run of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_pipeline.tables.specs import table_spec
from tests.fuzz.pipeline.tables import FORMS, run

SEEDS = (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", table_spec.FORMATS)
@pytest.mark.parametrize("form", FORMS)
def test_no_value_stops_a_table(tmp_path: Path, form: str, kind: str, seed: int) -> None:
    rows, dead = run(form, kind, 1500, seed, tmp_path)
    assert rows and (dead or form == "raw")
