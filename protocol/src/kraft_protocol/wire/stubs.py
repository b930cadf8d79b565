"""Writes `messages.pyi` and `stored.pyi`: the types for mypy of the classes that `classes` makes."""

from __future__ import annotations

from kraft_protocol.wire.schema import INTEGERS, Field, Struct, block, names, parse

HEAD = '''"""Written by tools/import_schemas.py; do not edit."""

from kraft_protocol.buffers import Buffer, FileSlice
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.classes import Message
'''
WRITTEN = {"string": "str", "bytes": "bytes", "uuid": "Uuid", "bool": "bool", "float64": "float"}


def _type(field: Field, prefix: str) -> str:
    if field.struct is not None:
        name = f"{prefix}.{field.struct.name}"
    elif field.type == "records":
        name = "Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice]"
    else:
        name = WRITTEN.get(field.type, "int" if field.type in INTEGERS else "object")
    if field.array:
        name = f"list[{name}]"
    optional = field.nullable.high >= 0 or field.default_is_null or field.tagged_struct
    return f"{name} | None" if optional else name


def _class(struct: Struct, prefix: str, indent: str) -> list[str]:
    lines = [f"{indent}    {f.name}: {_type(f, prefix)}" for f in struct.fields]
    lines.append(f"{indent}    unknown_tags: dict[int, bytes] | None")
    lines.append(f"{indent}    def __init__(")
    lines.append(f"{indent}        self,")
    lines += [f"{indent}        {f.name}: {_type(f, prefix)} = ...," for f in struct.fields]
    lines.append(f"{indent}        unknown_tags: dict[int, bytes] | None = ...,")
    lines.append(f"{indent}    ) -> None: ...")
    return lines


def stub(group: str) -> str:
    """The text of `<group>.pyi`."""
    lines = [HEAD]
    for message in names(group):
        schema = parse(block(message))
        lines.append(f"class {schema.name}(Message):")
        for struct in schema.structs.values():
            lines.append(f"    class {struct.name}(Message):")
            lines += _class(struct, schema.name, "    ")
        lines += _class(schema.top, schema.name, "")
        lines.append("")
    return "\n".join(lines)
