"""Compiles the function that encodes one version of a message."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any

from kraft_protocol.wire import runtime
from kraft_protocol.wire.compiler import Compiler, default_text
from kraft_protocol.wire.schema import INTEGERS, Field, MessageSchema, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping


class _Encoder(Compiler):
    """Generates functions `encode(o, b, sent) -> b`: `b` is the bytearray to append to, `sent` the parts before it."""

    def compile(self) -> Callable[[Any, bytearray, list[Any]], Any]:
        self.begin()
        self.write_struct(self.schema.top, "o", "b")
        self.flush("b")
        self.src.line("return b")
        compiled: Callable[[Any, bytearray, list[Any]], Any] = self.src.function("def encode(o, b, sent):")
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
        """An expression that is true if `value` is not the field's default."""
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
        """Generate code that writes the open run and then `length` (-1 for null)."""
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
        """Put the open run aside so that lines can be generated; `resume` restores it."""
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
        """Generate code that writes `run`, the length and the bytes of `value`, which is not null."""
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
                self.item_done()

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


def compile_encoder(
    schema: MessageSchema, version: int, classes: Mapping[str, Any]
) -> Callable[[Any, bytearray, list[Any]], bytearray]:
    """The function `encode(message, out, sent) -> out` for one version."""
    return _Encoder(schema, version, classes).compile()


def compile_step_encoder(
    schema: MessageSchema, version: int, classes: Mapping[str, Any]
) -> Callable[[Any, bytearray, list[Any]], Generator[None, None, bytearray]]:
    """Like `compile_encoder`, as a generator that pauses after each `runtime.STEP_ITEMS` items."""
    return _Encoder(schema, version, classes, steps=True).compile()
