"""All messages of the release in all versions, against the classes that Kafka generates from the same schemas."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from kraft_node.metadata.records import RECORD_TYPES
from kraft_protocol.errors import RETRIABLE, ErrorCode
from kraft_protocol.wire import codec, coordinator, stored
from kraft_protocol.wire.api import ApiKey, request_header_version, response_header_version
from kraft_protocol.wire.errors import EncodeError
from tests.peer import run_java
from tests.wire_oracle import JAVA, Question, as_json, ask, served_specs
from tests.wire_values import all_messages, random_message

pytestmark = pytest.mark.peer
ROUNDS = 5
Facts = dict[str, list[list[str]]]


def _differences(asked: list[Question], expected: list[bytes], answers: list[bytes | str]) -> list[str]:
    return [
        f"{name} v{version}: {want!r} {got!r}"
        for (name, version, _), want, got in zip(asked, expected, answers, strict=True)
        if want != got
    ]


def test_java_decodes_our_messages_and_encodes_them_equally() -> None:
    """Messages filled at random, and messages of default values."""
    rng = random.Random(3)
    asked: list[Question] = []
    expected = []
    for cls, version in all_messages():
        for _ in range(ROUNDS):
            raw = codec.encode(random_message(cls, version, rng, unknown_tags=True), version)
            asked.append((cls.__name__, version, raw))
            expected.append(raw)
        try:
            fresh = codec.encode(cls(), version)
        except EncodeError:
            continue
        asked.append((cls.__name__, version, None))
        expected.append(fresh)
    assert len(asked) > 4000
    differ = _differences(asked, expected, ask("again", asked))
    assert differ[:3] == [], f"{len(differ)} differ"


def test_every_field_means_the_same_to_java() -> None:
    """The test above would not notice two exchanged fields of one type: here Java gets names and values."""
    rng = random.Random(4)
    asked: list[Question] = []
    expected = []
    for cls, version in all_messages():
        for _ in range(ROUNDS):
            message = random_message(cls, version, rng)
            asked.append((cls.__name__, version, json.dumps(as_json(message, version)).encode()))
            expected.append(codec.encode(message, version))
    differ = _differences(asked, expected, ask("json", asked))
    assert differ[:3] == [], f"{len(differ)} differ"


def test_we_decode_javas_messages_and_encode_them_equally() -> None:
    pairs = [pair for pair in all_messages() for _ in range(ROUNDS)]
    answers = ask("random", [(cls.__name__, version, None) for cls, version in pairs], "20260")
    read = 0
    for (cls, version), raw in zip(pairs, answers, strict=True):
        assert isinstance(raw, bytes), (cls.__name__, version, raw)
        message = codec.decode(cls, raw, version)
        assert codec.encode(message, version) == raw, (cls.__name__, version)
        read += 1
    assert read > 3000


@pytest.fixture(scope="module")
def facts() -> Facts:
    """Kafka's constants by their kind."""
    found: Facts = {}
    for line in run_java(str(JAVA / "WireFacts.java")).stdout.decode().splitlines():
        kind, *words = line.split(" ")
        found.setdefault(kind, []).append(words)
    return found


def test_error_codes_match_javas(facts: Facts) -> None:
    ours = [[e.name, str(int(e)), str(e in RETRIABLE).lower()] for e in ErrorCode]
    assert ours == facts["error"]


def test_api_keys_versions_and_listeners_match_javas(facts: Facts) -> None:
    assert [[k.name, str(int(k))] for k in ApiKey] == facts["key"]
    ours = [
        [str(int(s.key)), s.name, str(s.min_version), str(s.max_version), ",".join(sorted(s.listeners))]
        for s in served_specs()
    ]
    assert sorted(ours) == sorted(facts["api"])


@pytest.mark.parametrize(("column", "ours"), [(2, request_header_version), (3, response_header_version)])
def test_header_versions_match_javas(facts: Facts, column: int, ours: Callable[[int, int], int]) -> None:
    assert len(facts["headers"]) > 200
    for words in facts["headers"]:
        assert ours(int(words[0]), int(words[1])) == int(words[column]), words


def test_types_of_metadata_records_match_javas(facts: Facts) -> None:
    assert [[str(number), name] for number, name in sorted(RECORD_TYPES.items())] == facts["metadata"]


@pytest.mark.parametrize("family", [coordinator.GROUP, coordinator.TRANSACTION, coordinator.SHARE])
def test_types_of_coordinator_records_match_javas(facts: Facts, family: str) -> None:
    ours = []
    for number, key in coordinator.key_names(family).items():
        value = getattr(stored, key.removesuffix("Key") + "Value")
        ours.append([str(number), key, value.__name__, str(value.SCHEMA.valid.high)])
    assert ours == facts[family]
