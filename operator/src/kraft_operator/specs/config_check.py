"""Checks of Kafka's configuration before any node restarts: unknown keys, and values that every node refuses.

`kraft_protocol.configs` has the keys. Only the node checks combinations of keys, and values that depend on its machine.
The check never refuses a value that a node accepts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_protocol.configs import kafka, own
from kraft_protocol.configs.rows import KeyRow, rows

ALIKE: Final = 0.6
"""Least similarity of a suggested name, from 0 to 1."""
BROKER: Final = "".join(
    (
        kafka.BROKER,
        kafka.BROKER_DYNAMIC_ONLY,
        *(f"{name} string ~ - l\n" for name in (*own.OWN_DEFAULTS, *own.PLUGIN_KEYS)),
    )
)
"""The keys of nodes, in the notation of `kraft_protocol.configs.kafka`."""
TOPIC: Final = kafka.TOPIC
SUPER_USERS: Final = "super.users"
VARIABLE: Final = "${"
"""The beginning of a variable, whose value only the node knows (`kraft_protocol.configs.providers`)."""
_BLANKS: Final = "".join(map(chr, range(0x21)))
_INTEGER: Final = re.compile(r"[+-]?\d{1,400}")
_DECIMAL: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_BITS: Final = {"short": 15, "int": 31, "long": 63}


@cache
def _keys(table: str) -> Mapping[str, KeyRow]:
    return {row.name: row for row in rows(table)}


def cluster_config_problems(spec: KRaftClusterSpec) -> list[str]:
    """Return a line for each error in `spec.config` and in the pools' `config`, with its field."""
    parts = [("spec.config", spec.config)]
    parts += [(f"spec.nodePools {pool.name} config", pool.config) for pool in spec.node_pools]
    refuse = spec.unknown_config == "Refuse"
    found = [line for where, texts in parts for line in config_problems(where, texts, BROKER, refuse)]
    if VARIABLE in spec.config.get(SUPER_USERS, ""):
        found.append(f"spec.config {SUPER_USERS}: the operator must know these users; name them without variables")
    return found


def topic_config_problems(texts: Mapping[str, str]) -> list[str]:
    """Return a line for each error in a KRaftTopic's `spec.config`."""
    return list(config_problems("spec.config", texts, TOPIC, True))


def config_problems(where: str, texts: Mapping[str, str], table: str, refuse_unknown: bool) -> Iterable[str]:
    """Return errors of keys and values, in the order of the keys."""
    keys = _keys(table)
    for name, text in sorted(texts.items()):
        facts = keys.get(name)
        if facts is not None:
            expected = "" if table is BROKER and VARIABLE in text else _expected(facts, text)
            if expected:
                yield f"{where} {name}: {text!r} is not valid: {expected} is expected"
        elif refuse_unknown and not name.startswith(own.OPEN_PREFIXES):
            near = difflib.get_close_matches(name, keys, 1, ALIKE)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f"{where} {name}: nodes do not know this key{hint}"


def _expected(facts: KeyRow, text: str) -> str:
    """Describe the values that are expected instead of `text`; empty if `text` is valid."""
    word = text.strip(_BLANKS)
    if facts.kind == "boolean":
        return "" if word.lower() in {"true", "false"} else "true or false"
    if facts.kind in _BITS:
        limit = 1 << _BITS[facts.kind]
        if not _INTEGER.fullmatch(word) or not -limit <= int(word) < limit:
            return f"a whole number ({facts.kind})"
        return _outside(facts.constraint, int(word))
    if facts.kind == "double":
        if not _DECIMAL.fullmatch(word):
            return "" if word.lower().lstrip("+-").startswith("0x") else "a number"
        return _outside(facts.constraint, float(word.rstrip("fFdD") if word[-1] in "fFdD" else word))
    rule, _, rest = facts.constraint.partition(":")
    check = _TEXTS.get("list" if rule.startswith("list") else rule)
    return check(rule, rest, word) if check is not None else ""


def _outside(constraint: str, number: float) -> str:
    if constraint == "gzip-level":
        return "" if number == -1 or 1 <= number <= 9 else "-1, or 1 to 9"
    rule, _, bounds = constraint.partition(":")
    if rule != "range":
        return ""
    low, _, high = bounds.partition("..")
    if (low and number < float(low)) or (high and number > float(high)):
        return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
    return ""


def _in(_: str, rest: str, word: str) -> str:
    return "" if word in rest.split(",") else f"one of {', '.join(rest.split(','))}"


def _in_any_case(_: str, rest: str, word: str) -> str:
    return "" if word.upper() in rest.split(",") else f"one of {', '.join(rest.split(','))}"


def _of_list(rule: str, rest: str, word: str) -> str:
    words = [one.strip(" \t\n\v\f\r") for one in word.split(",")] if word else []
    allowed = rest.split(",") if rest else []
    if not words:
        return "" if "e" in rule.removeprefix("list") else "at least one entry"
    if not all(words):
        return "a list without empty entries"
    if allowed and not set(words) <= set(allowed):
        return f"a list of {', '.join(allowed)}"
    return ""


_TEXTS: Final[Mapping[str, Callable[[str, str, str], str]]] = {
    "in": _in,
    "ci": _in_any_case,
    "list": _of_list,
    "non-empty": lambda _rule, _rest, word: "" if word else "a text that is not empty",
}
