"""How a client secures its connections: TLS around the bytes, SASL before the first request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import ssl

    from kraft_protocol.client.session import Login

PLAINTEXT: Final = "PLAINTEXT"


class ClientTls(Protocol):
    """TLS of a client."""

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of new connections. It may change when certificates are exchanged."""


class ClientSecurity:
    """The security of all connections of one client, or of a node to one listener of other nodes."""

    __slots__ = ("login", "names", "protocol", "tls")

    def __init__(
        self,
        protocol: str = PLAINTEXT,
        *,
        tls: ClientTls | None = None,
        login: Callable[[str], Login] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """`tls` makes the TLS state of a connection; None: no TLS. `login` makes the SASL state; None: no SASL.

        `names` are the names in the certificates of hosts that are connected to by an address.
        """
        self.protocol = protocol
        self.tls = tls
        self.login = login
        self.names = {} if names is None else names

    def name_of(self, host: str) -> str:
        """The name that the certificate of `host` must have."""
        return self.names.get(host, host)

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol})"

    def new_login(self, host: str) -> Login | None:
        """The SASL state of a new connection to `host`; None if the protocol has no SASL."""
        return None if self.login is None else self.login(host)


NO_SECURITY: Final = ClientSecurity()
