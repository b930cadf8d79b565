"""Effects of configuration keys: which keys the node reads, and why the others have no effect.

`python -m tools.config_docs` finds the keys that the sources read, and writes `read_keys.READ_KEYS` and
docs/configuration.md. Every other key has a reason below: the first pattern that matches. `refusals` lists values with
which a node must not start, because ignoring them would be unsafe.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from kraft_node.base.config.definitions import BROKER
from kraft_node.base.config.read_keys import READ_KEYS

if TYPE_CHECKING:
    from kraft_node.base.config.node import NodeConfig

_LOGIN: Final = "Kerberos' library and the node's tokens renew themselves as they need to"
_TIERED: Final = "tiered storage is not implemented; segments stay on the local disks"
_LOOP: Final = "the node runs on one event loop, so no thread pool can be sized"
_WINDOW: Final = "replication rates are always measured over the last eleven seconds, Kafka's default"
_CHANNELS: Final = "connections between nodes have fixed time-outs and buffers"
_NEW_GROUPS: Final = "share and streams groups are not implemented"
_PURGATORY: Final = "an answered request leaves the list of waiting requests at once, so nothing has to be purged"
_METRICS: Final = "metrics are served over HTTP in Prometheus' format, without reporters and sampling windows"
_CLEANER: Final = "compaction reads and writes pieces of 64 KiB, so no buffer can be sized"
_JAVA: Final = "the value names a Java class, and the node has no JVM to load it"

WITHOUT_EFFECT: Final[tuple[tuple[str, str], ...]] = (
    ("remote.*", _TIERED),
    ("log.local.retention.*", _TIERED),
    ("local.retention.*", _TIERED),
    ("follower.fetch.last.tiered.offset.enable", _TIERED),
    ("sasl.client.callback.handler.class", _JAVA),
    ("sasl.login.*class", _JAVA),
    ("sasl.oauthbearer.jwt.*.class", _JAVA),
    ("sasl.kerberos.*", _LOGIN),
    ("sasl.login.*", _LOGIN),
    ("sasl.jaas.config", "nodes read listener.name.LISTENER.MECHANISM.sasl.jaas.config"),
    ("sasl.oauthbearer.assertion.template.file", "claims of assertions are given by their keys"),
    ("principal.builder.class", _JAVA),
    ("*.threads", _LOOP),
    ("alter.log.dirs.replication.quota.window.*", _WINDOW),
    ("num.recovery.threads.per.data.dir", _LOOP),
    ("group.coordinator.cached.buffer.max.bytes", "the group coordinator keeps no buffers between writes"),
    ("offsets.load.buffer.size", "the offsets log is read batch by batch, whatever its size"),
    ("transaction.state.log.load.buffer.size", "the transaction log is read batch by batch, whatever its size"),
    ("queued.max.requests", "the node handles each request when it has read it, without a queue"),
    ("socket.connection.setup.timeout*", _CHANNELS),
    ("*purgatory.purge.interval.requests", _PURGATORY),
    ("group.share.*", _NEW_GROUPS),
    ("group.streams.*", _NEW_GROUPS),
    ("share.coordinator.*", _NEW_GROUPS),
    ("metric*", _METRICS),
    ("kafka.metrics.*", _METRICS),
    ("replication.quota.window.*", _WINDOW),
    ("log.cleaner.*", _CLEANER),
    ("replica.socket.*", _CHANNELS),
    ("controller.socket.timeout.ms", _CHANNELS),
    ("controlled.shutdown.enable", "a broker always hands over the leadership of its partitions before it stops"),
    ("controller.performance.*", "slow controller operations are not logged one by one"),
    ("leader.imbalance.*", "leadership is balanced at a fixed interval only, as in Kafka's KRaft mode"),
    (
        "log.flush.offset.checkpoint.interval.ms",
        "recovery points are written when logs are flushed, and at a clean stop",
    ),
    ("log.flush.start.offset.checkpoint.interval.ms", "log start offsets are written when they move"),
    (
        "log.dir.failure.timeout.ms",
        "a broker reports a failed log directory in every heartbeat until the controller acknowledges it",
    ),
    ("server.max.startup.time.ms", "a start has no time limit; it recovers only the unflushed ends of the logs"),
    ("unstable.*", "only released versions of APIs and features are served"),
    ("*.policy.class.name", _JAVA),
    ("client.quota.callback.class", _JAVA),
    ("preallocate", "segment files grow with each write"),
    ("log.preallocate", "segment files grow with each write"),
    ("internal.*", "internal to Kafka's own tests"),
    ("*", "the node does not use it"),
)
"""Pattern and reason. The first pattern that matches applies."""

READ_ONCE: Final = frozenset(
    {
        "config.providers",
        "listeners",
        "listener.security.protocol.map",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.login.refresh.window.factor",
        "sasl.mechanism.inter.broker.protocol",
    }
)
"""Keys that Kafka changes at run time; this node applies them at its next start."""

EFFECTS: Final = READ_KEYS
"""The keys of `server.properties` that the node reads."""


def reason(name: str) -> str | None:
    """Return why the key has no effect; None if the node reads it."""
    if name in READ_KEYS:
        return None
    return next(text for pattern, text in WITHOUT_EFFECT if fnmatchcase(name, pattern))


def _given(name: str) -> Callable[[NodeConfig], bool]:
    """The condition that a key has a value."""

    def is_given(config: NodeConfig) -> bool:
        return bool(config.value(name))

    return is_given


def _changed(name: str) -> Callable[[NodeConfig], bool]:
    def is_changed(config: NodeConfig) -> bool:
        return config.value(name) != BROKER[name].default

    return is_changed


UNSAFE_TO_IGNORE: Final[dict[str, tuple[Callable[[NodeConfig], bool], str]]] = {
    "create.topic.policy.class.name": (_given("create.topic.policy.class.name"), "topics could violate the policy"),
    "alter.config.policy.class.name": (_given("alter.config.policy.class.name"), "configs could violate the policy"),
    "client.quota.callback.class": (_given("client.quota.callback.class"), "clients would run without their quotas"),
    "principal.builder.class": (_changed("principal.builder.class"), "clients would get other principals"),
    "remote.log.storage.system.enable": (_given("remote.log.storage.system.enable"), "data would stay on local disks"),
}
"""Keys that must not be ignored: a predicate whether the given value matters, and the harm done."""


def refusals(config: NodeConfig) -> list[str]:
    """Return a sentence for each given value that the node does not support and cannot safely ignore."""
    return [
        f"{name}={config.texts[name]} is not supported: {reason(name)}, and if it were ignored, {harm}"
        for name, (matters, harm) in UNSAFE_TO_IGNORE.items()
        if name in config.texts and matters(config)
    ]
