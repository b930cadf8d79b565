"""Turns a message schema and a version into one straight-line Python function that decodes and one that encodes.

What makes them fast: neighbouring fixed-size fields, with the length that follows them, are one struct call; one-byte
varints are read in place; nested structs are loops in the same function; objects are filled slot by slot without a
constructor call.
"""

from __future__ import annotations

from struct import Struct as _Layout
from struct import pack, unpack_from
from typing import TYPE_CHECKING, Any

from kraft_node.wire import runtime
from kraft_node.wire.errors import DecodeError, EncodeError
from kraft_node.wire.schema import INTEGERS, Field, MessageSchema, Struct
from kraft_node.wire.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kraft_node.base.env import Buffer

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


class _Compiler:
    """State of one function being written."""

    def __init__(self, schema: MessageSchema, version: int, classes: Mapping[str, Any]) -> None:
        self.schema = schema
        self.version = version
        self.classes = classes
        self.flexible = version in schema.flexible
        self.src = Source()
        names = self.src.names
        names.update(ZERO_UUID=ZERO_UUID, DecodeError=DecodeError, EncodeError=EncodeError)
        for helper in ("uvarint_rest", "uvarint", "put_uvarint", "put_tags", "short", "above", "null", "lacks"):
            names[helper] = getattr(runtime, helper)
        names.update(records_parts=runtime.records_parts, put_records=runtime.put_records)

    def present(self, field: Field) -> bool:
        return self.version in field.versions

    def is_tagged(self, field: Field) -> bool:
        return self.flexible and field.tag >= 0 and self.version in field.tagged

    def is_flexible(self, field: Field) -> bool:
        return self.flexible and (field.flexible is None or self.version in field.flexible)

    def cls(self, struct: Struct) -> str:
        return self.src.constant("C", self.classes[struct.name])

    def bare(self, struct: Struct) -> str:
        """The class without a constructor: calling it is the cheapest way to an object with empty slots."""
        return self.src.constant("B", self.classes[struct.name].bare)

    def untagged(self, struct: Struct) -> list[Field]:
        return [f for f in struct.fields if self.present(f) and not self.is_tagged(f)]

    def tagged(self, struct: Struct) -> list[Field]:
        return [f for f in struct.fields if self.present(f) and self.is_tagged(f)]

    def least_size(self, field: Field) -> int:
        """The least bytes that an element of the array `field` takes, at least 1."""
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
        top = self.schema.name
        return f"{top}.{field.name}" if struct.name == top else f"{top}.{struct.name}.{field.name}"


