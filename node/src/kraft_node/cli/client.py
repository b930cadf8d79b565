"""A blocking client for command lines: one connection, one request at a time, PLAINTEXT only."""

from __future__ import annotations

from typing import Any, Final

from kraft_node.base.config.listeners import parse_host_port
from kraft_node.base.version import VERSION
from kraft_node.cli.common import ToolError, read_text
from kraft_protocol.client.blocking import Connection
from kraft_protocol.client.errors import ClientError
from kraft_protocol.client.session import Software, Versions
from kraft_protocol.wire.api import ApiKey

TIMEOUT_S: Final = 30.0
SOFTWARE: Final = Software("kraftcluster-cli", "kraftcluster", VERSION)


class Client:
    """A connection to one node. Raises ToolError if the node cannot be reached or answers wrongly."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.address = f"{host}:{port}"
        try:
            self._connection = Connection(
                host, port, software=SOFTWARE, versions=None, connect_s=timeout_s, request_s=timeout_s
            )
        except OSError as e:
            raise ToolError(f"cannot connect to {self.address}: {e}") from None
        except ClientError as e:
            raise ToolError(str(e)) from None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def versions(self) -> Versions:
        """The lowest and highest version of each API that the node serves."""
        return self._connection.served

    def ask(self, key: ApiKey, request: Any) -> Any:
        """The response to `request`, in the newest version that both sides support.

        Raises ToolError. Only a missing version leaves the connection usable.
        """
        try:
            return self._connection.ask(request)
        except TimeoutError:
            raise ToolError(f"{self.address} has not answered {key.name} in time") from None
        except OSError as e:
            raise ToolError(f"{self.address}: {e}") from None
        except ClientError as e:
            raise ToolError(str(e)) from None


def connect(servers: str, properties: str | None = None) -> Client:
    """A connection to the first reachable server of `servers` (`host:port,…`).

    `properties` names a file of client properties; only PLAINTEXT is supported. Raises ToolError.
    """
    if properties is not None:
        _check_properties(properties)
    failure = ToolError("no server is given")
    for text in servers.split(","):
        host_port = parse_host_port(text.strip())
        if host_port is None:
            raise ToolError(f"{text.strip()!r} does not have the form host:port")
        try:
            return Client(*host_port)
        except ToolError as e:
            failure = e
    raise failure


def _check_properties(path: str) -> None:
    from kraft_node.base.config import parse_properties

    protocol = parse_properties(read_text(path)).get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise ToolError(f"{path}: security.protocol={protocol} is not supported, use PLAINTEXT")
