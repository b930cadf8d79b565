"""Apache Kafka's tools run against both servers in the same order; they print the same, word for word.

Differences by nature are masked: addresses, folders, random ids, times, and the lines of stack traces.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.conftest import SERVERS
from tests.compat.matrix import APACHE, OURS
from tests.compat.targets import Target
from tests.compat.tools import run_tool

CLIENT = "Apache Kafka's Java tools, word for word as Apache Kafka answers"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("side-by-side")]

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
MASKS = (
    (r"\b[\w-]{22}\b(?=\s+PartitionCount)", "TOPIC-ID"),
    (r"(?m)^\S* ?\[?\d{4}-\d\d-\d\d[^]]*?\]? (main )?(WARN|INFO|ERROR)", r"\2"),
    (r"(?m)^\d{4}-\d\d-\d\d\S+ main ERROR .*\n\n?", ""),
    (r"(?m)^\tat .*\n", ""),
    (r"Epoch: \d+", "Epoch: N"),
    (r"\b17\d{11}\b", "TIME"),
    (r"(?<=-)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
)
Pair = dict[str, Target]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers."""
    both = {name: SERVERS[name](name, tmp_path_factory.mktemp(f"side-{name}")) for name in (OURS, APACHE)}
    try:
        for target in both.values():
            target.start()
        yield both
    finally:
        for target in both.values():
            target.kill()


def _masked(target: Target, text: str) -> str:
    for secret, mask in (
        (str(target.data), "DATA"),
        (str(target.controller_port), "CONTROLLER-PORT"),
        (str(target.port), "PORT"),
    ):
        text = re.sub(rf"(?<!\d){re.escape(secret)}(?!\d)", mask, text)  # port 18000 is not part of 1800000
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    # Apache Kafka lists a topic's configurations in the order of a hash table, which means nothing.
    return re.sub(r"(?<=Configs: )\S+", lambda found: ",".join(sorted(re.split(r",(?=[a-z.]+=)", found[0]))), text)


def _said(target: Target, main: str, args: tuple[str, ...], stdin: str) -> str:
    where = ("--bootstrap-server", target.bootstrap)
    words = (args[0], *where, *args[1:]) if main == f"{TOOLS}.ClusterTool" else (*where, *args)
    done = run_tool(main, *words, stdin=stdin, check=False)
    return _masked(target, f"exit {done.code}\n{done.out}{done.err}")


def same(pair: Pair, main: str, *args: str, stdin: str = "") -> str:
    """Run the tool on both; a difference fails the test and is shown."""
    theirs, ours = (_said(pair[name], main, args, stdin) for name in (APACHE, OURS))
    diff = "\n".join(difflib.unified_diff(theirs.split("\n"), ours.split("\n"), "apache", "ours", lineterm="", n=1))
    assert not diff, f"{main} {' '.join(args)}\n{diff}"
    return ours


def topic(pair: Pair, name: str, *lines: str, partitions: int = 1) -> None:
    size = ("--partitions", str(partitions), "--replication-factor", "1")
    same(pair, TOPICS, "--create", "--topic", name, *size)
    if lines:
        same(pair, f"{TOOLS}.ConsoleProducer", "--topic", name, stdin="".join(f"{x}\n" for x in lines))


def test_topics(pair: Pair) -> None:
    topic(pair, "t", partitions=3)
    size = ("--partitions", "3", "--replication-factor", "1")
    for args in (
        ("--create", "--topic", "t", *size, "--if-not-exists"),
        ("--create", "--topic", "u", *size, "--config", "retention.ms=600000", "--config", "cleanup.policy=compact"),
        ("--create", "--topic", "v", "--replica-assignment", "1,1"),
        ("--create", "--topic", "w", "--replica-assignment", "1,2"),
        ("--create", "--topic", "a b", *size),
        ("--create", "--topic", "u.1", *size),
        ("--create", "--topic", "u_1", *size),
        ("--create", "--topic", "x", "--partitions", "0", "--replication-factor", "1"),
        ("--create", "--topic", "x", "--partitions", "1", "--replication-factor", "2"),
        ("--create", "--topic", "x", *size, "--config", "no.such=1"),
        ("--create", "--topic", "x", *size, "--config", "retention.ms=soon"),
        ("--describe", "--topic", "t"),
        ("--describe",),
        ("--describe", "--topic", "nope"),
        ("--describe", "--under-replicated-partitions"),
        ("--describe", "--unavailable-partitions"),
        ("--describe", "--at-min-isr-partitions"),
        ("--describe", "--topics-with-overrides"),
        ("--alter", "--topic", "t", "--partitions", "2"),
        ("--alter", "--topic", "t", "--partitions", "3"),
        ("--alter", "--topic", "t", "--partitions", "5"),
        ("--list",),
        ("--list", "--exclude-internal"),
        ("--delete", "--topic", "u"),
        ("--delete", "--topic", "nope"),
        ("--list",),
    ):
        same(pair, TOPICS, *args)


