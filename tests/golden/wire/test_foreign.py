"""Byte equality with foreign codecs: Kafka's own classes, kio and kafka-python."""

from __future__ import annotations

import importlib
import io
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from kraft_node.wire import codec
from kraft_node.wire.api import API
from kraft_node.wire.errors import EncodeError
from kraft_node.wire.schema import snake_case
from tests.peer import run_java
from tests.wire_values import all_messages, random_message

ORACLE = Path(__file__).parents[2] / "java" / "WireOracle.java"
ROUNDS = 5
KAFKA_PYTHON_DIFFERS = {"ApiVersionsResponse"}
"""It reads this one by the error code in it (the fallback to version 0), and forgets the throttle time."""


def _asked(name: str, version: int, raw: bytes | None) -> bytes:
    encoded = name.encode()
    length = -1 if raw is None else len(raw)
    return struct.pack(">H", len(encoded)) + encoded + struct.pack(">hi", version, length) + (raw or b"")


def _answers(out: bytes) -> list[bytes | str]:
    stream = io.BytesIO(out)
    found: list[bytes | str] = []
    while head := stream.read(4):
        (length,) = struct.unpack(">i", head)
        if length >= 0:
            found.append(stream.read(length))
        else:
            (size,) = struct.unpack(">H", stream.read(2))
            found.append(stream.read(size).decode())
    return found


@pytest.mark.peer
def test_java_reads_and_writes_the_same_bytes() -> None:
    """All messages of the release in all versions, filled at random, and as their constructors make them."""
    rng = random.Random(3)
    asked, expected, names = [], [], []
    for cls, version in all_messages():
        for _ in range(ROUNDS):
            raw = codec.encode(random_message(cls, version, rng, unknown_tags=True), version)
            asked.append(_asked(cls.__name__, version, raw))
            expected.append(raw)
            names.append((cls.__name__, version))
        try:
            fresh = codec.encode(cls(), version)
        except EncodeError:
            continue
        asked.append(_asked(cls.__name__, version, None))
        expected.append(fresh)
        names.append((cls.__name__, version))
    answers = _answers(run_java(str(ORACLE), stdin=b"".join(asked)).stdout)
    assert len(answers) == len(expected) > 4000
    differ = [(name, want, got) for name, want, got in zip(names, expected, answers, strict=True) if want != got]
    assert differ[:3] == [], f"{len(differ)} differ"


def _kafka_python_class(name: str) -> Any:
    for module in ("admin", "consumer", "producer", "metadata", "sasl"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    return None


def test_kafka_python_reads_and_writes_the_same_bytes() -> None:
    rng = random.Random(4)
    compared = set()
    for spec in API.values():
        for cls in (spec.request, spec.response):
            theirs = _kafka_python_class(cls.__name__)
            if theirs is None or cls.__name__ in KAFKA_PYTHON_DIFFERS:
                continue
            low, high = theirs.min_version, theirs.max_version
            for version in range(max(low, spec.min_version), min(high, spec.max_version) + 1):
                raw = codec.encode(random_message(cls, version, rng), version)
                other = theirs.decode(raw, version=version)
                other._header = None
                assert bytes(other.encode(version=version)) == raw, (cls.__name__, version)
                compared.add((cls.__name__, version))
    assert len(compared) > 200


def test_kio_reads_and_writes_the_same_bytes() -> None:
    from kio.serial import entity_reader, entity_writer
    from kio.serial.errors import SerialError

    rng = random.Random(5)
    compared = set()
    for spec in API.values():
        for kind, cls in (("request", spec.request), ("response", spec.response)):
            for version in range(spec.min_version, spec.max_version + 1):
                try:
                    module = importlib.import_module(f"kio.schema.{snake_case(spec.name)}.v{version}.{kind}")
                except ModuleNotFoundError:
                    continue
                theirs = getattr(module, cls.__name__)
                raw = codec.encode(random_message(cls, version, rng), version)
                try:
                    entity, _ = entity_reader(theirs)(raw, 0)
                except (ValueError, OverflowError, SerialError):
                    continue  # kio narrows numbers to times and error codes that random ones are not
                out = io.BytesIO()
                entity_writer(theirs)(out, entity)
                assert out.getvalue() == raw, (cls.__name__, version)
                compared.add((cls.__name__, version))
    assert len(compared) > 200
