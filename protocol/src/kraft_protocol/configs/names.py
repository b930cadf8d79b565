"""Names of broker keys: listener prefixes, and which values are secrets."""

from __future__ import annotations

import functools
import re
from typing import Final

from kraft_protocol.configs.kafka import BROKER, BROKER_DYNAMIC_ONLY, LISTENER_MECHANISM_KEYS
from kraft_protocol.configs.rows import rows

LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
"""A key of a single listener; the group is the key after the listener's name."""


def base_name(name: str) -> str:
    """Return KEY of `listener.name.X.KEY` or `listener.name.X.MECHANISM.KEY`; return other names unchanged."""
    match = LISTENER_KEY.fullmatch(name)
    if not match:
        return name
    rest = match[1]
    for mechanism_key in LISTENER_MECHANISM_KEYS:
        if rest.endswith(mechanism_key):
            return mechanism_key
    return rest


@functools.cache
def _public_keys() -> frozenset[str]:
    return frozenset(row.name for row in rows(BROKER, BROKER_DYNAMIC_ONLY) if row.kind != "password")


def is_secret(name: str) -> bool:
    """Whether the value of a broker key must not be shown: a password, or a key of a plug-in, which may be one."""
    return base_name(name) not in _public_keys()
