"""One TLS connection without I/O: ciphertext in, plaintext out, and the reverse.

A driver passes received bytes to `feed`, sends what `take` returns, and calls `handshake` until it returns True. Then
`read_into` decrypts and `encrypt` encrypts. Calls must not run at the same time; `handshake` may run in another thread.

OpenSSL's buffers never shrink. Therefore `encrypt` works in pieces, and drivers should feed at most `FEED_MAX` bytes
between two reads: a connection then holds tens of KiB, not as much as its largest message.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

from kraft_protocol.buffers import Buffer
from kraft_protocol.tls.errors import TlsError

FEED_MAX: Final = 64 * 1024
SEAL_MAX: Final = 64 * 1024
"""Bytes that are encrypted before the ciphertext is taken."""

WANTS_MORE: Final = 0
"""Result of `TlsSession.read_into`: more ciphertext is needed."""
ENDED: Final = -1
"""Result of `TlsSession.read_into`: the other side has ended the stream."""


class TlsSession:
    """The state of one connection, of a server or a client."""

    __slots__ = ("_incoming", "_object", "_outgoing")

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, host: str | None = None) -> None:
        """`host`: the name that a client verifies, and sends as SNI."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server, server_hostname=host)

    def feed(self, data: Buffer) -> None:
        """Take ciphertext from the other side."""
        self._incoming.write(data)

    def take(self) -> bytes:
        """The ciphertext to send."""
        return self._outgoing.read()

    @property
    def has_input(self) -> bool:
        """Whether `read_into` may have bytes without another `feed`."""
        return self._incoming.pending > 0 or self._object.pending() > 0

    def handshake(self) -> bool:
        """Continue the handshake. Returns whether it is complete. Raises TlsError; `take` then returns the alert."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from error
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt into `buffer`. Returns the number of bytes, WANTS_MORE or ENDED. Raises TlsError."""
        if not self.has_input:
            return WANTS_MORE  # OpenSSL would report it by an exception
        try:
            return self._object.read(len(buffer), buffer) or ENDED  # type: ignore[return-value]
        except ssl.SSLWantReadError:
            return WANTS_MORE
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return ENDED
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from error

    def encrypt(self, data: Buffer) -> list[Buffer]:
        """The ciphertext of `data`. Raises TlsError."""
        write, take = self._object.write, self._outgoing.read
        try:
            if len(data) <= SEAL_MAX:
                write(data)
                return [take()]
            view, sealed = memoryview(data), list[Buffer]()
            for position in range(0, len(data), SEAL_MAX):
                write(view[position : position + SEAL_MAX])
                sealed.append(take())
            return sealed
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from error

    def close(self) -> None:
        """Announce the end of the stream, without waiting for the other side."""
        with suppress(ssl.SSLError):  # the answer of the other side is missing
            self._object.unwrap()

    # After the handshake

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the other side (DER); None if it sent none."""
        return self._object.getpeercert(binary_form=True)

    @property
    def cipher(self) -> str:
        """OpenSSL's name of the cipher suite."""
        found = self._object.cipher()
        return "" if found is None else found[0]

    @property
    def version(self) -> str:
        """The protocol version, for example `TLSv1.3`."""
        return self._object.version() or ""


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the other side closed the connection during the handshake"
    words = (error.reason or str(error)).lower().replace("_", " ")
    if "http request" in words or "wrong version number" in words or "record layer failure" in words:
        return f"the other side does not speak TLS ({words})"
    return words
