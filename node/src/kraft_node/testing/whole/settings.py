"""An operator who changes configurations of topics, brokers and groups while clients work.

Laws, after all faults and once all brokers have all metadata:

- `setting`  each broker describes every configuration with the last acknowledged value, or with a value whose request
  got no answer
- `applied`  each open log, and each copy of it in another directory, works with the present configuration of its topic
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft_node.testing.whole.operators import ChangesOperator, Remembered
from kraft_node.testing.workloads.session import BOOTSTRAP, PAUSE_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster, SimMachine

ALTER, DESCRIBE = 1, 4
"""API versions."""
CHANGES_MS: Final = 500.0
TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of resources."""
SET, DELETE = 0, 1
SOURCES: Final = {TOPIC: (1,), BROKER: (2, 3), GROUP: (8,)}
"""The sources of a described value that was set: of the topic, of the broker or of all brokers, of the group."""
Values = tuple[str | None, ...]
"""None: the default."""

OF_TOPICS: Final[dict[str, Values]] = {
    "min.insync.replicas": ("1", "2", None),
    "internal.segment.bytes": ("300", "2000", None),
    "segment.ms": ("300", "2000", None),
    "flush.messages": ("1", "3", None),
    "flush.ms": ("500", None),
    "compression.type": ("gzip", "zstd", "lz4", "snappy", "uncompressed", None),
    "index.interval.bytes": ("100", None),
    "message.timestamp.type": ("LogAppendTime", None),
    "file.delete.delay.ms": ("0", "2000", None),
    "retention.bytes": ("100000000", None),
    "max.message.bytes": ("200000", None),
    "leader.replication.throttled.replicas": ("*", None),
    "follower.replication.throttled.replicas": ("*", None),
}
OF_BROKERS: Final[dict[str, Values]] = {
    "leader.replication.throttled.rate": ("3000", "100000", None),
    "follower.replication.throttled.rate": ("3000", "100000", None),
    "replica.alter.log.dirs.io.max.bytes.per.second": ("2000", "100000", None),
    "log.cleaner.threads": ("1", "2", None),
    "num.replica.fetchers": ("1", "2", None),
    "num.io.threads": ("4", "8", None),
    "background.threads": ("5", "10", None),
    "log.cleaner.backoff.ms": ("300", "2000", None),
    "message.max.bytes": ("500000", None),
}
OF_GROUPS: Final[dict[str, Values]] = {
    "consumer.session.timeout.ms": ("1500", "4000", None),
    "consumer.heartbeat.interval.ms": ("200", "500", None),
}


class Setting(NamedTuple):
    """One configuration of one resource."""

    kind: int
    resource: str
    name: str


