"""What all mechanisms have in common, and PLAIN (RFC 4616)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

USER: Final = "User:"


class SaslIdentity(NamedTuple):
    """The identity of a client, once its exchange is complete."""

    principal: str
    expires_ms: int | None = None
    """When the credentials expire, in milliseconds since 1970; None: never."""
    is_token: bool = False
    """Whether the client authenticated with a delegation token."""


class SaslRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The mechanism refuses; the client gets the text, which must not help a guesser."""


class InvalidCredentials(Exception):  # noqa: N818
    """The mechanism fails; the client gets a general text. The reason is for this node's log and has no secrets."""


class ServerExchange(Protocol):
    """The server's side of one authentication."""

    @property
    def is_slow(self) -> bool:
        """Whether the next `respond` computes for milliseconds, so that it must run in a thread."""

    @property
    def identity(self) -> SaslIdentity | None:
        """The client's identity once the exchange is complete."""

    def respond(self, token: bytes) -> bytes | None:
        """The answer to the client's next message; None: no answer. Raises SaslRefused, InvalidCredentials."""


class ServerMechanism(Protocol):
    """A mechanism of a listener."""

    def exchange(self) -> ServerExchange:
        """Begin an authentication."""


class PlainUsers:
    """PLAIN with users and passwords from a JAAS entry: `user_NAME="password"`."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {name: password.encode() for name, password in users.items()}

    @classmethod
    def of(cls, options: Mapping[str, str]) -> PlainUsers:
        """The users of a JAAS entry's options."""
        prefix = "user_"
        return cls({key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)})

    def exchange(self) -> ServerExchange:
        """An exchange of one message."""
        return _PlainExchange(self)

    def knows(self, username: str, password: str) -> bool:
        """Whether the password is right; takes the same time for wrong passwords."""
        import hmac  # noqa: PLC0415  (brings OpenSSL, which nodes without authentication do without)

        expected = self._users.get(username)
        given = password.encode()
        return hmac.compare_digest(given if expected is None else expected, given) and expected is not None


class _PlainExchange:
    __slots__ = ("_users", "identity")

    is_slow = False

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.identity: SaslIdentity | None = None

    def respond(self, token: bytes) -> bytes:
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise SaslRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authzid, username, password = parts
        if not username:
            raise SaslRefused("Authentication failed: username not specified")
        if not password:
            raise SaslRefused("Authentication failed: password not specified")
        if not self._users.knows(username, password):
            raise SaslRefused("Authentication failed: Invalid username or password")
        if authzid not in ("", username):
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.identity = SaslIdentity(USER + username)
        return b""
