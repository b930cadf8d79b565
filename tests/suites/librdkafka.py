"""librdkafka's own tests, from its sources in the npm package node-rdkafka; each in a process of its own.

A test that needs Apache Kafka's scripts calls the classes behind them. Tests on the mock cluster do not run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.compat.security.secured import STANDARD_AUTHORIZER
from tests.peer import require_peer
from tests.suites.clusters import three_brokers, three_secured
from tests.suites.fetching import npm_package
from tests.suites.results import Results
from tests.suites.securing import PASSWORD, USER

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


SETTINGS: Final = {
    "min_insync_replicas": "1",
    "auto_create_topics_enable": "true",
    "default_replication_factor": "3",
    "num_partitions": "4",
    "group_min_session_timeout_ms": "1000",
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "allow_everyone_if_no_acl_found": "true",
}
OF_AUTHENTICATION: Final = ("0128", "0135", "0142")
"""Tests whose parts are not run with -Q, as the others are."""
UNSECURED_TOKENS: Final = {
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=admin scope=requiredScope",
}


def run(server: str, folder: Path, protocol: str = "classic") -> Results:
    """Run the suite. `protocol` of groups: "classic" or "consumer"."""
    suite = Suite(folder, protocol)
    with three_brokers(server, folder, **SETTINGS) as bootstrap:
        for number in suite.numbers:
            suite.run(number, bootstrap)
    return suite.results


def run_secured(server: str, folder: Path) -> Results:
    """Run the suite with SCRAM over TLS; the tests of authentication with OAUTHBEARER as well."""
    suite = Suite(folder, "classic")
    with three_secured(server, folder, **SETTINGS) as access:
        suite.write_scripts(access.java)
        tls = {"security.protocol": "sasl_ssl", "ssl.ca.location": str(access.authority)}
        password = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
        for number in suite.numbers:
            suite.run(number, access.secure, tls | password)
        for number in OF_AUTHENTICATION:
            suite.run(number, access.secure, tls | UNSECURED_TOKENS, "OAUTHBEARER")
    return suite.results


class Suite:
    """The suite, built in `folder`; `protocol` is that of groups."""

    def __init__(self, folder: Path, protocol: str) -> None:
        source = npm_package(PACKAGE, VERSION, folder) / "deps" / "librdkafka"
        subprocess.run(["bash", "configure", "--disable-lz4-ext"], cwd=source, check=True, stdout=subprocess.DEVNULL)
        for where, target in ((source, "libs"), (source / "tests", "test-runner")):
            subprocess.run(["make", "-j2", target], cwd=where, check=True, stdout=subprocess.DEVNULL)
        self.results = Results()
        self._tests = source / "tests"
        self.numbers = sorted({path.name[:4] for path in self._tests.glob("0*.c*") if path.name[:4].isdigit()})
        self._kafka = folder / "kafka"
        self.write_scripts()
        self._settings = {
            "RDKAFKA_TEST_CONF": "suite.conf",
            "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}",
            "TEST_KAFKA_VERSION": "4.3.1",
            "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
            "KAFKA_PATH": str(self._kafka),
        }

    def write_scripts(self, client: Path | None = None) -> None:
        """Write the scripts of a distribution of Apache Kafka; `client`: a file of properties that they use."""
        made = self._kafka / "bin"
        made.mkdir(parents=True, exist_ok=True)
        options = "" if client is None else f" --command-config {client}"
        for name, main in SCRIPTS.items():
            script = made / f"{name}.sh"
            java = f'java -Xmx256m -XX:+UseSerialGC -cp "{require_peer()}/*" {main}'
            script.write_text(f'#!/bin/sh\nexec {java} "$@"{options}\n')
            script.chmod(0o755)

    def run(self, number: str, bootstrap: str, properties: dict[str, str] | None = None, way: str = "") -> None:
        """Run one test with these bootstrap servers and more properties of clients."""
        values = {"bootstrap.servers": bootstrap, "test.timeout.multiplier": "4", **(properties or {})}
        (self._tests / "suite.conf").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        name = f"{number} {way}".strip()
        _run_one(self._tests, number, name, {**self._settings, "BROKERS": bootstrap}, self.results)


def _run_one(tests: Path, number: str, name: str, settings: dict[str, str], results: Results) -> None:
    try:
        done = subprocess.run(
            ["./test-runner", "-L", *([] if number in OF_AUTHENTICATION else ["-Q"])],
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
        results.failed[name] = f"not within {TIME_OUT_S} s\n{output[-600:]!r}"
        return
    if done.returncode:
        results.failed[name] = done.stdout[-2000:]
    elif f"{number}_" in done.stdout and "SKIPPING TEST" not in done.stdout:
        results.passed.append(name)
    else:
        results.skipped.append(name)
