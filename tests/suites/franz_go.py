"""franz-go's own tests (github.com/twmb/franz-go, package kgo): chains of groups and of transactions under rebalances,
with every assignor, protocol and static members; and its regressions.

Tests of share groups skip themselves, because the node does not advertise them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.suites.clusters import three_brokers
from tests.suites.fetching import go_module, go_test
from tests.suites.results import Results

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.3"
TIME_OUT_S: Final = 1200
ALONE: Final = "TestGroupETL|TestTxnEtl|Test848RegexBrokerResolves"
"""Long tests, and one that expects no other records in the internal topics."""
KNOWN: Final[dict[str, str]] = {}


def run(server: str, folder: Path, *, records: int = 20_000) -> Results:
    """Run the suite. `records`: how many each chain copies."""
    program, source = folder / "kgo.test", go_module(MODULE, VERSION, folder) / "pkg" / "kgo"
    go_test(source, program)
    results = Results()
    with three_brokers(server, folder) as bootstrap:
        settings = {
            "KGO_SEEDS": bootstrap,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": str(records),
            "KGO_TEST_MAX_TOPIC_PARTS": "7",
            "KGO_LOG_LEVEL": "none",
        }
        for chosen in (["-test.skip", ALONE], *(["-test.run", f"^{name}$"] for name in ALONE.split("|"))):
            done = subprocess.run(
                [str(program), "-test.v", f"-test.timeout={TIME_OUT_S}s", *chosen],
                env={**os.environ, **settings},
                cwd=source,  # one test reads a file of the package
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            results.read_go(done.stdout)
            if "panic: " in done.stdout:
                results.failed[f"the program, with {chosen[1]}"] = done.stdout[-2000:]
    return results
