"""A blocking client for command lines: one connection, one request at a time."""

from __future__ import annotations

from typing import Any, Final

from kraft_node.base.config.listeners import parse_host_port
from kraft_node.base.version import VERSION
from kraft_node.cli.common import ToolError
from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.errors import ClientError
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.client.session import Software, Versions
from kraft_protocol.wire.api import ApiKey

TIMEOUT_S: Final = 30.0
SOFTWARE: Final = Software("kraftcluster-cli", "kraftcluster", VERSION)


class NodeClient:
    """A connection to one node. Raises ToolError if the node cannot be reached or answers wrongly."""

    def __init__(
        self, host: str, port: int, timeout_s: float = TIMEOUT_S, security: ClientSecurity = NO_SECURITY
    ) -> None:
        self.address = f"{host}:{port}"
        try:
            self._connection = BlockingConnection(
                host,
                port,
                software=SOFTWARE,
                versions=None,
                connect_s=timeout_s,
                request_s=timeout_s,
                security=security,
            )
        except OSError as e:
            raise ToolError(f"cannot connect to {self.address}: {e}") from None
        except ClientError as e:
            raise ToolError(str(e)) from None

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A `with` block does this at its end."""
        self._connection.close()

    @property
    def versions(self) -> Versions:
        """The lowest and highest version of each API that the node serves."""
        return self._connection.served

    def request(self, key: ApiKey, request: Any) -> Any:
        """The response to `request`, in the newest version that both sides support.

        Raises ToolError. Only a missing version leaves the connection usable.
        """
        try:
            return self._connection.request(request)
        except TimeoutError:
            raise ToolError(f"{self.address} has not answered {key.name} in time") from None
        except OSError as e:
            raise ToolError(f"{self.address}: {e}") from None
        except ClientError as e:
            raise ToolError(str(e)) from None


def security_in(properties: str | None) -> ClientSecurity:
    """The security in a file of client properties; without a file, none. Raises ToolError."""
    if properties is None:
        return NO_SECURITY
    from kraft_protocol.client.properties import ClientConfigError, security_of_file

    try:
        return security_of_file(properties)
    except ClientConfigError as e:
        raise ToolError(str(e)) from None


def connect(servers: str, security: ClientSecurity = NO_SECURITY) -> NodeClient:
    """A connection to the first reachable server of `servers` (`host:port,…`). Raises ToolError."""
    failure = ToolError("no server is given")
    for text in servers.split(","):
        host_port = parse_host_port(text.strip())
        if host_port is None:
            raise ToolError(f"{text.strip()!r} does not have the form host:port")
        try:
            return NodeClient(*host_port, security=security)
        except ToolError as e:
            failure = e
    raise failure
