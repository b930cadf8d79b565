"""Random messages from the schemas: every field of the version, also at its limits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from kraft_protocol.wire import messages, stored
from kraft_protocol.wire.classes import Message
from kraft_protocol.wire.schema import Field, Struct, names

RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
TEXTS = ["", "a", "topic-1", "größe", "日本", "x" * 130, "𝄞"]
LENGTHS = [0, 1, 1, 2, 3, 10]


def all_messages() -> Iterator[tuple[type[Message], int]]:
    """Every class and version of the release."""
    for group, module in (("messages", messages), ("stored", stored)):
        for name in names(group):
            cls = getattr(module, name)
            for version in range(cls.SCHEMA.valid.low, cls.SCHEMA.valid.high + 1):
                yield cls, version


def random_message(cls: type[Message], version: int, rng: random.Random, *, unknown_tags: bool = False) -> Message:
    """A filled message that fits the version."""
    made: Message = _fill(cls, cls.SCHEMA.top, version, rng, unknown_tags)
    return made


def _fill(root: type[Message], struct: Struct, version: int, rng: random.Random, unknown_tags: bool) -> Any:
    item: Any = root() if struct is root.SCHEMA.top else getattr(root, struct.name)()
    for field in struct.fields:
        if version in field.versions:
            value = _value(root, field, version, rng, unknown_tags)
            if field.tagged_struct and value == type(value)():
                value = None  # the default of a tagged struct in JSON
            setattr(item, field.name, value)
    if unknown_tags and version in root.SCHEMA.flexible and rng.random() < 0.3:
        item.unknown_tags = {100 + i: rng.randbytes(rng.choice(LENGTHS)) for i in range(rng.randrange(3))} or None
    return item


def _value(root: type[Message], field: Field, version: int, rng: random.Random, unknown_tags: bool) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.array:
        return [_single(root, field, version, rng, unknown_tags) for _ in range(rng.choice(LENGTHS))]
    return _single(root, field, version, rng, unknown_tags)


def _single(root: type[Message], field: Field, version: int, rng: random.Random, unknown_tags: bool) -> Any:
    if field.struct is not None:
        return _fill(root, field.struct, version, rng, unknown_tags)
    match field.type:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice([0.0, -1.5, 1e300, 3.0])
        case "uuid":
            return rng.randbytes(16)
        case "string":
            return rng.choice(TEXTS)
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 130]))
        case _:
            low, high = RANGES[field.type]
            return rng.choice([low, high, 0, 1, -1 if low < 0 else 1, rng.randint(low, high)])