def test_configs_of_every_kind_with_all_defaults_and_synonyms(pair: Pair) -> None:
    topic(pair, "configured")
    of_topic = ("--entity-type", "topics", "--entity-name", "configured")
    for entity in (
        of_topic,
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "groups", "--entity-name", "g"),
    ):
        assert "sensitive=" in same(pair, CONFIGS, "--describe", "--all", *entity)
    for change in (
        "cleanup.policy=[compact,delete],retention.ms=5000",
        "retention.ms=-2",
        "no.such=1",
        "min.insync.replicas=2",
        "compression.type=lzma",
    ):
        same(pair, CONFIGS, "--alter", *of_topic, "--add-config", change)
    same(pair, CONFIGS, "--describe", *of_topic)
    same(pair, CONFIGS, "--alter", *of_topic, "--delete-config", "retention.ms")
    same(pair, CONFIGS, "--alter", *of_topic, "--delete-config", "no.such")
    same(pair, CONFIGS, "--alter", *of_topic[:-1], "nope", "--add-config", "retention.ms=1")
    same(pair, CONFIGS, "--describe", *of_topic[:-1], "nope")


def test_configs_of_brokers(pair: Pair) -> None:
    one, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    for entity, change in (
        (one, "log.cleaner.threads=2"),
        (every, "log.retention.ms=100000"),
        (one, "node.id=4,broker.rack=x"),
        (every, "advertised.listeners=PLAINTEXT://x:1"),
        (one, "log.retention.ms=x"),
        (one, "log.segment.bytes=12"),
        (every, "ssl.keystore.location=x"),
        (every, "listener.name.plaintext.ssl.keystore.location=x"),
        (one, "unknown.thing=0"),
        (one, "min.insync.replicas=0"),
        (one, "min.insync.replicas=1"),
        (every, "min.insync.replicas=0"),
        (("--entity-type", "brokers", "--entity-name", "x"), "log.cleaner.threads=2"),
    ):
        same(pair, CONFIGS, "--alter", *entity, "--add-config", change)
    for entity in (one, every):
        same(pair, CONFIGS, "--describe", *entity)


def test_quotas_and_users(pair: Pair) -> None:
    client = ("--entity-type", "clients")
    user = ("--entity-type", "users", "--entity-name", "u")
    for args in (
        ("--alter", "--entity-type", "ips", "--entity-name", "127.0.0.9", "--add-config", "connection_creation_rate=9"),
        ("--alter", *client, "--entity-default", "--add-config", "consumer_byte_rate=9"),
        ("--alter", *client, "--entity-default", "--add-config", "no_such_rate=9"),
        ("--alter", *user, "--add-config", "SCRAM-SHA-512=[iterations=4096,password=not-a-secret]"),
        ("--alter", *user, "--add-config", "SCRAM-SHA-512=[iterations=1,password=not-a-secret]"),
        ("--alter", *user, *client, "--entity-name", "c", "--add-config", "request_percentage=9"),
        ("--describe", "--entity-type", "ips"),
        ("--describe", *client),
        ("--describe", *client, "--entity-default"),
        ("--describe", "--entity-type", "users"),
        ("--describe", "--entity-type", "users", *client),
        ("--alter", *user, "--delete-config", "SCRAM-SHA-512"),
        ("--alter", *user, "--delete-config", "SCRAM-SHA-256"),
        ("--describe", *user),
        # it would slow the other tests
        ("--alter", *client, "--entity-default", "--delete-config", "consumer_byte_rate"),
    ):
        same(pair, CONFIGS, *args)


