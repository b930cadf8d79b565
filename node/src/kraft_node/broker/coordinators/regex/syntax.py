"""Parses RE2's syntax into a tree (see `Node`), with the errors of RE2/J."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from kraft_node.broker.coordinators.regex import alphabet
from kraft_node.broker.coordinators.regex.alphabet import ALL, between

MAX_PATTERN_CHARS: Final = 4_096
MAX_DEPTH: Final = 100
"""Groups within groups."""
MAX_REPEAT: Final = 1_000
UNBOUNDED: Final = -1
MAX_CODE_POINT: Final = 0x10FFFF

BEGIN, END, BOUNDARY, NO_BOUNDARY = range(4)
"""Conditions between two characters."""


class Characters(NamedTuple):
    """One character of a set."""

    mask: int


class Condition(NamedTuple):
    """Nothing, where a condition holds."""

    kind: int


class Sequence(NamedTuple):
    """One after the other; nothing if empty."""

    parts: list[Node]


class Choice(NamedTuple):
    """One of them."""

    parts: list[Node]


class Repeat(NamedTuple):
    """From `least` to `most` times."""

    part: Node
    least: int
    most: int


Node: TypeAlias = "Characters | Condition | Sequence | Choice | Repeat"


class PatternError(ValueError):
    """A pattern that is not in the language; the text is RE2/J's description."""


BAD_ESCAPE: Final = "invalid escape sequence"
BAD_RANGE: Final = "invalid character class range"
BAD_PERL: Final = "invalid or unsupported Perl syntax"
BAD_NAME: Final = "invalid named capture"
BAD_REPEAT: Final = "invalid nested repetition operator"
BAD_COUNT: Final = "invalid repeat count"
NO_BRACKET: Final = "missing closing ]"
NO_PAREN: Final = "missing closing )"
UNEXPECTED_PAREN: Final = "regexp/syntax: internal error"
"""RE2/J's words for a closing parenthesis without an opening one."""
NO_ARGUMENT: Final = "missing argument to repetition operator"
NO_ESCAPED: Final = "trailing backslash at end of expression"
SAME_NAME: Final = "duplicate capture group name"
TOO_LONG: Final = f"expression is longer than {MAX_PATTERN_CHARS} characters"
TOO_DEEP: Final = f"expression nests more than {MAX_DEPTH} groups"

_PERL_CLASSES: Final = {"d": alphabet.DIGITS, "w": alphabet.WORD, "s": alphabet.SPACE}
_CONTROL: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CONDITIONS: Final = {"A": BEGIN, "z": END, "b": BOUNDARY, "B": NO_BOUNDARY}
_REPEATS: Final = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}
_FLAGS: Final = "imsU"
_OCTAL: Final = "01234567"
_HEX: Final = "0123456789abcdefABCDEF"


