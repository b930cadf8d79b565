"""Kafka's grammar of `sasl.jaas.config`: one login module with its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password='secret';

Values are words or quoted texts, `//`, `/` and `/* */` begin comments, the semicolon is required. Errors name the
place and the option, never a value, because values are secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
REFUSED_MODULES: Final = (
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
)
"""Modules that let a configuration reach foreign servers; Kafka refuses them, too (CVE-2023-25194)."""

_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_QUOTES: Final = "\"'"
_DIGITS: Final = "0123456789.-"


class JaasError(ValueError):
    """A JAAS entry cannot be read. The message has no values."""


class JaasEntry(NamedTuple):
    """A login module's class and its options."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, options {', '.join(self.options)})"

    @property
    def module_name(self) -> str:
        """The class without its package."""
        return self.module.rpartition(".")[2]


class _Token(NamedTuple):
    kind: str
    """`word`, `text` (quoted), `number`, `mark` (any other character) or `end`."""
    value: str
    position: int


def parse_jaas(text: str) -> JaasEntry:
    """The only entry of a text. Raises JaasError."""
    tokens = _tokens(text)
    entry, used = _entry(tokens)
    if tokens[used].kind != "end":
        raise JaasError(
            f"JAAS config: one login module expected, a second entry begins at character {tokens[used].position}"
        )
    if entry.module in REFUSED_MODULES:
        raise JaasError(f"JAAS config: the login module {entry.module} is not allowed")
    return entry


def _entry(tokens: list[_Token]) -> tuple[JaasEntry, int]:
    module, flag = tokens[0], tokens[min(1, len(tokens) - 1)]
    if module.kind not in ("word", "text"):
        raise JaasError("JAAS config: login module not specified")
    if flag.kind not in ("word", "text") or flag.value.lower() not in FLAGS:
        raise JaasError(
            f"JAAS config: one of {', '.join(FLAGS)} expected after the login module, at character {flag.position}"
        )
    options: dict[str, str] = {}
    at = 2
    while tokens[at].kind != "end" and tokens[at].value != ";":
        key = tokens[at]
        if key.kind not in ("word", "text"):
            raise JaasError(f"JAAS config: the name of an option expected at character {key.position}")
        if tokens[at + 1][:2] != ("mark", "="):
            raise JaasError(f"JAAS config: '=' expected after option '{key.value}', at character {key.position}")
        value = tokens[at + 2]
        if value.kind not in ("word", "text"):
            hint = "; numbers need quotes" if value.kind == "number" else ""
            raise JaasError(
                f"JAAS config: value not specified for option '{key.value}', at character {value.position}{hint}"
            )
        options[key.value] = value.value
        at += 3
    if tokens[at].kind == "end":
        raise JaasError("JAAS config: the entry is not terminated by a semicolon")
    return JaasEntry(module.value, options), at + 1


def _tokens(text: str) -> list[_Token]:
    """All tokens; four `end` tokens follow, so that a parser may look ahead."""
    found: list[_Token] = []
    at, length = 0, len(text)
    while at < length:
        char = text[at]
        if char <= " ":
            at += 1
        elif char == "/":
            at = _after_comment(text, at)
        elif char in _QUOTES:
            value, end = _quoted(text, at)
            found.append(_Token("text", value, at))
            at = end
        elif char in _DIGITS:
            end = at + 1
            while end < length and (_is_word(text[end]) or text[end] in _DIGITS):
                end += 1
            found.append(_Token("number", text[at:end], at))
            at = end
        elif _is_word(char):
            end = at + 1
            while end < length and (_is_word(text[end]) or text[end] in _DIGITS):
                end += 1
            found.append(_Token("word", text[at:end], at))
            at = end
        else:
            found.append(_Token("mark", char, at))
            at += 1
    return found + [_Token("end", "", length)] * 4


def _is_word(char: str) -> bool:
    return (char.isascii() and char.isalpha()) or char in "-_$" or char >= "\xa0"


def _after_comment(text: str, at: int) -> int:
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The text in quotes that begins at `start`, and the position after it."""
    quote, at, value = text[start], start + 1, []
    while at < len(text) and text[at] != quote and text[at] not in "\r\n":
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            digits = 0
            most = 3 if text[at] in "0123" else 2
            while digits < most and text[at + digits : at + digits + 1] in tuple("01234567"):
                digits += 1
            if digits:
                char = chr(int(text[at : at + digits], 8))
                at += digits
            else:
                char = _ESCAPES.get(text[at], text[at])
                at += 1
        value.append(char)
    if at >= len(text) or text[at] != quote:
        raise JaasError(f"JAAS config: the quoted text that begins at character {start} does not end on its line")
    return "".join(value), at + 1


def written(module: str, options: Mapping[str, str]) -> str:
    """The text of an entry; the inverse of `parse_jaas`."""
    pairs = "".join(f' {key}="{_escaped(value)}"' for key, value in options.items())
    return f"{module} required{pairs};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
