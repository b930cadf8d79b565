"""How a listener secures its connections: the security protocol, TLS, and the SASL state of each connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.server.tls.listener_tls import ListenerTls

PLAINTEXT: Final = "PLAINTEXT"

EARLY_APIS: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""The APIs of a restricted connection."""

EARLY_BYTES_MAX: Final = 512 << 10
"""The default of `sasl.server.max.receive.size`."""


class SecuredConnection(Protocol):
    """The connection, for its SASL state."""

    closed: bool
    peer_host: str

    def admit(self, principal: str) -> None:
        """Serve all APIs from now on, as `principal`."""

    def restrict(self) -> None:
        """Serve only `EARLY_APIS`, in small frames, until `admit`."""

    def expect_tokens(self) -> None:
        """Pass the next frames to `Authentication.token`, until `admit`. A handler calls it before it answers."""

    def hold_tokens(self) -> None:
        """Pass no further token on, and read nothing, until `resume_tokens`: a lane judges the last one."""

    def resume_tokens(self) -> None:
        """Continue with received tokens, or with requests after `admit`."""

    def send_token(self, token: bytes) -> None:
        """Send a frame without Kafka's header."""

    def close(self) -> None:
        """Send the remaining responses, then close."""


class Authentication(ABC):
    """The SASL state of one connection, from its first byte to its end. On success it calls `admit`."""

    @abstractmethod
    def handshake(self, ctx: RequestContext, request: Any) -> Any:
        """SaslHandshake (17), as a handler (`base.request`)."""

    @abstractmethod
    def authenticate(self, ctx: RequestContext, request: Any) -> Any:
        """SaslAuthenticate (36), as a handler."""

    @abstractmethod
    def token(self, token: bytes) -> None:
        """A frame without Kafka's header, after `SecuredConnection.expect_tokens`."""

    def begin_versions(self) -> bool:
        """Whether ApiVersions may be answered now; otherwise the connection is closed."""
        return True

    def versions_answered(self) -> None:  # noqa: B027 - not every state counts them
        """ApiVersions was answered without an error."""

    def unexpected(self, ctx: RequestContext, response: Any) -> Any:  # noqa: ARG002
        """Handle a request of another API on a restricted connection, as a handler. `response` is its error."""
        ctx.close_connection()

    @abstractmethod
    def closed(self) -> None:
        """The connection is closed."""


class ListenerSecurity:
    """How one listener secures its connections."""

    __slots__ = ("authentication", "early_bytes_max", "protocol", "tls")

    def __init__(
        self,
        protocol: str = PLAINTEXT,
        *,
        tls: ListenerTls | None = None,
        authentication: Callable[[SecuredConnection], Authentication] | None = None,
        early_bytes_max: int = EARLY_BYTES_MAX,
    ) -> None:
        """`protocol`: the security protocol. `tls` puts TLS around connections.

        `authentication` makes the SASL state of a connection.
        """
        self.protocol = protocol
        self.tls = tls
        self.authentication = authentication
        self.early_bytes_max = early_bytes_max


NO_SECURITY: Final = ListenerSecurity()
