"""Times that users give to commands and to DataFrames of archives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from kraft_pipeline.archive.frames import microseconds
from kraft_pipeline.cli import meta, table

MILLISECONDS = 1_089_595_755_978
"""In 2004. As a float of seconds, a thousand times this is less."""
TIMES: list[Callable[[str], int]] = [meta.milliseconds, table._time, lambda text: microseconds(text) // 1000]


@pytest.mark.parametrize("parse", TIMES)
def test_a_time_is_exact_to_the_millisecond(parse: Callable[[str], int]) -> None:
    """Records of the given millisecond were left out for some times before 2010 and after 2038."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=MILLISECONDS)
    assert parse(at.isoformat()) == MILLISECONDS
    assert parse(at.replace(tzinfo=None).isoformat()) == MILLISECONDS, "UTC without a zone"
    assert parse((at + timedelta(microseconds=999)).isoformat()) == MILLISECONDS


@pytest.mark.parametrize("parse", [meta.milliseconds, microseconds])
def test_a_text_that_is_no_time_is_named(parse: Callable[[str], int]) -> None:
    """A digit that is no number, such as ², ended with the text of Python's error."""
    for text in ("²", "yesterday", ""):
        with pytest.raises(Exception, match=f"{text!r} is neither ISO 8601 nor milliseconds"):
            parse(text)
