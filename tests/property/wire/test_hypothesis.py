"""Property-based round trips: random values and bytes of Hypothesis, shrunk to the smallest failure."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_protocol.wire import codec
from kraft_protocol.wire.classes import Message
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.runtime import MAX_STRING_BYTES, put_uvarint, uvarint
from kraft_protocol.wire.schema import Field, Struct
from tests.tiers import examples
from tests.wire_values import RANGES, all_messages

PAIRS = [(cls, version) for cls, version in all_messages() if version in {cls.SCHEMA.valid.low, cls.SCHEMA.valid.high}]
TAGS = st.dictionaries(st.integers(1000, 0xFFFFFFFF), st.binary(max_size=20), min_size=1, max_size=3)
SETTINGS = settings(
    max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def _scalar(field: Field) -> st.SearchStrategy[Any]:
    match field.type:
        case "bool":
            return st.booleans()
        case "float64":
            return st.floats(allow_nan=False)
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "string":
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
        case "bytes" | "records":
            return st.binary(max_size=200)
        case _:
            return st.integers(*RANGES[field.type])


def _value(draw: st.DrawFn, cls: type[Message], field: Field, version: int) -> Any:
    if (version in field.nullable or field.tagged_struct) and draw(st.booleans()):
        return None
    if field.array:
        count = draw(st.integers(0, 3))
        return [_single(draw, cls, field, version) for _ in range(count)]
    return _single(draw, cls, field, version)


def _single(draw: st.DrawFn, cls: type[Message], field: Field, version: int) -> Any:
    if field.struct is None:
        return draw(_scalar(field))
    made = _filled(draw, cls, field.struct, version)
    if field.tagged_struct and made == type(made)():
        return None  # a default in a tagged field is read as this
    return made


def _filled(draw: st.DrawFn, cls: type[Message], struct: Struct, version: int) -> Any:
    item: Any = cls() if struct is cls.SCHEMA.top else getattr(cls, struct.name)()
    for field in struct.fields:
        if version in field.versions and draw(st.booleans()):
            setattr(item, field.name, _value(draw, cls, field, version))
        elif version in field.versions and field.default_is_null and version not in field.nullable:
            setattr(item, field.name, _single(draw, cls, field, version))
    if version in cls.SCHEMA.flexible and draw(st.integers(0, 3)) == 0:
        item.unknown_tags = draw(TAGS)
    return item


@st.composite
def _messages(draw: st.DrawFn) -> tuple[Message, int]:
    cls, version = draw(st.sampled_from(PAIRS))
    return _filled(draw, cls, cls.SCHEMA.top, version), version


@given(_messages())
@SETTINGS
def test_written_messages_are_read_back(made: tuple[Message, int]) -> None:
    message, version = made
    raw = codec.encode(message, version)
    read = codec.decode(type(message), raw, version)
    assert read == message
    assert codec.encode(read, version) == raw


@given(st.sampled_from(PAIRS), st.binary(max_size=300))
@SETTINGS
def test_any_bytes_are_read_or_refused(pair: tuple[type[Message], int], raw: bytes) -> None:
    """A message that can be read can be written. The bytes may differ (long varints, defaults), the values not."""
    cls, version = pair
    try:
        message = codec.decode(cls, raw, version)
    except DecodeError:
        return
    again = codec.decode(cls, codec.encode(message, version), version)
    assert repr(again) == repr(message)  # not ==: a float may be NaN


@given(st.integers(0, 0xFFFFFFFF), st.binary(max_size=4))
def test_written_varints_are_read_back(value: int, before: bytes) -> None:
    out = bytearray(before)
    put_uvarint(out, value)
    assert uvarint(bytes(out), len(before)) == (value, len(out))
    assert len(out) - len(before) == max(1, -(-value.bit_length() // 7))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), st.integers(0, 2000))
@SETTINGS
def test_long_strings_survive_a_round_trip(text: str, times: int) -> None:
    from kraft_protocol.wire import messages

    group = (text * times)[: MAX_STRING_BYTES // 4]
    for version in (0, 4):
        request = messages.HeartbeatRequest(group_id=group)
        assert codec.decode(messages.HeartbeatRequest, codec.encode(request, version), version).group_id == group
