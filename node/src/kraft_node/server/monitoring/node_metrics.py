"""The metrics of the node's parts, under the names of Kafka's metrics (kafka.server, kafka.controller, kafka.log).

Names and labels are as jmx_exporter prints them with the rules of Strimzi's kafka-metrics.yaml, which many dashboards
and alerts use. Tests compare them with the JMX beans of a running Apache Kafka. Everything is computed on reading;
nothing here costs time in requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.version import COMPATIBLE_KAFKA_VERSION, VERSION
from kraft_node.metadata.features import METADATA_VERSION
from kraft_node.metadata.kinds.zk_migration import MIGRATION
from kraft_node.server.monitoring.security_metrics import labels_of, security_metrics

if TYPE_CHECKING:
    from kraft_node.base.env import Clock
    from kraft_node.log.compaction.cleaner import Cleaner
    from kraft_node.log.manager.directory import Directory
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.server.monitoring.metrics import Family, MetricsRegistry, Sample
    from kraft_node.server.parts import NodeParts

NO_LABELS: Final = ()


def _one(name: str, value: float, kind: str = "gauge") -> Family:
    return name, kind, ((NO_LABELS, float(value)),)


DUAL: Final = 2
KRAFT: Final = 3
"""MetadataType of KIP-866."""


def _cleaner(cleaner: Cleaner, directories: Iterable[Directory], clock: Clock) -> Iterator[Family]:
    """Kafka's LogCleaner and LogCleanerManager."""
    figures, uncleanable = cleaner.figures, [log.dir.path for log in cleaner.uncleanable.values()]
    paths = [one.path for one in directories]
    prefix = "kafka_log_logcleanermanager_"
    counts = [((("logDirectory", path),), float(uncleanable.count(path))) for path in paths]
    sizes = [((("logDirectory", path),), float(cleaner.uncleanable_bytes(path))) for path in paths]
    yield prefix + "uncleanable_partitions_count", "gauge", counts
    yield prefix + "uncleanable_bytes", "gauge", sizes
    yield _one(prefix + "max_dirty_percent", int(100 * figures.max_dirty_ratio))
    yield _one(prefix + "time_since_last_run_ms", clock.monotonic_ms() - figures.last_run_ms)
    prefix = "kafka_log_logcleaner_"
    yield _one(prefix + "max_clean_time_secs", figures.max_clean_time_secs)
    yield _one(prefix + "max_compaction_delay_secs", figures.max_delay_ms // 1000)
    yield _one(prefix + "max_buffer_utilization_percent", figures.max_buffer_utilization_percent)
    yield _one(prefix + "cleaner_recopy_percent", figures.recopy_percent)
    yield _one(prefix + "deadthreadcount", 0)  # a failed pass does not end its lane


class NodeMetrics:
    """Collects from one node's parts; missing parts are left out."""

    def __init__(self, node: NodeParts) -> None:
        self._node = node

    def register(self, registry: MetricsRegistry) -> None:
        """Register all collectors at `registry`."""
        clock = self._node.env.clock
        registry.register(lambda: self._node.metrics.collect(clock.monotonic_ms()))
        broker = (self._broker, self._topics, self._logs, self._directories, self._groups)
        for collect in (self._server, self._loop, self._sockets, self._raft, self._metadata, self._controller, *broker):
            registry.register(collect)

    def _server(self) -> Iterable[Family]:
        node = self._node
        version = (("kafka", COMPATIBLE_KAFKA_VERSION), ("version", VERSION))
        yield "kraft_server_info", "gauge", ((version, 1.0),)
        state = 0 if node.broker is None else int(node.broker.state)
        yield _one("kafka_server_kafkaserver_brokerstate", state)

    def _loop(self) -> Iterable[Family]:
        """The histogram of loop turns in Prometheus' form: turns up to each bound."""
        lag = self._node.env.lag
        if lag is None:
            return
        name = "kraft_event_loop_lag_seconds"
        yield f"{name}_bucket", "counter", [((("le", bound),), float(count)) for bound, count in lag.cumulative()]
        yield _one(f"{name}_sum", lag.total_s, "counter")
        yield _one(f"{name}_count", lag.count, "counter")
        yield _one("kraft_event_loop_slow_callbacks_total", lag.slow_callbacks, "counter")

    def _sockets(self) -> Iterable[Family]:
        listeners = self._node.listeners

        def per(read: Any) -> list[Sample]:
            return [(labels_of(one), float(read(one))) for one in listeners]

        prefix = "kafka_server_socket_server_metrics_"
        yield prefix + "connection_count", "gauge", per(lambda one: len(one.connections))
        yield prefix + "connection_creation_total", "counter", per(lambda one: one.accepted)
        yield "kraft_server_connection_refusals_total", "counter", per(lambda one: one.refusals)
        now_ms = self._node.env.clock.monotonic_ms()
        yield from security_metrics(listeners, self._node.security.sasl, now_ms)
        if (tls := self._node.security.tls) is not None:
            served = {one.name: one.security.tls for one in listeners if one.security.tls is not None}
            names = [(name, (("listener", name),)) for name in served]
            done = [(labels, float(served[name].counts.succeeded.total)) for name, labels in names]
            yield "kraft_tls_handshakes_total", "counter", done
            failed = [(labels, float(served[name].counts.failed.total)) for name, labels in names]
            yield "kraft_tls_handshake_failures_total", "counter", failed
            yield _one("kraft_tls_handshakes_unfinished", tls.unfinished)
            closed = [((("reason", reason),), float(count)) for reason, count in tls.abandoned.items()]
            yield "kraft_tls_handshakes_abandoned_total", "counter", closed
            yield _one("kraft_tls_certificate_exchanges_total", tls.reloads, "counter")

    def _raft(self) -> Iterable[Family]:
        raft = self._node.raft
        if raft is None or not self._node.raft_started:
            return
        core = raft.node
        prefix = "kafka_server_raftmetrics_"
        vote = core.state.voted.id
        role = core.role.role.value
        if role == "follower" and not core.is_voter:
            role = "observer"  # Kafka also reports observer as a state
        yield prefix + "current_state", "gauge", (((("current_state", role),), 1.0),)
        yield _one(prefix + "current_leader", raft.leader_id)
        yield _one(prefix + "current_epoch", raft.epoch)
        yield _one(prefix + "current_vote", vote)
        yield _one(prefix + "high_watermark", raft.high_watermark)
        yield _one(prefix + "log_end_offset", raft.next_offset)
        yield _one(prefix + "log_end_epoch", core.log.last_epoch)
        yield _one(prefix + "number_of_voters", len(raft.voters))
        lags = [((("replica", str(replica)),), float(lag)) for replica, lag in raft.snapshot_lags.by_replica().items()]
        if lags:
            yield "kraft_replica_snapshot_lag", "gauge", lags
        prefix = "kafka_server_brokermetadatametrics_"
        yield _one(prefix + "last_applied_record_offset", raft.applied_offset - 1)

    def _metadata(self) -> Iterable[Family]:
        """The five metrics of KIP-631 that Kafka never released, under the names of the KIP."""
        node, raft = self._node, self._node.raft
        if raft is None or not node.raft_started:
            return
        lag = max(0, raft.high_watermark - raft.applied_offset)
        if node.broker is not None:
            yield _one("kafka_controller_kafkaserver_metadatalag", lag)
        if node.controller is None:
            return
        prefix = "kafka_controller_kafkacontroller_"
        yield _one(prefix + "metadatalag", lag)
        times = raft.commit_times
        times.latency_ms.turn(node.env.clock.monotonic_ms())
        quantiles = [((("quantile", name),), float(value)) for name, value in times.latency_ms.quantiles()]
        yield prefix + "metadatacommitlatencyms", "gauge", quantiles
        yield _one(prefix + "metadatacommitlatencyms_count", times.latency_ms.count, "counter")
        yield _one(prefix + "metadatacommitrate_total", times.committed, "counter")
        latest = raft.node.log.latest_snapshot
        end = 0 if latest is None else latest.end_offset
        yield _one(prefix + "metadatasnapshotoffsetlag", max(0, raft.high_watermark - end))

    def _controller(self) -> Iterable[Family]:
        controller, raft = self._node.controller, self._node.raft
        if controller is None or raft is None:
            return
        image = raft.image
        prefix = "kafka_controller_kafkacontroller_"
        yield _one(prefix + "activecontrollercount", 1 if controller.is_active else 0)
        brokers = list(image.brokers.values())
        fenced = sum(1 for broker in brokers if broker.fenced)
        yield _one(prefix + "activebrokercount", len(brokers) - fenced)
        yield _one(prefix + "fencedbrokercount", fenced)
        yield _one(prefix + "globaltopiccount", len(image.topics))
        yield _one(prefix + "globalpartitioncount", image.topics.partition_count)
        offline = sum(1 for t in image.topics for number in range(len(t)) if t.leader(number) < 0)
        yield _one(prefix + "offlinepartitionscount", offline)
        yield _one(prefix + "preferredreplicaimbalancecount", self._imbalanced(image))
        yield _one(prefix + "metadataerrorcount", self._node.faults.counted)
        yield _one(prefix + "lastappliedrecordoffset", raft.applied_offset - 1)
        yield _one(prefix + "lastcommittedrecordoffset", raft.high_watermark - 1)
        levels = [((("feature", name),), float(level)) for name, level in sorted(image.features.items())]
        yield prefix + "features", "gauge", levels  # KIP-866
        yield _one("kraft_migration_key_missing", controller.migration.missing_key is not None)
        yield _one("kafka_server_metadataloader_currentmetadataversion", image.features.get(METADATA_VERSION) or 0)

    @staticmethod
    def _imbalanced(image: MetadataImage) -> int:
        """Partitions that are not led by their preferred replica."""
        return sum(
            1
            for topic in image.topics
            for number, state in topic.partitions()
            if topic.leader(number) != state.preferred_leader
        )

    def _broker(self) -> Iterable[Family]:
        broker = self._node.broker
        if broker is None:
            return
        image = broker.image
        leaders = small = under = at = moving = 0
        for topic, number in image.topics.led_by(broker.node_id):
            state = topic.partition(number)
            assert state is not None, "law: a led partition exists"
            leaders += 1
            small += len(state.isr) < len(state.replicas)
            moving += state.is_reassigning
        for partition in broker.replicas.opened():
            if partition.is_leader:
                under += len(partition.isr) < partition.min_isr
                at += len(partition.isr) == partition.min_isr
        yield _one("kafka_server_kafkaserver_metadatatype", DUAL if image.zk_migration_state == MIGRATION else KRAFT)
        yield _one("kraft_broker_self_fenced", broker.fence.fenced)  # KIP-343
        yield _one("kraft_broker_self_fencings_total", broker.fence.times, "counter")
        prefix = "kafka_server_replicamanager_"
        yield _one(prefix + "partitioncount", len(broker.replicas))
        yield _one(prefix + "leadercount", leaders)
        yield _one(prefix + "underreplicatedpartitions", small)
        yield _one(prefix + "underminisrpartitioncount", under)
        yield _one(prefix + "atminisrpartitioncount", at)
        yield _one(prefix + "reassigningpartitions", moving)

    def _directories(self) -> Iterable[Family]:
        storage = self._node.storage
        if storage is None:
            return
        offline = [((("logDirectory", one.path),), 0.0 if one.online else 1.0) for one in storage.logs.directories]
        yield _one("kafka_log_logmanager_offlinelogdirectorycount", sum(value for _, value in offline))
        yield "kafka_log_logmanager_logdirectoryoffline", "gauge", offline
        cordoned = [((("logDirectory", one.path),), float(one.cordoned)) for one in storage.logs.directories]
        yield _one("kafka_log_logmanager_cordonedlogdirectorycount", sum(value for _, value in cordoned))
        yield "kafka_log_logmanager_logdirectorycordoned", "gauge", cordoned
        yield from _cleaner(storage.logs.housekeeping.cleaner, storage.logs.directories, self._node.env.clock)
        quarantined = [
            ((("logDirectory", one.path), ("partition", str(partition)), ("topic", topic)), 1.0)
            for one in storage.logs.directories
            for topic, partition in one.quarantined
        ]
        yield _one("kraft_quarantined_replica_count", len(quarantined))
        if quarantined:
            yield "kraft_quarantined_replica", "gauge", quarantined

    def _groups(self) -> Iterable[Family]:
        broker = self._node.broker
        if broker is None:
            return
        from kraft_node.broker.coordinators.group.consumer.group import GroupState  # noqa: PLC0415  (only brokers)
        from kraft_node.server.monitoring.coordinator_metrics import runtime_metrics  # noqa: PLC0415

        now_ms = self._node.env.clock.monotonic_ms()
        yield from runtime_metrics("group", broker.groups.runtime, now_ms)
        transactions = broker.transactions
        yield from runtime_metrics("transaction", transactions.runtime, now_ms)
        prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
        yield _one(prefix + "unknowndestinationqueuesize", transactions.sender.without_leader)
        yield _one(prefix + "logappendretryqueuesize", transactions.waiting_completions)

        states: dict[str, int] = {"preparingrebalance": 0, "completingrebalance": 0, "stable": 0, "dead": 0, "empty": 0}
        of_consumers = {state.value.lower(): 0 for state in GroupState}
        offsets = 0
        for shard in broker.groups.shards.values():
            offsets += shard.offsets.count
            for group in shard.groups.values():
                states[group.state.value.lower()] += 1
            for consumer_group in shard.consumers.values():
                of_consumers[consumer_group.state.value.lower()] += 1
        prefix = "kafka_coordinator_group_groupmetadatamanager_"
        yield _one(prefix + "numgroups", sum(states.values()))
        for state, count in states.items():
            yield _one(prefix + "numgroups" + state, count)
        yield _one(prefix + "numoffsets", offsets)
        prefix = "kafka_server_group_coordinator_metrics_"
        counts = (("classic", sum(states.values())), ("consumer", sum(of_consumers.values())))
        yield prefix + "group_count", "gauge", [((("protocol", name),), float(count)) for name, count in counts]
        by_state = [((("state", state),), float(count)) for state, count in of_consumers.items()]
        yield prefix + "consumer_group_count", "gauge", by_state
        rebalances = ((NO_LABELS, float(broker.groups.services.rebalances)),)
        yield prefix + "consumer_group_rebalance_count", "counter", list(rebalances)
        failures = [(NO_LABELS, float(broker.groups.services.assignor_failures))]
        yield "kraft_group_assignor_failures_total", "counter", failures

    def _topics(self) -> Iterable[Family]:
        """kafka.server:type=BrokerTopicMetrics, for the replicas opened since the start."""
        broker = self._node.broker
        if broker is None:
            return
        sums: dict[str, list[int]] = {}
        for partition in broker.replicas.opened():
            row = sums.setdefault(partition.topic, [0, 0, 0])
            row[0] += partition.messages_in
            row[1] += partition.bytes_in
            row[2] += partition.bytes_out
        for place, what in enumerate(("messagesin", "bytesin", "bytesout")):
            samples: list[Sample] = [((("topic", topic),), float(row[place])) for topic, row in sums.items()]
            samples.append((NO_LABELS, float(sum(row[place] for row in sums.values()))))
            yield f"kafka_server_brokertopicmetrics_{what}_total", "counter", samples

    def _logs(self) -> Iterable[Family]:
        broker = self._node.broker
        if broker is None:
            return
        sizes: list[Sample] = []
        starts: list[Sample] = []
        ends: list[Sample] = []
        segments: list[Sample] = []
        for partition in broker.replicas.opened():
            labels = (("topic", partition.topic), ("partition", str(partition.index)))
            log: Any = partition.log
            sizes.append((labels, float(log.size_bytes)))
            starts.append((labels, float(log.start_offset)))
            ends.append((labels, float(log.end_offset)))
            segments.append((labels, float(len(log.segment_bases))))
        yield "kafka_log_log_size", "gauge", sizes
        yield "kafka_log_log_logstartoffset", "gauge", starts
        yield "kafka_log_log_logendoffset", "gauge", ends
        yield "kafka_log_log_numlogsegments", "gauge", segments
