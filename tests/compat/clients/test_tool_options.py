"""Options of Apache Kafka's tools that users seldom type: both servers print the same, as in `test_side_by_side`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.compat.clients.test_side_by_side import GROUPS, TOOLS, TOPICS, Pair, pair, same, topic
from tests.compat.conftest import SERVERS
from tests.compat.matrix import APACHE, OURS
from tests.compat.members import wait_for
from tests.compat.targets import Target, all_running
from tests.compat.tools import run_tool

CLIENT = "Apache Kafka's Java tools, with seldom used options"
pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.xdist_group("side-by-side")]

__all__ = ["pair"]
ACLS = f"{TOOLS}.AclCommand"
START_MS = 1_700_000_000_000
"""The time of the first record of `fill`; each later record is a second younger."""


def fill(pair: Pair, name: str, count: int, partition: int = 0) -> None:
    for target in pair.values():
        producer = Producer({"bootstrap.servers": target.bootstrap})
        for at in range(count):
            producer.produce(name, b"%d" % at, partition=partition, timestamp=START_MS + 1000 * at)
        assert producer.flush(60) == 0


def old_topic(pair: Pair, name: str, partitions: int = 1) -> None:
    """Create a topic that keeps the records of `fill`."""
    size = ("--partitions", str(partitions), "--replication-factor", "1")
    same(pair, TOPICS, "--create", "--topic", name, *size, "--config", "retention.ms=-1")


def commit(pair: Pair, group: str, *offsets: tuple[str, int, int]) -> None:
    for target in pair.values():
        consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": group})
        wait_for("the coordinator commits", lambda c=consumer: _commits(c, offsets))
        consumer.close()


def _commits(consumer: Consumer, offsets: tuple[tuple[str, int, int], ...]) -> bool:
    """Commit the offsets. Returns False while the coordinator's partition of __consumer_offsets is new."""
    try:
        consumer.commit(offsets=[TopicPartition(*row) for row in offsets], asynchronous=False)
    except KafkaException as e:
        if e.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
            raise
        return False
    return True


def id_of(target: Target, name: str) -> str:
    """A topic's id."""
    described = run_tool(TOPICS, "--bootstrap-server", target.bootstrap, "--describe", "--topic", name)
    found = re.search(r"TopicId: (\S+)", described.out)
    assert found is not None, described.text
    return found[1]


def test_topics_by_pattern_id_and_page(pair: Pair) -> None:
    topic(pair, "paged", partitions=3)
    topic(pair, "page.of")
    for args in (
        ("--topic", "page.*"),
        ("--topic", "paged|page.of"),
        ("--topic", "["),
        ("--topic", "nope", "--if-exists"),
        ("--topic-id", "AAAAAAAAAAAAAAAAAAAABB"),
        ("--topic-id", "AAAAAAAAAAAAAAAAAAAABB", "--if-exists"),
        ("--topic-id", "x"),
        ("--topic", "paged", "--under-min-isr-partitions"),
        ("--topic", "paged", "--under-replicated-partitions", "--unavailable-partitions"),
        *(("--topic", "paged", "--partition-size-limit-per-response", size) for size in ("1", "0", "-1", "100000")),
    ):
        same(pair, TOPICS, "--describe", *args)
    described = {
        re.sub(
            r"TopicId: \S+", "", run_tool(TOPICS, "--bootstrap-server", t.bootstrap, "--describe", "--topic-id", i).out
        )
        for t in pair.values()
        for i in [id_of(t, "paged")]
    }
    assert len(described) == 1
    for args in (("--topic", "page.*"), ("--topic", "["), ("--topic", "paged", "--exclude-internal")):
        same(pair, TOPICS, "--list", *args)


