"""TLS of one listener: its certificates now, the principals of its clients, its counters.

Nodes dial a listener of other nodes with the same stores with which they serve it, so this object makes both halves.
New contexts serve new connections only: connections keep the certificates with which they began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from kraft_node.base.net import Receiver
from kraft_node.base.request import ANONYMOUS
from kraft_node.server.secure.counts import AuthenticationCounts
from kraft_node.server.tls.tls_transport import TlsTransport
from kraft_protocol.tls.contexts import iana_name
from kraft_protocol.tls.names import PrincipalMapper, subject_of

if TYPE_CHECKING:
    import ssl

    from kraft_node.base.net import Transport
    from kraft_node.server.tls.handshakes import Handshakes
    from kraft_protocol.tls.contexts import Contexts
    from kraft_protocol.tls.errors import TlsError

log = logging.getLogger("kraft_node.server.tls.listener_tls")


class AdmittedReceiver(Receiver, Protocol):
    """The connection above the TLS of a client."""

    def admit(self, principal: str) -> None:
        """Serve all APIs from now on, as `principal`."""


class TlsServer(Protocol):
    """The listener that accepted a connection."""

    @property
    def uses_sasl(self) -> bool:
        """Whether SASL authenticates its clients, and not their certificates."""
        ...

    def refused(self, host: str, reason: str) -> None:
        """Count and log a refused connection."""


class ListenerTls:
    """TLS of the listener `name`, for accepted connections and for connections to other nodes."""

    def __init__(self, name: str, handshakes: Handshakes, contexts: Contexts) -> None:
        """Raises TlsConfigError for unusable principal mapping rules."""
        self.name = name
        self.contexts = contexts
        self.counts = AuthenticationCounts()
        """Numbers of handshakes with clients: completed, failed, and with a certificate without a principal."""
        self._handshakes = handshakes
        self._mapper = PrincipalMapper(contexts.settings.mapping_rules)

    def serve(self, raw: Transport, server: TlsServer, connect: Callable[[Transport], AdmittedReceiver]) -> Receiver:
        """Put TLS around an accepted connection; `connect` makes the connection above it."""

        def failed(transport: TlsTransport, error: TlsError) -> None:
            self._refuse(server, transport, f"TLS handshake failed: {error}")

        def established(transport: TlsTransport, receiver: Receiver) -> None:
            if not server.uses_sasl:
                principal = self.principal(transport.session.peer_certificate)
                if principal is None:
                    self._refuse(server, transport, "no rule of ssl.principal.mapping.rules matches its certificate")
                    transport.close()
                    return
                cast("AdmittedReceiver", receiver).admit(principal)
            self.counts.succeeded.add(self._now_ms())
            self.counts.without_reauth += 1

        session = self.contexts.server_session()
        secured = TlsTransport(self._handshakes, raw, session, is_server=True, established=established, failed=failed)
        secured.start(connect(secured))
        return secured

    def _refuse(self, server: TlsServer, transport: TlsTransport, reason: str) -> None:
        self.counts.failed.add(self._now_ms())
        server.refused(transport.peer[0], reason)

    def _now_ms(self) -> int:
        return self._handshakes.env.clock.monotonic_ms()

    def cipher_of(self, transport: Transport) -> tuple[str, str] | None:
        """IANA's name of the cipher suite, and the version; None before the end of the handshake."""
        if not isinstance(transport, TlsTransport) or not transport.is_established:
            return None
        return iana_name(transport.session.cipher), transport.session.version

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of connections to other nodes."""
        return self.contexts.client

    def dial(self, raw: Transport, host: str, link: Callable[[Transport], Receiver]) -> Receiver:
        """Put TLS around a connection to the node at `host`; `link` makes the receiver above it."""
        secured = TlsTransport(self._handshakes, raw, self.contexts.client_session(host), is_server=False)
        secured.start(link(secured))
        return secured

    def principal(self, certificate: bytes | None) -> str | None:
        """The principal of a client with this certificate (DER; None: without). None: no mapping rule matches."""
        if certificate is None:
            return ANONYMOUS
        name = self._mapper.name(subject_of(certificate))
        return None if name is None else f"User:{name}"

    def own_principal(self) -> str:
        """The principal that this node has when it connects to itself over this listener."""
        keys = self.contexts.keys
        if keys is None or self.contexts.settings.client_auth == "none":
            return ANONYMOUS
        return self.principal(keys.keys[0].chain[0]) or ANONYMOUS
