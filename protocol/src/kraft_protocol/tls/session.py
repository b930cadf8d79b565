"""One TLS connection without I/O: ciphertext in, plaintext out, and the reverse.

A driver passes received bytes to `feed`, sends what `take` returns, and calls `handshake` until it returns True. Then
`read_into` decrypts and `encrypt` encrypts. Calls must not run at the same time; `handshake` may run in another thread.

OpenSSL's buffers never shrink. Therefore `encrypt` works in pieces, and drivers should feed at most `FEED_MAX` bytes
between two reads: a connection then holds tens of KiB, not as much as its largest message.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
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

    __slots__ = ("_has_ended", "_incoming", "_object", "_outgoing", "_read")

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, host: str | None = None) -> None:
        """`host`: the name that a client verifies, and sends as SNI."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server, server_hostname=host)
        self._read: Callable[[int, memoryview], int] = self._object.read  # type: ignore[assignment]
        self._has_ended = False

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
        """Decrypt records into `buffer`, until it is full or no whole record is held.

        Returns the number of bytes, WANTS_MORE or ENDED. Raises TlsError.
        """
        if self._has_ended:
            return ENDED
        if not self.has_input:
            return WANTS_MORE  # OpenSSL would report it by an exception
        # librdkafka makes a record of each value: a record must cost little here.
        read, incoming, have, size = self._read, self._incoming, 0, len(buffer)
        try:
            while have < size:
                count = read(size - have, buffer[have:])
                if not count:
                    self._has_ended = True
                    break
                have += count
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._has_ended = True
        except ssl.SSLError as error:
            raise TlsError(_reason(error)) from error
        return have or (ENDED if self._has_ended else WANTS_MORE)

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
