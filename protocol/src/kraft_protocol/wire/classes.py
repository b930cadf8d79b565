"""Makes the classes of the messages in the schemas, each on first use.

A class has a slot for every field of any version, under its snake_case name, and `unknown_tags`. Nested structs are
attributes of the message's class. All versions share the class: fields that a version lacks keep their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ClassVar

from kraft_protocol.buffers import Buffer
from kraft_protocol.wire.compiler import ZERO_UUID, default_text, has_records
from kraft_protocol.wire.decoder import compile_counted_decoder, compile_decoder, compile_step_decoder
from kraft_protocol.wire.encoder import compile_encoder, compile_step_encoder
from kraft_protocol.wire.schema import Field, MessageSchema, Struct, read_schema


class Message:
    """A message or a nested struct; equal if all fields are equal."""

    __slots__ = ()
    SCHEMA: ClassVar[MessageSchema]
    _fields: ClassVar[tuple[str, ...]] = ()
    bare: ClassVar[type[Any]]
    """A subclass with the same name and without a constructor. Decoded objects are instances of it."""
    _decoders: ClassVar[dict[int, Callable[[Buffer, int, int], tuple[Any, int]]]]
    _encoders: ClassVar[dict[int, Callable[[Any, bytearray, list[Any]], bytearray]]]
    _step_decoders: ClassVar[dict[int, Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]]]
    _step_encoders: ClassVar[dict[int, Callable[[Any, bytearray, list[Any]], Generator[None, None, bytearray]]]]
    _counted_decoders: ClassVar[dict[int, Callable[[Buffer, int, int], tuple[Any, int]]]]
    _from_bytes: ClassVar[bool]
    """Whether the decoders need bytes; decoders of messages with records take any buffer."""

    def __eq__(self, other: object) -> bool:
        if getattr(other, "_fields", None) is not self._fields:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        shown = [f"{n}={getattr(self, n)!r}" for n in self._fields if n != "unknown_tags"]
        if getattr(self, "unknown_tags", None):
            shown.append(f"unknown_tags={self.unknown_tags!r}")  # type: ignore[attr-defined]
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def decoder(cls, version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
        """The compiled decoder of a version. Raises KeyError if the message lacks the version."""
        return _compiled(cls, cls._decoders, compile_decoder, version)  # type: ignore[no-any-return]

    @classmethod
    def encoder(cls, version: int) -> Callable[[Any, bytearray, list[Any]], bytearray]:
        """The compiled encoder of a version. Raises KeyError if the message lacks the version."""
        return _compiled(cls, cls._encoders, compile_encoder, version)  # type: ignore[no-any-return]


def step_decoder(cls: type[Message], version: int) -> Any:
    """The decoder that runs in steps. Raises KeyError if the message lacks the version."""
    return _compiled(cls, cls._step_decoders, compile_step_decoder, version)


def counted_decoder(cls: type[Message], version: int) -> Any:
    """The decoder that raises TooManyItems for too many items. Raises KeyError if the message lacks the version."""
    return _compiled(cls, cls._counted_decoders, compile_counted_decoder, version)


def step_encoder(cls: type[Message], version: int) -> Any:
    """The encoder that runs in steps. Raises KeyError if the message lacks the version."""
    return _compiled(cls, cls._step_encoders, compile_step_encoder, version)


def _compiled(cls: type[Message], known: dict[int, Any], compiler: Callable[..., Any], version: int) -> Any:
    found = known.get(version)
    if found is None:
        if version not in cls.SCHEMA.valid:
            raise KeyError(version)
        found = known[version] = compiler(cls.SCHEMA, version, _structs(cls))
    return found


def _structs(cls: type[Message]) -> dict[str, type]:
    return {cls.__name__: cls, **{name: getattr(cls, name) for name in cls.SCHEMA.structs}}


class _Unset:
    """The value of an argument that was not given, where None is a valid value."""

    def __repr__(self) -> str:
        return "…"


_UNSET = _Unset()


def make_class(group: str, name: str, module: str) -> type[Message]:
    """The class of message `name`; `module` must store it. Raises KeyError if the group has no message with this
    name."""
    schema = read_schema(group, name)
    made: dict[str, type[Message]] = {}
    for struct in schema.structs.values():
        made[struct.name] = _make(struct, module, f"{name}.{struct.name}", made)
    cls = _make(schema.top, module, name, made)
    for struct_name, struct_class in made.items():
        setattr(cls, struct_name, struct_class)
    cls.SCHEMA = schema
    cls._decoders = {}
    cls._encoders = {}
    cls._step_decoders = {}
    cls._step_encoders = {}
    cls._counted_decoders = {}
    cls._from_bytes = not has_records(schema.top)
    return cls


def _make(struct: Struct, module: str, qualified: str, made: dict[str, type[Message]]) -> type[Message]:
    names = (*(f.name for f in struct.fields), "unknown_tags")
    scope: dict[str, Any] = {"ZERO_UUID": ZERO_UUID, "UNSET": _UNSET, "made": made}
    arguments = "".join(f", {f.name}={_argument(f)}" for f in struct.fields)
    body = "".join(f"\n    self.{f.name} = {_assigned(f)}" for f in struct.fields)
    text = f"def __init__(self{arguments}, unknown_tags=None):{body}\n    self.unknown_tags = unknown_tags\n"
    exec(text, scope)  # noqa: S102  # our own text, from our own schemas
    attributes = {
        "__slots__": names,
        "__init__": scope["__init__"],
        "__module__": module,
        "__qualname__": qualified,
        "_fields": names,
    }
    cls: type[Message] = type(struct.name, (Message,), attributes)
    shared = {"__slots__": (), "__init__": object.__init__, "__module__": module, "__qualname__": qualified}
    cls.bare = type(struct.name, (cls,), shared)
    return cls


def _needs_fresh(field: Field) -> bool:
    text = default_text(field)
    return text == "[]" or text.endswith("()")


def _argument(field: Field) -> str:
    return "UNSET" if _needs_fresh(field) else default_text(field)


def _assigned(field: Field) -> str:
    if not _needs_fresh(field):
        return field.name
    text = default_text(field)
    fresh = f"made[{text[:-2]!r}]()" if text.endswith("()") else text
    return f"{fresh} if {field.name} is UNSET else {field.name}"
