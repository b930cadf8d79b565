"""/metrics beside a running Apache Kafka's JMX beans, named by the rules of Strimzi's kafka-metrics.yaml."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka import Consumer, Producer

from tests.compat.targets import Target, free_ports
from tests.peer import run_java

CLIENT = "Metrics beside Apache Kafka's"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("rough-metrics")]

JMX_NAMES = Path(__file__).parents[2] / "java" / "JmxNames.java"
OWN = "kraft_"
"""What Kafka has no name for begins so, except the process_ family that every Prometheus client knows."""
NEVER_RELEASED = (
    "kafka_controller_kafkaserver_metadatalag",
    "kafka_controller_kafkacontroller_metadatalag",
    "kafka_controller_kafkacontroller_metadatacommitlatencyms",
    "kafka_controller_kafkacontroller_metadatacommitrate_total",
    "kafka_controller_kafkacontroller_metadatasnapshotoffsetlag",
)
"""The five of KIP-631, under the names of the draft (tests/kip/test_kip_631_metrics.py)."""
OF_MIGRATIONS = ("kafka_controller_kafkacontroller_features", "kafka_server_kafkaserver_metadatatype")
"""Of KIP-866: no release has the first; brokers of Kafka 3.9 have the second, and Kafka 4.0 removed it together with
ZooKeeper."""

Labels: TypeAlias = frozenset[tuple[str, str]]
Metrics: TypeAlias = dict[tuple[str, Labels], float]

RAFT = "kafka_server_raftmetrics_"


COORDINATORS = ("kafka_server_group-coordinator-metrics_", "kafka_server_transaction-coordinator-metrics_")


def by_rules(text: str) -> Metrics:
    """The samples that jmx_exporter would print for the beans in `text` (JmxNames.java)."""
    found: Metrics = {}
    for line in text.splitlines():
        bean, *attributes = line.split("\t")
        domain, _, keys = bean.partition(":")
        properties = dict(re.findall(r'([^=,]+)=("[^"]*"|[^,]*)', keys))
        prefix = f"{domain.replace('.', '_')}_{properties.pop('type')}_"
        name = properties.pop("name", None)
        labels = {key: value.strip('"') for key, value in properties.items()}
        for attribute in attributes:
            key, _, value = attribute.partition("=")
            if key == "connections" and "cipher" in labels:
                key = "connections-tls-info"
            elif key == "connections" and "clientSoftwareName" in labels:
                key = "connections-software"
            for sample in _samples(prefix, name, key, value):
                number = _number(sample[2])
                if number is not None:
                    found[sample[0].replace("-", "_").lower(), frozenset({**labels, **sample[1]}.items())] = number
    return found


def _samples(prefix: str, name: str | None, key: str, value: str) -> Iterator[tuple[str, dict[str, str], str]]:
    if name is None:
        if prefix == "kafka_server_raft-metrics_":
            yield (RAFT + key, {"current_state": value}, "1") if key == "current-state" else (RAFT + key, {}, value)
        elif prefix == "kafka_server_broker-metadata-metrics_":
            yield "kafka_server_brokermetadatametrics_" + key, {}, value
        elif prefix == "kafka_server_socket-server-metrics_":
            yield "kafka_server_socket_server_metrics_" + key, {}, value
        elif prefix in COORDINATORS:
            # A rate is printed as the counter that it is made of.
            yield prefix + key.replace("-rate", "-rate_total"), {}, value
    elif key == "Value":
        yield prefix + name, {}, value
    elif key == "Count":
        yield (
            prefix + (name.removesuffix("PerSec") + "_total" if name.endswith("PerSec") else name + "_count"),
            {},
            value,
        )
    elif match := re.fullmatch(r"(\d+)thPercentile", key):
        yield prefix + name, {"quantile": f"0.{match[1]}"}, value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def printed(port: int) -> Metrics:
    """The samples that our node prints."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Metrics = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            found[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or ""))] = float(value)
    return found


def work(target: Target) -> None:
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for _ in range(50):
        producer.produce("measured", b"x" * 100)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["measured"])
    seen = 0
    for _ in range(60):
        seen += len(consumer.consume(50, 0.5))
        if seen == 50:
            break
    assert seen == 50
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Metrics, Metrics]]:
    """Our samples and Kafka's after the same work."""
    from tests.compat.targets import Apache, Ours

    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("metrics")
    ours = Ours("ours", folder / "ours", {"http.listener": f"127.0.0.1:{port}"})
    kafka = Apache("apache", folder / "apache")
    try:
        kafka.start()
        ours.start()
        work(ours)
        work(kafka)
        assert kafka.process is not None
        beans = run_java(str(JMX_NAMES), str(kafka.process.pid)).stdout.decode()
        yield printed(port), by_rules(beans)
    finally:
        ours.kill()
        kafka.kill()


