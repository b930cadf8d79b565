"""Which keys act here, and why the others are accepted all the same: data for docs/configuration.md and for the start.

`acting.ACTING` lists the keys that the node reads; `python -m tools.config_docs` finds them in the sources and writes
that list and the page. Every other key has a reason below, the first pattern that fits. `refusals` names what a node
must not start with, because going on as if it were not there would be unsafe.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from kraft_node.base.config.acting import ACTING

if TYPE_CHECKING:
    from kraft_node.base.config.node import NodeConfig

_SECURITY: Final = "connections are plain text so far: TLS, SASL and tokens come with the security layer"
_TIERED: Final = "there is no tiered storage: segments stay on the local disks"
_LOOP: Final = "one event loop does the work: there is no pool of threads to size"
_WINDOW: Final = "the rates of replicas that catch up or move are those of the last eleven seconds, Kafka's default"
_CHANNELS: Final = "connections between nodes have time-outs and buffers of their own"
_NEW_GROUPS: Final = "only the classic group protocol is served so far"
_TRANSACTIONS: Final = "idempotent producers are served, transactions are not yet"
_PURGATORY: Final = "a request that has been answered leaves the waiting list at once: there is nothing to purge"
_METRICS: Final = "metrics are served over HTTP in Prometheus' format: no reporters, no sampling windows"
_CLEANER: Final = "compaction reads and writes pieces of 64 KiB: there is no buffer to size"
_JAVA: Final = "it names a Java class, and there is no JVM to load it"

WITHOUT_EFFECT: Final[tuple[tuple[str, str], ...]] = (
    ("remote.*", _TIERED),
    ("log.local.retention.*", _TIERED),
    ("local.retention.*", _TIERED),
    ("follower.fetch.last.tiered.offset.enable", _TIERED),
    ("sasl.*", _SECURITY),
    ("ssl.*", _SECURITY),
    ("security.providers", _SECURITY),
    ("principal.builder.class", _SECURITY),
    ("delegation.token.*", _SECURITY),
    ("connections.max.reauth.ms", _SECURITY),
    ("connection.failed.authentication.delay.ms", _SECURITY),
    ("*.threads", _LOOP),
    ("alter.log.dirs.replication.quota.window.*", _WINDOW),
    ("num.recovery.threads.per.data.dir", _LOOP),
    ("group.coordinator.cached.buffer.max.bytes", "the group coordinator keeps no buffers between writes"),
    ("group.coordinator.append.linger.ms", "commits that arrive together are written together, without waiting"),
    ("group.coordinator.rebalance.protocols", _NEW_GROUPS),
    ("offsets.load.buffer.size", "the offsets log is read a batch at a time, whatever its size"),
    ("queued.max.requests", "requests are handled as they are read: there is no queue between"),
    ("socket.connection.setup.timeout*", _CHANNELS),
    ("*purgatory.purge.interval.requests", _PURGATORY),
    ("group.consumer.*", _NEW_GROUPS),
    ("group.share.*", _NEW_GROUPS),
    ("group.streams.*", _NEW_GROUPS),
    ("share.coordinator.*", _NEW_GROUPS),
    ("transaction*", _TRANSACTIONS),
    ("add.partitions.to.txn.*", _TRANSACTIONS),
    ("metric*", _METRICS),
    ("kafka.metrics.*", _METRICS),
    ("replication.quota.window.*", _WINDOW),
    ("log.cleaner.*", _CLEANER),
    ("replica.socket.*", _CHANNELS),
    ("controller.socket.timeout.ms", _CHANNELS),
    ("controlled.shutdown.enable", "a broker always hands over its partitions before it stops"),
    ("controller.performance.*", "slow controller operations are not logged one by one"),
    ("leader.imbalance.*", "leadership is balanced at the interval alone, as in Kafka's KRaft mode"),
    (
        "log.flush.offset.checkpoint.interval.ms",
        "recovery points are written when logs are flushed, and at a clean stop",
    ),
    ("log.flush.start.offset.checkpoint.interval.ms", "log start offsets are written when they move"),
    (
        "log.dir.failure.timeout.ms",
        "a broker tells of a failed log directory with its next heartbeat, and until one is heard",
    ),
    ("server.max.startup.time.ms", "a start takes no longer than the tails of the logs"),
    ("unstable.*", "only released versions are served"),
    ("config.providers", "values are taken as they are written"),
    ("*.policy.class.name", _JAVA),
    ("client.quota.callback.class", _JAVA),
    ("preallocate", "segment files grow as they are written"),
    ("log.preallocate", "segment files grow as they are written"),
    ("internal.*", "internal to Kafka's own tests"),
    ("*", "nothing here depends on it"),
)
"""Pattern and reason; read from the top."""

READ_ONCE: Final = frozenset({"listeners", "listener.security.protocol.map"})
"""Keys that act and that Kafka takes while it runs; here at the next start."""

EFFECTS: Final = ACTING
"""The keys of `server.properties` that act."""


def reason(name: str) -> str | None:
    """Why the key has no effect; None for one that acts."""
    if name in ACTING:
        return None
    return next(text for pattern, text in WITHOUT_EFFECT if fnmatchcase(name, pattern))


def _given(name: str) -> Callable[[NodeConfig], bool]:
    def is_given(config: NodeConfig) -> bool:
        return bool(config.value(name))

    return is_given


UNSAFE_TO_IGNORE: Final[dict[str, tuple[Callable[[NodeConfig], bool], str]]] = {
    "create.topic.policy.class.name": (_given("create.topic.policy.class.name"), "topics would be made against it"),
    "alter.config.policy.class.name": (_given("alter.config.policy.class.name"), "configs would change against it"),
    "client.quota.callback.class": (_given("client.quota.callback.class"), "clients would run without their quotas"),
    "config.providers": (_given("config.providers"), "values such as ${file:…} would be taken literally"),
    "remote.log.storage.system.enable": (_given("remote.log.storage.system.enable"), "data would stay on local disks"),
}
"""Keys that must not be passed over in silence: when the given value matters, and what would go wrong."""


def refusals(config: NodeConfig) -> list[str]:
    """A sentence for each given value that this node can neither honour nor safely ignore."""
    return [
        f"{name}={config.texts[name]} is not possible here: {reason(name)}, and {harm}"
        for name, (matters, harm) in UNSAFE_TO_IGNORE.items()
        if name in config.texts and matters(config)
    ]
