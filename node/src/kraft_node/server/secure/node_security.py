"""The security of a node's listeners and of its connections to other nodes, from its configuration."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from kraft_node.base.request import ANONYMOUS
from kraft_node.server.connections.security import NO_SECURITY as OPEN_LISTENER
from kraft_node.server.connections.security import ListenerSecurity
from kraft_node.server.sasl.keys import CONTROLLER_MECHANISM_KEY, INTER_BROKER_MECHANISM_KEY
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.config.dynamic import Remainder
    from kraft_node.base.config.listeners import ConfiguredListener
    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.env import Env
    from kraft_node.metadata.image import MetadataView
    from kraft_node.server.sasl.login import ListenerSasl
    from kraft_node.server.tls.listener_tls import ListenerTls
    from kraft_node.server.tls.node_tls import NodeTls

WITH_SASL: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
WITH_TLS: Final = frozenset({"SSL", "SASL_SSL"})


class NodeSecurity:
    """Makes what listeners and channels need. Without TLS and SASL none of their modules is imported."""

    def __init__(self, env: Env, config: NodeConfig) -> None:
        self._env, self._config = env, config
        self.sasl: dict[str, ListenerSasl] = {}
        """By listener name."""
        self.tls: NodeTls | None = None
        """TLS of all listeners; None if no listener has it."""
        self._principals: dict[str, str] = {}

    def listener(self, endpoint: ConfiguredListener, image: MetadataView) -> ListenerSecurity:
        """The security of a listener. Raises ValueError with the key that is wrong."""
        protocol, tls = endpoint.security_protocol, self._tls(endpoint.name)
        if protocol not in WITH_SASL:
            return OPEN_LISTENER if tls is None else ListenerSecurity(protocol, tls=tls)
        from kraft_node.server.sasl.listeners import sasl_of  # noqa: PLC0415
        from kraft_node.server.sasl.login import SaslServerLogin  # noqa: PLC0415

        self.sasl[endpoint.name] = sasl = sasl_of(self._env, self._config, image, endpoint.name)
        return ListenerSecurity(
            protocol,
            tls=tls,
            authentication=partial(SaslServerLogin, sasl),
            early_bytes_max=sasl.receive_bytes_max,
        )

    @cached_property
    def to_brokers(self) -> ClientSecurity:
        """For connections to the inter-broker listener of other brokers."""
        return self._client(self._config.inter_broker_listener_name, INTER_BROKER_MECHANISM_KEY)

    @cached_property
    def to_controllers(self) -> ClientSecurity:
        """For connections to the first controller listener."""
        return self._client(self._config.controller_listener_names[0].upper(), CONTROLLER_MECHANISM_KEY)

    def principal_at(self, listener: str) -> str:
        """The principal of this node at a listener of other nodes, for requests that stay in the process."""
        if self._protocol(listener) == "SSL":
            tls = self._tls(listener)
            return ANONYMOUS if tls is None else tls.own_principal()
        return self._principals.get(listener, ANONYMOUS)

    def check(self, values: ConfigView) -> Remainder | None:
        """The check that the open listeners may change to these values; None if nothing of theirs changes."""
        return None if self.tls is None else self.tls.check(values)

    def follow(self, values: ConfigView) -> None:
        """Use the configuration in force now."""
        if self.tls is not None:
            self.tls.follow(values)

    def _protocol(self, listener: str) -> str:
        return self._config.security_protocols.get(listener, listener)

    def _client(self, listener: str, mechanism_key: str) -> ClientSecurity:
        protocol, tls = self._protocol(listener), self._tls(listener)
        if protocol not in WITH_SASL:
            return NO_SECURITY if tls is None else ClientSecurity(protocol, tls=tls)
        from kraft_node.server.sasl.credentials import credentials_for  # noqa: PLC0415
        from kraft_protocol.sasl.login import SaslLogin  # noqa: PLC0415

        credentials = credentials_for(self._env, self._config, listener, mechanism_key)
        self._principals[listener] = f"User:{credentials.user}"
        return ClientSecurity(protocol, tls=tls, login=lambda host: SaslLogin(credentials, host))

    def _tls(self, listener: str) -> ListenerTls | None:
        if self._protocol(listener) not in WITH_TLS:
            return None
        if self.tls is None:
            from kraft_node.server.tls.node_tls import NodeTls  # noqa: PLC0415  (several MiB)

            self.tls = NodeTls(self._env, self._config)
        return self.tls.listener(listener)
