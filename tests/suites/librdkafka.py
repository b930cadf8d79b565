"""librdkafka's own tests, from its sources in the npm package node-rdkafka; each in a process of its own.

A test that needs Apache Kafka's scripts calls the classes behind them. Tests on the mock cluster do not run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.peer import require_peer
from tests.suites.clusters import three_brokers
from tests.suites.fetching import npm_package
from tests.suites.results import Results

PACKAGE, VERSION = "node-rdkafka", "3.6.1"
TIME_OUT_S: Final = 300
SMALL_SEGMENTS: Final = "it asks for a segment.bytes that Kafka 4 forbids"
KNOWN: Final = {"0077": SMALL_SEGMENTS, "0129": SMALL_SEGMENTS}
RACY: Final = {
    "0118": "with KIP-848 it expects one of two new members to be the first; it fails on Apache Kafka as well"
}
SCRIPTS: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}


def run(server: str, folder: Path, protocol: str = "classic") -> Results:
    """Run the suite. `protocol` of groups: "classic" or "consumer"."""
    source = npm_package(PACKAGE, VERSION, folder) / "deps" / "librdkafka"
    subprocess.run(["bash", "configure", "--disable-lz4-ext"], cwd=source, check=True, stdout=subprocess.DEVNULL)
    for where, target in ((source, "libs"), (source / "tests", "test-runner")):
        subprocess.run(["make", "-j2", target], cwd=where, check=True, stdout=subprocess.DEVNULL)
    tests = source / "tests"
    numbers = sorted({path.name[:4] for path in tests.glob("0*.c*") if path.name[:4].isdigit()})
    results = Results()
    with three_brokers(
        server,
        folder,
        min_insync_replicas="1",
        auto_create_topics_enable="true",
        default_replication_factor="3",
        num_partitions="4",
        group_min_session_timeout_ms="1000",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="true",
    ) as bootstrap:
        (tests / "suite.conf").write_text(f"bootstrap.servers={bootstrap}\ntest.timeout.multiplier=4\n")
        settings = {
            "RDKAFKA_TEST_CONF": "suite.conf",
            "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}",
            "TEST_KAFKA_VERSION": "4.3.1",
            "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
            "KAFKA_PATH": str(_scripts(folder)),
            "BROKERS": bootstrap,
        }
        for number in numbers:
            _run_one(tests, number, settings, results)
    return results


def _run_one(tests: Path, number: str, settings: dict[str, str], results: Results) -> None:
    try:
        done = subprocess.run(
            ["./test-runner", "-L", "-Q"],
            cwd=tests,
            env={**os.environ, **settings, "TESTS": number},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIME_OUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = error.output or b""
        results.failed[number] = f"not within {TIME_OUT_S} s\n{output[-600:]!r}"
        return
    if done.returncode:
        results.failed[number] = done.stdout[-2000:]
    elif f"{number}_" in done.stdout and "SKIPPING TEST" not in done.stdout:
        results.passed.append(number)
    else:
        results.skipped.append(number)


def _scripts(folder: Path) -> Path:
    """A folder as of a distribution of Apache Kafka, with the scripts in `bin`."""
    made = folder / "kafka" / "bin"
    made.mkdir(parents=True)
    for name, main in SCRIPTS.items():
        script = made / f"{name}.sh"
        script.write_text(f'#!/bin/sh\nexec java -Xmx256m -XX:+UseSerialGC -cp "{require_peer()}/*" {main} "$@"\n')
        script.chmod(0o755)
    return made.parent
