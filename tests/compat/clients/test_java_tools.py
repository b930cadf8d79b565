"""Apache Kafka's own command-line tools, with the arguments that users type."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.targets import Target
from tests.compat.tools import run_tool
from tests.peer import run_java

CLIENT = "Apache Kafka's Java tools"
pytestmark = pytest.mark.peer

TOOLS = "org.apache.kafka.tools"
CONSUMER = f"{TOOLS}.consumer"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def tool(cluster: Target, main: str, *args: str, stdin: str | None = None, check: bool = True) -> str:
    """Run a tool with --bootstrap-server; returns its output and error output."""
    where = ("--bootstrap-server", cluster.bootstrap)
    return run_tool(main, *where, *args, stdin=stdin or "", check=check).text


def eventually(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for a change that a broker applies after the controller has answered."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.1)


def shows(cluster: Target, text: str, *entity: str, is_there: bool = True) -> None:
    """Wait until the configurations of an entity have `text`, or no longer have it."""
    describe = ("kafka.admin.ConfigCommand", "--describe", *entity)
    eventually(lambda: (text in tool(cluster, *describe)) == is_there)


def create_topic(cluster: Target, name: str, partitions: int = 1, *configs: str) -> None:
    extra = [part for c in configs for part in ("--config", c)]
    args = ("--create", "--topic", name, "--partitions", str(partitions), "--replication-factor", "1", *extra)
    tool(cluster, f"{TOOLS}.TopicCommand", *args)


def console_produce(cluster: Target, topic: str, lines: list[str], *args: str) -> None:
    tool(cluster, f"{TOOLS}.ConsoleProducer", "--topic", topic, *args, stdin="".join(f"{x}\n" for x in lines))


def console_consume(cluster: Target, topic: str, count: int, *args: str) -> list[str]:
    where = () if "--group" in args else ("--from-beginning",)
    done = run_tool(
        f"{CONSUMER}.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--max-messages", str(count)),
        *("--timeout-ms", "30000", *where, *args),
    )
    return done.out.split("\n")[:-1]


def test_topics_create_describe_alter_delete(cluster: Target, name: str) -> None:
    create_topic(cluster, name, 3, "retention.ms=600000", "cleanup.policy=compact")
    assert name in tool(cluster, f"{TOOLS}.TopicCommand", "--list").split()
    described = tool(cluster, f"{TOOLS}.TopicCommand", "--describe", "--topic", name)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=600000" in described
    assert "cleanup.policy=compact" in described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 3
    tool(cluster, f"{TOOLS}.TopicCommand", "--alter", "--topic", name, "--partitions", "5")
    describe = (f"{TOOLS}.TopicCommand", "--describe", "--topic", name)
    eventually(lambda: "PartitionCount: 5" in tool(cluster, *describe))
    tool(cluster, f"{TOOLS}.TopicCommand", "--delete", "--topic", name)
    eventually(lambda: name not in tool(cluster, f"{TOOLS}.TopicCommand", "--list").split())


def test_topics_tool_reports_errors(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    common = ("--partitions", "1", "--replication-factor", "1")
    again = tool(cluster, f"{TOOLS}.TopicCommand", "--create", "--topic", name, *common, check=False)
    assert "already exists" in again
    bad = tool(cluster, f"{TOOLS}.TopicCommand", "--create", "--topic", "not/valid", *common, check=False)
    assert "is invalid" in bad
    many = ("--partitions", "1", "--replication-factor", "3")
    few = tool(cluster, f"{TOOLS}.TopicCommand", "--create", "--topic", name + "-rf", *many, check=False)
    assert "replication" in few.lower()
    wrong = ("--config", "retention.ms=soon")
    config = tool(cluster, f"{TOOLS}.TopicCommand", "--create", "--topic", name + "-c", *common, *wrong, check=False)
    assert "retention.ms" in config


def test_configs_of_topics(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    entity = ("--entity-type", "topics", "--entity-name", name)
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "max.message.bytes=123456")
    shows(cluster, "max.message.bytes=123456 sensitive=false", *entity)
    shown = tool(cluster, "kafka.admin.ConfigCommand", "--describe", *entity)
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=123456" in shown
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in shown
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "max.message.bytes")
    shows(cluster, "max.message.bytes=123456", *entity, is_there=False)
    everything = tool(cluster, "kafka.admin.ConfigCommand", "--describe", "--all", *entity)
    assert "segment.bytes=1073741824 sensitive=false" in everything
    assert "cleanup.policy=delete sensitive=false" in everything
    bad = ("--add-config", "no.such.config=1")
    assert "no.such.config" in tool(cluster, "kafka.admin.ConfigCommand", "--alter", *entity, *bad, check=False)


def test_configs_of_brokers_quotas_users_and_client_metrics(cluster: Target, name: str) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *broker, "--add-config", "log.cleaner.threads=2")
    shows(cluster, "  log.cleaner.threads=2 ", *broker)
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *broker, "--delete-config", "log.cleaner.threads")
    user = ("--entity-type", "users", "--entity-name", name)
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *user, "--add-config", "producer_byte_rate=1048576")
    shows(cluster, "producer_byte_rate=1048576.0", *user)
    secret = "SCRAM-SHA-256=[iterations=8192,password=not-a-secret]"
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *user, "--add-config", secret)
    shows(cluster, "SCRAM-SHA-256=iterations=8192", *user)
    metrics = ("--entity-type", "client-metrics", "--entity-name", name)
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *metrics, "--add-config", "interval.ms=30000")
    shows(cluster, "interval.ms=30000", *metrics)
    group = ("--entity-type", "groups", "--entity-name", name)
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    shows(cluster, "consumer.session.timeout.ms=50000", *group)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_console_producer_and_consumer(cluster: Target, name: str, compression: str) -> None:
    lines = [f"{compression}-{i}" for i in range(100)]
    create_topic(cluster, name)
    console_produce(cluster, name, lines, "--compression-codec", compression)
    assert console_consume(cluster, name, 100) == lines


def test_console_consumer_shows_keys_headers_timestamps(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    options = ["parse.key=true", "parse.headers=true", "key.separator=|", "headers.delimiter=;"]
    args = [part for o in options for part in ("--reader-property", o)]
    console_produce(cluster, name, ["h1:v1,h2:v2;key|value"], *args)
    shown = ["print.key=true", "print.headers=true", "print.partition=true", "print.offset=true"]
    formatted = [part for o in shown for part in ("--formatter-property", o)]
    assert console_consume(cluster, name, 1, *formatted) == ["Partition:0\tOffset:0\th1:v1,h2:v2\tkey\tvalue"]


def test_consumer_groups(cluster: Target, name: str) -> None:
    groups = f"{CONSUMER}.group.ConsumerGroupCommand"
    create_topic(cluster, name, 2)
    console_produce(cluster, name, [str(i) for i in range(20)])
    consumed = console_consume(cluster, name, 20, "--group", name, "--command-property", "auto.offset.reset=earliest")
    assert sorted(consumed, key=int) == [str(i) for i in range(20)]
    assert name in tool(cluster, groups, "--list").split()
    described = tool(cluster, groups, "--describe", "--group", name)
    rows = [line.split() for line in described.split("\n") if line.startswith(name)]
    assert {row[2] for row in rows} == {"0", "1"}
    assert sum(int(row[3]) for row in rows) == 20
    assert sum(int(row[5]) for row in rows) == 0
    state = tool(cluster, groups, "--describe", "--group", name, "--state")
    assert "Empty" in state
    reset = ("--reset-offsets", "--group", name, "--topic", name, "--to-earliest", "--execute")
    tool(cluster, groups, *reset)
    rows = [x.split() for x in tool(cluster, groups, "--describe", "--group", name).split("\n") if x.startswith(name)]
    assert sum(int(row[3]) for row in rows) == 0
    tool(cluster, groups, "--delete-offsets", "--group", name, "--topic", f"{name}:0")
    tool(cluster, groups, "--delete", "--group", name)
    assert name not in tool(cluster, groups, "--list").split()


def _json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.split("\n") if line.startswith("{")]


def test_verifiable_producer_and_consumer(cluster: Target, name: str) -> None:
    # these two end by signals and hooks of their JVM, so each gets its own JVM
    create_topic(cluster, name, 3)
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", name, "--max-messages", "500")
    produced = run_java(f"{TOOLS}.VerifiableProducer", *where, "--acks", "-1").stdout.decode()
    (summary,) = [x for x in _json_lines(produced) if x["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (500, 500)
    args = ("--group-id", name, "--reset-policy", "earliest")
    consumed = _json_lines(run_java(f"{TOOLS}.VerifiableConsumer", *where, *args).stdout.decode())
    assert sum(int(str(x["count"])) for x in consumed if x["name"] == "records_consumed") == 500
    assert any(x["name"] == "offsets_committed" and x["success"] for x in consumed)


def test_performance_tools(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    args = ("--topic", name, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    produced = tool(cluster, f"{TOOLS}.ProducerPerformance", *args)
    assert "20000 records sent" in produced
    consumed = tool(cluster, f"{TOOLS}.ConsumerPerformance", "--topic", name, "--num-records", "20000", "--group", name)
    assert re.search(r", 20000, ", consumed), consumed
    latency = tool(
        cluster,
        f"{TOOLS}.EndToEndLatency",
        "--topic",
        name,
        "--num-records",
        "200",
        "--producer-acks",
        "all",
        "--record-size",
        "100",
    )
    assert "Percentiles" in latency


def test_get_offsets(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    console_produce(cluster, name, ["a", "b"])
    console_produce(cluster, name, ["c"])
    for when, offset in (("latest", 3), ("earliest", 0), ("max-timestamp", 2), ("-1", 3), ("-2", 0)):
        shown = tool(cluster, f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", when)
        assert f"{name}:0:{offset}" in shown, (when, shown)


def test_log_dirs(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    console_produce(cluster, name, ["x" * 100])
    shown = tool(cluster, f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", name)
    answer = json.loads(next(line for line in shown.split("\n") if line.startswith("{")))
    (broker,) = answer["brokers"]
    (replica,) = [p for d in broker["logDirs"] for p in d["partitions"]]
    assert replica["partition"] == f"{name}-0"
    assert replica["size"] > 100
    assert replica["offsetLag"] == 0


def test_delete_records(cluster: Target, name: str, tmp_path: Path) -> None:
    create_topic(cluster, name)
    console_produce(cluster, name, [str(i) for i in range(10)])
    records = tmp_path / "delete.json"
    records.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 4}]}))
    shown = tool(cluster, f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(records))
    assert "low_watermark: 4" in shown
    assert console_consume(cluster, name, 6) == [str(i) for i in range(4, 10)]


def test_dump_log_reads_the_files(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    console_produce(cluster, name, [f"line-{i}" for i in range(50)], "--compression-codec", "zstd")
    segment = cluster.data / f"{name}-0" / "00000000000000000000.log"
    dump = run_tool(f"{TOOLS}.DumpLogSegments", "--files", str(segment), "--print-data-log", "--deep-iteration")
    text = dump.out
    assert "isvalid: true" in text
    assert "compresscodec: zstd" in text
    assert [f"payload: line-{i}" in text for i in range(50)] == [True] * 50
    metadata = cluster.data / "__cluster_metadata-0" / "00000000000000000000.log"
    decoded = run_tool(f"{TOOLS}.DumpLogSegments", "--files", str(metadata), "--cluster-metadata-decoder")
    assert f'"name":"{name}"' in decoded.out


def test_cluster_features_quorum_and_versions(cluster: Target) -> None:
    assert "Cluster ID: " in tool_cluster(cluster)
    features = tool(cluster, f"{TOOLS}.FeatureCommand", "describe")
    assert re.search(r"metadata.version\s.*FinalizedVersionLevel: 4.3-IV0", features), features
    status = tool(cluster, f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId:\s+1", status)
    assert re.search(r"CurrentVoters:.*\b1\b", status)
    replication = tool(cluster, f"{TOOLS}.MetadataQuorumCommand", "describe", "--replication")
    assert "Leader" in replication
    versions = tool(cluster, f"{TOOLS}.BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13" in versions
    assert "Fetch(1): 4 to 18" in versions


def tool_cluster(cluster: Target) -> str:
    args = ("cluster-id", "--bootstrap-server", cluster.bootstrap)
    return run_tool(f"{TOOLS}.ClusterTool", *args).out


def test_tools_for_groups_transactions_and_elections(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    console_produce(cluster, name, ["1"])
    console_consume(cluster, name, 1, "--group", name, "--command-property", "auto.offset.reset=earliest")
    assert name in tool(cluster, f"{TOOLS}.GroupsCommand", "--list")
    producers = ("describe-producers", "--topic", name, "--partition", "0")
    assert "ProducerId" in tool(cluster, f"{TOOLS}.TransactionsCommand", *producers)
    elect = ("--election-type", "preferred", "--all-topic-partitions")
    assert "Exception" not in tool(cluster, f"{TOOLS}.LeaderElectionCommand", *elect)


def read_internal(cluster: Target, topic: str, formatter: str) -> list[dict[str, object]]:
    """The records of an internal topic that a formatter of the tools prints."""
    done = run_tool(
        f"{CONSUMER}.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "4000"),
        *("--formatter", f"{CONSUMER}.{formatter}"),
        check=False,
    )
    text, found, at = done.out, [], done.out.find("{")
    while at >= 0:  # not all formatters end lines
        value, end = json.JSONDecoder().raw_decode(text, at)
        found.append(value)
        at = text.find("{", end)
    return found


def test_formatters_show_internal_topics(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    console_produce(cluster, name, ["1", "2"])
    console_consume(cluster, name, 2, "--group", name, "--command-property", "auto.offset.reset=earliest")
    args = ("--topic", name, "--num-records", "10", "--record-size", "10", "--throughput", "-1")
    tool(cluster, f"{TOOLS}.ProducerPerformance", *args, "--transactional-id", name)
    offsets = [
        record
        for record in read_internal(cluster, "__consumer_offsets", "OffsetsMessageFormatter")
        if name in str(record)
    ]
    (key,) = {json.dumps(record["key"], sort_keys=True) for record in offsets}
    assert json.loads(key)["data"] == {"group": name, "topic": name, "partition": 0}
    values = [record["value"] for record in offsets]
    assert any(isinstance(value, dict) and value["data"]["offset"] == 2 for value in values)
    groups = read_internal(cluster, "__consumer_offsets", "GroupMetadataMessageFormatter")
    assert any(name in str(record) for record in groups)
    states = [
        record["value"]["data"]["transactionStatus"]  # type: ignore[index]
        for record in read_internal(cluster, "__transaction_state", "TransactionLogMessageFormatter")
        if name in str(record["key"]) and record["value"] is not None
    ]
    assert states == [0, 1, 2, 4], "Empty, Ongoing, PrepareCommit, CompleteCommit"


def test_streams_resetter(cluster: Target, name: str) -> None:
    create_topic(cluster, name)
    console_produce(cluster, name, ["1", "2", "3"])
    console_consume(cluster, name, 3, "--group", name, "--command-property", "auto.offset.reset=earliest")
    create_topic(cluster, f"{name}-store-changelog")
    shown = tool(cluster, f"{TOOLS}.StreamsResetter", "--application-id", name, "--input-topics", name, "--force")
    assert f"{name}-store-changelog" in shown
    described = tool(cluster, f"{CONSUMER}.group.ConsumerGroupCommand", "--describe", "--group", name)
    (row,) = [line.split() for line in described.split("\n") if line.startswith(name)]
    assert row[3] == "0"
    eventually(lambda: f"{name}-store-changelog" not in tool(cluster, f"{TOOLS}.TopicCommand", "--list").split())
