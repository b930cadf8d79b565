"""sarama's functional tests (github.com/IBM/sarama): five brokers behind toxiproxy, which the tests cut and stop.

Tests that run programs inside containers skip themselves or fail.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.suites.clusters import PROXY_API, PROXY_PORT, five_proxied
from tests.suites.fetching import go_module, go_program, go_test
from tests.suites.results import Results

MODULE, VERSION = "github.com/IBM/sarama", "v1.61.1"
TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
TIME_OUT_S: Final = 1200
KNOWN: Final[dict[str, str]] = {}


def run(server: str, folder: Path) -> Results:
    """Run the suite."""
    source = go_module(MODULE, VERSION, folder)
    for path in source.glob("*_test.go"):
        text = path.read_text()
        if "29090+i" in text:  # the ports may be in use
            path.write_text(text.replace("29090+i", f"{PROXY_PORT}+i"))
    program = folder / "sarama.test"
    go_test(source, program, "-tags", "functional")
    go_program(TOXIPROXY, folder)
    with five_proxied(server, folder, folder / "server") as shim:
        settings = {"TOXIPROXY_ADDR": PROXY_API, "KAFKA_VERSION": "4.3.1", "PATH": f"{shim}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(program), "-test.v", "-test.run", "^TestFunc", f"-test.timeout={TIME_OUT_S}s"],
            env={**os.environ, **settings},
            cwd=source,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    results = Results().read_go(done.stdout)
    if "panic: " in done.stdout:
        results.failed["the program"] = done.stdout[-2000:]
    return results
