"""Asks Kafka's own classes, through tests/java/WireOracle.java, and writes messages as Kafka's JSON."""

from __future__ import annotations

import base64
import io
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from kraft_protocol.ids import Uuid, uuid_text
from kraft_protocol.wire.api import API, ApiSpec
from kraft_protocol.wire.classes import Message
from kraft_protocol.wire.schema import Field, Struct, block, snake_case
from tests.peer import run_java
from tools import peers

JAVA = Path(__file__).parent / "java"
Question = tuple[str, int, bytes | None]
"""Message name, version, bytes."""
IN_OLDER_RELEASES = {
    "record.internal.MemoryRecords": "record.MemoryRecords",
    "new ByteBufferAccessor(ByteBuffer.wrap(raw))": "ByteBuffer.wrap(raw)",
    "type.fields().entrySet()": "new TreeMap<Integer, Field>().entrySet()",
}
"""What WireOracle.java writes for this release, and for the last one with ZooKeeper."""


def served_specs() -> list[ApiSpec]:
    """The APIs that servers of this release answer."""
    return [spec for spec in API.values() if "zkBroker" not in spec.listeners]


@cache
def steering() -> frozenset[str]:
    """The messages that only the last release with ZooKeeper has."""
    specs = [spec for spec in API.values() if "zkBroker" in spec.listeners]
    return frozenset(kind.SCHEMA.name for spec in specs for kind in (spec.request, spec.response))


def ask(mode: str, questions: list[Question], *args: str) -> list[bytes | str]:
    """Java's bytes for each question, or its error's text. Each message is asked of a release that has it."""
    old = [index for index, question in enumerate(questions) if question[0] in steering()]
    if not old:
        return _ask(JAVA / "WireOracle.java", peers.VERSION, mode, questions, *args)
    new = [index for index in range(len(questions)) if index not in set(old)]
    answers: list[bytes | str] = [b""] * len(questions)
    with tempfile.TemporaryDirectory() as folder:
        source = (JAVA / "WireOracle.java").read_text()
        for text, older in IN_OLDER_RELEASES.items():
            source = source.replace(text, older)
        program = Path(folder) / "WireOracle.java"
        program.write_text(source)
        for path, version, some in (
            (JAVA / "WireOracle.java", peers.VERSION, new),
            (program, peers.LAST_WITH_ZOOKEEPER, old),
        ):
            for index, answer in zip(some, _ask(path, version, mode, [questions[i] for i in some], *args), strict=True):
                answers[index] = answer
    return answers


def _ask(program: Path, release: str, mode: str, questions: list[Question], *args: str) -> list[bytes | str]:
    asked = b"".join(_written(*question) for question in questions)
    stream = io.BytesIO(run_java(str(program), mode, *args, stdin=asked, version=release).stdout)
    found: list[bytes | str] = []
    while head := stream.read(4):
        (length,) = struct.unpack(">i", head)
        if length >= 0:
            found.append(stream.read(length))
        else:
            (size,) = struct.unpack(">H", stream.read(2))
            found.append(stream.read(size).decode(errors="replace"))  # Java's own UTF-8
    assert len(found) == len(questions)
    return found


def _written(name: str, version: int, raw: bytes | None) -> bytes:
    encoded = name.encode()
    length = -1 if raw is None else len(raw)
    return struct.pack(">H", len(encoded)) + encoded + struct.pack(">hi", version, length) + (raw or b"")


def as_json(message: Message, version: int) -> dict[str, Any]:
    """The JSON that Kafka's JsonConverter of the message reads: every field of the version under its schema's name."""
    return _struct(message, message.SCHEMA.top, message.SCHEMA.name, version)


@cache
def _json_names(message: str) -> dict[str, str]:
    words = [line.strip().split(" ", 1)[0] for line in block(message).split("\n")[1:]]
    return {snake_case(word): word[0].lower() + word[1:] for word in words}


def _struct(item: Any, layout: Struct, message: str, version: int) -> dict[str, Any]:
    names = _json_names(message)
    out = {}
    for field in layout.fields:
        content = getattr(item, field.name)
        if version not in field.versions or (content is None and field.tagged_struct):
            continue
        if field.array and content is not None:
            out[names[field.name]] = [_value(part, field, message, version) for part in content]
        else:
            out[names[field.name]] = _value(content, field, message, version)
    return out


def _value(content: Any, field: Field, message: str, version: int) -> Any:
    if content is None:
        return None
    if field.struct is not None:
        return _struct(content, field.struct, message, version)
    if field.type == "uuid":
        return uuid_text(Uuid(content))
    if isinstance(content, bytes | memoryview):
        return base64.b64encode(content).decode()
    return content
