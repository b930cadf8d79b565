"""The error counts of a response equal those of Kafka's response classes (errorCounts)."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from kraft_node.server.monitoring.error_counts import codes_of, iterate_codes_of
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import codec
from tests.wire_oracle import Question, ask, served_specs
from tests.wire_values import random_message

ROUNDS = 5
KNOWN = frozenset(ErrorCode)
NOT_SERVED = {"DescribeShareGroupOffsetsResponse"}
REPEATS = "AddPartitionsToTxnResponse"
"""Kafka counts a partition that a response repeats once. Only random responses repeat partitions."""
TIMES = re.compile(r"=(\d+)")
TOP_FROM = 2
"""Kafka counts no success for OffsetFetch responses without a code at the top: version 1, and those without a group."""


@pytest.mark.peer
def test_errors_are_counted_like_by_kafka() -> None:
    rng = random.Random(5)
    asked: list[Question] = []
    ours = []
    for spec in served_specs():
        count = codes_of(spec.response)
        for version in range(spec.min_version, spec.max_version + 1):
            for _ in range(ROUNDS):
                response = random_message(spec.response, version, rng)
                raw = codec.encode(response, version)
                asked.append((response.SCHEMA.name, version, raw))
                codes = count(codec.decode(spec.response, raw, version))
                ours.append(Counter(code if code in KNOWN else -1 for code in codes))
    wrong: dict[str, tuple[int, str, str]] = {}
    compared = set()
    for (name, version, _), counted, theirs in zip(asked, ours, ask("count", asked), strict=True):
        if not isinstance(theirs, bytes):
            continue  # Kafka's class refuses a value of the random message
        compared.add(name)
        text = "{" + ", ".join(f"{code}={times}" for code, times in sorted(counted.items())) + "}"
        untold = name == "OffsetFetchResponse" and (version < TOP_FROM or text == "{0=1}")
        untold |= name == REPEATS and counted.total() > sum(int(times) for times in TIMES.findall(theirs.decode()))
        if theirs.decode() != text and name not in NOT_SERVED and not untold:
            wrong.setdefault(name, (version, text, theirs.decode()))
    assert wrong == {}, "\n".join(map(str, wrong.items()))
    assert len(compared) >= len(served_specs()) - 1


def test_the_codes_of_large_responses_are_those_of_small_ones() -> None:
    rng = random.Random(6)
    for spec in served_specs():
        at_once, one_by_one = codes_of(spec.response), iterate_codes_of(spec.response)
        for version in range(spec.min_version, spec.max_version + 1):
            response = random_message(spec.response, version, rng)
            assert list(one_by_one(response)) == list(at_once(response)), spec.name
