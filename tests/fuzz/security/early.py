"""Hostile bytes before authentication: conversations of SASL listeners, and TLS handshakes, mutated under a seed.

    python -m tests.fuzz.security.early --inputs 1000000 --seed 0

Each input is the whole life of a connection. Nothing but a served request, an answer or a closed connection may
follow: no exception, no request of an unknown client served, no connection that keeps more bytes than its limit.
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import ssl
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from kraft_node.security.sasl.oauthbearer import OauthBearer, UnsecuredTokens
from kraft_node.security.sasl.scram import ScramUsers
from kraft_node.server.connections.security import EARLY_BYTES_MAX
from kraft_protocol.sasl import scram
from kraft_protocol.tls.contexts import make_contexts
from kraft_protocol.tls.errors import TlsError
from kraft_protocol.tls.session import TlsSession
from kraft_protocol.tls.settings import SslSettings
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import encode_request
from kraft_protocol.wire.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kraft_protocol.wire.stored import UserScramCredentialRecord
from tests.certificates import Authority
from tests.unit.server.connections.fakes import feed
from tests.unit.server.connections.test_sasl_login import SaslWorld

MEMORY_MAX_KIB: Final = 64 * 1024
"""The process may grow by so much over all inputs, which are freed after each connection."""
TLS_SHARE: Final = 8
"""One of so many inputs is a TLS handshake."""
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "ONESTEP", "GSSAPI", "")
_TOKENS: Final = (
    b"\0ann\0wrong",
    b"ann\0ann\0wrong",
    b"\0\0",
    b"",
    b"n,,n=ann,r=abc",
    b"n,a=ann,n=ann,r=abc,tokenauth=true",
    b"c=biws,r=abc,p=AAAA",
    b"n,,\x01auth=Bearer e30.e30.\x01\x01",
    b"n,a=x,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.\x01k=v\x01\x01",
    b"\x01",
    b"invalid",
    b"refused",
)
_LENGTHS: Final = (0, -1, 1, 7, 8, EARLY_BYTES_MAX, EARLY_BYTES_MAX + 1, 2**31 - 1, -(2**31))


class World(SaslWorld):
    """A listener with every mechanism that needs no other server. No input has a right password."""

    def __init__(self) -> None:
        super().__init__()
        mechanisms = self.sasl.mechanisms
        salted = scram.salted_password("sha256", "secret", b"salt", 4096)
        stored_key, server_key = scram.keys("sha256", salted)
        record = UserScramCredentialRecord("ann", 1, b"salt", stored_key, server_key, 4096)
        image: Any = type("Image", (), {"scram": {(1, "ann"): record}})()
        mechanisms["SCRAM-SHA-256"] = ScramUsers("SCRAM-SHA-256", image, lambda _: None, random.randbytes)
        mechanisms["OAUTHBEARER"] = OauthBearer(
            UnsecuredTokens({"unsecuredValidatorRequiredScope": "nobody has it"}, self.clock.wall_ms)
        )
        del mechanisms["ONESTEP"]  # believes everybody


def _frame(rng: random.Random) -> bytes:
    """A request of the beginning of a connection, or one that must not be there."""
    kind = rng.randrange(8)
    message: Any
    if kind == 0:
        name = rng.choice(("test", "", "a b", "x" * 300))
        key, version = ApiKey.API_VERSIONS, rng.randrange(5)
        message = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    elif kind <= 2:
        key, version = ApiKey.SASL_HANDSHAKE, rng.randrange(2)
        message = SaslHandshakeRequest(rng.choice(_MECHANISMS))
    elif kind <= 5:
        key, version = ApiKey.SASL_AUTHENTICATE, rng.randrange(3)
        message = SaslAuthenticateRequest(rng.choice(_TOKENS))
    elif kind == 6:
        token = rng.choice(_TOKENS)  # after SaslHandshake v0, tokens travel without a header
        return struct.pack(">i", len(token)) + token
    else:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "u" * 200)[: rng.randrange(3)]]
        key, version, message = ApiKey.METADATA, rng.choice((1, 8)), MetadataRequest(topics=topics)
    parts = encode_request(rng.randrange(1 << 31), key, version, rng.choice((None, "", "app")), message)
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """`raw` with up to eight faults."""
    data = bytearray(raw)
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        kind, at = rng.randrange(5), rng.randrange(len(data) + 1)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 2:
            del data[at : at + rng.randrange(1, 9)]
        elif kind == 3:
            data[at : at + 4] = struct.pack(">i", rng.choice(_LENGTHS))
        else:
            data += data[: rng.randrange(len(data) + 1)]
    return bytes(data)


def talk(world: World, rng: random.Random) -> str:
    """One connection of a SASL listener; returns what became of it."""
    connection, transport = world.connect()
    data = b"".join(_frame(rng) for _ in range(rng.randrange(1, 6)))
    if rng.randrange(20) == 0:
        data = rng.randbytes(rng.randrange(1, 200))
    for piece in _pieces(mutated(data, rng), rng):
        if transport.closed or transport.aborted or not transport.reading:
            break
        feed(connection, piece)
        world.scheduler.run()
    world.wait(1000)
    assert not world.served, f"a request of {world.served} was served"
    held = connection.held_bytes
    assert held <= 2 * EARLY_BYTES_MAX, f"a connection without a principal keeps {held} bytes"
    result = "closed" if transport.closed or transport.aborted else "waits"
    connection.connection_lost(None)
    assert not world.listener.connections
    world.timers.clear()
    return result


def _pieces(data: bytes, rng: random.Random) -> list[bytes]:
    if rng.randrange(3):
        return [data]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


class Handshakes:
    """TLS servers that get mutated messages of honest clients."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        stores = authority.issue("CN=node").stores()
        self._contexts = make_contexts(SslSettings.parse({**stores, "ssl.client.auth": "requested"}))
        self._anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._anyone.check_hostname = False
        self._anyone.verify_mode = ssl.CERT_NONE

    def talk(self, rng: random.Random) -> str:
        server, client = self._contexts.server_session(), TlsSession(self._anyone, is_server=False)
        is_done = False
        for turn in range(4):
            try:
                if not is_done:
                    is_done = client.handshake()
                sent = client.take()
                if turn == rng.randrange(3) or rng.randrange(4) == 0:
                    sent = mutated(sent, rng) or b"\x16"
                server.feed(sent)
                server.handshake()
                client.feed(server.take())
                if is_done:
                    server.read_into(memoryview(bytearray(64)))
            except TlsError:
                return "alert"
        return "tls waits"


def run(inputs: int, seed: int, *, progress: bool = False) -> Counter[str]:
    """Talk to servers so many times. Raises AssertionError, with the number of the input that replays it."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        tls = Handshakes(Path(folder))
        world, before = World(), 0
        for number in range(inputs):
            rng = random.Random(f"{seed}-{number}")
            try:
                outcome = tls.talk(rng) if number % TLS_SHARE == 0 else talk(world, rng)
            except Exception as error:
                raise AssertionError(f"input {number} of seed {seed}: {error!r}") from error
            outcomes[outcome] += 1
            if number == min(5000, inputs // 2):  # caches are full by then
                before = _memory_kib()
            if progress and number % 50_000 == 0:
                print(f"{number:,} {dict(outcomes)} {_memory_kib()} KiB", flush=True)
        grown = _memory_kib() - before
    assert grown <= MEMORY_MAX_KIB, f"the process has grown by {grown} KiB over {inputs} inputs"
    return outcomes


def _memory_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.disable(logging.ERROR)  # a line for each refusal
    began = time.monotonic()
    outcomes = run(args.inputs, args.seed, progress=True)
    print(f"{args.inputs:,} inputs of seed {args.seed} in {time.monotonic() - began:.0f} s: {dict(outcomes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
