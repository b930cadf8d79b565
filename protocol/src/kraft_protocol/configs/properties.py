"""The text form of java.util.Properties: `server.properties`, `meta.properties`, files of client properties.

- A comment begins with `#` or `!`.
- A line that ends in an odd number of backslashes continues on the next line.
- `=`, `:` or a blank ends a key.
- `\\t \\n \\r \\f \\uHHHH` are escapes. Any other escaped character means itself.
"""

from __future__ import annotations

from typing import Final

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Parse `text` to its entries, in the file's order. If a key is repeated, the last entry counts.

    Raises ValueError, with the line's number, for a broken `\\u` escape.
    """
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end, start = _split(line)
        try:
            key = _unescape(line[:end])
            value = _unescape(line[start:])
        except ValueError as e:
            raise ValueError(f"line {number}: {e}") from None
        entries.pop(key, None)
        entries[key] = value
    return entries


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending: str | None = None
    started = 0
    # Only \n, \r and \r\n end a line; str.splitlines splits at more.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        body = line.lstrip(_BLANKS)
        if not pending:  # no logical line has begun, or only a lone backslash was read
            if not body or body[0] in "#!":
                pending = None
                continue
            started, pending = number, ""
        backslashes = len(body) - len(body.rstrip("\\"))
        if backslashes % 2:
            pending += body[:-1]
            continue
        lines.append((started, pending + body))
        pending = None
    if pending is not None:
        lines.append((started, pending))
    return lines


def _split(line: str) -> tuple[int, int]:
    """Return the positions where the key ends and where the value starts."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANKS:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANKS:
            start += 1
    return end, start


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            out.append(char)
            continue
        if at == len(text):
            break
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) != 4 or not all(c in "0123456789abcdefABCDEF" for c in digits):
                raise ValueError(f"a \\u escape needs four hexadecimal digits, not {digits!r}")
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Characters beyond the basic plane are written as two escaped surrogates.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def format_properties(entries: dict[str, str], comment: str | None = None) -> str:
    """Format `entries` as text that Java parses to equal entries. `comment` becomes the first line."""
    lines = [] if comment is None else [f"#{comment}"]
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in entries.items()]
    return "".join(line + "\n" for line in lines)


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        if char == " ":
            out.append("\\ " if key or at == 0 else " ")
        elif char in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif char in "=:#!\\":
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2)]
    return "".join(out)


def decode_properties(data: bytes) -> str:
    """The text of a properties file: UTF-8, else ISO 8859-1, which Java assumes for all of them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")
