"""The load generators in C, compiled on first use: `load.c` and `many.c` with ready-made frames, `rdkafka.c` and
`transactions.c` with librdkafka."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.compat.targets import Target

HERE = Path(__file__).parent
TIMEOUT_S = 900.0


@functools.cache
def program(name: str) -> Path:
    """The path of the compiled program."""
    folder = Path(tempfile.mkdtemp(prefix="kraft-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = ["gcc", "-O2", "-o", str(folder / name), str(HERE / f"{name}.c"), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return folder / name


def send(
    target: Target,
    requests: Sequence[bytes],
    *,
    count: float = 0,
    seconds: float = 0,
    inflight: int = 5,
    fetch_at: int | None = None,
    rewind: bool = False,
) -> dict[str, Any]:
    """Send frames; see load.c. Raises AssertionError if a response has an error code or the connection is lost."""
    command = _command(target, count, seconds, inflight)
    command += [] if fetch_at is None else ["--fetch-at", str(fetch_at)]
    command += ["--rewind"] if rewind else []
    return _result(command, target, b"".join(requests))


def from_many(target: Target, connections: int, request: bytes, seconds: float) -> dict[str, Any]:
    """Send the same frame over many connections, one at a time on each; see many.c."""
    command = [str(program("many")), str(connections), str(seconds), "127.0.0.1", str(target.port)]
    return _result(command, target, request)


def _command(target: Target, count: float, seconds: float, inflight: int) -> list[str]:
    options = ["--count", f"{count:.0f}", "--seconds", str(seconds), "--inflight", str(inflight)]
    return [str(program("load")), "127.0.0.1", str(target.port), *options]


def _result(command: list[str], target: Target, given: bytes) -> dict[str, Any]:
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        raise AssertionError(f"{Path(command[0]).name}: {done.stderr.decode()} {target.tail()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def sending(target: Target, request: bytes, rate: int) -> Iterator[subprocess.Popen[bytes]]:
    """Send `rate` requests per second until the block ends or the server stops."""
    command = [*_command(target, 0, TIMEOUT_S, 5), "--rate", str(rate)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
        yield process
    finally:
        process.kill()
        process.wait()


@functools.cache
def librdkafka() -> Path:
    """The path of confluent-kafka's librdkafka. Raises AssertionError if it is missing."""
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*.so*"))
    assert found, "confluent-kafka has no librdkafka of its own; install its wheel"
    return found[0]


def rdkafka(target: Target, mode: str, topic: str, *args: str) -> dict[str, Any]:
    """Run a librdkafka client; see rdkafka.c."""
    return _result([str(program("rdkafka")), str(librdkafka()), mode, target.bootstrap, topic, *args], target, b"")


def transactions(
    target: Target, topic: str, partitions: int, producers: int, seconds: str, rate: int, *settings: str
) -> dict[str, Any]:
    """Run transactional producers of librdkafka; see transactions.c."""
    numbers = (str(partitions), str(producers), seconds, str(rate))
    command = [str(program("transactions")), str(librdkafka()), target.bootstrap, topic, *numbers, *settings]
    return _result(command, target, b"")
