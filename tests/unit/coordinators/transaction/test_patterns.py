"""Patterns of transactional ids."""

from __future__ import annotations

import re

import pytest

from kraft_node.broker.coordinators.transaction.patterns import matcher
from kraft_protocol.errors import ErrorCode, KafkaError

IDS = ["", "a", "b", "ab", "aab", "a.b", "a-b", "app-0_1", "größe", "a\nb", "aaa", "é"]


@pytest.mark.parametrize(
    "text", ["a", "a.b", "a*b", "a+b?", ".*", ".+-.?", r"a\.b", "gr..e", "a?a?a?", "app-.*", "é", "-"]
)
def test_a_pattern_matches_as_a_whole(text: str) -> None:
    matches = matcher(text)
    assert matches is not None
    assert [one for one in IDS if matches(one)] == [one for one in IDS if re.fullmatch(text, one)]


@pytest.mark.parametrize("text", ["[", "(", "*", "a**", "+a", "\\", "a{9999}", "x" * 1_001, "[ü]", "(ü|a)"])
def test_other_patterns_are_refused(text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        matcher(text)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_matches_everything() -> None:
    assert matcher(None) is None
    assert matcher("") is None


def test_the_time_of_a_match_does_not_explode() -> None:
    matches = matcher("a*" * 100 + "b")
    assert matches is not None
    assert not matches("a" * 3_000)
