"""OAUTHBEARER (RFC 7628): its messages for both sides, the client's side, and unsecured tokens for development."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kraft_protocol.sasl.client import SaslError
from kraft_protocol.sasl.scram import escaped, unescaped

OAUTHBEARER: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"
_FIRST: Final = re.compile(
    "n,(?:a=(?P<authzid>[^\x00,]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01", re.DOTALL
)
_AUTH: Final = re.compile(r"(?P<scheme>[\w]+)[ ]+(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
SECONDS_END: Final = 1e12
"""No time of a token reaches this: sessions end at milliseconds that fit into the 64 bits of an answer."""
_EXTENSION_NAME: Final = re.compile(r"[a-zA-Z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")


class ClientFirst(NamedTuple):
    """The client's message."""

    authzid: str
    token: str
    extensions: Mapping[str, str]


def write_first(token: str, extensions: Mapping[str, str] | None = None, authzid: str = "") -> bytes:
    """The client's message. Raises SaslError for extensions that the protocol cannot carry."""
    for name, value in (extensions or {}).items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise SaslError(f"OAUTHBEARER: the extension {name!r} has an invalid name or value")
    pairs = "".join(f"{name}={value}{_SEPARATOR}" for name, value in (extensions or {}).items())
    who = f"a={escaped(authzid)}" if authzid else ""
    return f"n,{who},{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{pairs}{_SEPARATOR}".encode()


def parse_first(message: bytes) -> ClientFirst:
    """Parse the client's message. Raises ValueError, whose text has no parts of the message."""
    match = _FIRST.fullmatch(message.decode())
    if match is None:
        raise ValueError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR) if pair)
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None:
        raise ValueError("Invalid OAUTHBEARER client first message: 'auth' not specified or malformed")
    if auth["scheme"].lower() != "bearer":
        raise ValueError("Invalid scheme in OAUTHBEARER client first message")
    return ClientFirst(unescaped(match["authzid"] or ""), auth["token"], pairs)


class OauthExchange:
    """The client's side: `message` is from `write_first`."""

    __slots__ = ("_failure", "_message")

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._failure = ""

    def first(self) -> bytes:
        """The message with the token."""
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        """Acknowledge the server's error (RFC 7628, 3.2.3). The challenge after it raises SaslError with that error."""
        if not challenge:
            return None
        if self._failure:
            raise SaslError(f"OAUTHBEARER: the server refuses the token: {self._failure}")
        self._failure = challenge.decode(errors="replace")
        return _SEPARATOR.encode()


class OAuthToken(NamedTuple):
    """A token and the time of its expiry, in seconds since 1970."""

    value: str
    expires_s: float


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """A token without a signature, which only servers for development accept."""
    return f"{_segment({'alg': 'none'})}.{_segment(claims)}."


def _segment(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def read_segment(text: str) -> dict[str, Any]:
    """The JSON object of a token's part. Raises ValueError."""
    try:
        value = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("a part of the token is not JSON in base64url") from error
    if not isinstance(value, dict):
        raise ValueError("a part of the token is not a JSON object")
    return value


def seconds_of(fields: Mapping[str, Any], name: str) -> float | None:
    """A time or a duration in a JSON object; None if it is missing. Raises ValueError for infinity and other values."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < SECONDS_END:
        raise ValueError(f"{name} is not a time")
    return float(value)


def expiry_of(token: str) -> float:
    """The time of expiry in a JWT, in seconds since 1970. Raises SaslError. Does not check the signature."""
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError("three parts expected")
        expires = seconds_of(read_segment(parts[1]), "exp")
        if expires is None:
            raise ValueError("the claim exp is missing")
    except ValueError as error:
        raise SaslError(f"OAUTHBEARER: the token is not a JWT: {error}") from None
    return expires
