"""Thousands of random requests over sockets, half of them damaged: no traceback, and the node survives."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from pathlib import Path

from kraft_protocol.buffers import FileSlice
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.errors import EncodeError
from kraft_protocol.wire.frames import encode_request
from tests.compat.targets import Ours
from tests.wire_values import random_message

CLIENT = "Requests at random"
SEED = int(os.environ.get("ROUGH_SEED", "1"))
REQUESTS = int(os.environ.get("ROUGH_REQUESTS", "3000"))
HARMFUL = (ApiKey.UNREGISTER_BROKER,)
"""Requests that a broker obeys, and that stop it: they need a broker of their own."""
A_CONNECTION = 20
"""Requests over one connection; a damaged one ends it."""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """`data` after its length, with some bytes changed, and sometimes with a wrong length."""
    raw = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        raw[rng.randrange(4 if rng.random() < 0.9 else 0, len(raw))] = rng.randrange(256)
    return bytes(raw)


def test_random_requests_cause_no_fault(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    node = Ours("node", tmp_path)
    node.start()
    try:
        printed = shower(node, rng)
    finally:
        node.kill()
    assert "Traceback" not in printed, printed[printed.index("Traceback") - 500 :][:4000]


def shower(node: Ours, rng: random.Random) -> str:
    """Send all requests. Returns the node's log."""
    keys = [key for key in ApiKey if key in API and "broker" in API[key].listeners and key not in HARMFUL]
    sent = 0
    while sent < REQUESTS:
        with suppress(OSError), socket.create_connection(("127.0.0.1", node.port), 5) as connection:
            connection.settimeout(0.02)
            for number in range(A_CONNECTION):
                key = rng.choice(keys)
                spec = API[key]
                version = rng.randint(spec.min_version, spec.max_version)
                sent += 1
                try:
                    parts = encode_request(number, key, version, "rough", random_message(spec.request, version, rng))
                except EncodeError:
                    continue
                data = b"".join(bytes(part) for part in parts if not isinstance(part, FileSlice))
                connection.sendall(damaged(data, rng) if rng.random() < 0.5 else data)
                with suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        break
    assert node.process is not None
    assert node.process.poll() is None
    node.wait_ready()
    printed = node.log.read_text()
    assert node.stop() == 0
    return printed
