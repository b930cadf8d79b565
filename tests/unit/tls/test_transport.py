"""TLS between a transport and its receiver (`server.tls.tls_transport`), and the limits of handshakes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraft_node.base.env import ColdRead
from kraft_node.server.tls.handshakes import TIMEOUT_MS, Handshakes
from kraft_node.server.tls.tls_transport import CIPHERTEXT_MAX, PIECE, TlsTransport
from kraft_protocol.buffers import FileSlice
from kraft_protocol.tls.contexts import Contexts, make_contexts
from kraft_protocol.tls.session import TlsSession
from kraft_protocol.tls.settings import SslSettings
from tests.certificates import Authority
from tests.unit.server.connections.fakes import World

READ = 16 * 1024


class Lanes:
    """Background work that runs when the test lets it."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[str, Any, Any]] = deque()

    def submit(self, lane: str, work: Any, done: Any) -> None:
        self.jobs.append((lane, work, done))

    def run(self) -> bool:
        if not self.jobs:
            return False
        _, work, done = self.jobs.popleft()
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)
        return True


class Raw:
    """A transport in memory. `capacity` bytes of each write are sent at once, the rest when `flush` is called."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.peer = (host, 40_000)
        self.data = bytearray()
        self.unsent = bytearray()
        self.stuck = False
        self.reading = True
        self.closed = self.aborted = False
        self.highest = 0

    @property
    def unsent_bytes(self) -> int:
        return len(self.unsent)

    held_bytes = unsent_bytes

    def write(self, parts: Sequence[Any]) -> None:
        for part in parts:
            (self.unsent if self.stuck else self.data).extend(part)
        self.highest = max(self.highest, len(self.unsent))

    def flush(self) -> None:
        self.data += self.unsent
        self.unsent.clear()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Sink:
    """A receiver that collects bytes; pauses after `pause_after` bytes, if set."""

    def __init__(self, buffer: int = READ) -> None:
        self.buffer = memoryview(bytearray(buffer))
        self.got = bytearray()
        self.drains = 0
        self.lost: list[OSError | None] = []
        self.transport: Any = None
        self.pauses = False

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.got += self.buffer[:count]
        if self.pauses:
            self.transport.pause_reading()

    def drained(self) -> None:
        self.drains += 1

    def connection_lost(self, error: OSError | None) -> None:
        self.lost.append(error)


class Pair:
    """A TLS server and a TLS client, connected."""

    def __init__(self, contexts: Contexts, client: TlsSession | None = None) -> None:
        self.world = World({})
        self.lanes = Lanes()
        env: Any = replace(self.world.env, background=self.lanes)
        self.handshakes = Handshakes(env)
        self.raw = (Raw(), Raw("10.0.0.2"))
        self.sinks = (Sink(), Sink())
        self.established: list[TlsTransport] = []
        self.failures: list[Exception] = []
        self.ends = (
            TlsTransport(
                self.handshakes,
                self.raw[0],
                contexts.server_session(),
                is_server=True,
                established=lambda transport, receiver: self.established.append(transport),
                failed=lambda transport, error: self.failures.append(error),
            ),
            TlsTransport(self.handshakes, self.raw[1], client or contexts.client_session("localhost"), is_server=False),
        )
        for end, sink in zip(self.ends, self.sinks, strict=True):
            sink.transport = end
            end.start(sink)

    def move(self) -> bool:
        """Carry bytes that wait, both ways."""
        moved = False
        for here, there in ((0, 1), (1, 0)):
            source, target = self.raw[here], self.raw[there]
            while source.data and target.reading and not target.aborted:
                buffer = self.ends[there].get_buffer(-1)
                count = min(len(source.data), len(buffer))
                buffer[:count] = source.data[:count]
                del source.data[:count]
                self.ends[there].buffer_updated(count)
                moved = True
        return moved

    def settle(self) -> None:
        while self.lanes.run() or self.move() or self.world.scheduler.soon:
            self.world.scheduler.run()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    node = Authority(tmp_path_factory.mktemp("certificates")).issue("CN=node")
    return make_contexts(SslSettings.parse({**node.stores(), "ssl.client.auth": "required"}))


@pytest.fixture
def pair(contexts: Contexts) -> Pair:
    pair = Pair(contexts)
    pair.settle()
    assert pair.established == [pair.ends[0]]
    return pair


def test_bytes_written_before_the_handshake_arrive_after_it(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.ends[1].write([b"hello ", b"node"])
    assert not pair.raw[1].data
    pair.settle()
    assert bytes(pair.sinks[0].got) == b"hello node"
    assert pair.ends[1].unsent_bytes == 0


def test_bytes_written_before_the_start_arrive(contexts: Contexts) -> None:
    """A channel writes its first request before the transport knows its receiver."""
    pair = Pair(contexts)
    late = TlsTransport(pair.handshakes, Raw(), contexts.client_session("localhost"), is_server=False)
    late.write([b"early"])
    assert late.unsent_bytes == 5


def test_handshakes_run_in_lanes_only(contexts: Contexts) -> None:
    pair = Pair(contexts)
    for _ in range(10):
        pair.move()
        pair.world.scheduler.run()
    assert not pair.raw[0].data and not pair.ends[0].is_established


def test_random_writes_arrive_in_order_in_both_directions(pair: Pair) -> None:
    rng = random.Random(4)
    sent = [bytearray(), bytearray()]
    for _ in range(60):
        end = rng.randrange(2)
        parts = [rng.randbytes(rng.choice([0, 1, 100, 5_000, 300_000])) for _ in range(rng.randrange(1, 4))]
        sent[end] += b"".join(parts)
        pair.ends[end].write(parts)
        if rng.random() < 0.5:
            pair.settle()
    pair.settle()
    assert bytes(pair.sinks[1].got) == bytes(sent[0])
    assert bytes(pair.sinks[0].got) == bytes(sent[1])


def test_ciphertext_is_limited_while_the_client_does_not_read(pair: Pair) -> None:
    pair.raw[0].stuck = True
    data = random.Random(1).randbytes(8 << 20)
    pair.ends[0].write([data])
    assert pair.raw[0].highest <= CIPHERTEXT_MAX + PIECE + 8 * 1024
    assert pair.ends[0].unsent_bytes >= len(data)
    assert pair.ends[0].held_bytes >= len(data)
    assert pair.sinks[0].drains == 0
    while pair.ends[0].unsent_bytes:
        pair.raw[0].flush()
        pair.ends[0].drained()
        pair.settle()
    assert bytes(pair.sinks[1].got) == data
    assert pair.sinks[0].drains == 1


class SlowFile:
    """A file whose first read of each piece finds it cold."""

    path = "/data/t-0/00.log"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.warm: set[int] = set()

    def pread(self, position: int, length: int) -> bytes:
        if position not in self.warm:
            self.warm.add(position)
            raise ColdRead(self.path, position, length)
        return self.data[position : position + length]

    def fileno(self) -> int:
        return -1


def test_cold_pieces_of_files_are_read_in_lanes_and_in_order(pair: Pair) -> None:
    data = random.Random(2).randbytes(PIECE * 2 + 1000)
    pair.ends[0].write([b"head", FileSlice(SlowFile(data), 10, len(data) - 10), b"tail"])
    assert bytes(pair.sinks[1].got) == b""
    pair.ends[0].write([b"next"])
    pair.settle()
    assert bytes(pair.sinks[1].got) == b"head" + data[10:] + b"tail" + b"next"
    assert pair.ends[0].unsent_bytes == pair.ends[0].held_bytes == 0


def test_a_truncated_file_breaks_the_connection(pair: Pair) -> None:
    file = SlowFile(b"x" * 100)
    pair.ends[0].write([FileSlice(file, 0, 200)])
    pair.settle()
    assert pair.sinks[0].lost and "ended at 100" in str(pair.sinks[0].lost[0])


def test_a_paused_receiver_gets_the_rest_after_it_resumes(pair: Pair) -> None:
    sink = pair.sinks[0]
    sink.pauses = True
    data = bytes(range(256)) * 1024
    pair.ends[1].write([data])
    pair.settle()
    assert len(sink.got) == READ
    steps = 1
    while len(sink.got) < len(data):
        before = len(sink.got)
        pair.ends[0].resume_reading()
        pair.settle()
        assert before < len(sink.got) <= before + READ
        steps += 1
    assert bytes(sink.got) == data and steps == len(data) // READ


def test_a_close_sends_everything_and_ends_the_other_side(pair: Pair) -> None:
    pair.ends[0].write([b"last words"])
    pair.ends[0].close()
    assert pair.raw[0].closed
    pair.settle()
    assert bytes(pair.sinks[1].got) == b"last words"
    assert pair.raw[1].aborted  # it saw close_notify


def test_a_close_waits_for_data_that_does_not_fit(pair: Pair) -> None:
    pair.raw[0].stuck = True
    data = b"x" * (2 << 20)
    pair.ends[0].write([data])
    pair.ends[0].close()
    rounds = 0
    while not pair.raw[0].closed:
        pair.raw[0].flush()
        pair.ends[0].drained()
        pair.settle()
        rounds += 1
    assert rounds > 1
    pair.raw[0].flush()
    pair.settle()
    assert bytes(pair.sinks[1].got) == data


def test_plaintext_at_a_tls_server_is_a_failure_and_gets_an_alert(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.raw[1].data[:] = b"\x00\x00\x00\x10 not TLS at all"
    pair.settle()
    assert len(pair.failures) == 1 and "does not speak TLS" in str(pair.failures[0])
    assert pair.raw[0].closed and pair.sinks[0].lost == pair.failures
    assert pair.handshakes.unfinished == 0


def test_an_untrusted_client_is_a_failure(contexts: Contexts, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("CN=evil")
    texts = {**stranger.stores(), "ssl.truststore.location": contexts.settings.truststore.location}
    client = make_contexts(SslSettings.parse(texts)).client_session("localhost")
    pair = Pair(contexts, client)
    pair.settle()
    assert "not trusted" in str(pair.failures[0]) and pair.established == []
    pair.settle()


def test_a_client_refuses_a_certificate_of_another_host(contexts: Contexts) -> None:
    pair = Pair(contexts, contexts.client_session("other.example"))
    pair.settle()
    assert "not trusted" in str(pair.sinks[1].lost[0])
    assert pair.established == []


def test_a_connection_that_ends_in_its_handshake_is_no_failure(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.lanes.run()
    pair.move()
    pair.ends[0].connection_lost(None)
    pair.settle()
    assert pair.failures == [] and isinstance(pair.sinks[0].lost[0], ConnectionResetError)
    assert pair.handshakes.unfinished == 0


def test_damaged_ciphertext_ends_the_connection(pair: Pair) -> None:
    pair.ends[1].write([b"x" * 1000])
    pair.raw[1].data[500] ^= 1
    pair.settle()
    assert bytes(pair.sinks[0].got) == b"" and len(pair.sinks[0].lost) == 1


def test_random_bytes_before_the_handshake_never_raise(contexts: Contexts) -> None:
    rng = random.Random(7)
    hello = Pair(contexts)
    hello.lanes.run()
    valid = bytes(hello.raw[1].data)
    for _ in range(300):
        pair = Pair(contexts)
        data = bytearray(valid)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        pair.raw[1].data[:] = data[: rng.randrange(1, len(data) + 1)] if rng.random() < 0.8 else rng.randbytes(200)
        pair.lanes.jobs.clear()
        pair.handshakes._free[:] = ["tls:0", "tls:1"]
        pair.settle()
        assert not pair.ends[0].is_established and not pair.sinks[0].got


# Limits


class Waiting:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def test_the_oldest_handshake_of_the_busiest_address_is_closed_above_the_limit(contexts: Contexts) -> None:
    handshakes = Pair(contexts).handshakes
    handshakes.unfinished_max = 3
    honest, flood = Waiting(), [Waiting() for _ in range(5)]
    handshakes.begin("10.0.0.1", honest)
    for one in flood:
        handshakes.begin("10.0.0.66", one)
    assert handshakes.unfinished == 3
    assert handshakes.abandoned == {"limit": 3, "timeout": 0}
    assert honest.reasons == [] and [bool(one.reasons) for one in flood] == [True, True, True, False, False]


def test_a_handshake_that_does_not_end_is_closed(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.lanes.run()
    pair.move()
    delays = [delay for delay, *_ in pair.world.scheduler.later]
    assert TIMEOUT_MS in delays and pair.handshakes.unfinished == 1
    pair.world.scheduler.fire()
    assert pair.raw[0].aborted and pair.handshakes.unfinished == 0
    assert pair.handshakes.abandoned == {"limit": 0, "timeout": 1}


def test_a_finished_handshake_is_not_closed_by_its_time_out(pair: Pair) -> None:
    pair.world.scheduler.fire()
    assert not pair.raw[0].aborted


def test_handshakes_of_addresses_take_turns(contexts: Contexts) -> None:
    pair = Pair(contexts)
    pair.settle()
    order: list[str] = []

    def note(name: str) -> bool:
        order.append(name)
        return True

    for number in range(6):
        pair.handshakes.run("flood", partial(note, f"flood{number}"), lambda _: None)
    pair.handshakes.run("honest", partial(note, "honest"), lambda _: None)
    while pair.lanes.run():
        pass
    assert order.index("honest") <= 3 and len(order) == 7


def test_the_timer_of_a_handshake_ends_with_it(contexts: Contexts) -> None:
    """A client's flights are one handshake, and a closed connection must not stay until its time is over."""
    pair = Pair(contexts)
    pair.lanes.run()
    pair.move()
    pair.handshakes.begin("10.0.0.1", pair.ends[0])
    delays = [delay for delay, *_ in pair.world.scheduler.later]
    assert (delays.count(TIMEOUT_MS), pair.handshakes.unfinished) == (1, 1)
    pair.settle()
    assert pair.established
    delays = [delay for delay, *_ in pair.world.scheduler.later]
    assert (delays.count(TIMEOUT_MS), pair.handshakes.unfinished) == (0, 0)
