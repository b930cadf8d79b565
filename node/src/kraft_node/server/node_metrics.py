"""What the parts of a node can tell, under the names of Kafka's metrics (kafka.server, kafka.controller, kafka.log).

Everything is read when somebody asks; nothing here costs a request anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.version import COMPATIBLE_KAFKA_VERSION, VERSION
from kraft_node.metadata.features import METADATA_VERSION

if TYPE_CHECKING:
    from kraft_node.server.metrics import Family, Registry, Sample
    from kraft_node.server.node import Node

NO_LABELS: Final = ()


def _one(name: str, value: float, kind: str = "gauge") -> Family:
    return name, kind, ((NO_LABELS, float(value)),)


class NodeMetrics:
    """Collects from one node's parts; those that are not there (yet) are left out."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def register(self, registry: Registry) -> None:
        """Have everything printed by `registry`."""
        clock = self._node.env.clock
        registry.register(lambda: self._node.metrics.collect(clock.monotonic_ms()))
        for collect in (self._server, self._sockets, self._raft, self._controller):
            registry.register(collect)
        for collect in (self._broker, self._topics, self._logs):
            registry.register(collect)

    def _server(self) -> Iterable[Family]:
        node = self._node
        version = (("kafka", COMPATIBLE_KAFKA_VERSION), ("version", VERSION))
        yield "kafka_server_app_info", "gauge", ((version, 1.0),)
        state = 0 if node.broker is None else int(node.broker.state)
        yield _one("kafka_server_kafkaserver_brokerstate", state)

    def _sockets(self) -> Iterable[Family]:
        listeners = self._node.listeners

        def per(read: Any) -> list[Sample]:
            return [((("listener", one.name),), float(read(one))) for one in listeners]

        prefix = "kafka_server_socket_server_metrics_"
        yield prefix + "connection_count", "gauge", per(lambda one: len(one.connections))
        yield prefix + "connection_creation_total", "counter", per(lambda one: one.accepted)
        yield prefix + "refusals_total", "counter", per(lambda one: one.refusals)

    def _raft(self) -> Iterable[Family]:
        raft = self._node.raft
        if raft is None or not self._node.raft_started:
            return
        prefix = "kafka_server_raft_metrics_"
        yield _one(prefix + "current_leader", raft.leader_id)
        yield _one(prefix + "current_epoch", raft.epoch)
        yield _one(prefix + "high_watermark", raft.high_watermark)
        yield _one(prefix + "log_end_offset", raft.next_offset)
        yield _one("kafka_server_broker_metadata_metrics_last_applied_record_offset", raft.image.offset)

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
        yield _one(prefix + "lastappliedrecordoffset", image.offset)
        yield _one("kafka_server_metadataloader_currentmetadataversion", image.features.get(METADATA_VERSION) or 0)

    def _broker(self) -> Iterable[Family]:
        broker = self._node.broker
        if broker is None:
            return
        leaders = sum(1 for partition in broker.replicas.opened() if partition.is_leader)
        yield _one("kafka_server_replicamanager_partitioncount", len(broker.replicas))
        yield _one("kafka_server_replicamanager_leadercount", leaders)
        small = sum(1 for p in broker.replicas.opened() if p.is_leader and len(p.isr) < len(p.replicas))
        yield _one("kafka_server_replicamanager_underreplicatedpartitions", small)

    def _topics(self) -> Iterable[Family]:
        """kafka.server:type=BrokerTopicMetrics, of the replicas opened since the start."""
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
            samples = [((("topic", topic),), float(row[place])) for topic, row in sums.items()]
            yield f"kafka_server_brokertopicmetrics_{what}_total", "counter", samples

    def _logs(self) -> Iterable[Family]:
        broker = self._node.broker
        if broker is None:
            return
        sizes: list[Sample] = []
        starts: list[Sample] = []
        ends: list[Sample] = []
        for partition in broker.replicas.opened():
            labels = (("topic", partition.topic), ("partition", str(partition.index)))
            log: Any = partition.log
            sizes.append((labels, float(log.size_bytes)))
            starts.append((labels, float(log.start_offset)))
            ends.append((labels, float(log.end_offset)))
        yield "kafka_log_log_size", "gauge", sizes
        yield "kafka_log_log_logstartoffset", "gauge", starts
        yield "kafka_log_log_logendoffset", "gauge", ends