def shapes(metrics: Metrics) -> set[tuple[str, tuple[str, ...]]]:
    return {(name, tuple(sorted(key for key, _ in labels))) for name, labels in metrics}


def test_every_metric_has_a_name_of_kafka(both: tuple[Metrics, Metrics]) -> None:
    ours, kafka = (shapes(metrics) for metrics in both)
    claimed = {shape for shape in ours if not shape[0].startswith((OWN, "process_", *NEVER_RELEASED, *OF_MIGRATIONS))}
    # Both of our coordinators run on one runtime and print its metrics; Kafka's runs the group coordinator alone.
    named = {(name.replace("_transaction_coordinator_", "_group_coordinator_"), labels) for name, labels in claimed}
    assert sorted(named - kafka) == []
    assert len({name for name, _ in claimed}) >= 40


def test_all_metrics_of_kafkas_cleaner_exist(both: tuple[Metrics, Metrics]) -> None:
    ours, kafka = ({shape for shape in shapes(metrics) if "_logcleaner" in shape[0]} for metrics in both)
    assert ours == kafka
    assert len(ours) == 9


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("kafka_controller_kafkacontroller_activecontrollercount", {}),
        ("kafka_controller_kafkacontroller_activebrokercount", {}),
        ("kafka_controller_kafkacontroller_fencedbrokercount", {}),
        ("kafka_controller_kafkacontroller_globaltopiccount", {}),
        ("kafka_controller_kafkacontroller_globalpartitioncount", {}),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", {}),
        ("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", {}),
        ("kafka_log_log_logendoffset", {"topic": "measured", "partition": "0"}),
        ("kafka_log_log_logstartoffset", {"topic": "measured", "partition": "0"}),
        ("kafka_log_log_numlogsegments", {"topic": "measured", "partition": "0"}),
        ("kafka_log_logcleaner_deadthreadcount", {}),
        ("kafka_log_logcleaner_max_buffer_utilization_percent", {}),
        ("kafka_log_logcleaner_max_compaction_delay_secs", {}),
        ("kafka_log_logcleanermanager_max_dirty_percent", {}),
        ("kafka_log_logmanager_offlinelogdirectorycount", {}),
        ("kafka_server_brokertopicmetrics_messagesin_total", {"topic": "measured"}),
        ("kafka_server_kafkaserver_brokerstate", {}),
        ("kafka_server_metadataloader_currentmetadataversion", {}),
        ("kafka_server_replicamanager_leadercount", {}),
        ("kafka_server_replicamanager_partitioncount", {}),
        ("kafka_server_replicamanager_reassigningpartitions", {}),
        ("kafka_server_replicamanager_underminisrpartitioncount", {}),
        ("kafka_server_replicamanager_underreplicatedpartitions", {}),
        (RAFT + "current_state", {"current_state": "leader"}),
        (RAFT + "current_leader", {}),
        (RAFT + "current_epoch", {}),
        (RAFT + "current_vote", {}),
        (RAFT + "log_end_epoch", {}),
        (RAFT + "number_of_voters", {}),
    ],
)
def test_the_same_work_gives_the_same_values(both: tuple[Metrics, Metrics], name: str, labels: dict[str, str]) -> None:
    ours, kafka = both
    key = (name, frozenset(labels.items()))
    assert ours[key] == kafka[key]


@pytest.mark.parametrize(
    "name",
    ["brokermetadatametrics_last_applied_record_offset", "raftmetrics_high_watermark", "raftmetrics_log_end_offset"],
)
def test_offsets_of_the_metadata_log_have_the_same_relations(both: tuple[Metrics, Metrics], name: str) -> None:
    for metrics in both:
        end = metrics[RAFT + "log_end_offset", frozenset()]
        value = metrics["kafka_server_" + name, frozenset()]
        assert end - 3 <= value <= end
        assert value < end or "last_applied" not in name


def test_groups_and_requests_are_counted(both: tuple[Metrics, Metrics]) -> None:
    """Kafka counts its groups once a minute, our node at each request."""
    ours, kafka = both
    prefix = "kafka_coordinator_group_groupmetadatamanager_num"
    found = {name.removeprefix(prefix): value for (name, _), value in ours.items() if name.startswith(prefix)}
    assert (found["groups"], found["groupsempty"], found["groupsstable"]) == (1, 1, 0)
    assert found["offsets"] == kafka[prefix + "offsets", frozenset()] == 1
    requests = "kafka_network_requestmetrics_requests_total"
    produced = [
        {
            labels: value
            for (name, labels), value in metrics.items()
            if name == requests and ("request", "Produce") in labels
        }
        for metrics in both
    ]
    assert produced[0].keys() == produced[1].keys()
    assert ours["process_resident_memory_bytes", frozenset()] > 10 << 20
