"""kafka-python's own integration tests, run from its source distribution against us and against Apache Kafka.

The servers have the configuration that the project gives Apache Kafka (node 0, four partitions, short sessions), but no
authorizer. A failed test runs once more: the client can miss a subscription that is made while a Metadata request is
under way, and then waits for five minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import SERVERS
from tests.compat.targets import Target
from tests.peer import missing
from tools import peers

CLIENT = "kafka-python: its own integration suite"
XDIST_GROUP = "suite"
ROOT = Path(__file__).parents[3]
CONDITIONS = {"node.id": "0", "num.partitions": "4", "group.min.session.timeout.ms": "1000"}
TEST_TIMEOUT_S = 20
SUITE_TIMEOUT_S = 240

OPTIONS = (
    *("-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-p", "no:randomly"),  # it would shuffle the tests, and give all topics and ids of a run the same random letters
    *("-o", "addopts=", "-o", "log_level=WARNING", f"--timeout={TEST_TIMEOUT_S}", "-q"),
)
"""Of the pytest that runs the suite."""

FOREIGN_TESTS = (
    "test_describe_configs_broker_resource_returns_configs",
    "test_describe_configs_topic_resource_returns_configs",
    "test_describe_configs_mixed_resources_returns_configs",
    "test_describe_configs_invalid_broker_id_raises",
    "test_describe_group_exists",
    "test_delete_groups",
    "test_delete_groups_with_errors",
    "test_delete_records",
    "test_delete_records_with_errors",
    "test_create_delete_topics",
    "test_create_partitions",
    "test_elect_leaders",
    "test_describe_log_dirs",
    "test_alter_replica_log_dirs",
    "test_describe_metadata_quorum",
    "test_alter_partition_reassignments",
    "test_list_partition_reassignments",
    "test_describe_topic_partitions",
    "test_describe_topic_partitions_pagination",
    "test_list_partition_offsets",
    "test_list_config_resources",
    "test_consumer",
    "test_consumer_topics",
    "test_paused",
    "test_kafka_version_infer",
    "test_kafka_consumer",
    "test_kafka_consumer_unsupported_encoding",
    "test_kafka_consumer__blocking",
    "test_kafka_consumer__offset_commit_resume",
    "test_kafka_consumer_max_bytes_simple",
    "test_kafka_consumer_max_bytes_one_msg",
    "test_kafka_consumer_offsets_for_time",
    "test_kafka_consumer_offsets_search_many_partitions",
    "test_kafka_consumer_offsets_for_times_errors",
    "test_kafka_consumer_position_after_seek_to_end",
    "test_group",
    "test_heartbeat_thread",
    "test_end_to_end",
    "test_kafka_producer_proper_record_metadata",
    "test_idempotent_producer",
    "test_transactional_producer_messages",
    "test_idempotent_producer_max_in_flight",
    "test_idempotent_producer_high_throughput",
    "test_transactional_producer_offsets",
)
"""The suite's test functions; parameters are counted together."""

EXCLUDED = {
    "test_create_describe_delete_acls": "SECURITY_DISABLED without an authorizer, from both",
    "test_kafka_consumer_offsets_for_time_old": "skips itself: for brokers before 0.10.1",
    "test_admin": "skips itself (SASL): only for brokers that the suite starts",
    "test_produce_and_consume": "skips itself (SASL): only for brokers that the suite starts",
    "test_client": "skips itself (SASL): only for brokers that the suite starts",
    "test_ssl_handshake": "wants to start a broker with TLS from an unpacked distribution",
    "test_legacy_kafka_client_ssl": "wants to start a broker with TLS from an unpacked distribution",
}
"""What does not pass against Apache Kafka under these conditions; `test_what_is_excluded_…` measures it."""

Outcomes = dict[str, dict[str, str]]
"""By test function: by node id: "passed", or what went wrong."""


def _suite() -> Path:
    if not peers.kafka_python_installed():
        missing(f"kafka-python {peers.kafka_python_version()}'s source", "`python tools/peers.py suite` fetches it")
    return peers.kafka_python()


def _run(suite: Path, target: Target, report: Path, *args: str) -> None:
    env = {
        **os.environ,
        "KAFKA_URI": f"kafka://{target.bootstrap}",
        "KAFKA_VERSION": peers.VERSION,
        "KAFKA_ROOT": str(target.folder),
        "PYTHONPATH": str(ROOT),
        "OUTCOMES": str(report),
    }
    for name in [n for n in env if n.startswith(("PYTEST", "ZOOKEEPER"))]:
        del env[name]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.compat.clients.kafka_python_plugin", *OPTIONS, *args],
        cwd=suite,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=SUITE_TIMEOUT_S,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr


def _outcomes(report: Path) -> Outcomes:
    found: Outcomes = {}
    for line in map(json.loads, report.read_text().splitlines()):
        of_function = found.setdefault(line["id"].split("::")[-1].split("[")[0], {})
        of_function[line["id"]] = "passed" if line["outcome"] == "passed" else f"{line['outcome']}: {line['text']}"
    return found


def _delete_topics(target: Target) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    names = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    for future in admin.delete_topics(names).values() if names else ():
        future.result(30)


@pytest.fixture(scope="module")
def outcomes(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """The outcomes of the whole suite, which runs once."""
    suite = _suite()
    folder = tmp_path_factory.mktemp(f"suite-{server_name}")
    target = SERVERS[server_name]("suite", folder, dict(CONDITIONS))
    target.overrides["controller.quorum.voters"] = f"0@127.0.0.1:{target.controller_port}"
    target.start()
    try:
        _run(suite, target, folder / "outcomes", "test/integration")
        found = _outcomes(folder / "outcomes")
        again = [
            key for name in FOREIGN_TESTS for key, text in found.get(name, {}).items() if text.startswith("failed")
        ]
        if again:
            # topics that a failed test left, with an open transaction for example, would fail it again
            _delete_topics(target)
            _run(suite, target, folder / "again", *again)
            for name, results in _outcomes(folder / "again").items():
                found[name].update(results)
        yield found
    finally:
        target.kill()


@pytest.mark.parametrize("foreign", FOREIGN_TESTS)
def test_a_test_of_the_suite_passes(outcomes: Outcomes, foreign: str) -> None:
    results = outcomes[foreign]
    assert set(results.values()) == {"passed"}, "\n".join(f"{k}: {v}" for k, v in results.items() if v != "passed")


def test_the_lists_name_every_test(outcomes: Outcomes) -> None:
    assert {*outcomes} == {*FOREIGN_TESTS, *EXCLUDED}


def test_excluded_tests_pass_against_neither_server(outcomes: Outcomes, server_name: str) -> None:
    passing = [name for name in EXCLUDED if "passed" in outcomes[name].values()]
    assert passing == [], f"include them: {server_name} passes"
