"""Random values of a topic. Most are nearly valid, because parsers differ there."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import fastavro

from kraft_protocol.records.batch import NewRecord, build_batch

NAMES = ["a", "b", "n", "tags", "when", "A", "date", "_offset", "_pos", "x.y", "x", "y", "", "ä", "a b", "\x00", "q\n"]
NUMBERS = [
    *("0", "1", "-1", "1.0", "1.5", "-0.0", "1e3", "1E-7", "0.1", "0.30000000000000004", "123456789.125"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *("1e308", "1e400", "1e-400", "1e999999999", "1e99999999999999999999", "5e-324", "NaN", "Infinity", "-Infinity"),
    *("1.2345678901234567890123456789", "0.1234567890123456789", "1" * 40, "1" * 5000, "01", "+1", ".5", "1.", "0x1"),
    *("1700000000000000000", "123456789012345678.5", "1e19", "12345678901234567e1", "1.00000000000000000000"),
]
TEXTS = [
    *('""', '"x"', '"2024-02-29"', '"2024-02-29T10:00:00Z"', '"2024-02-29T10:00:00.123456789+02:00"', '"0000-01-01"'),
    *(
        '"10000-01-01"',
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"\u0000"',
        r'"\""',
        r'"\x"',
        '"tab\there"',
        '"\u00e4"',
        '"😀"',
    ),
    *('"' + "x" * 300 + '"', '"1.5"', '"-99999-01-01T00:00:00Z"', '"23:59:60"', '"__HIVE_DEFAULT_PARTITION__"'),
]


def json_value(rng: random.Random, depth: int = 0) -> str:
    """A value of valid or nearly valid JSON."""
    kind = rng.random()
    if depth == 0 or (depth < 4 and kind < 0.12):
        fields = (f"{json.dumps(rng.choice(NAMES))}:{json_value(rng, depth + 1)}" for _ in range(rng.randrange(5)))
        return "{" + ",".join(fields) + "}"
    if depth < 4 and kind < 0.28:
        return "[" + ",".join(json_value(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    if kind < 0.42:
        return "null"
    if kind < 0.5:
        return rng.choice(["true", "false"])
    return rng.choice(NUMBERS) if kind < 0.8 else rng.choice(TEXTS)


def json_bytes(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.02:
        return None
    if kind < 0.04:
        return b"{" + b'"a":[' * rng.choice([31, 32, 33, 5000]) + b"1"
    text = json_value(rng, 1 if kind < 0.08 else 0)
    found = text.encode("utf-8", "surrogatepass")
    if kind < 0.12:
        found = rng.choice(
            [b"\xef\xbb\xbf" + found, text.encode("utf-16"), found + found, found + b',"w":1', b" " + found]
        )
    return mutated(rng, found) if kind > 0.85 else found


def mutated(rng: random.Random, found: bytes) -> bytes:
    """`data` with bytes changed, removed or inserted."""
    data = bytearray(found)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(3)
        if what == 0:
            data[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
        elif what == 1:
            del data[at:]
        else:
            data[at:at] = rng.choice([b"{", b"}", b"[", b'"', b",", b"\\", b"\xff", b"\x00", b"\n", b"null"])
    return bytes(data)


def avro_record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


AVRO = [
    avro_record(("a", "long"), ("b", ["null", "string"]), ("n", "double")),
    avro_record(
        ("a", "int"),
        ("tags", {"type": "array", "items": ["null", "string"]}),
        ("when", {"type": "long", "logicalType": "timestamp-millis"}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("money", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
        ("kind", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}),
        ("id", {"type": "fixed", "name": "F", "size": 4}),
        ("more", {"type": "map", "values": "float"}),
    ),
    avro_record(("a", "string"), ("c", "boolean")),
    avro_record(("A", "long")),
    avro_record(("_offset", "long")),
    avro_record(("a", ["string", "long"])),
]
ROWS: list[Callable[[random.Random], dict[str, Any]]] = [
    lambda rng: {"a": rng.getrandbits(63) - 2**62, "b": rng.choice([None, "x"]), "n": rng.random()},
    lambda rng: {
        "a": rng.getrandbits(31),
        "tags": [rng.choice([None, "t"]) for _ in range(rng.randrange(3))],
        "when": rng.choice([0, 2**62, -(2**62), 253402300800000, 2**40]),
        "day": rng.choice([0, 2**31 - 1, -(2**31)]),
        "money": rng.choice([b"\0", b"\xff\xff", b"", b"\x7f" * 20]),
        "kind": rng.choice("XY"),
        "id": rng.randbytes(4),
        "more": {"k": rng.random()},
    },
    lambda rng: {"a": "t", "c": rng.random() < 0.5},
    lambda rng: {"A": 1},
    lambda rng: {"_offset": 1},
    lambda rng: {"a": rng.choice(["x", 1])},
]


def avro_bytes(rng: random.Random, number: int, *, framed: bool) -> bytes:
    """A record of schema `number`, whose logical types only the reader's schema has."""
    plain = json.loads(json.dumps(AVRO[number]).replace('"logicalType"', '"was"'))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, plain, ROWS[number](rng))
    found = out.getvalue()
    if framed:
        found = b"\0" + struct.pack(">i", rng.choice([number + 1] * 8 + [99, -1])) + found
    return mutated(rng, found) if rng.random() < 0.3 else found


def value(rng: random.Random, form: str) -> bytes | None:
    """One value in the given format."""
    if form == "json":
        return json_bytes(rng)
    if form == "raw":
        return rng.choice([None, b"", rng.randbytes(rng.randrange(40))])
    if rng.random() < 0.02:
        return rng.choice([None, b"", b"\0", rng.randbytes(30)])
    return avro_bytes(rng, rng.randrange(2) if form == "avro" else rng.randrange(len(AVRO)), framed=form == "registry")


def batch(rng: random.Random, form: str, base: int, count: int) -> bytes:
    """Records with odd keys, times and headers, as in a log; some header keys are not UTF-8."""
    times = [1_700_000_000_000, 0, -1, -62135596800001, 253402300800000, 2**62, -(2**62), -62135596800000]
    keys = [None, b"", b"k", b"\xff", "ä".encode(), b"x" * 300, b"a/b=c", b"__HIVE_DEFAULT_PARTITION__"]
    records = []
    for _ in range(count):
        odd = rng.random() < 0.1
        headers = [
            ("zz" if rng.random() < 0.1 else "h", rng.choice([None, b"", b"v"])) for _ in range(rng.randrange(3))
        ]
        key = rng.choice(keys) if odd else b"k%d" % rng.randrange(5)
        records.append(NewRecord(key, value(rng, form), rng.choice(times) if odd else times[0], headers))
    return build_batch(records, base_offset=base).replace(b"\x04zz", b"\x04\xff\xfe")