def parse(pattern: str) -> Node:
    """The tree of a pattern. Raises PatternError."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternError(TOO_LONG)
    parser = _Parser(pattern)
    tree = parser.choice(0)
    if parser.at < len(pattern):
        raise PatternError(UNEXPECTED_PAREN)
    return tree


class _Parser:
    """The pattern and the position in it. Of the flags only `i` matters for whole names without line ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.fold = False
        self.names: set[str] = set()

    def _next(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _taken(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    # -- structure

    def choice(self, depth: int) -> Node:
        """Up to the end, or to the parenthesis that closes this group."""
        if depth > MAX_DEPTH:
            raise PatternError(TOO_DEEP)
        before = self.fold
        parts = [self._sequence(depth)]
        while self._taken("|"):
            parts.append(self._sequence(depth))
        self.fold = before
        return parts[0] if len(parts) == 1 else Choice(parts)

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        repeated = False
        while self.at < len(self.text) and self._next() not in "|)":
            counts = self._repeat()
            if counts is not None:
                if repeated:
                    raise PatternError(BAD_REPEAT)
                if not parts:
                    raise PatternError(NO_ARGUMENT)
                parts[-1] = Repeat(parts[-1], *counts)
                repeated = True
                continue
            repeated = self._next() == "{"  # RE2/J lets nothing repeat a literal brace
            node = self._item(depth)
            if node is None:  # flags: a repetition behind them is for what is before them
                continue
            if isinstance(node, list):
                parts += node
            else:
                parts.append(node)
        return parts[0] if len(parts) == 1 else Sequence(parts)

    def _repeat(self) -> tuple[int, int] | None:
        """The repetition here, if any; also consumes a following `?` (the shorter match first)."""
        counts = _REPEATS.get(self._next())
        if counts is not None:
            self.at += 1
        else:
            counts = self._counts()
            if counts is None:
                return None
            least, most = counts
            if max(least, most) > MAX_REPEAT or (most != UNBOUNDED and most < least):
                raise PatternError(BAD_COUNT)
        self._taken("?")
        return counts

    def _counts(self) -> tuple[int, int] | None:
        """`{n}`, `{n,}` or `{n,m}`; anything else after a brace is a literal brace."""
        text, start = self.text, self.at
        if self._next() != "{":
            return None
        end = text.find("}", start)
        first, comma, second = text[start + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not _is_number(first) or not (not second or _is_number(second)):
            return None
        self.at = end + 1
        least = _count(first)
        if not comma:
            return least, least
        return least, _count(second) if second else UNBOUNDED

    def _item(self, depth: int) -> Node | list[Node] | None:
        character = self._next()
        self.at += 1
        if character == "(":
            return self._group(depth)
        if character == "[":
            return Characters(self._class())
        if character == ".":
            return Characters(ALL)
        if character == "^":
            return Condition(BEGIN)
        if character == "$":
            return Condition(END)
        if character == "\\":
            return self._escape()
        return self._literal(ord(character))

    def _literal(self, code: int) -> Characters:
        return Characters(between(code, code, fold=self.fold))

    # -- groups

    def _group(self, depth: int) -> Node | None:
        before = self.fold
        if self._taken("?"):
            if self._taken("P<") or self._taken("<"):
                self._name()
            elif self._flags():
                return None
        node = self.choice(depth + 1)
        self.fold = before
        if not self._taken(")"):
            raise PatternError(NO_PAREN)
        return node

    def _name(self) -> None:
        end = self.text.find(">", self.at)
        name = self.text[self.at : end] if end >= 0 else ""
        if not name or not all(c.isascii() and (c.isalnum() or c == "_") for c in name):
            raise PatternError(BAD_NAME)
        if name in self.names:
            raise PatternError(SAME_NAME)
        self.names.add(name)
        self.at = end + 1

    def _flags(self) -> bool:
        """Flags up to `)` or `:`. Returns True if they hold for the rest of the enclosing group."""
        value, fold, any_flag = True, self.fold, False
        while self.at < len(self.text):
            character = self._next()
            self.at += 1
            if character in _FLAGS:
                any_flag = True
                fold = value if character == "i" else fold
            elif character == "-" and value:
                value, any_flag = False, False
            elif character in ":)" and (value or any_flag):
                self.fold = fold
                return character == ")"
            else:
                raise PatternError(BAD_PERL)
        raise PatternError(BAD_PERL)

    # -- escapes

    def _escape(self) -> Node | list[Node]:
        character = self._next()
        if not character:
            raise PatternError(NO_ESCAPED)
        condition = _CONDITIONS.get(character)
        if condition is not None:
            self.at += 1
            return Condition(condition)
        if character == "Q":
            end = self.text.find("\\E", self.at)
            quoted = self.text[self.at + 1 : end if end >= 0 else len(self.text)]
            self.at = end + 2 if end >= 0 else len(self.text)
            return [self._literal(ord(c)) for c in quoted]
        mask = self._class_escape()
        return Characters(mask) if mask is not None else self._literal(self._code_point())

    def _class_escape(self) -> int | None:
        """The set of `\\d`, `\\pL` and the like; None if the escape is one character. The backslash has been taken."""
        character = self._next()
        mask = _PERL_CLASSES.get(character.lower()) if character else None
        if mask is not None:
            self.at += 1
            return ALL & ~mask if character.isupper() else mask
        if character not in ("p", "P"):
            return None
        self.at += 1
        negated = character == "P"
        name = self._next()
        self.at += 1
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise PatternError(BAD_RANGE)
            name = self.text[self.at : end]
            self.at = end + 1
            if name.startswith("^"):
                negated, name = not negated, name[1:]
        mask = alphabet.unicode_class(name)
        if mask is None:
            raise PatternError(BAD_RANGE)
        if self.fold:
            mask = alphabet.folded(mask)
        return ALL & ~mask if negated else mask

    def _code_point(self) -> int:
        """The character of an escape. The backslash has been taken."""
        character = self._next()
        if not character:
            raise PatternError(NO_ESCAPED)
        self.at += 1
        if character in _CONTROL:
            return _CONTROL[character]
        if character in _OCTAL and (character == "0" or self._next() in tuple(_OCTAL)):
            digits = character
            while len(digits) < 3 and self._next() in tuple(_OCTAL):
                digits += self._next()
                self.at += 1
            return int(digits, 8)
        if character == "x":
            return self._hexadecimal()
        if not (character.isascii() and character.isalnum()):
            return ord(character)
        raise PatternError(BAD_ESCAPE)

    def _hexadecimal(self) -> int:
        if self._taken("{"):
            end = self.text.find("}", self.at)
            digits = self.text[self.at : end] if end >= 0 else ""
            after = end + 1
        else:
            digits = self.text[self.at : self.at + 2]
            after = self.at + 2
            if len(digits) < 2:
                raise PatternError(BAD_ESCAPE)
        if not digits or any(c not in _HEX for c in digits) or int(digits, 16) > MAX_CODE_POINT:
            raise PatternError(BAD_ESCAPE)
        self.at = after
        return int(digits, 16)

    # -- classes

    def _class(self) -> int:
        """A class in brackets; the opening one has been taken."""
        negated = self._taken("^")
        mask, first = 0, True
        while first or self._next() != "]":
            if self.at >= len(self.text):
                raise PatternError(NO_BRACKET)
            first = False
            found = self._named_class()
            if found is None and self._next() == "\\":
                self.at += 1
                found = self._class_escape()
                if found is None:
                    self.at -= 1
            mask |= self._range() if found is None else found
        self.at += 1
        return ALL & ~mask if negated else mask

    def _named_class(self) -> int | None:
        """`[:name:]` or `[:^name:]`."""
        if not self.text.startswith("[:", self.at):
            return None
        end = self.text.find(":]", self.at + 2)
        if end < 0:
            return None
        name = self.text[self.at + 2 : end]
        mask = alphabet.posix(name.removeprefix("^"))
        if mask is None:
            raise PatternError(BAD_RANGE)
        self.at = end + 2
        if self.fold:
            mask = alphabet.folded(mask)
        return ALL & ~mask if name.startswith("^") else mask

    def _range(self) -> int:
        low = high = self._class_character()
        if self._next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self._class_character()
            if high < low:
                raise PatternError(BAD_RANGE)
        return between(low, high, fold=self.fold)

    def _class_character(self) -> int:
        if self.at >= len(self.text):
            raise PatternError(NO_BRACKET)
        if self._taken("\\"):
            return self._code_point()
        self.at += 1
        return ord(self.text[self.at - 1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0"))


def _count(digits: str) -> int:
    """The number, or more than allowed if it has very many digits."""
    return int(digits) if len(digits) < 9 else MAX_REPEAT + 1
