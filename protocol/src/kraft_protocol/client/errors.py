"""Errors of clients."""

from __future__ import annotations

from kraft_protocol.errors import ErrorCode


def code_text(code: int) -> str:
    """A code as `NAME (number)`."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error ({code})"


class ClientError(Exception):
    """A request failed for good. The message names the request, the broker, and how long the client retried."""


class ProtocolError(ClientError):
    """The other side violates the protocol. The connection cannot be used any more."""


class VersionError(ClientError):
    """A broker does not serve a version that the client needs."""