class SettingsOperator(ChangesOperator):
    """Sets and removes configurations; in the end it removes all of them."""

    def __init__(
        self,
        cluster: SimCluster,
        checker: Checker,
        name: str,
        rng: random.Random,
        topics: Sequence[str],
        groups: Sequence[str],
    ) -> None:
        super().__init__(cluster, name, rng, CHANGES_MS)
        self._checker = checker
        brokers = ["", *(str(machine.config.node_id) for machine in cluster.brokers)]
        self._resources = [(TOPIC, topic) for topic in topics] + [(BROKER, broker) for broker in brokers]
        self._resources += [(GROUP, group) for group in groups]
        self._known: Remembered[Setting, str | None] = Remembered()

    async def change(self) -> None:
        """Set or remove one configuration."""
        kind, resource = self._rng.choice(self._resources)
        names = {TOPIC: OF_TOPICS, BROKER: OF_BROKERS, GROUP: OF_GROUPS}[kind]
        name = self._rng.choice(sorted(names))
        setting, value = Setting(kind, resource, name), self._rng.choice(names[name])
        self._known.sent(setting, value)
        code = await self._alter(setting, value)
        self._answered(setting, value, code)

    async def _alter(self, setting: Setting, value: str | None) -> ErrorCode | None:
        node = BOOTSTRAP
        if setting.kind == BROKER and setting.resource:
            node = int(setting.resource)
            await self.session.refresh([])
            if not self.session.knows(node):
                return None
        answer = await self.session.request(node, ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER, _request(setting, value))
        return None if answer is None else ErrorCode(answer.responses[0].error_code)

    def _answered(self, setting: Setting, value: str | None, code: ErrorCode | None) -> None:
        where = f"{setting.name} of {setting.resource or 'all brokers'}"
        self.session.note(f"{where} to {value}: {'no answer' if code is None else code.name}")
        if code is not None:
            self.session.expect(
                code, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=where,
            )  # fmt: skip
            self.changes += code == ErrorCode.NONE
        self._known.answered(setting, value, code)

    async def restore(self) -> None:
        """Remove all configurations that were ever requested."""
        for setting in self._known.requested():
            code = None
            while code != ErrorCode.NONE:
                self._known.sent(setting, None)
                code = await self._alter(setting, None)
                self._answered(setting, None, code)
                if code != ErrorCode.NONE:
                    await self.session.sleep(PAUSE_MS)

    async def judge(self) -> None:
        """Describe all configurations at every broker."""
        for node in await self.broker_ids():
            settings = [
                each for each in self._known.requested() if each.kind != BROKER or each.resource in ("", str(node))
            ]
            for setting in settings:
                found = await self._described(node, setting)
                if not self._known.may_be(setting, found, None):
                    text = f"{setting} is {found!r} at broker {node}, not {self._known.sure.get(setting)!r}"
                    self._checker.broken("setting", "cluster", text)

    async def _described(self, node: int, setting: Setting) -> str | None:
        """The value that was set, None without one."""
        resource = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=setting.kind, resource_name=setting.resource, configuration_keys=[setting.name]
        )
        request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        answer: Any = None
        while answer is None:
            answer = await self.session.request(node, ApiKey.DESCRIBE_CONFIGS, DESCRIBE, request)
            if answer is None:
                await self.session.sleep(PAUSE_MS)
        result = answer.results[0]
        self.session.expect(result.error_code, ErrorCode.NONE, what=f"describe {setting}")
        sources = SOURCES[setting.kind] if setting.kind != BROKER else ((2,) if setting.resource else (3,))
        values = [
            synonym.value
            for row in result.configs
            if row.name == setting.name
            for synonym in row.synonyms
            if synonym.source in sources
        ]
        return values[0] if values else None


def _request(setting: Setting, value: str | None) -> Any:
    request = m.IncrementalAlterConfigsRequest
    row = request.AlterableConfig(name=setting.name, config_operation=DELETE if value is None else SET, value=value)
    resource = request.AlterConfigsResource(resource_type=setting.kind, resource_name=setting.resource, configs=[row])
    return request(resources=[resource], validate_only=False)


def unapplied(machine: SimMachine) -> str | None:
    """A log of the broker that does not have its topic's configuration; None if all have."""
    node = machine.node
    if node is None or node.broker is None:
        return None
    broker = node.broker
    logs = [partition.log for partition in broker.replicas.opened()]
    for log in [*logs, *broker.logs.futures.logs()]:
        if vars_of(log.config) != vars_of(broker.topic_config(log.topic)):
            return (
                f"the log of {log.topic}-{log.partition} of {machine.name} in {log.dir.path} has an old configuration"
            )
    return None


def vars_of(config: Any) -> dict[str, Any]:
    """The values of a topic configuration."""
    return {name: getattr(config, name) for name in sorted(_names(config))}


def _names(config: Any) -> set[str]:
    slots = {name for kind in type(config).__mro__ for name in getattr(kind, "__slots__", ())}
    return slots | set(getattr(config, "__dict__", {}))


__all__ = ["SettingsOperator", "unapplied"]
