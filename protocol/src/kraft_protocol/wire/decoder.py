"""Compiles the function that decodes one version of a message."""

from __future__ import annotations

from struct import Struct as _Layout
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from kraft_protocol.wire import runtime
from kraft_protocol.wire.compiler import SIZES, Compiler, default_text, has_records
from kraft_protocol.wire.schema import INTEGERS, Field, MessageSchema, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from kraft_protocol.buffers import Buffer


class _Decoder(Compiler):
    def __init__(
        self,
        schema: MessageSchema,
        version: int,
        classes: Mapping[str, Any],
        *,
        steps: bool = False,
        counted: bool = False,
    ) -> None:
        super().__init__(schema, version, classes, steps=steps)
        self.counted = counted
        self.views = steps or has_records(schema.top)
        """Whether the buffer may be a memoryview."""

    def compile(self) -> Callable[[Buffer, int, int], Any]:
        if self.views:
            self.src.line("view = memoryview(buf)")
        if self.counted:
            self.src.names["many"] = runtime.many
            self.src.line(f"room = {runtime.COUNTED_ITEMS}")
        self.begin()
        self.read_struct(self.schema.top, "o")
        self.src.line("return o, pos")
        compiled: Callable[[Buffer, int, int], Any] = self.src.function("def decode(buf, pos, end):")
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
        """Generate code that fills an object: `values` by field name, defaults for fields that the version lacks."""
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
        """Generate code that reads the field. Returns the variable that holds it (perhaps in an open run)."""
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
        """Generate code that reads a length into `value`, runs `nulled` for null, and refuses other negative lengths
        and lengths above `most`.

        The caller must generate the following code in an else branch.
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
            if self.steps:
                self.read_numbers_in_steps(code, value, count)
            else:
                src.line(f"{value} = [*unpack_from(f'>{{{count}}}{code}', buf, pos)]")
        src.line(f"pos += {count} * {SIZES[code]}")

    def read_numbers_in_steps(self, code: str, value: str, count: str) -> None:
        src = self.src
        begin, some, step = src.unique("i"), src.unique("m"), runtime.STEP_ITEMS
        src.line(f"{value} = []")
        with src.block(f"for {begin} in range(0, {count}, {step}):"):
            src.line(f"{some} = min({step}, {count} - {begin})")
            src.line(f"{value} += unpack_from(f'>{{{some}}}{code}', buf, pos + {begin} * {SIZES[code]})")
            src.line(f"left -= {some}")
            src.line(f"if left <= 0: yield; left = {step}")

    def read_elements(self, field: Field, value: str, count: str, what: str) -> None:
        src = self.src
        fixed = INTEGERS.get(field.type)
        if fixed == "16s":
            begin, add = src.unique("i"), src.unique("a")
            src.line(f"{value} = []; {add} = {value}.append")
            with src.block(f"for {begin} in range(pos, pos + {count} * 16, 16):"):
                src.line(f"{add}(bytes(buf[{begin}:{begin} + 16]))")
                self.item_done()
            src.line(f"pos += {count} * 16")
            return
        if self.counted:
            src.line(f"room -= {count}")
            src.line("if room < 0: raise many()")
        if field.struct is not None and self.is_fixed(field.struct):
            self.read_fixed_structs(field.struct, value, count)
            return
        self.read_one_by_one(field, value, count, what)

    def is_fixed(self, struct: Struct) -> bool:
        """Whether all structs of this version without tagged fields have the same size."""
        return all(not f.array and f.type in INTEGERS for f in self.untagged(struct))

    def read_fixed_structs(self, struct: Struct, value: str, count: str) -> None:
        """Generate code that reads all structs by one iter_unpack, unless one of them has tagged fields."""
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
                self.item_done()
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
            self.item_done()

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
            self.item_done()

    def read_tags(self, struct: Struct, values: dict[str, str]) -> str:
        """Tags may come in any order, and of a repeated tag the last one counts, as in Kafka."""
        src = self.src
        count, unknown = src.unique("t"), src.unique("u")
        src.add("B", count)
        src.read_run()
        src.line(f"{unknown} = None")
        known = self.tagged(struct)
        for field in known:
            values[field.name] = src.unique("v")
            src.line(f"{values[field.name]} = {self.default(field)}")
        with src.block(f"if {count}:"):
            src.line(f"if {count} > 127: {count}, pos = uvarint_rest(buf, pos, {count})")
            tag, end = src.unique("g"), src.unique("q")
            with src.block(f"for _ in range({count}):"):
                self.item_done()
                src.line(f"{tag}, pos = uvarint(buf, pos)")
                src.line(f"{end}, pos = uvarint(buf, pos); {end} += pos")
                what = f"'a tagged field of {struct.name}'"
                src.line(f"if {end} > end: raise short({what}, pos, {end} - pos, end)")
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


def compile_decoder(
    schema: MessageSchema, version: int, classes: Mapping[str, Any]
) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    """The function `decode(buf, pos, end) -> (message, next position)` for one version.

    `buf` is bytes; for messages with records it is any buffer.
    """
    return _Decoder(schema, version, classes).compile()


def compile_counted_decoder(
    schema: MessageSchema, version: int, classes: Mapping[str, Any]
) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    """Like `compile_decoder`, but the function raises TooManyItems for more than `runtime.COUNTED_ITEMS` structs."""
    return _Decoder(schema, version, classes, counted=True).compile()


def compile_step_decoder(
    schema: MessageSchema, version: int, classes: Mapping[str, Any]
) -> Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]:
    """Like `compile_decoder`, as a generator that pauses after each `runtime.STEP_ITEMS` items; `buf` is any buffer."""
    return _Decoder(schema, version, classes, steps=True).compile()
