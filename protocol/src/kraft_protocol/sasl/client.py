"""What the driver of a connection knows of a mechanism, and the mechanism PLAIN (RFC 4616)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

RandomBytes = Callable[[int], bytes]
Read = Callable[[str], str | None]
"""The text of a key of the configuration, or None if it is not set."""
PLAIN: Final = "PLAIN"


class SaslError(ValueError):
    """The exchange cannot go on: credentials are missing or invalid, or the server's messages are. Has no secrets."""


class Exchange(Protocol):
    """The client's side of one authentication."""

    def first(self) -> bytes:
        """The first message."""

    def step(self, challenge: bytes) -> bytes | None:
        """The answer to a challenge; None if the exchange is complete. Raises SaslError."""


class Credentials(Protocol):
    """How a client authenticates, on any number of connections."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""

    @property
    def is_slow(self) -> bool:
        """Whether `exchange` or `step` computes for milliseconds or waits for a network: event loops need a thread."""

    @property
    def user(self) -> str:
        """The name that a server gives the client. If the mechanism is slow, this may take long, and raise as below."""

    def exchange(self, host: str) -> Exchange:
        """Begin an authentication with `host`. Raises SaslError, OSError."""


class _PlainExchange:
    __slots__ = ("_message",)

    def __init__(self, message: bytes) -> None:
        self._message = message

    def first(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslError("the server answers PLAIN with a challenge")
        return None


class PlainCredentials:
    """A user with a password."""

    mechanism = PLAIN
    is_slow = False

    def __init__(self, username: str, password: str) -> None:
        if not username or "\0" in username or "\0" in password:
            raise SaslError("PLAIN: the user's name must not be empty, name and password must not contain NUL")
        self.user = username
        self._message = b"\0" + username.encode() + b"\0" + password.encode()

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002
        """An exchange of one message."""
        return _PlainExchange(self._message)
