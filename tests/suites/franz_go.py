"""franz-go's own tests (github.com/twmb/franz-go, package kgo): chains of groups and of transactions under rebalances,
with every assignor, protocol and static members; and its regressions.

Tests of share groups skip themselves, because the node does not advertise them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.suites.clusters import three_brokers, three_secured
from tests.suites.fetching import go_module, go_test
from tests.suites.results import Results
from tests.suites.securing import PASSWORD, USER

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.3"
TIME_OUT_S: Final = 1200
ALONE: Final = "TestGroupETL|TestTxnEtl|Test848RegexBrokerResolves"
"""Long tests, and one that expects no other records in the internal topics."""
OWN_DIALER: Final = "TestIssue769"
"""A test with a dialer of its own, which the client refuses together with TLS; the nil client ends the program."""
WITHOUT_SASL: Final = "\tif testCert != nil {\n\t\topts = append(opts, DialTLSConfig(testCert))"
WITH_SASL: Final = "\tif saslScram != nil {\n\t\topts = append(opts, SASL(saslScram))\n\t}\n"
"""The suite has options of clients for TLS, but for SASL in the tests of authentication only."""
KNOWN: Final[dict[str, str]] = {}


def run(server: str, folder: Path, *, records: int = 20_000) -> Results:
    """Run the suite. `records`: how many each chain copies."""
    program, source = _built(folder)
    with three_brokers(server, folder) as bootstrap:
        return _run(program, source, {"KGO_SEEDS": bootstrap, "KGO_TEST_RECORDS": str(records)})


def run_chaos(server: str, folder: Path) -> Results:
    """Run the chains with connections that each end after 0.5 to 1.5 seconds, as the suite can make them."""
    program, source = _built(folder)
    with three_brokers(server, folder) as bootstrap:
        settings = {"KGO_SEEDS": bootstrap, "KGO_TEST_RECORDS": "5000", "KGO_TEST_CHAOS": "1"}
        return _run(program, source, settings, [["-test.run", "^TestGroupETL$"]])


def run_secured(server: str, folder: Path, *, records: int = 20_000) -> Results:
    """Run the suite with SCRAM over TLS for all clients, and its tests of authentication."""
    source = go_module(MODULE, VERSION, folder) / "pkg" / "kgo"
    path = source / "helpers_test.go"
    text = path.read_text()
    assert text.count(WITHOUT_SASL) == 1, "the suite's options of clients have changed"
    path.write_text(text.replace(WITHOUT_SASL, WITH_SASL + WITHOUT_SASL))
    program = folder / "kgo.test"
    go_test(source, program)
    with three_secured(server, folder) as access:
        settings = {
            "KGO_SEEDS": access.secure,
            "KGO_TEST_TLS": f"ca:{access.authority}",
            "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:512",
            "KGO_TEST_SCRAM_SEEDS": access.in_the_clear,
            "KGO_TEST_OAUTH_SEEDS": access.in_the_clear,
            "KGO_TEST_RECORDS": str(records),
        }
        return _run(program, source, settings, _parts(f"{ALONE}|{OWN_DIALER}"))


def _built(folder: Path) -> tuple[Path, Path]:
    """The test program, and the folder of its sources."""
    program, source = folder / "kgo.test", go_module(MODULE, VERSION, folder) / "pkg" / "kgo"
    go_test(source, program)
    return program, source


def _parts(left_out: str = ALONE) -> list[list[str]]:
    """The options of each run: most tests together, and some alone."""
    return [["-test.skip", left_out], *(["-test.run", f"^{name}$"] for name in ALONE.split("|"))]


def _run(program: Path, source: Path, settings: dict[str, str], parts: list[list[str]] | None = None) -> Results:
    results = Results()
    common = {"KGO_TEST_RF": "3", "KGO_TEST_MAX_TOPIC_PARTS": "7", "KGO_LOG_LEVEL": "none"}
    for chosen in parts or _parts():
        done = subprocess.run(
            [str(program), "-test.v", f"-test.timeout={TIME_OUT_S}s", *chosen],
            env={**os.environ, **common, **settings},
            cwd=source,  # one test reads a file of the package
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        results.read_go(done.stdout)
        if "panic: " in done.stdout + done.stderr:
            results.failed[f"the program, with {chosen[1]}"] = (done.stdout + done.stderr)[-2000:]
    return results