def test_assignments_of_more_partitions(pair: Pair) -> None:
    topic(pair, "grown", partitions=2)
    for count, assignment in (
        ("3", "1"),
        ("3", "1,1,9"),
        ("3", "1:1"),
        ("3", "1,1,1:2"),
        ("4", "1,1,1"),
        ("3", "1,1,1"),
    ):
        same(pair, TOPICS, "--alter", "--topic", "grown", "--partitions", count, "--replica-assignment", assignment)
    for args in (
        ("--topic", "grown"),
        ("--topic", "nope", "--if-exists", "--partitions", "4"),
        ("--topic", "nope", "--partitions", "4"),
        ("--topic", "grown", "--partitions", "0"),
    ):
        same(pair, TOPICS, "--alter", *args)
    for name in ("", ".", "..", "ä", "a:b", "x" * 250, "__cluster_metadata"):
        same(pair, TOPICS, "--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
    for args in (
        ("--topic", "defaults"),
        ("--topic", "n", "--replication-factor", "0"),
        ("--topic", "n", "--replica-assignment", "x"),
        ("--topic", "n", "--replica-assignment", "-1"),
        ("--topic", "n", "--config", "retention.ms"),
    ):
        same(pair, TOPICS, "--create", *args)


def test_reset_offsets_in_every_form(pair: Pair, tmp_path: Path) -> None:
    old_topic(pair, "reset", 3)
    topic(pair, "other")
    for partition in range(3):
        fill(pair, "reset", 6, partition)
    commit(pair, "r", ("reset", 0, 4), ("reset", 1, 99), ("other", 0, 0))
    scopes = (
        ("--topic", "reset"),
        ("--topic", "reset:0,2"),
        ("--topic", "reset:0", "--topic", "other"),
        ("--all-topics",),
    )
    ways = (
        ("--to-current",),
        ("--to-offset", "3"),
        ("--to-offset", "-5"),
        ("--shift-by", "1"),
        ("--shift-by", "-100"),
        ("--shift-by", "100"),
        ("--by-duration", "P1D"),
        ("--to-datetime", "2023-11-14T22:13:22.500"),
    )
    reset = ("--reset-offsets", "--group", "r")
    for scope, way in product(scopes, ways):
        same(pair, GROUPS, *reset, *scope, *way, "--dry-run")
    for time in ("2023-11-14T22:13:22.500Z", "2023-11-14T22:13:22", "2023-11-14", "2023-11-14T22:13:22.500+02:00", "x"):
        same(pair, GROUPS, *reset, "--topic", "reset", "--to-datetime", time, "--dry-run")
    for duration in ("PT0S", "-P1D", "x"):
        same(pair, GROUPS, *reset, "--topic", "reset", "--by-duration", duration, "--dry-run")
    for scope in (("--topic", "nope"), ("--topic", "reset:x"), ()):
        same(pair, GROUPS, *reset, *scope, "--to-earliest", "--dry-run")
    plan = tmp_path / "plan.csv"
    for text in ("reset,0,2\nreset,1,3\n", "reset,0\n", "reset,0,99\n", ""):
        plan.write_text(text)
        for how in ("--dry-run", "--execute"):
            same(pair, GROUPS, *reset, "--from-file", str(plan), how)
    commit(pair, "s", ("reset", 2, 1))
    plan.write_text("r,reset,0,2\ns,reset,2,3\n")
    same(pair, GROUPS, *reset, "--group", "s", "--from-file", str(plan), "--execute", "--export")
    same(pair, GROUPS, "--reset-offsets", "--all-groups", "--all-topics", "--to-latest", "--execute", "--export")
    for scope in (("--topic", "reset:0,1"), ("--topic", "reset:9"), ("--topic", "reset", "--topic", "other"), ()):
        same(pair, GROUPS, "--delete-offsets", "--group", "r", *scope)
    for what in ((), ("--state",), ("--members",), ("--offsets", "--verbose"), ("--timeout", "1")):
        same(pair, GROUPS, "--describe", "--all-groups", *what)
    same(pair, GROUPS, "--delete", "--group", "r", "--group", "nope")
    same(pair, GROUPS, "--delete", "--all-groups")


def test_get_offsets_by_time_partition_and_pattern(pair: Pair) -> None:
    for name in ("timed", "timed.2"):
        old_topic(pair, name, 2)
    fill(pair, "timed", 4)
    offsets = f"{TOOLS}.GetOffsetShell"
    for time in (
        "max-timestamp",
        "earliest-pending-upload",
        "-3",
        "-6",
        "-7",
        str(START_MS + 1500),
        "99999999999999",
        "",
    ):
        same(pair, offsets, "--topic", "timed.*", "--time", time)
    for pattern in (
        "timed:0",
        "timed:0-1",
        "timed:1-",
        "timed:-1",
        "timed,timed.2:0",
        "timed.*:-1",
        "timed:x",
        "timed:5-2",
    ):
        same(pair, offsets, "--topic-partitions", pattern)
    for args in (
        ("--topic", "timed", "--partitions", "0,1"),
        ("--topic", "timed", "--partitions", "9"),
        ("--topic", "timed", "--partitions", "x"),
        ("--topic-partitions", "timed:0", "--topic", "timed"),
        ("--topic", "timed.*", "--exclude-internal-topics"),
        ("--topic", "["),
    ):
        same(pair, offsets, *args)


def test_the_application_reset_tool(pair: Pair, tmp_path: Path) -> None:
    tool = f"{TOOLS}.StreamsResetter"
    for name in ("in", "app-x-changelog", "app-x-repartition", "app-x", "apple-x-changelog"):
        old_topic(pair, name)
    fill(pair, "in", 6)
    commit(pair, "app", ("in", 0, 3))
    plan = tmp_path / "plan.csv"
    plan.write_text("in,0,99\n")
    app = ("--application-id", "app")
    for args in (
        (),
        ("--to-offset", "2"),
        ("--to-offset", "99"),
        ("--to-latest",),
        ("--shift-by", "-1"),
        ("--shift-by", "-9"),
        ("--by-duration", "P1D"),
        ("--to-datetime", "2023-11-14T22:13:22.500"),
        ("--from-file", str(plan)),
        ("--internal-topics", "app-x-changelog"),
        ("--internal-topics", "in"),
    ):
        same(pair, tool, *app, "--input-topics", "in", *args, "--dry-run")
    same(pair, tool, *app, "--input-topics", "in,nope", "--shift-by", "1", "--internal-topics", "app-x-changelog")
    same(pair, GROUPS, "--describe", "--group", "app")
    same(pair, TOPICS, "--list")


@pytest.fixture
def secured_pair(tmp_path: Path) -> Iterator[Pair]:
    """Both servers with ACLs, for a super user."""
    keys = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    both = {name: SERVERS[name](name, tmp_path / name, dict(keys)) for name in (OURS, APACHE)}
    with all_running(list(both.values())):
        yield both


def test_acls_of_every_kind(secured_pair: Pair) -> None:
    def tried(*args: str) -> None:
        same(secured_pair, ACLS, *args)

    kinds = (
        ("--topic", "t"),
        ("--cluster",),
        ("--group", "g"),
        ("--transactional-id", "x"),
        ("--delegation-token", "d"),
        ("--user-principal", "User:a"),
    )
    for kind, operation in product(kinds, ("Read", "CreateTokens", "TwoPhaseCommit", "Any")):
        tried("--add", "--allow-principal", "User:x", "--operation", operation, *kind)
    for pattern in ("prefixed", "any", "match", "nope"):
        tried(
            "--add",
            "--allow-principal",
            "User:y",
            "--operation",
            "Read",
            "--topic",
            "p",
            "--resource-pattern-type",
            pattern,
        )
        tried("--list", "--topic", "p1", "--resource-pattern-type", pattern)
    for args in (("--allow-host", "1.2.3.4"), ("--allow-principal", "nocolon"), ("--allow-principal", "Group:g")):
        tried("--add", *args, "--operation", "Read", "--topic", "h")
    for role in (
        ("--producer",),
        ("--producer", "--idempotent"),
        ("--producer", "--transactional-id", "i"),
        ("--consumer",),
        ("--consumer", "--group", "c"),
    ):
        tried("--add", *role, "--topic", "role", "--allow-principal", "User:p")
    for filters in (
        ("--principal", "User:x", "--topic", "t"),
        ("--principal", "User:nope"),
        ("--user-principal", "User:a"),
    ):
        tried("--list", *filters)
    tried("--remove", "--topic", "t", "--allow-principal", "User:x", "--operation", "Read", "--force")
    tried("--remove", "--topic", "p", "--resource-pattern-type", "match", "--force")
    tried("--remove", "--topic", "role", "--producer", "--allow-principal", "User:p", "--force")
