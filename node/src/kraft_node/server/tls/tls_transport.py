"""TLS between a transport and its receiver: the receiver of the raw transport, and the transport of the receiver.

Sans-IO, like both neighbours. Received ciphertext is decrypted into the receiver's own buffer. Written data is
encrypted in pieces, as fast as the raw transport sends: ciphertext never exceeds `CIPHERTEXT_MAX` and one piece. File
slices are read when their turn comes; a read that would wait for the disk happens in a lane.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import ColdRead, read_lane
from kraft_protocol.buffers import FileSlice
from kraft_protocol.tls.errors import TlsError
from kraft_protocol.tls.session import ENDED, FEED_MAX

if TYPE_CHECKING:
    from kraft_node.base.net import Outgoing, Receiver, Transport
    from kraft_node.server.tls.handshakes import Handshakes
    from kraft_protocol.tls.session import TlsSession

log = logging.getLogger("kraft_node.server.tls.tls_transport")

PIECE: Final = 256 * 1024
"""Bytes that are encrypted at once: larger pieces leave the processor's cache, smaller ones need more calls."""

CIPHERTEXT_MAX: Final = 256 * 1024
"""Unsent ciphertext above which nothing more is encrypted."""

EMPTY: Final = memoryview(b"")

TURN_MAX: Final = 1 << 20
"""Bytes that a connection encrypts before others get their turn, about a millisecond."""


