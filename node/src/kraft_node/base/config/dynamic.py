"""Broker configurations that change at run time: which changes are allowed, and the values in force.

The metadata log stores dynamic values for a broker (resource name = its id) and for all brokers (resource name ""). The
order of precedence is: broker, all brokers, file (KIP-226).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from kraft_node.base.config.definitions import BROKER, BROKER_DYNAMIC_ONLY, BROKER_SYNONYMS, READ_ONLY, ConfigKey
from kraft_node.base.config.errors import ConfigError, invalid
from kraft_node.base.config.listeners import parse_map
from kraft_node.base.config.node import NodeConfig
from kraft_node.base.config.value_types import ConfigValue, java_split
from kraft_node.base.config.view import ConfigView, broker_key
from kraft_protocol.configs.kafka import CLUSTER_LEVEL_LISTENER_KEYS, SECURITY_KEYS
from kraft_protocol.configs.names import LISTENER_KEY, base_name
from kraft_protocol.configs.own import LISTENER_PREFIX

_PER_IP: Final = "max.connections.per.ip.overrides"
_OWN_CLASSES: Final = "org.apache.kafka."

# Keys that are per broker, with or without a listener prefix.
_PER_BROKER_NAMES: Final = frozenset(name for name, key in BROKER.items() if key.update_mode == "per-broker")
# Keys without a prefix whose change makes Kafka compare the keys of its open listeners.
_OF_LISTENERS: Final = (_PER_BROKER_NAMES - {"cordoned.log.dirs"}) | frozenset(CLUSTER_LEVEL_LISTENER_KEYS)


def definition(name: str) -> ConfigKey | None:
    """Return the definition of a broker key, with or without a listener prefix; None if Kafka does not have the
    key."""
    base = base_name(name)
    return BROKER.get(base) or BROKER_DYNAMIC_ONLY.get(base)


def check_broker_overrides(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError unless a broker resource may have these dynamic `overrides`.

    `per_broker` is true for the resource of one broker, false for the default resource. Unknown keys are allowed,
    because they belong to plug-ins. `check_change` checks the configuration that results.
    """

    def refuse(names: Iterable[str], why: str) -> None:
        bad = list(names)
        if bad:
            raise ConfigError(f"{why}: [{', '.join(bad)}]", bad[0])

    refuse(
        (name for name in overrides if name in BROKER and BROKER[name].update_mode == READ_ONLY),
        "Cannot update these configs dynamically",
    )
    refuse(
        (name for name in overrides if name in SECURITY_KEYS),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    for name, text in overrides.items():
        key = _checked_definition(name)
        if key is not None:
            _parse(key, text)
    if not per_broker:
        refuse(
            (name for name in overrides if _is_per_broker(name)),
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def _parse(key: ConfigKey, text: str) -> None:
    """Raise ConfigError unless it is a value of the key. Only Kafka's own classes exist, because there is no JVM."""
    key.parse(text)
    if key.kind == "class" and not text.strip().startswith(_OWN_CLASSES):
        raise invalid(key.name, text, f"Class {text} could not be found.")


def _check_listeners(static: NodeConfig, overrides: Mapping[str, str]) -> None:
    """Raise ConfigError if a key of an existing listener has a wrong value, though nothing reads it at run time."""
    for listener in static.listeners:
        prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
        for name, text in overrides.items():
            if not name.startswith(prefix):
                continue
            base = name.removeprefix(prefix)
            key = BROKER.get(base) or BROKER.get(base.partition(".")[2])
            if key is None:
                continue
            try:
                _parse(key, text)
            except ConfigError as e:
                if static.is_broker and listener.name == static.inter_broker_listener_name:
                    raise
                raise _within(str(e), name) from None


def _checked_definition(name: str) -> ConfigKey | None:
    """The definition by which a value is parsed even if its listener does not exist; None if the key cannot change."""
    match = LISTENER_KEY.fullmatch(name)
    base = match[1] if match else name
    key = BROKER.get(base)
    return BROKER_DYNAMIC_ONLY.get(base) if key is None or key.update_mode == READ_ONLY else key


def _is_per_broker(name: str) -> bool:
    if name in _PER_BROKER_NAMES:
        return True
    match = LISTENER_KEY.fullmatch(name)
    return match is not None and match[1] not in CLUSTER_LEVEL_LISTENER_KEYS


def _texts(static: NodeConfig, *layers: Mapping[str, str]) -> dict[str, str]:
    texts = dict(static.texts)
    for overrides in layers:
        for name, text in overrides.items():
            for synonym in BROKER_SYNONYMS.get(name, (name,)):
                texts.pop(synonym, None)
            texts[name] = text
    return texts


def _check_in_node(texts: dict[str, str]) -> None:
    if _PER_IP in texts:
        parse_map(_PER_IP, texts[_PER_IP])
    NodeConfig.parse(texts)


def _check_fixed(static: NodeConfig, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise ConfigError if keys of an open listener change together with keys that Kafka's listeners follow.

    By themselves the former are stored for the next start.
    """
    if all(before.get(name) == after.get(name) for name in _OF_LISTENERS):
        return
    for listener in static.broker_listeners:
        prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
        fixed = [
            {name: text for name, text in texts.items() if name.startswith(prefix) and _is_fixed(name, prefix)}
            for texts in (before, after)
        ]
        if fixed[0] != fixed[1]:
            message = (
                f"Configs cannot be updated dynamically for existing listener ListenerName({listener.name}), "
                "restart broker or create a new listener for update"
            )
            raise _within(message, prefix)


def _is_fixed(name: str, prefix: str) -> bool:
    return name.removeprefix(prefix) not in (*SECURITY_KEYS, *CLUSTER_LEVEL_LISTENER_KEYS)


_NETWORK_THREADS: Final = "num.network.threads"
_THREADS: Final = (
    _NETWORK_THREADS,
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_CLEANER_THREADS: Final = "log.cleaner.threads"
_NOT_ZERO: Final = ("max.connections", "max.connection.creation.rate")
"""Keys that may be zero in a file, but not in a dynamic configuration."""
_RETENTIONS: Final = ("retention.ms", "retention.bytes")
"""Limits of a log that have a counterpart for its local part: `log.local.retention.*`."""
_AS_LOG: Final = -2
"""A local retention of this value equals the retention of the whole log."""


def change_list(text: str, operand: str, *, append: bool) -> str:
    """Append the entries of `operand` to the list `text`, or remove them from it."""
    parts = [part for part in text.split(",") if part]
    for part in java_split(operand, ","):
        if append and part not in parts:
            parts.append(part)
        elif not append and part in parts:
            parts.remove(part)
    return ",".join(parts)


Remainder = Callable[[], None]
"""The part of a check that reads files or takes long, for a background lane. Raises ConfigError."""


def check_change(now: BrokerConfig, overrides: Mapping[str, str], *, per_broker: bool) -> list[Remainder]:
    """Raise ConfigError unless a broker with configuration `now` may get `overrides`, of its own or for all brokers.

    Returns what remains to be checked off the loop. The result must be a valid configuration as a whole. A number of
    threads may change by at most a factor of two. The node does not have these threads, but must not store a value that
    other members of the cluster refuse. Messages are worded like Kafka's: one error contains another error.
    """
    own, cluster = (overrides, now.cluster) if per_broker else (now.per_broker, overrides)
    before, texts = _texts(now.static, now.cluster, now.per_broker), _texts(now.static, cluster, own)
    _check_in_node(texts)
    _check_listeners(now.static, overrides)
    after = BrokerConfig(now.static)
    after.update(own, cluster)
    for name in _THREADS:
        _check_threads(name, now.int(name), after.int(name))
    for listener in now.static.broker_listeners:
        name = f"{LISTENER_PREFIX}{listener.name.lower()}.{_NETWORK_THREADS}"
        if name in before or name in texts:
            old = int(before.get(name, now.int(_NETWORK_THREADS)))
            _check_threads(_NETWORK_THREADS, old, int(texts.get(name, after.int(_NETWORK_THREADS))))
    _check_fixed(now.static, before, texts)
    if now.boolean("log.cleaner.enable"):
        _check_cleaner_threads(now.int(_CLEANER_THREADS), after.int(_CLEANER_THREADS))
    for name, text in overrides.items():
        if (base := base_name(name)) in _NOT_ZERO and int(text) == 0:
            raise _within(f"Invalid {base} 0", name)
    for kind in _RETENTIONS:
        if (found := _local_and_whole(after, kind)) != _local_and_whole(now, kind):
            _check_local_retention(kind, *found)
    remainders = (check(after) for check in now.checks)
    return [partial(_remain, remainder) for remainder in remainders if remainder is not None]


def _remain(remainder: Remainder) -> None:
    try:
        remainder()
    except ConfigError as e:
        raise _within(str(e), e.key) from None


def _check_threads(name: str, old: int, new: int) -> None:
    problem = None
    if new < old // 2:
        problem = f"value should be at least half the current value {old}"
    elif new > old * 2:
        problem = f"value should not be greater than double the current value {old}"
    if problem is not None:
        raise _within(f"Dynamic thread count update validation failed for {name}={new}, {problem}", name)


def _check_cleaner_threads(old: int, new: int) -> None:
    problem = None
    if new < old // 2:
        problem = "reduced to less than half"
    elif new > old * 2:
        problem = "increased to more than double"
    if problem is not None:
        raise _within(f"Log cleaner threads cannot be {problem} the current value {old}", _CLEANER_THREADS)


def _local_and_whole(config: BrokerConfig, kind: str) -> tuple[int, int]:
    whole = config.topic_default(kind)
    return config.int(f"log.local.{kind}"), whole if isinstance(whole, int) else -1


def _check_local_retention(kind: str, local: int, whole: int) -> None:
    if whole == -1 or local == _AS_LOG:
        return
    why = None
    if local == -1:
        why = f"Value must not be -1 as log.{kind} value is set as {whole}."
    elif local > whole:
        why = f"Value must not be more than log.{kind} property value: {whole}"
    if why is not None:
        raise _within(str(invalid(f"log.local.{kind}", local, why)), f"log.local.{kind}")


def _within(message: str, name: str) -> ConfigError:
    return ConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {message} "
        "for configuration Invalid dynamic configuration",
        name,
    )


class BrokerConfig(ConfigView):
    """A broker's values in force: the dynamic values layered over the file.

    Call `update` with the dynamic values of the metadata image. Readers see the new values at once.
    """

    __slots__ = ("_layers", "checks", "cluster", "per_broker", "static")

    def __init__(self, static: NodeConfig) -> None:
        self.static = static
        self.per_broker: dict[str, str] = {}
        self.cluster: dict[str, str] = {}
        self.checks: list[Callable[[ConfigView], Remainder | None]] = []
        """Checks by parts of the node of values that may come into force."""
        self._layers: list[Mapping[str, ConfigValue]] = list(static.layers())

    def value(self, name: str) -> ConfigValue:
        """The value in force of a broker key: of the highest layer with the key or a synonym, or the default."""
        names = BROKER_SYNONYMS.get(name)
        if names is None or len(self._layers) == 1:
            names = (name,)
        for layer in self._layers:
            value = layer.get(name)
            if value is not None:
                return value
            if any(layer.get(synonym) is not None for synonym in names):
                break  # another spelling in a higher layer hides this key, which then has its default
        return broker_key(name).default

    def layers(self) -> Iterable[Mapping[str, ConfigValue]]:
        """The dynamic values of this broker, then of all brokers, without empty layers; then the values of the file."""
        return self._layers

    def update(self, per_broker: Mapping[str, str], cluster: Mapping[str, str]) -> set[str]:
        """Replace the dynamic values by the values in the metadata image. Returns the keys with a changed value in
        force.

        A value that cannot be parsed is ignored, and so is a value of a key that cannot change at run time.
        """
        touched = {*per_broker, *cluster, *self.per_broker, *self.cluster}
        affected = {
            synonym for name in touched for synonym in BROKER_SYNONYMS.get(name, (name,)) if definition(synonym)
        }
        before = {name: self._value_or_none(name) for name in affected}
        self.per_broker = dict(per_broker)
        self.cluster = dict(cluster)
        dynamic = [_parsed(self.per_broker), _parsed(self.cluster)]
        self._layers = [*(layer for layer in dynamic if layer), *self.static.layers()]
        return {name for name in affected if self._value_or_none(name) != before[name]}

    def _value_or_none(self, name: str) -> ConfigValue:
        """The value of a key; None for a listener's key that no layer has."""
        if name.startswith("listener.name."):
            for layer in self._layers:
                if name in layer:
                    return layer[name]
            return None
        return self.value(name)


def _parsed(texts: Mapping[str, str]) -> dict[str, ConfigValue]:
    values: dict[str, ConfigValue] = {}
    for name, text in texts.items():
        key = definition(name)
        if key is None or (key.name in BROKER and key.update_mode == READ_ONLY):
            continue
        try:
            values[name] = key.parse(text)
        except ConfigError:
            continue
    return values