def test_consumer_groups(pair: Pair) -> None:
    topic(pair, "grouped", "a", "b", "c", "d")
    consume = ("--topic", "grouped", "--from-beginning", "--max-messages", "3")
    same(pair, f"{TOOLS}.consumer.ConsoleConsumer", *consume, "--group", "g", "--isolation-level", "read_committed")
    group, where = ("--group", "g"), ("--topic", "grouped")
    for args in (
        *(("--list", *more) for more in ((), ("--state",), ("--type",), ("--state", "empty"), ("--type", "classic"))),
        ("--list", "--state", "nonsense"),
        *(("--describe", *group, *more) for more in ((), ("--verbose",), ("--state",), ("--members", "--verbose"))),
        ("--describe", "--group", "nope"),
        ("--describe", "--all-groups"),
        *(
            ("--reset-offsets", *group, *where, *how, "--dry-run")
            for how in (
                ("--to-earliest",),
                ("--to-latest",),
                ("--to-current",),
                ("--to-offset", "1"),
                ("--to-offset", "99"),
                ("--shift-by", "-2"),
                ("--by-duration", "PT1H"),
                ("--to-datetime", "2020-01-01T00:00:00.000"),
                ("--to-datetime", "2099-01-01T00:00:00.000"),
            )
        ),
        ("--reset-offsets", *group, "--topic", "grouped:0", "--to-earliest", "--execute", "--export"),
        ("--reset-offsets", *group, "--all-topics", "--to-latest", "--execute"),
        ("--reset-offsets", "--group", "fresh", *where, "--to-latest", "--execute"),
        ("--delete-offsets", *group, *where),
        ("--delete-offsets", *group, "--topic", "nope"),
        ("--delete", *group),
        ("--delete", "--group", "nope"),
        ("--list",),
    ):
        same(pair, GROUPS, *args)


def test_the_cluster_its_features_and_its_quorum(pair: Pair) -> None:
    for args in (("cluster-id",), ("list-endpoints",), ("list-endpoints", "--include-fenced-brokers"),
                 ("unregister", "--id", "9")):  # fmt: skip
        same(pair, f"{TOOLS}.ClusterTool", *args)
    for args in (
        ("describe",),
        ("version-mapping",),
        ("feature-dependencies", "--feature", "transaction.version=2"),
        ("upgrade", "--metadata", "4.3-IV0"),
        ("downgrade", "--metadata", "4.2-IV1"),
        ("upgrade", "--feature", "group.version=1"),
        ("upgrade", "--feature", "nope=1"),
    ):
        same(pair, f"{TOOLS}.FeatureCommand", *args)
    status = [
        re.sub(r"HighWatermark: +\d+|\"directoryId\": \"[^\"]+\"", "", _said(t, f"{TOOLS}.MetadataQuorumCommand",
               ("describe", "--status"), ""))
        for t in pair.values()
    ]  # fmt: skip
    assert status[0] == status[1]


def test_elections_and_reassignments(pair: Pair, tmp_path: Path) -> None:
    topic(pair, "moved", partitions=2)
    elect = f"{TOOLS}.LeaderElectionCommand"
    same(pair, elect, "--election-type", "preferred", "--all-topic-partitions")
    for kind in ("preferred", "unclean"):
        for name in ("moved", "nope"):
            same(pair, elect, "--election-type", kind, "--topic", name, "--partition", "0")
    tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    wanted, bad, names = (tmp_path / f"{n}.json" for n in ("wanted", "bad", "names"))
    for path, replicas in ((wanted, [1]), (bad, [1, 2])):
        partitions = [{"topic": "moved", "partition": p, "replicas": replicas} for p in (0, 1)]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    names.write_text(json.dumps({"topics": [{"topic": "moved"}], "version": 1}))
    same(pair, tool, "--generate", "--topics-to-move-json-file", str(names), "--broker-list", "1")
    for action in ("--execute", "--verify", "--cancel"):
        same(pair, tool, action, "--reassignment-json-file", str(wanted))
    same(pair, tool, "--execute", "--reassignment-json-file", str(bad))
    same(pair, tool, "--list")


