"""The driver with a blocking socket. Requests can be pipelined; responses arrive in the same order."""

from __future__ import annotations

import socket
import time
from typing import Any

from kraft_protocol.client.errors import AuthenticationError, ClientError
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.client.session import Session, Software, Versions, frame_length
from kraft_protocol.wire.frames import LENGTH_SIZE


def _is_refusal(error: OSError) -> bool:
    """Whether one side refuses the other's certificate, or TLS itself: another attempt would end alike."""
    import ssl  # noqa: PLC0415  (loaded, as the connection has TLS)

    broken = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return isinstance(error, ssl.SSLError) and not isinstance(error, broken)


class BlockingConnection:
    """Methods raise OSError (also if the connection closes within a response), and ClientError on protocol errors."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        software: Software,
        versions: Versions | None,
        connect_s: float,
        request_s: float,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """`versions`: the lowest and highest version by API key; the broker must serve all of these APIs.

        None allows every version of the schemas, and the broker need not serve them. Time-outs are in seconds.
        """
        self.name = f"{host}:{port}"
        self._host, self._security = host, security
        self._renews_s: float | None = None
        self._session = Session(software, versions, security.new_login(host))
        self._socket = socket.create_connection((host, port), timeout=connect_s)
        try:
            self._socket.settimeout(request_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                name = security.name_of(host)
                self._socket = security.tls.client_context.wrap_socket(self._socket, server_hostname=name)
            self._introduce()
            self._session.require()
        except ClientError as error:
            self._socket.close()
            raise self._named(error) from error
        except OSError as error:
            self._socket.close()
            if security.tls is not None and _is_refusal(error):
                raise AuthenticationError(f"{self.name}: TLS: {error}") from error
            raise
        except BaseException:
            self._socket.close()
            raise

    def _introduce(self) -> None:
        """Negotiate versions and authenticate."""
        session = self._session
        while not session.is_ready:
            self._socket.sendall(session.hello())
            session.welcome(self._frame())
        after_ms = session.renews_after_ms
        self._renews_s = time.monotonic() + after_ms / 1000 if after_ms else None

    def close(self) -> None:
        """Close the socket and abandon requests without a response."""
        self._socket.close()

    @property
    def served(self) -> Versions:
        """The versions that the broker serves."""
        return self._session.served

    @property
    def waiting(self) -> int:
        """Number of requests without a received response."""
        return self._session.pending

    def request(self, request: Any) -> Any:
        """Send a request and return its response; no other request may be in flight."""
        assert not self.waiting, f"{self.name}: answers come in the order of the requests"
        self.send(request)
        return self.receive()

    def send(self, request: Any) -> None:
        """Send a request; `receive` returns the responses in the order of the requests."""
        try:
            if self._renews_s is not None and not self.waiting and time.monotonic() >= self._renews_s:
                login = self._security.new_login(self._host)
                assert login is not None, "law: only a login has a session's end"
                self._session.authenticate_again(login)
                self._introduce()
            self._socket.sendall(self._session.request(request))
        except ClientError as error:
            raise self._named(error) from error

    def receive(self) -> Any:
        """Return the response to the oldest request in flight. Its records are views of the received bytes."""
        try:
            return self._session.response(self._frame())
        except ClientError as error:
            raise self._named(error) from error

    def _named(self, error: ClientError) -> ClientError:
        """The error with the broker's address."""
        return type(error)(f"{self.name} {error}")

    def _frame(self) -> memoryview:
        return self._read(frame_length(self._read(LENGTH_SIZE)))

    def _read(self, length: int) -> memoryview:
        data = memoryview(bytearray(length))
        rest = data
        while rest:
            got = self._socket.recv_into(rest)
            if not got:
                raise ConnectionResetError(f"{self.name} closed the connection")
            rest = rest[got:]
        return data
