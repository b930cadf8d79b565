"""The `--add-scram` argument: `SCRAM-SHA-256=[name=alice,password=secret]` to a credential (KIP-900, RFC 5802)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from kraft_node.cli.common import ToolError


class Mechanism(NamedTuple):
    number: int
    digest: str
    iterations_min: int


MECHANISMS: Final = {
    "SCRAM-SHA-256": Mechanism(1, "sha256", 4096),
    "SCRAM-SHA-512": Mechanism(2, "sha512", 4096),
}
ITERATIONS_MAX: Final = 16384

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
    """The credential that `argument` describes. A missing salt is drawn at random. Raises ToolError."""
    name, equals, body = argument.strip().partition("=")
    if not equals:
        raise ToolError(f"Failed to find equals sign in SCRAM argument '{argument}'")
    mechanism = MECHANISMS.get(name)
    if mechanism is None:
        raise ToolError(f"The add-scram mechanism {name} is not supported.")
    values = _components(body)
    unknown = [key for key in values if key not in _KEYS]
    if unknown:
        raise ToolError(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    if "name" not in values:
        raise ToolError("You must supply 'name' to add-scram")
    iterations = _iterations(values.get("iterations"), name, mechanism)
    salt = _base64("salt", values["salt"]) if "salt" in values else None
    if "password" in values:
        if "saltedpassword" in values:
            raise ToolError("You must only supply one of 'password' or 'saltedpassword' to add-scram")
        salt = salt or random_bytes(20)
        salted = hashlib.pbkdf2_hmac(mechanism.digest, _normal(values["password"]), salt, iterations)
    elif "saltedpassword" in values:
        if salt is None:
            raise ToolError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _base64("saltedpassword", values["saltedpassword"])
    else:
        raise ToolError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism.digest)
    return ScramCredential(values["name"], mechanism.number, salt, stored_key, server_key, iterations)


def _normal(password: str) -> bytes:
    return password.encode("utf-8")


def _components(body: str) -> dict[str, str]:
    """The values of `[a=b,c="d"]`, without quotes.

    As in Kafka, a comma always ends a value, and spaces belong to it: a guess would result in another password.
    """
    if not body.startswith("["):
        raise ToolError("Expected configuration string to start with [")
    if not body.endswith("]"):
        raise ToolError("Expected configuration string to end with ]")
    values: dict[str, str] = {}
    for component in body[1:-1].rstrip(",").split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise ToolError(f"No equals sign found in SCRAM component: {component}")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if not value:
            raise ToolError(f"The '{key}' value of add-scram is empty")
        values[key] = value
    return values


def _iterations(text: str | None, name: str, mechanism: Mechanism) -> int:
    if text is None:
        return mechanism.iterations_min
    if not text.isascii() or not text.isdigit():
        raise ToolError(f"The 'iterations' value of add-scram is not a number: {text}")
    shown = name.replace("-", "_")
    if int(text) < mechanism.iterations_min:
        raise ToolError(f"The 'iterations' value must be >= {mechanism.iterations_min} for add-scram using {shown}")
    if int(text) > ITERATIONS_MAX:
        raise ToolError(f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {shown}")
    return int(text)


def _base64(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(f"The '{key}' value of add-scram is not base64: {text}") from None
