"""How a TLS session reads many records by one call."""

from __future__ import annotations

from kraft_protocol.tls.contexts import Contexts
from kraft_protocol.tls.session import ENDED
from tests.unit.tls.test_transport import contexts

__all__ = ["contexts"]


def test_the_end_of_a_stream_is_seen_behind_the_last_bytes(contexts: Contexts) -> None:
    server, client = contexts.server_session(), contexts.client_session("localhost")
    for _ in range(4):
        client.handshake()
        server.feed(client.take())
        server.handshake()
        client.feed(server.take())
    for value in (b"first ", b"", b"last"):
        server.feed(b"".join(client.encrypt(value)) if value else b"")
    client.close()
    server.feed(client.take())

    buffer = memoryview(bytearray(100))
    assert server.read_into(buffer[:4]) == 4
    assert server.read_into(buffer[4:]) == 6
    assert bytes(buffer[:10]) == b"first last"
    assert [server.read_into(buffer), server.read_into(buffer)] == [ENDED, ENDED]
