"""Errors of TLS."""

from __future__ import annotations


class TlsConfigError(ValueError):
    """A value of an `ssl.*` key cannot be used. The message begins with the key."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


class TlsError(ConnectionAbortedError):
    """The handshake failed, or the stream is damaged. The connection cannot be used."""
