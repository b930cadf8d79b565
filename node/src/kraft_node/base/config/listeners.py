"""Addresses in configurations: listeners, their security protocols, voters and bootstrap servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.value_types import trim

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Security protocols and their ids in registration records."""

PORT_MAX: Final = 65_535

NON_ROUTABLE: Final = "0.0.0.0"  # noqa: S104  (the address that must not be advertised)

_LISTENER: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_HOST_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\.(?!$)|$)){4}")


class ConfiguredListener:
    """A listener: its name, security protocol and address. `host` is "" if the file omits it."""

    __slots__ = ("host", "name", "port", "security_protocol")

    def __init__(self, name: str, security_protocol: str, host: str, port: int) -> None:
        self.name = name
        self.security_protocol = security_protocol
        self.host = host
        self.port = port

    @property
    def security_protocol_id(self) -> int:
        """The number of the security protocol, as registration records and requests have it."""
        return SECURITY_PROTOCOLS[self.security_protocol]

    def _key(self) -> tuple[str, str, str, int]:
        return (self.name, self.security_protocol, self.host, self.port)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfiguredListener) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"ConfiguredListener({self})"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ConfiguredVoter:
    """An entry of `controller.quorum.voters`."""

    __slots__ = ("host", "node_id", "port")

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfiguredVoter) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"ConfiguredVoter({self})"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}"


def parse_host_port(text: str) -> tuple[str, int] | None:
    """Parse `host:port`, `[v6]:port` or `name://host:port`. Returns None for any other text."""
    match = _HOST_PORT.fullmatch(text)
    return (match[1], int(match[2])) if match and int(match[2]) <= PORT_MAX else None


def parse_voters(entries: Iterable[str]) -> list[ConfiguredVoter]:
    """Parse entries like `1@host:9093` and `2@[::1]:9093`; sort by id. Raises ConfigError for an invalid entry."""
    key = "controller.quorum.voters"
    voters: dict[int, ConfiguredVoter] = {}
    for entry in entries:
        id_text, at, address = entry.partition("@")
        if not at or not address or "@" in address:
            raise ConfigError(
                f"Invalid configuration value for {key}: {entry!r}. Each entry should be in the form "
                "`{id}@{host}:{port}`.",
                key,
            )
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", id_text):
            raise ConfigError(f"Failed to parse voter ID as an integer from {id_text} in {key}", key)
        host_port = parse_host_port(address)
        if host_port is None:
            raise ConfigError(
                f"Failed to parse host and port from entry {entry} of {key}. Each entry should be in the form "
                "`{id}@{host}:{port}`.",
                key,
            )
        voters[int(id_text)] = ConfiguredVoter(int(id_text), *host_port)
    return [voters[node_id] for node_id in sorted(voters)]


def parse_bootstrap_servers(entries: Iterable[str]) -> list[tuple[str, int]]:
    """Parse `controller.quorum.bootstrap.servers` to (host, port) pairs. Raises ConfigError for an invalid entry."""
    key = "controller.quorum.bootstrap.servers"
    servers: list[tuple[str, int]] = []
    for entry in entries:
        host_port = parse_host_port(entry)
        if host_port is None:
            raise ConfigError(
                f"Failed to parse host and port from entry {entry} of {key}. Each entry should be in the form "
                "`{host}:{port}`.",
                key,
            )
        servers.append(host_port)
    return servers


def parse_map(key: str, text: str) -> dict[str, str]:
    """Parse `a:b,c:d`; the last colon of an entry separates name and value. Raises ConfigError without a colon."""
    pairs: dict[str, str] = {}
    if text:
        entries = re.split(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*", text)
        while entries and not entries[-1]:  # Java's split drops empty entries at the end
            entries.pop()
        for entry in entries:
            name, colon, value = entry.rpartition(":")
            if not colon:
                raise ConfigError(f"Error parsing configuration property '{key}': no colon in {entry!r}", key)
            pairs[trim(name)] = trim(value)
    return pairs


def parse_protocol_map(
    text: str, *, explicit: bool, controller_names: list[str], listeners: list[str]
) -> dict[str, str]:
    """Parse `listener.security.protocol.map` to a dict by upper-case listener name.

    If the key is not given (`explicit` false) and no listener uses TLS or SASL, controller listeners are PLAINTEXT.
    Raises ConfigError.
    """
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for name, protocol in parse_map(key, text).items():
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in {key}", key)
        if name.upper() in protocols:
            raise ConfigError(f"{key} names the listener {name.upper()} twice", key)
        protocols[name.upper()] = protocol.upper()
    secure = set(SECURITY_PROTOCOLS) - {"PLAINTEXT"}
    names = list(controller_names) + [listener_name(listener) for listener in listeners]
    if not explicit and not secure.intersection(names):
        protocols.update({name: "PLAINTEXT" for name in controller_names if name != "PLAINTEXT"})
    return protocols


def listener_name(listener: str) -> str:
    """Return the upper-case name in front of the first colon. Raises ConfigError without a colon."""
    name, colon, _ = listener.partition(":")
    if not colon:
        raise ConfigError(f"Unable to parse {listener} to a broker endpoint: no colon found in listener value")
    return name.upper()


def parse_endpoints(
    key: str, listeners: list[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> list[ConfiguredListener]:
    """Parse `listeners` or `advertised.listeners`.

    Raises ConfigError if an entry is not `NAME://host:port`, has no security protocol, repeats a name, or has a port
    out of range (Kafka fails later for it). With `distinct_ports`, two listeners may share a port only if one has an
    IPv4 address and the other an IPv6 address.
    """
    shown = ",".join(listeners)
    endpoints: list[ConfiguredListener] = []
    for listener in listeners:
        match = _LISTENER.fullmatch(listener)
        if not match:
            raise ConfigError(f"Error creating broker listeners from '{shown}': cannot parse {listener}", key)
        if not 0 <= int(match[3]) <= PORT_MAX:
            raise ConfigError(f"{key}: {listener}: a port is a number from 0 to {PORT_MAX}", key)
        name = match[1].upper()
        if name not in protocols:
            raise ConfigError(
                f"Error creating broker listeners from '{shown}': No security protocol defined for listener {name}",
                key,
            )
        endpoints.append(ConfiguredListener(name, protocols[name], match[2], int(match[3])))
    if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
        raise ConfigError(f"Each listener must have a different name, {key}: {shown}", key)
    if distinct_ports:
        _check_ports(key, shown, endpoints)
    return endpoints


def _check_ports(key: str, shown: str, endpoints: list[ConfiguredListener]) -> None:
    by_port: dict[int, list[ConfiguredListener]] = {}
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        families = sorted(_family(endpoint.host) for endpoint in sharing)
        if families != [4, 6]:
            raise ConfigError(
                f"Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                f"other IPv6 address, {key}: {shown}, port: {port}",
                key,
            )


def _family(host: str) -> int:
    """Return 4 or 6 for an IP address, 0 for a host name."""
    if _IPV4.fullmatch(host):
        return 4
    return 6 if ":" in host else 0
