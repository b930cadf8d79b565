"""The `--add-scram` argument: `SCRAM-SHA-256=[name=alice,password=secret]` to a credential (KIP-900, RFC 5802)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final, NamedTuple

from kraft_node.cli.common import ToolError
from kraft_protocol.sasl.scram import ALGORITHMS, ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS, keys, salted_password

_KEYS: Final = ("name", "password", "salt", "iterations", "saltedpassword")


class ScramCredential(NamedTuple):
    """The content of a UserScramCredentialRecord."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def parse_scram(argument: str, random_bytes: Callable[[int], bytes]) -> ScramCredential:
    """The credential that `argument` describes. A missing salt is drawn at random.

    Raises ToolError, whose message has no password.
    """
    name, equals, body = argument.strip().partition("=")
    if not equals:
        raise ToolError("Failed to find equals sign in the SCRAM argument")
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        raise ToolError(f"The add-scram mechanism {name} is not supported.")
    values = _components(body)
    if values.keys() - set(_KEYS):  # their names may be parts of a password with a comma
        raise ToolError(f"Unknown SCRAM configurations, allowed are {', '.join(_KEYS)}; values must not contain commas")
    if "name" not in values:
        raise ToolError("You must supply 'name' to add-scram")
    iterations = _iterations(values.get("iterations"), name)
    salt = _base64("salt", values["salt"]) if "salt" in values else None
    if "password" in values:
        if "saltedpassword" in values:
            raise ToolError("You must only supply one of 'password' or 'saltedpassword' to add-scram")
        salt = salt or random_bytes(20)
        salted = salted_password(algorithm, values["password"], salt, iterations)
    elif "saltedpassword" in values:
        if salt is None:
            raise ToolError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _base64("saltedpassword", values["saltedpassword"])
    else:
        raise ToolError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    stored_key, server_key = keys(algorithm, salted)
    return ScramCredential(values["name"], NUMBERS[name], salt, stored_key, server_key, iterations)


def _components(body: str) -> dict[str, str]:
    """The values of `[a=b,c="d"]`, without quotes.

    As in Kafka, a comma always ends a value, and spaces belong to it: a guess would result in another password.
    """
    if not body.startswith("["):
        raise ToolError("Expected configuration string to start with [")
    if not body.endswith("]"):
        raise ToolError("Expected configuration string to end with ]")
    values: dict[str, str] = {}
    for number, component in enumerate(body[1:-1].rstrip(",").split(","), 1):
        key, equals, value = component.partition("=")
        if not equals:
            raise ToolError(f"No equals sign found in SCRAM component {number}; values must not contain commas")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if not value:
            raise ToolError(f"The value of SCRAM component {number} is empty")
        values[key] = value
    return values


def _iterations(text: str | None, name: str) -> int:
    if text is None:
        return ITERATIONS_MIN
    if not text.isascii() or not text.isdigit():
        raise ToolError(f"The 'iterations' value of add-scram is not a number: {text}")
    shown = name.replace("-", "_")
    if int(text) < ITERATIONS_MIN:
        raise ToolError(f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram using {shown}")
    if int(text) > ITERATIONS_MAX:
        raise ToolError(f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {shown}")
    return int(text)


def _base64(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(f"The '{key}' value of add-scram is not base64") from None
