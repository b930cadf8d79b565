"""The integration tests of rskafka (crates.io/crates/rskafka), a client in Rust of its own, against three brokers. Part
of them exchange records with librdkafka, which the crate builds.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

from tests.suites.clusters import three_brokers
from tests.suites.fetching import crate
from tests.suites.results import Results

CRATE, VERSION = "rskafka", "0.6.0"
FEATURES: Final = "compression-gzip compression-lz4 compression-snappy compression-zstd transport-tls transport-socks5"
KNOWN: Final[dict[str, str]] = {}


def run(server: str, folder: Path) -> Results:
    """Build and run the suite."""
    source = crate(CRATE, VERSION, folder)
    (source / "rust-toolchain.toml").unlink()  # it asks for a certain release of Rust
    subprocess.run(["cargo", "update", "--quiet", "-p", "rsasl"], cwd=source, check=True)  # does not compile any more
    results = Results()
    with three_brokers(server, folder, auto_create_topics_enable="false") as bootstrap:
        environment = {"TEST_INTEGRATION": "1", "TEST_BROKER_IMPL": "kafka", "KAFKA_CONNECT": bootstrap}
        for name, program in _programs(source).items():
            done = subprocess.run(
                [str(program), "--test-threads=2"],
                env={**os.environ, **environment},
                cwd=source,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            results.read_rust(name, done.stdout)
            if done.returncode and not results.failed:
                results.failed[name] = (done.stdout + done.stderr)[-2000:]
    return results


def _programs(source: Path) -> dict[str, Path]:
    """Build the test programs: of the library, and of each file of integration tests."""
    command = ["cargo", "test", "--quiet", "--no-run", "--message-format=json", "--features", FEATURES]
    done = subprocess.run(command, cwd=source, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["target"]["name"]: Path(one["executable"]) for one in messages if one.get("executable")}
