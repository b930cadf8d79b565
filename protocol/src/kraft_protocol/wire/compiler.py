"""The common part of the compilers of decoders (`decoder`) and encoders (`encoder`).

Each compiler turns a message schema and a version into one straight-line Python function. The function is fast for
these reasons. Adjacent fixed-size fields, with the length that follows them, are one struct call. One-byte varints are
read in place. Nested structs are loops in the same function. Objects are filled slot by slot without a constructor
call.

With `steps` the function is a generator for messages with many items: it pauses after `runtime.STEP_ITEMS` items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.wire import runtime
from kraft_protocol.wire.errors import DecodeError, EncodeError
from kraft_protocol.wire.schema import INTEGERS, Field, MessageSchema, Struct
from kraft_protocol.wire.source import FunctionSource

if TYPE_CHECKING:
    from collections.abc import Mapping

ZERO_UUID = bytes(16)
SIZES = {"b": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


def default_text(field: Field) -> str:
    """Python source of a field's default."""
    if field.default_is_null or field.tagged_struct:
        return "None"
    if field.array:
        return "[]"
    if field.struct is not None:
        return f"{field.struct.name}()"
    match field.type:
        case "string":
            return repr(field.default or "")
        case "bytes" | "records":
            return "None" if field.type == "records" and field.nullable.high >= 0 else 'b""'
        case "uuid":
            return "ZERO_UUID"
        case "bool":
            return "True" if field.default == "true" else "False"
        case "float64":
            return repr(float(field.default or 0))
        case _:
            return repr(int(field.default or "0", 0))


class Compiler:
    """State of the function that is being generated."""

    def __init__(self, schema: MessageSchema, version: int, classes: Mapping[str, Any], *, steps: bool = False) -> None:
        self.schema = schema
        self.steps = steps
        self.version = version
        self.classes = classes
        self.flexible = version in schema.flexible
        self.src = FunctionSource()
        names = self.src.names
        names.update(ZERO_UUID=ZERO_UUID, DecodeError=DecodeError, EncodeError=EncodeError)
        for helper in ("uvarint_rest", "uvarint", "put_uvarint", "put_tags", "short", "above", "null", "lacks"):
            names[helper] = getattr(runtime, helper)
        names.update(records_parts=runtime.records_parts, put_records=runtime.put_records)

    def begin(self) -> None:
        """Generate the code before the first item."""
        if self.steps:
            self.src.line(f"left = {runtime.STEP_ITEMS}")
            self.src.line("if not left: yield  # a generator, whatever the message has")

    def item_done(self) -> None:
        """Generate the accounting of one array item: a generator pauses after many items."""
        if self.steps:
            self.src.line("left -= 1")
            self.src.line(f"if left <= 0: yield; left = {runtime.STEP_ITEMS}")

    def present(self, field: Field) -> bool:
        """Whether the version has the field."""
        return self.version in field.versions

    def is_tagged(self, field: Field) -> bool:
        """Whether the field is tagged in the version."""
        return self.flexible and field.tag >= 0 and self.version in field.tagged

    def is_flexible(self, field: Field) -> bool:
        """Whether the field uses the flexible encoding in the version."""
        return self.flexible and (field.flexible is None or self.version in field.flexible)

    def cls(self, struct: Struct) -> str:
        """The name of the struct's class in the generated source. Calling it makes an object with defaults."""
        return self.src.constant("C", self.classes[struct.name])

    def bare(self, struct: Struct) -> str:
        """The class without a constructor: calling it is the cheapest way to make an object with empty slots."""
        return self.src.constant("B", self.classes[struct.name].bare)

    def untagged(self, struct: Struct) -> list[Field]:
        """The fields of the version without a tag, in order."""
        return [f for f in struct.fields if self.present(f) and not self.is_tagged(f)]

    def tagged(self, struct: Struct) -> list[Field]:
        """The tagged fields of the version."""
        return [f for f in struct.fields if self.present(f) and self.is_tagged(f)]

    def least_size(self, field: Field) -> int:
        """The minimum size of an element of the array `field` in bytes, at least 1."""
        if field.struct is None:
            fixed = INTEGERS.get(field.type)
            return SIZES[fixed] if fixed else 1 if self.is_flexible(field) else 2
        return max(1, sum(self._least(f) for f in self.untagged(field.struct)) + self.flexible)

    def _least(self, field: Field) -> int:
        if field.array or field.type in {"bytes", "records"}:
            return 1 if self.is_flexible(field) else 4
        if field.type == "string":
            return 1 if self.is_flexible(field) else 2
        if field.struct is not None:
            nullable = self.version in field.nullable
            return 1 if nullable else sum(self._least(f) for f in self.untagged(field.struct)) + self.flexible
        return SIZES[INTEGERS[field.type]]

    def where(self, struct: Struct, field: Field) -> str:
        """The name of a field in errors: `Message.field`, or `Message.Struct.field` in a nested struct."""
        top = self.schema.name
        return f"{top}.{field.name}" if struct.name == top else f"{top}.{struct.name}.{field.name}"


def has_records(struct: Struct) -> bool:
    """Whether the struct contains records: messages with records are decoded from views, others from bytes."""
    return any(f.type == "records" or (f.struct is not None and has_records(f.struct)) for f in struct.fields)