class _Decoder(_Compiler):
    views = False
    """Whether the buffer may be a memoryview."""

    def compile(self) -> Callable[[Buffer, int, int], tuple[Any, int]]:
        self.views = has_records(self.schema.top)
        if self.views:
            self.src.line("view = memoryview(buf)")
        self.read_struct(self.schema.top, "o")
        self.src.line("return o, pos")
        compiled: Callable[[Buffer, int, int], tuple[Any, int]] = self.src.function("def decode(buf, pos, end):")
        return compiled

    def read_struct(self, struct: Struct, target: str) -> None:
        src = self.src
        values: dict[str, str] = {}
        for field in self.untagged(struct):
            values[field.name] = self.read_field(struct, field)
        unknown = "None"
        if self.flexible:
            unknown = self.read_tags(struct, values)
        else:
            src.read_run()
        self.make(struct, values, target, unknown)

    def make(self, struct: Struct, values: Mapping[str, str], target: str, unknown: str) -> None:
        """Fill an object: `values` by field name, defaults for what the version lacks."""
        src = self.src
        src.line(f"{target} = {self.bare(struct)}()")
        for field in struct.fields:
            value = values.get(field.name) or self.default(field)
            src.line(f"{target}.{field.name} = {value}")
        src.line(f"{target}.unknown_tags = {unknown}")

    def default(self, field: Field) -> str:
        text = default_text(field)
        if text.endswith("()") and field.struct is not None:
            return f"{self.cls(field.struct)}()"
        return text

    def read_field(self, struct: Struct, field: Field) -> str:
        """Write what reads the field; the variable that holds it (in an open run, perhaps)."""
        src = self.src
        value = src.unique("v")
        fixed = INTEGERS.get(field.type)
        what = repr(self.where(struct, field))
        nullable = self.version in field.nullable
        if field.array:
            self.read_array(struct, field, value, nullable)
        elif fixed:
            src.add(fixed, value)
        elif field.struct is not None:
            if nullable:
                # 1 before a struct; before a null -1, and in a tagged field 0
                src.add("b", value)
                src.read_run()
                with src.block(f"if {value} < {1 if self.is_tagged(field) else 0}:"):
                    src.line(f"{value} = None")
                with src.block("else:"):
                    self.read_struct(field.struct, value)
            else:
                self.read_struct(field.struct, value)
        else:
            self.read_bytes(field, value, what, nullable, self.is_flexible(field))
        return value

    def read_length(self, value: str, code: str, flexible: bool, nulled: str, what: str, most: int = 0) -> None:
        """Read a length into `value`, run `nulled` for null, refuse other negative ones and those above `most`.

        What follows is to be written in an else branch.
        """
        src = self.src
        if flexible:
            src.add("B", value)
            src.read_run()
            with src.block(f"if {value} > 127:"):
                src.line(f"{value}, pos = uvarint_rest(buf, pos, {value})")
                if most:
                    src.line(f"if {value} > {most + 1}: raise above({what}, pos, {value} - 1, {most})")
            src.line(f"if {value} == 0: {nulled}")
            return
        src.add(code, value)
        src.read_run()
        with src.block(f"if {value} < 0:"):
            src.line(f"if {value} != -1: raise short({what}, pos, {value}, end)")
            src.line(nulled)

    def read_bytes(self, field: Field, value: str, what: str, nullable: bool, flexible: bool) -> None:
        src = self.src
        size = src.unique("n")
        end = src.unique("q")
        nulled = f"{value} = None" if nullable else f"raise null({what}, pos)"
        most = runtime.MAX_STRING_BYTES if field.type == "string" else 0
        self.read_length(size, "i" if most == 0 else "h", flexible, nulled, what, most)
        with src.block("else:"):
            src.line(f"{end} = pos + {size}{' - 1' if flexible else ''}")
            src.line(f"if {end} > end: raise short({what}, pos, {size}, end)")
            cut = f"[pos:{end}]"
            text = f"view{cut}.tobytes().decode()" if self.views else f"buf{cut}.decode()"
            made = {"string": text, "bytes": f"bytes(buf{cut})", "records": f"view{cut}"}
            src.line(f"{value} = {made[field.type]}; pos = {end}")

    def read_array(self, struct: Struct, field: Field, value: str, nullable: bool) -> None:
        src = self.src
        count = src.unique("n")
        what = repr(self.where(struct, field))
        nulled = f"{value} = None" if nullable else f"raise null({what}, pos)"
        flexible = self.is_flexible(field)
        self.read_length(count, "i", flexible, nulled, what, runtime.MAX_ELEMENTS)
        with src.block("else:"):
            if flexible:
                src.line(f"{count} -= 1")
            else:
                src.line(
                    f"if {count} > {runtime.MAX_ELEMENTS}: raise above({what}, pos, {count}, {runtime.MAX_ELEMENTS})"
                )
            least = self.least_size(field)
            needed = count if least == 1 else f"{count} * {least}"
            refused = f"if {needed} > end - pos: raise short({what}, pos, {count}, end)"
            fixed = INTEGERS.get(field.type)
            if fixed and fixed != "16s":
                self.read_numbers(fixed, value, count, refused)
            else:
                src.line(refused)
                self.read_elements(field, value, count, what)

    def read_numbers(self, code: str, value: str, count: str, refused: str) -> None:
        src = self.src
        few = src.constant("F", runtime.few_unpackers(code))
        src.names["unpack_from"] = unpack_from
        with src.block(f"if {count} < {runtime.FEW}:"):
            src.line(f"{value} = [*{few}[{count}](buf, pos)]")
        with src.block("else:"):
            src.line(refused)
            src.line(f"{value} = [*unpack_from(f'>{{{count}}}{code}', buf, pos)]")
        src.line(f"pos += {count} * {SIZES[code]}")

    def read_elements(self, field: Field, value: str, count: str, what: str) -> None:
        src = self.src
        fixed = INTEGERS.get(field.type)
        if fixed == "16s":
            src.line(
                f"{value} = [bytes(buf[i:i + 16]) for i in range(pos, pos + {count} * 16, 16)]; pos += {count} * 16"
            )
            return
        if field.struct is not None and self.is_fixed(field.struct):
            self.read_fixed_structs(field.struct, value, count)
            return
        self.read_one_by_one(field, value, count, what)

    def is_fixed(self, struct: Struct) -> bool:
        """Whether every struct of this version without tagged fields has the same size."""
        return all(not f.array and f.type in INTEGERS for f in self.untagged(struct))

    def read_fixed_structs(self, struct: Struct, value: str, count: str) -> None:
        """All at once by iter_unpack, unless one of them has tagged fields."""
        src = self.src
        fields = self.untagged(struct)
        names = [src.unique("v") for _ in fields]
        codes = "".join(INTEGERS[f.type] for f in fields) + ("B" if self.flexible else "")
        layout = _Layout(">" + codes)
        end = src.unique("q")
        src.line(f"{end} = pos + {count} * {layout.size}")
        whole = f"{end} <= end"
        if self.flexible:
            whole += f" and not any(buf[pos + {layout.size - 1}:{end}:{layout.size}])"
        with src.block(f"if {whole}:"):
            add, element = src.unique("a"), src.unique("e")
            src.line(f"{value} = []; {add} = {value}.append")
            unpack = src.constant("I", layout.iter_unpack)
            targets = ", ".join([*names, "_"] if self.flexible else names) + ("," if len(codes) == 1 else "")
            with src.block(f"for {targets} in {unpack}(buf[pos:{end}]):"):
                values = dict(zip([f.name for f in fields], names, strict=True))
                values.update({f.name: self.default(f) for f in self.tagged(struct)})
                self.make(struct, values, element, "None")
                src.line(f"{add}({element})")
            src.line(f"pos = {end}")
        with src.block("else:"):
            self.read_each(struct, value, count)

    def read_each(self, struct: Struct, value: str, count: str) -> None:
        src = self.src
        element, add = src.unique("e"), src.unique("a")
        src.line(f"{value} = []; {add} = {value}.append")
        with src.block(f"for _ in range({count}):"):
            self.read_struct(struct, element)
            src.line(f"{add}({element})")

    def read_one_by_one(self, field: Field, value: str, count: str, what: str) -> None:
        src = self.src
        if field.struct is not None:
            self.read_each(field.struct, value, count)
            return
        element = src.unique("e")
        add = src.unique("a")
        src.line(f"{value} = []; {add} = {value}.append")
        with src.block(f"for _ in range({count}):"):
            self.read_bytes(field, element, what, False, self.is_flexible(field))
            src.line(f"{add}({element})")

    def read_tags(self, struct: Struct, values: dict[str, str]) -> str:
        src = self.src
        count, unknown, last = src.unique("t"), src.unique("u"), src.unique("l")
        src.add("B", count)
        src.read_run()
        src.line(f"{unknown} = None")
        known = self.tagged(struct)
        for field in known:
            values[field.name] = src.unique("v")
            src.line(f"{values[field.name]} = {self.default(field)}")
        with src.block(f"if {count}:"):
            src.line(f"if {count} > 127: {count}, pos = uvarint_rest(buf, pos, {count})")
            src.line(f"{last} = -1")
            tag, end = src.unique("g"), src.unique("q")
            with src.block(f"for _ in range({count}):"):
                src.line(f"{tag}, pos = uvarint(buf, pos)")
                src.line(f"{end}, pos = uvarint(buf, pos); {end} += pos")
                what = f"'a tagged field of {struct.name}'"
                src.line(f"if {end} > end: raise short({what}, pos, {end} - pos, end)")
                src.line(f"if {tag} <= {last}: raise DecodeError(f'tags of {struct.name} out of order: {{{tag}}}')")
                src.line(f"{last} = {tag}")
                for field in known:
                    with src.block(f"if {tag} == {field.tag}:"):
                        read = self.read_field(struct, field)
                        src.read_run()
                        src.line(f"{values[field.name]} = {read}")
                        src.line(
                            f"if pos != {end}: raise DecodeError(f'{{pos - {end}}} bytes too many in tag {{{tag}}}')"
                        )
                        src.line("continue")
                src.line(f"if {unknown} is None: {unknown} = {{}}")
                src.line(f"{unknown}[{tag}] = bytes(buf[pos:{end}]); pos = {end}")
        return unknown