class TlsTransport:
    """One TLS connection of a server or a client."""

    __slots__ = (
        "_closing",
        "_established",
        "_failed",
        "_handshakes",
        "_held",
        "_is_reading_file",
        "_is_server",
        "_out",
        "_owed",
        "_raw",
        "_reading",
        "_receiver",
        "_session",
        "_stepping",
        "_unsent",
        "is_established",
        "peer",
    )

    def __init__(
        self,
        handshakes: Handshakes,
        raw: Transport,
        session: TlsSession,
        *,
        is_server: bool,
        established: Callable[[TlsTransport, Receiver], None] | None = None,
        failed: Callable[[TlsTransport, TlsError], None] | None = None,
    ) -> None:
        """`established` is called before the first byte is delivered, and may close the connection. `failed` is called
        once if the handshake fails."""
        self._handshakes = handshakes
        self._raw = raw
        self._session = session
        self._is_server = is_server
        self._established, self._failed = established, failed
        self._receiver: Receiver | None = None
        self.peer = raw.peer
        self.is_established = False
        self._stepping = False
        # Whether the receiver wants bytes, and whether it waits for `drained`.
        self._reading = True
        self._owed = False
        self._closing = False
        self._out: deque[memoryview | FileSlice] = deque()
        # Of `_out`: all bytes, and the bytes in memory.
        self._unsent = 0
        self._held = 0
        self._is_reading_file = False

    def start(self, receiver: Receiver) -> None:
        """Deliver to `receiver`. A client begins its handshake now, a server with the first byte."""
        self._receiver = receiver
        if not self._is_server:
            self._step()

    @property
    def session(self) -> TlsSession:
        """The state of the connection, for its certificate and cipher."""
        return self._session

    def callback_name(self) -> str:
        """For the log line of a slow callback."""
        more = getattr(self._receiver, "callback_name", None)
        return "tls " + ("handshake" if more is None or not self.is_established else more())

    # The handshake

    def _step(self) -> None:
        self._stepping = True
        self._raw.pause_reading()  # the session belongs to the lane now
        self._handshakes.run(self.peer[0], self._session.handshake, self._stepped)

    def _stepped(self, result: bool | BaseException) -> None:
        self._stepping = False
        if self._receiver is None:
            return
        data = self._session.take()
        if data:
            self._raw.write([data])
        if isinstance(result, BaseException):
            self._refused(result)
        elif result:
            self._complete()
        elif self._reading:
            self._raw.resume_reading()

    def _refused(self, error: BaseException) -> None:
        if not isinstance(error, TlsError):
            log.error("TLS handshake failed peer=%s:%d", *self.peer, exc_info=error)
            error = TlsError(str(error))
        self._handshakes.end(self.peer[0], self)
        if self._failed is not None:
            self._failed(self, error)
        self._closing = True
        self._raw.close()
        self._lost(error)

    def _complete(self) -> None:
        self.is_established = True
        self._handshakes.end(self.peer[0], self)
        if self._established is not None and self._receiver is not None:
            self._established(self, self._receiver)
        if self._receiver is None or self._closing:
            return
        self._pump()
        if self._reading and self._receiver is not None:
            self._raw.resume_reading()
            self._deliver()

    def give_up(self, reason: str) -> None:
        """Close a connection that does not end its handshake."""
        log.debug("TLS handshake abandoned peer=%s:%d reason=%s", *self.peer, reason)
        self._closing = True
        self._raw.abort()

    # Receiver of the raw transport

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        """The buffer for ciphertext, which all TLS connections of the node share."""
        return self._handshakes.scratch

    def buffer_updated(self, count: int) -> None:
        """Take ciphertext: the handshake continues in a lane, later data is decrypted and delivered now."""
        data = self._handshakes.scratch[:count]
        if self.is_established:
            self._deliver(data)
            return
        self._session.feed(data)
        if not self._stepping:
            if self._is_server:
                self._handshakes.begin(self.peer[0], self)
            self._step()

    def _deliver(self, data: memoryview = EMPTY) -> None:
        """Decrypt `data` and earlier bytes, and deliver them until the receiver pauses."""
        session, receiver = self._session, self._receiver
        position, end, count = 0, len(data), 1
        try:
            while count > 0 and self._reading and receiver is not None and not self._closing:
                buffer = receiver.get_buffer(-1)
                have, size = 0, len(buffer)
                while have < size:
                    count = session.read_into(buffer[have:])
                    if count > 0:
                        have += count
                    elif count == ENDED or position >= end:
                        break
                    else:
                        session.feed(data[position : position + FEED_MAX])
                        position += FEED_MAX
                if have:
                    receiver.buffer_updated(have)
                receiver = self._receiver
            if position < end:
                session.feed(data[position:])
        except TlsError as error:
            self._fail(error)
            return
        if count == ENDED and receiver is not None:
            self._raw.abort()

    def drained(self) -> None:
        """The raw transport has sent its ciphertext."""
        self._pump()

    def connection_lost(self, error: OSError | None) -> None:
        """Pass the end on to the receiver. A close during the handshake becomes a ConnectionResetError."""
        self._handshakes.end(self.peer[0], self)
        if error is None and not self.is_established and not self._closing:
            error = ConnectionResetError(f"{self.peer[0]}:{self.peer[1]} closed the connection in the TLS handshake")
        self._lost(error)

    def _lost(self, error: OSError | None) -> None:
        receiver, self._receiver = self._receiver, None
        self._closing = True
        self._out.clear()
        self._unsent = self._held = 0
        if receiver is not None:
            receiver.connection_lost(error)

    def _fail(self, error: OSError) -> None:
        log.debug("TLS connection failed peer=%s:%d error=%s", *self.peer, error)
        if alert := self._session.take():
            self._raw.write([alert])
        self._raw.close()
        self._handshakes.env.scheduler.call_soon(self._lost, error)

    # Transport of the receiver

    @property
    def unsent_bytes(self) -> int:
        """Bytes that are not encrypted yet, and ciphertext that is not sent yet."""
        return self._unsent + self._raw.unsent_bytes

    @property
    def held_bytes(self) -> int:
        """The part of `unsent_bytes` that uses memory; file slices use none until they are encrypted."""
        return self._held + self._raw.held_bytes

    def pause_reading(self) -> None:
        """Deliver no more plaintext. Decrypted or received bytes wait in the session."""
        self._reading = False
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Deliver again; bytes that wait in the session come in a later turn of the loop. Ignored after `close`."""
        if self._reading or self._closing:
            return
        self._reading = True
        if self._stepping:
            return
        self._raw.resume_reading()
        if self.is_established and self._session.has_input:
            self._handshakes.env.scheduler.call_soon(self._deliver_again)

    def _deliver_again(self) -> None:
        try:
            self._deliver()
        except Exception:
            log.exception("connection closed after a failure peer=%s:%d", *self.peer)
            self._raw.abort()

    def write(self, parts: Sequence[Outgoing]) -> None:
        """Queue `parts` and encrypt what the raw transport can take. During the handshake they wait."""
        if self._closing:
            return
        for part in parts:
            if isinstance(part, FileSlice):
                size = part.length
                item: memoryview | FileSlice = part
            else:
                item = part if isinstance(part, memoryview) else memoryview(part).cast("B")
                size = item.nbytes
                self._held += size
            if size:
                self._out.append(item)
                self._unsent += size
        self._pump()

    def _pump(self) -> None:
        """Encrypt written data while the raw transport sends it."""
        out, raw, session = self._out, self._raw, self._session
        if not self.is_established or self._is_reading_file:
            return
        budget = TURN_MAX
        try:
            while out and raw.unsent_bytes <= CIPHERTEXT_MAX:
                if budget <= 0:
                    self._handshakes.env.scheduler.call_soon(self._pump)
                    break
                piece = self._piece()
                if piece is None:
                    break
                budget -= len(piece)
                raw.write(session.encrypt(piece))
        except OSError as error:
            self._fail(error)
            return
        if out:
            self._owed = True
        elif self._closing:
            self._finish()
        elif self._owed and not raw.unsent_bytes:
            self._owed = False
            if self._receiver is not None:
                self._receiver.drained()
        elif raw.unsent_bytes:
            self._owed = True

    def _piece(self) -> bytes | memoryview | None:
        """Take up to `PIECE` bytes from the front. None: a lane reads them from the disk."""
        out = self._out
        first = out[0]
        if isinstance(first, FileSlice):
            return self._piece_of_file(first)
        batch: list[memoryview] = []
        size = 0
        while out and size < PIECE:
            part = out[0]
            if isinstance(part, FileSlice):
                break
            room = PIECE - size
            if part.nbytes > room:
                out[0] = part[room:]
                part = part[:room]
            else:
                out.popleft()
            batch.append(part)
            size += part.nbytes
        self._unsent -= size
        self._held -= size
        return batch[0] if len(batch) == 1 else b"".join(batch)

    def _piece_of_file(self, first: FileSlice) -> bytes | None:
        length = min(first.length, PIECE)
        disk = self._handshakes.env.disk
        try:
            with disk.no_wait:
                data = first.file.pread(first.position, length)
        except ColdRead:
            self._read_in_lane(first, length)
            return None
        return self._taken(first, data)

    def _taken(self, first: FileSlice, data: bytes) -> bytes:
        if not data:
            # The promised bytes are gone (the file was truncated): the stream cannot continue.
            raise OSError(f"{first.file.path} ended at {first.position}, {first.length} bytes early")
        left = first.length - len(data)
        if left:
            self._out[0] = FileSlice(first.file, first.position + len(data), left)
        else:
            self._out.popleft()
        self._unsent -= len(data)
        return data

    def _read_in_lane(self, first: FileSlice, length: int) -> None:
        file, position = first.file, first.position
        self._is_reading_file = True

        def done(result: bytes | BaseException) -> None:
            self._is_reading_file = False
            if self._receiver is None or not self._out:
                return
            if isinstance(result, BaseException):
                self._fail(result if isinstance(result, OSError) else OSError(str(result)))
                return
            try:
                data = self._taken(first, result)
                self._raw.write(self._session.encrypt(data))
            except OSError as error:
                self._fail(error)
                return
            self._pump()

        lane = read_lane(file.path, file.fileno())
        self._handshakes.env.background.submit(lane, lambda: file.pread(position, length), done)

    # The end

    def close(self) -> None:
        """Send the written data and TLS's end, then close. During the handshake written data is dropped."""
        if self._closing:
            return
        self._closing = True
        if not self.is_established:
            self._out.clear()
        self._raw.pause_reading()
        if not self._out:
            self._finish()

    def _finish(self) -> None:
        if self.is_established:
            self._session.close()
            data = self._session.take()
            if data:
                self._raw.write([data])
        self._raw.close()

    def abort(self) -> None:
        """Close the raw transport at once, without TLS's end."""
        self._closing = True
        self._raw.abort()
