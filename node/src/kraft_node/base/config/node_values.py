"""The values of a node's static configuration, before the checks between keys (`validation`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from kraft_node.base.config.definitions import BROKER
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.listeners import (
    NON_ROUTABLE,
    ConfiguredListener,
    ConfiguredVoter,
    parse_bootstrap_servers,
    parse_endpoints,
    parse_protocol_map,
    parse_voters,
)
from kraft_node.base.config.value_types import ConfigValue, trim
from kraft_node.base.config.view import ConfigView, broker_key
from kraft_protocol.configs.own import LISTENER_PREFIX, OPEN_PREFIXES, OWN_DEFAULTS, PLUGIN_KEYS


class NodeValues(ConfigView):
    """The values in the file and the overrides; each value fits its key.

    - `texts`: the given texts by key. If only node.id or broker.id is given, it holds both.
    - `warnings`: sentences to log at start.
    - `unknown`: given keys without a meaning.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        given = dict(texts)
        # broker.id is the older spelling of node.id. Each is the default of the other.
        if "node.id" not in given and "broker.id" in given:
            given["node.id"] = given["broker.id"]
        elif "broker.id" not in given and "node.id" in given:
            broker_key("node.id").parse(given["node.id"])  # so that an error names the given key
            given["broker.id"] = given["node.id"]
        self.texts: Mapping[str, str] = given
        self._values = BROKER.parse(given)
        self.unknown = sorted(
            name
            for name in texts
            if not (name in BROKER or name in OWN_DEFAULTS or name in PLUGIN_KEYS or name.startswith(OPEN_PREFIXES))
        )
        self.warnings: list[str] = []

    def value(self, name: str) -> ConfigValue:
        """The value in the file or an override, parsed; else the default. Raises KeyError for an unknown key."""
        value = self._values.get(name)
        return broker_key(name).default if value is None else value

    def layers(self) -> Iterable[Mapping[str, ConfigValue]]:
        """A single layer: the values in the file and the overrides."""
        return (self._values,)

    def is_set(self, name: str) -> bool:
        """Whether the key is in the file or in an override."""
        return name in self.texts

    def listener_text(self, listener: str, name: str) -> str | None:
        """The text of `name` for a listener (`listener.name.LISTENER.NAME`), else for all listeners, else None."""
        text = self.texts.get(f"{LISTENER_PREFIX}{listener.lower()}.{name}")
        return self.texts.get(name) if text is None else trim(text)

    # Identity

    @property
    def node_id(self) -> int:
        """`node.id`, or its older spelling `broker.id`."""
        return self.int("node.id")

    @cached_property
    def roles(self) -> frozenset[str]:
        """The entries of `process.roles`: `broker`, `controller` or both."""
        return frozenset(self.list("process.roles"))

    @property
    def is_broker(self) -> bool:
        """Whether the node has the role broker. A combined node has both roles."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether the node has the role controller. A combined node has both roles."""
        return "controller" in self.roles

    @property
    def rack(self) -> str | None:
        """`broker.rack`; None if it is not set."""
        return self.string_or_none("broker.rack")

    # Directories

    @cached_property
    def log_dirs(self) -> list[str]:
        """Directories of partitions: `log.dirs`, else `log.dir`."""
        dirs = self.value("log.dirs")
        return dirs if isinstance(dirs, list) else self.list("log.dir")

    @cached_property
    def metadata_log_dir(self) -> str:
        """Directory of `__cluster_metadata`: `metadata.log.dir`, else the first log directory."""
        path = self.string_or_none("metadata.log.dir")
        return self.log_dirs[0] if path is None else path

    @cached_property
    def all_dirs(self) -> list[str]:
        """Directories to format: the log directories in order, then the metadata directory if it differs."""
        return list(dict.fromkeys([*self.log_dirs, self.metadata_log_dir]))

    # Listeners

    @property
    def controller_listener_names(self) -> list[str]:
        """`controller.listener.names`, spelled as in the file. Controllers connect to the first of them."""
        return self.list("controller.listener.names")

    @cached_property
    def security_protocols(self) -> dict[str, str]:
        """Security protocol by listener name."""
        return parse_protocol_map(
            self.string("listener.security.protocol.map"),
            explicit=self.is_set("listener.security.protocol.map"),
            controller_names=self.controller_listener_names,
            listeners=self.list("listeners"),
        )

    @cached_property
    def listeners(self) -> list[ConfiguredListener]:
        """Endpoints to listen on."""
        return parse_endpoints("listeners", self.list("listeners"), self.security_protocols, distinct_ports=True)

    @cached_property
    def controller_listeners(self) -> list[ConfiguredListener]:
        """Listeners for requests to the controller."""
        return [endpoint for endpoint in self.listeners if endpoint.name in self.controller_listener_names]

    @cached_property
    def broker_listeners(self) -> list[ConfiguredListener]:
        """Listeners for clients and brokers."""
        return [endpoint for endpoint in self.listeners if endpoint.name not in self.controller_listener_names]

    @cached_property
    def _advertised(self) -> list[ConfiguredListener] | None:
        texts = self.value("advertised.listeners")
        if not isinstance(texts, list):
            return None
        return parse_endpoints("advertised.listeners", texts, self.security_protocols, distinct_ports=False)

    @cached_property
    def advertised_broker_listeners(self) -> list[ConfiguredListener]:
        """Endpoints that a broker registers: `advertised.listeners`, else `listeners`, without controller listeners.

        A host of "" means the name of this machine.
        """
        endpoints = self.listeners if self._advertised is None else self._advertised
        return [endpoint for endpoint in endpoints if endpoint.name not in self.controller_listener_names]

    @cached_property
    def advertised_controller_listeners(self) -> list[ConfiguredListener]:
        """Endpoints that a controller registers, in the order of `controller.listener.names`.

        If the first listener has no routable host, it gets this node's address from `controller.quorum.voters`, if
        this key has an entry for this node. A host of "" means the name of this machine.
        """
        endpoints = {endpoint.name: endpoint for endpoint in self.controller_listeners}
        names = self.controller_listener_names
        for name, endpoint in endpoints.items():
            if endpoint.host in ("", NON_ROUTABLE):
                host, port = "", endpoint.port
                if name == names[0]:
                    own = next((voter for voter in self.voters if voter.node_id == self.node_id), None)
                    host, port = (own.host, own.port) if own else (host, port)
                endpoints[name] = ConfiguredListener(name, endpoint.security_protocol, host, port)
        endpoints.update({endpoint.name: endpoint for endpoint in self._advertised or () if endpoint.name in names})
        return [endpoints[name.upper()] for name in names if name.upper() in endpoints]

    @cached_property
    def inter_broker_listener_name(self) -> str:
        """The listener for connections between brokers."""
        name = self.string_or_none("inter.broker.listener.name")
        if name is None:
            return self.string("security.inter.broker.protocol")
        if self.is_set("security.inter.broker.protocol"):
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
                "inter.broker.listener.name",
            )
        if name.upper() not in self.security_protocols:
            raise ConfigError(
                f"Listener with name {name.upper()} defined in inter.broker.listener.name not found in "
                "listener.security.protocol.map.",
                "inter.broker.listener.name",
            )
        return name.upper()

    @cached_property
    def inter_broker_security_protocol(self) -> str:
        """The security protocol between brokers. A listener that the map lacks is named after its protocol."""
        return self.security_protocols.get(self.inter_broker_listener_name, self.inter_broker_listener_name)

    # The quorum

    @cached_property
    def voters(self) -> list[ConfiguredVoter]:
        """The static quorum, `controller.quorum.voters`; empty if the quorum is dynamic."""
        return parse_voters(self.list("controller.quorum.voters"))

    @cached_property
    def bootstrap_servers(self) -> list[tuple[str, int]]:
        """`controller.quorum.bootstrap.servers`."""
        return parse_bootstrap_servers(self.list("controller.quorum.bootstrap.servers"))

    # Durations with several spellings

    @property
    def log_roll_ms(self) -> int:
        """The age in ms at which a segment is rolled: `log.roll.ms`, else `log.roll.hours`. Topics may override it."""
        value = self.topic_default("segment.ms")
        assert isinstance(value, int)
        return value

    @property
    def log_roll_jitter_ms(self) -> int:
        """The maximum random part of that age in ms: `log.roll.jitter.ms`, else `log.roll.jitter.hours`."""
        value = self.topic_default("segment.jitter.ms")
        assert isinstance(value, int)
        return value
