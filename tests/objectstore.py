"""An S3-compatible store for one test: moto's server, a child process, all data in memory."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 120.0
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@contextmanager
def object_store(folder: Path, bucket: str) -> Iterator[dict[str, str]]:
    """A running store with a bucket; yields the value of `table.storageOptions`."""
    log = folder / "store.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **KEYS})
    try:
        port = _port(log, process)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", f"/{bucket}")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 200, log.read_text()
        yield {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", **KEYS}
    finally:
        process.kill()
        process.wait()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
        if found:
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"the store has not started: {log.read_text()}")
