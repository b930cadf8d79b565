"""Checks between the keys of a node's configuration (Kafka's KafkaConfig.validateValues in KRaft mode)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.listeners import NON_ROUTABLE, parse_map
from kraft_node.base.config.zookeeper import MIGRATION_KEY, zookeeper_settings

if TYPE_CHECKING:
    from kraft_node.base.config.node_values import NodeValues

_HOST: Final = re.compile(r"([0-9a-zA-Z\-%._:]*)")


def _require(holds: bool, key: str, message: str) -> None:
    if not holds:
        raise ConfigError(message, key)


def validate_node(config: NodeValues) -> None:
    """Raise ConfigError for the first violated rule. Add doubtful settings to `config.warnings`."""
    _require(
        config.node_id == config.int("broker.id"),
        "node.id",
        f"You must set `node.id` to the same value as `broker.id` ({config.node_id} and {config.int('broker.id')}).",
    )
    _check_times(config)
    _ROLES[(config.is_broker, config.is_controller)](config)  # the key's own constraint does not refuse an empty list
    _check_listeners(config)
    _check_limits(config)
    if config.is_broker:
        _check_cordoned(config)
    _check_coordinators(config)
    _check_migration(config)
    from kraft_node.base.config.group import validate_broker_group_bounds  # noqa: PLC0415

    validate_broker_group_bounds(config)


def _check_migration(config: NodeValues) -> None:
    """The keys of a controller that migrates a cluster; on brokers they have no effect, as in KIP-866."""
    if zookeeper_settings(config) is not None:
        _require(
            not config.is_broker,
            MIGRATION_KEY,
            f"{MIGRATION_KEY}=true needs a controller that is no broker: set process.roles=controller",
        )


def _check_times(config: NodeValues) -> None:
    retention = config.topic_default("retention.ms")
    _require(config.log_roll_ms >= 1, "log.roll.ms", f"log.roll.ms must be at least 1, not {config.log_roll_ms}")
    _require(
        config.log_roll_jitter_ms >= 0,
        "log.roll.jitter.ms",
        f"log.roll.jitter.ms must be at least 0, not {config.log_roll_jitter_ms}",
    )
    _require(retention != 0, "log.retention.ms", "log.retention.ms must be -1 (unlimited) or at least 1, not 0")
    _require(bool(config.log_dirs), "log.dirs", "At least one log directory must be defined via log.dirs or log.dir.")
    buffer, threads = config.int("log.cleaner.dedupe.buffer.size"), config.int("log.cleaner.threads")
    _require(
        threads > 0 and buffer // threads > 1 << 20,
        "log.cleaner.dedupe.buffer.size",
        f"log.cleaner.dedupe.buffer.size ({buffer}) must be more than 1 MiB per cleaner thread, of which there must "
        f"be one ({threads}).",
    )
    wait, socket, lag = (
        config.int(name)
        for name in ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "replica.lag.time.max.ms")
    )
    _require(
        wait <= socket,
        "replica.socket.timeout.ms",
        f"replica.socket.timeout.ms ({socket}) should be at least replica.fetch.wait.max.ms ({wait}), or fetches time "
        "out in vain",
    )
    _require(
        wait <= lag,
        "replica.fetch.wait.max.ms",
        f"replica.fetch.wait.max.ms ({wait}) should be at most replica.lag.time.max.ms ({lag}), or ISRs flap",
    )
    interval, session = config.int("broker.heartbeat.interval.ms"), config.int("broker.session.timeout.ms")
    if interval * 2 > session:
        config.warnings.append(
            f"broker.heartbeat.interval.ms ({interval}) is more than half of broker.session.timeout.ms ({session}): "
            "one lost heartbeat fences the broker"
        )


# Roles


def _check_quorum(config: NodeValues) -> None:
    _require(
        bool(config.voters or config.bootstrap_servers),
        "controller.quorum.voters",
        "With process.roles, either controller.quorum.bootstrap.servers must name controllers to ask or "
        "controller.quorum.voters must name the voters.",
    )


def _voter_ids(config: NodeValues) -> set[int]:
    return {voter.node_id for voter in config.voters}


def _check_is_voter(config: NodeValues) -> None:
    ids = _voter_ids(config)
    _require(
        not ids or config.node_id in ids,
        "controller.quorum.voters",
        f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in the set of "
        f"voters controller.quorum.voters={sorted(ids)}",
    )


def _check_controller_listeners(config: NodeValues) -> None:
    key = "controller.listener.names"
    _require(
        bool(config.advertised_controller_listeners),
        key,
        f"{key} must contain at least one value appearing in the 'listeners' configuration when running the KRaft "
        "controller role",
    )
    names = {endpoint.name for endpoint in config.listeners}
    _require(
        all(name in names for name in config.controller_listener_names),
        key,
        f"{key} must only contain values appearing in the 'listeners' configuration when running the KRaft controller "
        f"role (listeners: {', '.join(sorted(names))})",
    )


def _check_broker_only(config: NodeValues) -> None:
    _check_quorum(config)
    ids = _voter_ids(config)
    key = "controller.listener.names"
    _require(
        config.node_id not in ids,
        "controller.quorum.voters",
        f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in the "
        f"set of voters controller.quorum.voters={sorted(ids)}",
    )
    _require(
        bool(config.controller_listener_names),
        key,
        f"{key} must contain at least one value when running KRaft with just the broker role",
    )
    _require(
        not config.controller_listeners,
        key,
        f"{key} must not contain a value appearing in the 'listeners' configuration when running KRaft with just the "
        "broker role",
    )
    for name in config.controller_listener_names:
        _require(
            name.upper() in config.security_protocols,
            key,
            f"Controller listener with name {name} defined in {key} not found in listener.security.protocol.map",
        )
    _require(
        not config.boolean("controller.quorum.auto.join.enable"),
        "controller.quorum.auto.join.enable",
        "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
    )
    if len(config.controller_listener_names) > 1:
        config.warnings.append(
            f"{key} has several entries; a broker uses the first, {config.controller_listener_names[0]}"
        )
    for name in ("create.topic.policy.class.name", "alter.config.policy.class.name"):
        if config.is_set(name):
            config.warnings.append(f"{name} is set on a broker; it belongs to the controllers")


def _check_controller_only(config: NodeValues) -> None:
    _check_quorum(config)
    _check_controller_listeners(config)
    _check_is_voter(config)
    _require(
        len(config.listeners) == len(config.controller_listeners),
        "listeners",
        "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
        "process.roles=controller",
    )
    name = config.string_or_none("inter.broker.listener.name")
    _require(
        name is None or name.upper() not in config.controller_listener_names,
        "inter.broker.listener.name",
        f"inter.broker.listener.name must not be a listener of controller.listener.names ({name}) when "
        "process.roles=controller",
    )


def _check_combined(config: NodeValues) -> None:
    _check_quorum(config)
    _check_is_voter(config)
    _check_controller_listeners(config)


_ROLES: Final[dict[tuple[bool, bool], Callable[[NodeValues], None]]] = {
    (True, False): _check_broker_only,
    (False, True): _check_controller_only,
    (True, True): _check_combined,
}


def _check_listeners(config: NodeValues) -> None:
    advertised = {endpoint.name for endpoint in config.advertised_broker_listeners}
    inter_broker = config.inter_broker_listener_name
    if config.is_broker:
        _require(
            bool(advertised),
            "advertised.listeners",
            "There must be at least one broker advertised listener. Perhaps all listeners appear in "
            "controller.listener.names?",
        )
        _require(
            inter_broker in advertised,
            "inter.broker.listener.name",
            f"inter.broker.listener.name must be a listener name defined in advertised.listeners: {inter_broker} is "
            f"not among {','.join(sorted(advertised))}",
        )
        listening = {endpoint.name for endpoint in config.listeners}
        _require(
            advertised <= listening,
            "advertised.listeners",
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners: "
            f"{','.join(sorted(advertised))} of {','.join(sorted(listening))}",
        )
    for endpoint in (*config.advertised_broker_listeners, *config.advertised_controller_listeners):
        _require(
            endpoint.host != NON_ROUTABLE,
            "advertised.listeners",
            f"advertised.listeners cannot use the nonroutable meta-address {NON_ROUTABLE}. Use a routable IP address.",
        )
    known = {endpoint.name for endpoint in config.listeners}
    early = config.value("early.start.listeners")
    for name in early if isinstance(early, list) else ():
        _require(
            name in known,
            "early.start.listeners",
            f"early.start.listeners contains listener {name}, but this is not contained in listeners or "
            "controller.listener.names",
        )
    if config.inter_broker_security_protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        enabled = config.listener_text(inter_broker, "sasl.enabled.mechanisms")
        mechanisms = config.list("sasl.enabled.mechanisms") if enabled is None else re.split(r"\s*,\s*", enabled)
        _require(
            config.string("sasl.mechanism.inter.broker.protocol") in mechanisms,
            "sasl.mechanism.inter.broker.protocol",
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication",
        )


def _check_limits(config: NodeValues) -> None:
    queued, request = config.int("queued.max.request.bytes"), config.int("socket.request.max.bytes")
    _require(
        queued <= 0 or queued >= request,
        "queued.max.request.bytes",
        f"queued.max.request.bytes ({queued}) must be larger or equal to socket.request.max.bytes ({request})",
    )
    key = "max.connections.per.ip.overrides"
    overrides = parse_map(key, config.string(key))
    _require(
        config.int("max.connections.per.ip") != 0 or bool(overrides),
        "max.connections.per.ip",
        f"max.connections.per.ip can be set to zero only if {key} property is set.",
    )
    bad = [host for host in overrides if not _HOST.fullmatch(host)]
    _require(not bad, key, f"{key} contains invalid addresses : {','.join(bad)}")
    for host, count in overrides.items():
        _require(bool(re.fullmatch(r"[+-]?\d{1,9}", count)), key, f"{key}: {count!r} for {host} is not a number")
    idle, delay = config.int("connections.max.idle.ms"), config.int("connection.failed.authentication.delay.ms")
    _require(
        idle < 0 or delay < idle,
        "connection.failed.authentication.delay.ms",
        f"connection.failed.authentication.delay.ms={delay} should always be less than connections.max.idle.ms={idle}, "
        "or the answer to a failed authentication is never sent",
    )


def _check_coordinators(config: NodeValues) -> None:
    for key in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        codec = config.int(key)
        _require(0 <= codec <= 4, key, f"{key}: compression codec {codec} does not exist, only 0 to 4")
    key = "group.coordinator.rebalance.protocols"
    _require("classic" in config.list(key), key, f"{key} must contain classic")


def _check_cordoned(config: NodeValues) -> None:
    cordoned = config.list("cordoned.log.dirs")
    if "*" in cordoned:
        _require(
            len(cordoned) == 1,
            "cordoned.log.dirs",
            "When cordoned.log.dirs is set to *, it must not contain other values",
        )
        return
    missing = [path for path in cordoned if path not in config.log_dirs]
    _require(
        not missing,
        "cordoned.log.dirs",
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
        + ", ".join(missing),
    )
