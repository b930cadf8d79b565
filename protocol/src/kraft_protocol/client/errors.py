"""Errors of clients, and how to treat Kafka's error codes."""

from __future__ import annotations

from typing import Final

from kraft_protocol.errors import ErrorCode

OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
TOPIC_AUTHORIZATION_FAILED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
RETRIABLE: Final = frozenset({3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 51, 56, 74, 75, 78, 88, 89, 100, 103})
"""Codes after which another leader, or the same leader later, may succeed."""
GONE: Final = frozenset({3, 100, 103})
"""The retriable codes that a missing or deleted topic causes."""


def code_text(code: int) -> str:
    """A code as `NAME (number)`."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error ({code})"


class ClientError(Exception):
    """A request failed for good. The message names the request, the broker, and how long the client retried."""


class ProtocolError(ClientError):
    """The other side violates the protocol. The connection can no longer be used."""


class AuthenticationError(ClientError):
    """The broker and the client do not authenticate each other. Retries with the same credentials fail again."""


class VersionError(ClientError):
    """A broker does not serve a version that the client needs."""


class BrokerError(ClientError):
    """A broker answered with an error; `code` is the protocol's error code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {code_text(code)}")
        self.code = code


class DataLossError(ClientError):
    """Records of a planned range no longer exist."""
