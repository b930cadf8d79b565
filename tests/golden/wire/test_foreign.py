"""Byte equality with the Python codecs of other projects: kio and kafka-python."""

from __future__ import annotations

import importlib
import io
import random
from typing import Any

from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API
from kraft_protocol.wire.schema import snake_case
from tests.wire_values import random_message

KAFKA_PYTHON_DIFFERS = {"ApiVersionsResponse"}
"""It reads this one by the error code in it (the fallback to version 0), and forgets the throttle time."""


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
                    continue  # kio narrows numbers to times and error codes, which random numbers are not
                out = io.BytesIO()
                entity_writer(theirs)(out, entity)
                assert out.getvalue() == raw, (cls.__name__, version)
                compared.add((cls.__name__, version))
    assert len(compared) > 200
