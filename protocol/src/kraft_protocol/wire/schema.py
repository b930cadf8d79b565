"""The notation of `schemas/*.ks`, and its parser.

Each file holds an API (request and response) or a family of stored messages, and is named after it. A family is, for
example, the metadata records or the records of one coordinator. `index.txt` lists all messages with file and first
line. A file has one block per message; empty lines separate blocks:

    request 0 ProduceRequest 3-13 flexible 9+ listeners broker
      TransactionalId string 3+ null 3+ default null
      TopicData []TopicProduceData 0+
        Name string 0-12 ignorable

First line: kind, API key (or -), name, valid versions, flexible versions, listeners, `unstable` if the latest version
is unstable. Then one field per line, indented by two spaces more than its parent: name, type, versions. Optional:
`null` VERSIONS, `tag` N VERSIONS, `flexible` VERSIONS, `ignorable`, `default` TEXT. `struct` NAME VERSIONS declares a
struct that several fields use by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pkgutil import get_data  # lighter to import than importlib.resources
from typing import Final, NamedTuple

MAX_VERSION: Final = 32767
INTEGERS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "bool": "?",
    "float64": "d",
    "uuid": "16s",
}
"""Types of a fixed size, and their struct codes (big-endian)."""

_SNAKE = re.compile(r"(?<=[a-z0-9])([A-Z])|(?<=[A-Z])([A-Z])(?=[a-z])")
_KEYWORDS = frozenset({"from", "global", "in", "is", "class"})


class Versions:
    """A range of versions; empty if `low` is above `high`."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


NO_VERSIONS: Final = Versions(0, -1)


def parse_versions(text: str) -> Versions:
    """`3+`, `3-13`, `3` or `none`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), MAX_VERSION)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


def snake_case(name: str) -> str:
    """`TransactionalId` -> `transactional_id`, `KRaftVersion` -> `k_raft_version`."""
    snake = _SNAKE.sub(r"_\1\2", name).lower()
    return snake + "_" if snake in _KEYWORDS else snake


@dataclass(slots=True, eq=False)
class Field:
    """A field of a message or struct."""

    name: str
    type: str  # without [] in front
    array: bool
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int = -1
    tagged: Versions = NO_VERSIONS
    flexible: Versions | None = None
    ignorable: bool = False
    default: str | None = None
    struct: Struct | None = None

    @property
    def default_is_null(self) -> bool:
        """Whether the default of the field is null."""
        return self.default == "null"

    @property
    def tagged_struct(self) -> bool:
        """Whether this is a single struct in a tagged field that is never null: None means its default."""
        return self.tag >= 0 and self.struct is not None and not self.array and self.nullable.high < 0


@dataclass(slots=True, eq=False)
class Struct:
    """The top level of a message, or a nested struct."""

    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class MessageSchema:
    """A message: its head line, its top level, and all nested structs by name."""

    kind: str
    api_key: int
    name: str
    valid: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    unstable: bool
    top: Struct
    structs: dict[str, Struct]


class IndexLine(NamedTuple):
    """A line of the index: the file of a message, and its first line."""

    file: str
    head: str

    @property
    def kind(self) -> str:
        """`request`, `response`, `header`, `data`, `metadata`, `coordinator-key` or `coordinator-value`."""
        return self.head.split(" ", 1)[0]

    @property
    def number(self) -> int:
        """API key or record type; -1 if it has neither."""
        text = self.head.split(" ", 2)[1]
        return -1 if text == "-" else int(text)


def _read(name: str) -> str:
    raw = get_data(__package__, f"schemas/{name}")
    assert raw is not None, "the package's loader gives no data"
    return raw.decode()


@cache
def index() -> dict[str, IndexLine]:
    """Message name -> file and first line, for all messages by ascending number."""
    entries = {}
    for line in _read("index.txt").splitlines():
        file, head = line.split(" ", 1)
        entries[head.split(" ", 3)[2]] = IndexLine(file, head)
    return entries


def group_of(kind: str) -> str:
    """The module with the classes of messages of this kind: `messages` or `stored`."""
    return "messages" if kind in {"request", "response"} else "stored"


def names(group: str) -> list[str]:
    """The messages with classes in the module `group`."""
    return [name for name, entry in index().items() if group_of(entry.kind) == group]


def block(name: str) -> str:
    """The message's block of the notation. Raises KeyError if the release has no message with this name."""
    return _file(index()[name].file)[name]


@cache
def _file(name: str) -> dict[str, str]:
    return {text.split(" ", 3)[2]: text for text in _read(f"{name}.ks").strip().split("\n\n")}


def blocks(group: str) -> dict[str, str]:
    """Message name -> its block, for all messages of a group. Reads all its files."""
    return {name: block(name) for name in names(group)}


def read_schema(group: str, name: str) -> MessageSchema:
    """The schema of one message. Raises KeyError if the group has no message with this name."""
    if group_of(index()[name].kind) != group:
        raise KeyError(name)
    return parse(block(name))


def parse_head(line: str) -> MessageSchema:
    """A schema with the data of the head line, without fields."""
    words = line.split()
    kind, key, name, valid = words[:4]
    listeners: tuple[str, ...] = ()
    if "listeners" in words:
        listeners = tuple(words[words.index("listeners") + 1].split(","))
    versions = parse_versions(valid)
    flexible = parse_versions(words[words.index("flexible") + 1])
    top = Struct(name, versions)
    api_key = -1 if key == "-" else int(key)
    return MessageSchema(kind, api_key, name, versions, flexible, listeners, words[-1] == "unstable", top, {})


def parse(text: str) -> MessageSchema:
    """The schema that a block of the notation describes."""
    head, *lines = text.split("\n")
    schema = parse_head(head)
    open_structs = [schema.top]
    for line in lines:
        stripped = line.lstrip(" ")
        depth = (len(line) - len(stripped)) // 2
        del open_structs[depth:]
        words = stripped.split(" ")
        if words[0] == "struct":
            struct = schema.structs.setdefault(words[1], Struct(words[1], parse_versions(words[2])))
            open_structs.append(struct)
            continue
        item = _parse_field(words)
        if item.nullable.high < schema.valid.low:  # nullable only in removed versions
            item.nullable = NO_VERSIONS
        open_structs[-1].fields.append(item)
        if item.type[0].isupper():
            item.struct = schema.structs.setdefault(item.type, Struct(item.type, item.versions))
            open_structs.append(item.struct)
    return schema


def _parse_field(words: list[str]) -> Field:
    name, kind, versions = words[:3]
    item = Field(snake_case(name), kind.removeprefix("[]"), kind.startswith("[]"), parse_versions(versions))
    rest = iter(words[3:])
    for word in rest:
        match word:
            case "null":
                item.nullable = parse_versions(next(rest))
            case "tag":
                item.tag = int(next(rest))
                item.tagged = parse_versions(next(rest))
            case "flexible":
                item.flexible = parse_versions(next(rest))
            case "ignorable":
                item.ignorable = True
            case "default":
                text = next(rest)
                item.default = "" if text == '""' else text
    return item
