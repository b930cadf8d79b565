"""The tests of watermill-kafka (github.com/ThreeDotsLabs/watermill-kafka): publishers and subscribers on sarama, with
and without groups, that lose their connections, against three brokers.

In short mode: in the long one, tests with time limits failed on a busy machine, each time others. It has
not run against Apache Kafka.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.suites.clusters import three_brokers
from tests.suites.fetching import go_module, go_test
from tests.suites.results import Results

MODULE, VERSION = "github.com/ThreeDotsLabs/watermill-kafka/v3", "v3.0.6"
TIME_OUT_S: Final = 900
KNOWN: Final[dict[str, str]] = {}


def run(server: str, folder: Path) -> Results:
    """Build and run the suite."""
    source, program = go_module(MODULE, VERSION, folder) / "pkg" / "kafka", folder / "watermill.test"
    go_test(source, program)
    with three_brokers(server, folder, auto_create_topics_enable="true", min_insync_replicas="1") as bootstrap:
        done = subprocess.run(
            [str(program), "-test.v", "-test.short", "-test.parallel=4", f"-test.timeout={TIME_OUT_S}s"],
            env={**os.environ, "WATERMILL_TEST_KAFKA_BROKERS": bootstrap},
            cwd=source,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    results = Results().read_go(done.stdout, methods=True)
    if done.returncode and not results.failed:
        results.failed["the program"] = (done.stdout + done.stderr)[-2000:]
    return results