class _Encoder(_Compiler):
    """Writes functions `encode(o, b, sent) -> b`: `b` is the bytearray to append to, `sent` the parts before it."""

    def compile(self) -> Callable[[Any, bytearray, list[Any]], bytearray]:
        self.write_struct(self.schema.top, "o", "b")
        self.flush("b")
        self.src.line("return b")
        compiled: Callable[[Any, bytearray, list[Any]], bytearray] = self.src.function("def encode(o, b, sent):")
        return compiled

    def flush(self, out: str) -> None:
        self.src.write_run(self.src.take_run(), out)

    def write_struct(self, struct: Struct, source: str, out: str) -> None:
        missing = [f for f in struct.fields if not self.present(f) and not f.ignorable]
        if missing:
            self.flush(out)
        for field in missing:
            test = self.differs(field, f"{source}.{field.name}")
            self.src.line(f"if {test}: raise lacks({self.where(struct, field)!r}, {self.version})")
        for field in self.untagged(struct):
            self.write_field(field, f"{source}.{field.name}", out)
        if self.flexible:
            self.write_tags(struct, source, out)

    def differs(self, field: Field, value: str) -> str:
        """An expression that is true when `value` is not the field's default."""
        if field.default_is_null:
            return f"{value} is not None"
        if field.tagged_struct:
            assert field.struct is not None
            return f"({value} is not None and {value} != {self.cls(field.struct)}())"
        if field.array or field.type in {"bytes", "records"}:
            return f"({value} is None or len({value}))" if field.nullable.high >= 0 else value
        if field.struct is not None:
            return f"{value} != {self.cls(field.struct)}()"
        return f"{value} != {default_text(field)}"

    def write_field(self, field: Field, value: str, out: str) -> None:
        nullable = self.version in field.nullable
        fixed = INTEGERS.get(field.type)
        if field.array:
            self.write_array(field, value, out, nullable)
        elif fixed:
            self.src.add(fixed, value)
        elif field.struct is not None:
            self.write_single_struct(field, field.struct, value, out, nullable)
        elif field.type == "records":
            self.write_records(field, value, out, nullable)
        else:
            self.write_bytes(field, value, out, nullable, self.is_flexible(field))

    def write_single_struct(self, field: Field, struct: Struct, value: str, out: str, nullable: bool) -> None:
        src = self.src
        self.flush(out)
        item = src.unique("o")
        src.line(f"{item} = {value}")
        if not nullable:
            if field.tagged_struct:
                src.line(f"if {item} is None: {item} = {self.cls(struct)}()")
            self.write_struct(struct, item, out)
            return
        with src.block(f"if {item} is None:"):
            src.line(f"{out}.append({0 if self.is_tagged(field) else 255})")
        with src.block("else:"):
            src.add("b", "1")
            self.write_struct(struct, item, out)
            self.flush(out)

    def write_length(self, length: str, code: str, out: str, flexible: bool) -> None:
        """Write the open run and `length` (-1 for null) after it."""
        src = self.src
        run = src.take_run()
        if not flexible:
            src.write_run([*run, (code, length)], out)
            return
        with src.block(f"if {length} < 127:"):
            src.write_run([*run, ("B", f"{length} + 1")], out)
        with src.block("else:"):
            if code == "h":
                most = runtime.MAX_STRING_BYTES
                src.line(
                    f"if {length} > {most}: raise EncodeError(f'a string of {{{length}}} bytes, not {most} at most')"
                )
            src.write_run(run, out)
            src.line(f"put_uvarint({out}, {length} + 1)")

    def before_line(self) -> list[tuple[str, str]]:
        """Set the open run aside so that lines can be written; to be put back by `resume`."""
        return self.src.take_run()

    def resume(self, run: list[tuple[str, str]]) -> None:
        for code, what in run:
            self.src.add(code, what)

    def write_bytes(self, field: Field, value: str, out: str, nullable: bool, flexible: bool) -> None:
        src = self.src
        run = self.before_line()
        raw = src.unique("s")
        code = "h" if field.type == "string" else "i"
        if not nullable:
            self.write_bytes_of(field, value, raw, out, run, flexible)
            return
        src.line(f"{raw} = {value}")
        with src.block(f"if {raw} is None:"):
            src.write_run([*run, ("B", "0") if flexible else (code, "-1")], out)
        with src.block("else:"):
            self.write_bytes_of(field, raw, raw, out, run, flexible)

    def write_bytes_of(
        self, field: Field, value: str, raw: str, out: str, run: list[tuple[str, str]], flexible: bool
    ) -> None:
        """Write `run`, the length and the bytes of `value`, which is not null."""
        src = self.src
        length = src.unique("n")
        is_text = field.type == "string"
        src.line(f"{raw} = {value}{'.encode()' if is_text else ''}; {length} = len({raw})")
        self.resume(run)
        self.write_length(length, "h" if is_text else "i", out, flexible)
        src.line(f"{out} += {raw}")

    def write_records(self, field: Field, value: str, out: str, nullable: bool) -> None:
        src = self.src
        run = self.before_line()
        raw, length, parts = src.unique("s"), src.unique("n"), src.unique("p")
        src.line(f"{raw} = {value}")
        if nullable:
            src.line(f"if {raw} is None: {length} = -1; {parts} = ()")
            src.line(f"else: {length}, {parts} = records_parts({raw})")
        else:
            src.line(f"{length}, {parts} = records_parts({raw})")
        self.resume(run)
        self.write_length(length, "i", out, self.is_flexible(field))
        src.line(f"if {parts}: {out} = put_records({out}, {parts}, sent)")

    def write_array(self, field: Field, value: str, out: str, nullable: bool) -> None:
        src = self.src
        run = self.before_line()
        items, count = src.unique("x"), src.unique("n")
        src.line(f"{items} = {value}")
        if nullable:
            src.line(f"if {items} is None: {count} = -1; {items} = ()")
            src.line(f"else: {count} = len({items})")
        else:
            src.line(f"{count} = len({items})")
        self.resume(run)
        self.write_length(count, "i", out, self.is_flexible(field))
        fixed = INTEGERS.get(field.type)
        if fixed == "16s":
            src.line(f"for i in {items}: assert len(i) == 16, 'a UUID has 16 bytes'")
            src.line(f"{out} += b''.join({items})")
        elif fixed:
            few = src.constant("F", runtime.few_packers(fixed))
            src.names["pack"] = pack
            src.line(f"if {count} >= {runtime.FEW}: {out} += pack(f'>{{{count}}}{fixed}', *{items})")
            src.line(f"elif {count} > 0: {out} += {few}[{count}](*{items})")
        else:
            item = src.unique("o")
            with src.block(f"for {item} in {items}:"):
                if field.struct is not None:
                    self.write_struct(field.struct, item, out)
                    self.flush(out)
                else:
                    self.write_bytes(field, item, out, False, self.is_flexible(field))

    def write_tags(self, struct: Struct, source: str, out: str) -> None:
        src = self.src
        known = self.tagged(struct)
        run = self.before_line()
        tests = [self.differs(f, f"{source}.{f.name}") for f in known] + [f"{source}.unknown_tags"]
        with src.block(f"if {' or '.join(tests)}:"):
            src.write_run(run, out)
            tags = src.unique("t")
            src.line(f"{tags} = dict({source}.unknown_tags or ())")
            for field in known:
                with src.block(f"if {self.differs(field, f'{source}.{field.name}')}:"):
                    inner = src.unique("b")
                    src.line(f"{inner} = bytearray()")
                    self.write_field(field, f"{source}.{field.name}", inner)
                    self.flush(inner)
                    src.line(f"{tags}[{field.tag}] = {inner}")
            src.line(f"put_tags({out}, {tags})")
        with src.block("else:"):
            src.write_run([*run, ("B", "0")], out)


def compile_decoder(
    schema: MessageSchema, version: int, classes: Mapping[str, Any]
) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    """The function `decode(buf, pos, end) -> (message, next position)` of one version.

    `buf` is bytes, and for messages with records any buffer.
    """
    return _Decoder(schema, version, classes).compile()


def compile_encoder(
    schema: MessageSchema, version: int, classes: Mapping[str, Any]
) -> Callable[[Any, bytearray, list[Any]], bytearray]:
    """The function `encode(message, out, sent) -> out` of one version."""
    return _Encoder(schema, version, classes).compile()


def has_records(struct: Struct) -> bool:
    """Whether records are somewhere in it: such messages are decoded from views, others from bytes."""
    return any(f.type == "records" or (f.struct is not None and has_records(f.struct)) for f in struct.fields)
