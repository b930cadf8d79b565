"""The subset of CEL that the rules of the resources use, so that the API server's rules hold for local files, too.

Numbers, strings, booleans, lists; `&& || ! ?: == != < <= > >= in + -`; fields, indexes; `has`, `all`, `exists`,
`exists_one`, `filter`, `map`, `sum`, `size`, `matches`, `quantity(…).compareTo(…)`. As in CEL, `&&` and `||` ignore an
error on one side if the other side decides. `resource_file` calls it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from kraft_operator.specs.quantities import as_bytes

Env = Mapping[str, Any]
Expression = Callable[[Env], Any]

_TOKENS: Final = re.compile(r"\s*(?:(\d+)|'([^']*)'|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[-+!<>?:.,()\[\]]))")
_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, items: item in items,
}
_WORDS: Final = {"true": True, "false": False, "null": None}


class CelError(ValueError):
    """A rule that cannot be parsed, or cannot be evaluated for the given values."""


class Quantity:
    """A quantity of Kubernetes, compared by its size in bytes."""

    def __init__(self, text: str) -> None:
        self.bytes = as_bytes(text)


_FUNCTIONS: Final[Mapping[str, Callable[[Any], Any]]] = {"quantity": Quantity, "size": len}


@lru_cache(maxsize=256)
def compiled(text: str) -> Expression:
    """Compile a rule to a function of its variables (`self`, `oldSelf`). Raises CelError."""
    parser = _Parser(text)
    expression = parser.ternary()
    if parser.peek is not None:
        raise CelError(f"{parser.peek!r} is too much in: {text}")
    return expression


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, Any]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKENS.match(text, at)
            if found is None:
                raise CelError(f"unknown text at {at} in: {text}")
            number, string, word, sign = found.groups()
            if number is not None:
                self.tokens.append(("value", int(number)))
            elif string is not None:
                self.tokens.append(("value", string))
            else:
                self.tokens.append(("word" if word else "sign", word or sign))
            at = found.end()
        self.at = 0

    @property
    def peek(self) -> str | None:
        """The next word or sign; None at the end; `'…` for a value."""
        if self.at == len(self.tokens):
            return None
        kind, value = self.tokens[self.at]
        return "'" if kind == "value" else str(value)

    def next(self) -> tuple[str, Any]:
        if self.at == len(self.tokens):
            raise CelError(f"ends too soon: {self.text}")
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, *signs: str) -> str | None:
        """The next word or sign, consumed, if it is one of `signs`."""
        if self.peek in signs:
            return str(self.next()[1])
        return None

    def expect(self, sign: str) -> None:
        """Consume `sign`. Raises CelError if something else comes."""
        if self.accept(sign) is None:
            raise CelError(f"{sign!r} expected before {self.peek!r} in: {self.text}")

    # Grammar, from the loosest to the tightest binding

    def ternary(self) -> Expression:
        test = self.either()
        if not self.accept("?"):
            return test
        yes = self.ternary()
        self.expect(":")
        no = self.ternary()
        return lambda env: yes(env) if test(env) else no(env)

    def either(self) -> Expression:
        left = self.both()
        while self.accept("||"):
            left = _logical(left, self.both(), True)
        return left

    def both(self) -> Expression:
        left = self.compared()
        while self.accept("&&"):
            left = _logical(left, self.compared(), False)
        return left

    def compared(self) -> Expression:
        left = self.summed()
        while sign := self.accept(*_COMPARE):
            left = _binary(_COMPARE[sign], left, self.summed())
        return left

    def summed(self) -> Expression:
        left = self.unary()
        while sign := self.accept("+", "-"):
            left = _binary(operator.add if sign == "+" else operator.sub, left, self.unary())
        return left

    def unary(self) -> Expression:
        if self.accept("!"):
            inner = self.unary()
            return lambda env: not inner(env)
        return self.postfix()

    def postfix(self) -> Expression:
        found = self.primary()
        while True:
            if self.accept("."):
                name = str(self.next()[1])
                found = self.method(found, name) if self.accept("(") else _field(found, name)
            elif self.accept("["):
                found = _binary(operator.getitem, found, self.ternary())
                self.expect("]")
            else:
                return found

    def primary(self) -> Expression:
        kind, value = self.next()
        if kind == "value" or value in _WORDS:
            constant = _WORDS.get(value, value) if kind == "word" else value
            return lambda _env: constant
        if value == "(":
            inner = self.ternary()
            self.expect(")")
            return inner
        if value == "[":
            items = self.arguments("]")
            return lambda env: [item(env) for item in items]
        if kind != "word":
            raise CelError(f"{value!r} is not a value in: {self.text}")
        if value == "has":
            return self.has()
        if self.accept("("):
            (argument,) = self.arguments(")")
            function = _FUNCTIONS.get(value)
            if function is None:
                raise CelError(f"unknown function {value} in: {self.text}")
            return lambda env: function(argument(env))
        return lambda env: env[value]

    def arguments(self, end: str) -> list[Expression]:
        found: list[Expression] = []
        while not self.accept(end):
            found.append(self.ternary())
            if self.peek != end:
                self.expect(",")
        return found

    def has(self) -> Expression:
        self.expect("(")
        start = self.at
        depth = 0
        while depth >= 0:  # up to the matching closing bracket
            depth += {"(": 1, ")": -1}.get(str(self.next()[1]), 0)
        end, self.at = self.at, start
        name = str(self.tokens[end - 2][1])
        owner = _Parser("")
        owner.tokens = self.tokens[start : end - 3]
        inner = owner.ternary()
        self.at = end
        return lambda env: name in inner(env)

    def method(self, owner: Expression, name: str) -> Expression:
        if name in {"all", "exists", "exists_one", "filter", "map"}:
            variable = str(self.next()[1])
            self.expect(",")
            body = self.ternary()
            self.expect(")")
            return _macro(name, owner, variable, body)
        arguments = self.arguments(")")
        if name == "sum":
            return lambda env: sum(owner(env))
        if name == "size":
            return lambda env: len(owner(env))
        if name == "matches":
            return lambda env: re.search(arguments[0](env), owner(env)) is not None
        if name == "compareTo":
            return lambda env: _compared(owner(env).bytes, arguments[0](env).bytes)
        raise CelError(f"unknown method {name} in: {self.text}")


def _compared(one: int, other: int) -> int:
    return (one > other) - (one < other)


def _binary(function: Callable[[Any, Any], Any], left: Expression, right: Expression) -> Expression:
    return lambda env: function(left(env), right(env))


def _field(owner: Expression, name: str) -> Expression:
    def value(env: Env) -> Any:
        found = owner(env)
        if not isinstance(found, Mapping) or name not in found:
            raise CelError(f"no such field: {name}")
        return found[name]

    return value


def _logical(left: Expression, right: Expression, decisive: bool) -> Expression:
    """`||` (decisive is True) or `&&` (False): an error counts only if the other side does not decide."""

    def value(env: Env) -> Any:
        try:
            if left(env) is decisive:
                return decisive
        except CelError:
            if right(env) is decisive:
                return decisive
            raise
        return right(env)

    return value


def _macro(name: str, owner: Expression, variable: str, body: Expression) -> Expression:
    def each(env: Env) -> list[Any]:
        items = owner(env)
        return [(item, body({**env, variable: item})) for item in items]

    ends: dict[str, Callable[[list[Any]], Any]] = {
        "all": lambda pairs: all(value for _, value in pairs),
        "exists": lambda pairs: any(value for _, value in pairs),
        "exists_one": lambda pairs: sum(bool(value) for _, value in pairs) == 1,
        "filter": lambda pairs: [item for item, value in pairs if value],
        "map": lambda pairs: [value for _, value in pairs],
    }
    end = ends[name]
    return lambda env: end(each(env))
