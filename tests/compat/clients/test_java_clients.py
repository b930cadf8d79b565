"""Java's own clients: one program of many steps, whose output must equal the output against Apache Kafka."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.targets import Target
from tests.compat.tools import SOURCE
from tests.peer import run_java

CLIENT = "Apache Kafka's Java clients"
pytestmark = pytest.mark.peer

GOLDEN = Path(__file__).parents[2] / "golden" / "compat" / "client_tour.txt"
GOLDEN_GROUPS = GOLDEN.with_name("consumer_group_tour.txt")
GOLDEN_TRANSACTIONS = GOLDEN.with_name("transaction_tour.txt")


def lines_of(program: str, *args: str) -> list[str]:
    """What a Java program of `tests/java` prints; its clients log to standard error (`log4j2-test.xml` beside it)."""
    source = SOURCE.with_name(f"{program}.java")
    return run_java(str(source), *args, timeout_s=400, classpath=(source.parent,)).stdout.decode().splitlines()


def test_admin_producers_consumers_and_groups_step_by_step(cluster: Target) -> None:
    assert lines_of("ClientTour", cluster.bootstrap, "tour") == GOLDEN.read_text().splitlines()


def test_consumers_of_the_new_protocol_step_by_step(cluster: Target) -> None:
    assert lines_of("ConsumerGroupTour", cluster.bootstrap, "tour848") == GOLDEN_GROUPS.read_text().splitlines()


def test_transactions_step_by_step(cluster: Target) -> None:
    lines = lines_of("TransactionTour", cluster.bootstrap, "transactions")
    assert lines == GOLDEN_TRANSACTIONS.read_text().splitlines()


WARNINGS = """
<Configuration>
  <Appenders><Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="%p %c %m%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


def test_clients_with_metrics_push_log_no_warning(cluster: Target, tmp_path: Path) -> None:
    """With `enable.metrics.push` (KIP-714), a subscription for all clients, and a server without a receiver."""
    (tmp_path / "log4j2-test.xml").write_text(WARNINGS)
    at = ("--bootstrap-server", cluster.bootstrap)
    tools = "org.apache.kafka.tools."
    run_java(f"{tools}TopicCommand", *at, "--create", "--topic", "pushed", "--partitions", "1")
    subscription = ("--alter", "--name", "all", "--metrics", "*", "--interval", "100")
    run_java(f"{tools}ClientMetricsCommand", *at, *subscription)
    produced = run_java(
        f"{tools}ConsoleProducer",
        *(*at, "--topic", "pushed", "--command-property", "enable.metrics.push=true"),
        stdin=b"one\ntwo\n",
        classpath=(tmp_path,),
    )
    consumed = run_java(
        f"{tools}consumer.ConsoleConsumer",
        *(*at, "--topic", "pushed", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"),
        *("--command-property", "enable.metrics.push=true"),
        classpath=(tmp_path,),
    )
    assert consumed.stdout.split() == [b"one", b"two"]
    printed = (produced.stdout + produced.stderr + consumed.stderr).decode()
    assert not re.search("WARN|ERROR|elemetry", printed), printed
