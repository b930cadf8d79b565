"""Converts the configuration to the settings of a node's parts: limits, Raft, snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.config.listeners import PORT_MAX, parse_map
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_node.server.connections.connection_rates import ConnectionRates
from kraft_node.server.connections.listener import Limits
from kraft_protocol.configs.own import LISTENER_PREFIX

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.config.view import ConfigView
    from kraft_node.metadata.image import MetadataImage


def limits_of(config: ConfigView, static: NodeConfig) -> Limits:
    """The effective limits of connections."""
    overrides = parse_map("max.connections.per.ip.overrides", config.string("max.connections.per.ip.overrides"))
    return Limits(
        request_bytes_max=config.int("socket.request.max.bytes"),
        connections_max=config.int("max.connections"),
        connections_max_by_listener=by_listener(config, static, "max.connections"),
        connections_max_per_ip=config.int("max.connections.per.ip"),
        per_ip_overrides={host: int(count) for host, count in overrides.items()},
        idle_ms=config.int("connections.max.idle.ms"),
    )


CREATION_RATE: Final = "max.connection.creation.rate"


def creation_rates(config: ConfigView, static: NodeConfig) -> tuple[int, dict[str, int]]:
    """The effective `max.connection.creation.rate` of the node, and of each listener with its own value."""
    return config.int(CREATION_RATE), by_listener(config, static, CREATION_RATE)


def by_listener(config: ConfigView, static: NodeConfig, key: str) -> dict[str, int]:
    """The effective values of `key` for listeners with their own value."""
    own = {}
    for endpoint in static.listeners:
        name = f"{LISTENER_PREFIX}{endpoint.name.lower()}.{key}"
        given = next((values[name] for values in config.layers() if name in values), static.texts.get(name))
        if given is not None:
            own[endpoint.name] = int(str(given))
    return own


def protected_listener(config: NodeConfig) -> str | None:
    """The inter-broker listener, if clients use another listener."""
    return config.inter_broker_listener_name if len(config.broker_listeners) > 1 else None


def connection_rates(config: NodeConfig, image: MetadataImage) -> ConnectionRates:
    """The counter of new connections, with its initial configuration."""
    window_ms = config.int("quota.window.size.seconds") * 1000
    rates = ConnectionRates(image, config.int("quota.window.num"), window_ms, protected_listener(config))
    rates.configure(*creation_rates(config, config))
    return rates


def raft_config(config: NodeConfig) -> RaftConfig:
    """The settings of `controller.quorum.*`."""
    return RaftConfig(
        election_timeout_ms=config.int("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.int("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.int("controller.quorum.election.backoff.max.ms"),
        append_linger_ms=config.int("controller.quorum.append.linger.ms"),
        request_timeout_ms=config.int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.int("controller.quorum.fetch.max.bytes"),
        auto_join=config.is_controller and config.boolean("controller.quorum.auto.join.enable"),
        fetch_snapshot_max_bytes=config.int("controller.quorum.fetch.snapshot.max.bytes"),
    )


def snapshot_policy(config: NodeConfig) -> SnapshotPolicy:
    """When to write snapshots of the metadata, and what to keep."""
    return SnapshotPolicy(
        max_new_record_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
        max_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
        retention_bytes=config.int("metadata.max.retention.bytes"),
        retention_ms=config.int("metadata.max.retention.ms"),
    )


GUARD_KEY: Final = "quorum.empty.disk.guard"
"""Whether a voter without a quorum-state must not vote (`raft.membership.amnesia`)."""
HTTP_KEY: Final = "http.listener"
"""`host:port` of /metrics and the other pages of `server.monitoring.monitoring_server`; default: not served. Kafka
leaves this to the JVM."""


def host_and_port(key: str, text: str) -> tuple[str, int]:
    """The host and the port of `host:port`. Raises ValueError with the key."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"{key} must be host:port, not {text!r}")
    return host, int(port)