def test_offsets_records_and_directories(pair: Pair, tmp_path: Path) -> None:
    topic(pair, "counted", "a", "b", "c")
    offsets = f"{TOOLS}.GetOffsetShell"
    for when in ("earliest", "latest", "earliest-local", "latest-tiered", "-1", "-2", "1", "soon"):
        same(pair, offsets, "--topic", "counted", "--time", when)
    same(pair, offsets, "--topic-partitions", "counted:0-1")
    same(pair, offsets, "--topic", "nope")
    wanted = tmp_path / "wanted.json"
    for name, offset in (("counted", 2), ("counted", 99), ("counted", -1)):
        wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": offset}]}))
        same(pair, f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    same(pair, offsets, "--topic", "counted", "--time", "earliest")
    for args in (("--topic-list", "counted"), ("--broker-list", "1,7"), ("--topic-list", "nope")):
        same(pair, f"{TOOLS}.LogDirsCommand", "--describe", *args)


def test_security_tools_are_refused_without_security(pair: Pair) -> None:
    acl = ("--allow-principal", "User:x", "--operation", "Read", "--topic", "t")
    for args in (("--list",), ("--add", *acl), ("--remove", "--force", *acl)):
        assert "SecurityDisabledException" in same(pair, f"{TOOLS}.AclCommand", *args)
    same(pair, f"{TOOLS}.DelegationTokenCommand", "--describe", "--command-config", "/dev/null")


def test_groups_of_all_kinds_transactions_and_client_metrics(pair: Pair) -> None:
    for more in ((), ("--consumer",), ("--share",), ("--streams",), ("--protocol", "consumer")):
        same(pair, f"{TOOLS}.GroupsCommand", "--list", *more)
    same(pair, f"{TOOLS}.streams.StreamsGroupCommand", "--list")
    same(pair, f"{TOOLS}.consumer.group.ShareGroupCommand", "--list")
    topic(pair, "produced", "a")
    for args in (("list",), ("describe-producers", "--topic", "produced", "--partition", "0"),
                 ("find-hanging", "--broker-id", "1")):  # fmt: skip
        same(pair, f"{TOOLS}.TransactionsCommand", *args)
    for args in (
        ("--list",),
        ("--alter", "--name", "m", "--metrics", "org.apache.kafka.", "--interval", "1000"),
        ("--alter", "--name", "m", "--interval", "1"),
        ("--describe", "--name", "m"),
        ("--list",),
        ("--delete", "--name", "m"),
        ("--describe",),
    ):
        same(pair, f"{TOOLS}.ClientMetricsCommand", *args)


@pytest.fixture
def new_pair(tmp_path: Path) -> Iterator[Pair]:
    """Both servers, for a test that changes the whole cluster."""
    both = {name: SERVERS[name](name, tmp_path / f"new-{name}") for name in (OURS, APACHE)}
    try:
        for target in both.values():
            target.start()
        yield both
    finally:
        for target in both.values():
            target.kill()


def test_the_features_of_coordinators_go_up_and_down(new_pair: Pair) -> None:
    """transaction.version and group.version by kafka-features.sh, with what clients see of each level."""
    features, transactions = f"{TOOLS}.FeatureCommand", f"{TOOLS}.TransactionsCommand"
    for args in (
        ("downgrade", "--feature", "transaction.version=1"),
        ("upgrade", "--feature", "transaction.version=1"),
        ("downgrade", "--feature", "transaction.version=0", "--dry-run"),
        ("downgrade", "--feature", "transaction.version=0"),
        ("upgrade", "--feature", "transaction.version=3"),
        ("upgrade", "--feature", "transaction.version=2", "--feature", "group.version=1"),
        ("disable", "--feature", "transaction.version", "--dry-run"),
        ("disable", "--feature", "transaction.version"),
        ("disable", "--feature", "transaction.version"),
        ("downgrade", "--feature", "group.version=0"),
        ("upgrade", "--feature", "group.version=2"),
        ("upgrade", "--feature", "group.version=1", "--dry-run"),
        ("upgrade", "--feature", "group.version=1"),
        ("disable", "--feature", "group.version", "--unsafe"),
        ("disable", "--feature", "group.version"),
        ("disable", "--feature", "nope"),
        ("upgrade", "--feature", "group.version=1", "--feature", "transaction.version=1"),
        ("downgrade", "--unsafe", "--feature", "group.version=0", "--feature", "transaction.version=0"),
        ("upgrade", "--release-version", "4.3"),
        ("downgrade", "--release-version", "3.9"),
    ):
        same(new_pair, features, *args)
        same(new_pair, features, "describe")
    same(new_pair, transactions, "list")
    same(new_pair, GROUPS, "--list")
