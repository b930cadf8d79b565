"""Recompressed batches: large ones in a lane, in order, and no failure leaves a client waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft_node.log.log import Log
from kraft_node.log.validate import INLINE_RECODED
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch, iter_records, read_header
from kraft_protocol.records.compression import Compression
from tests.unit.broker.producing import test_producing
from tests.unit.broker.producing.test_producing import rows
from tests.unit.broker.world import Client, topic_records
from tests.unit.log.world import LogWorld

NOW = 5


class Lane:
    """A lane that works on command."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        assert lane == "recoding"
        self.jobs.append((work, done))

    def run(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            try:
                result: Any = work()
            except Exception as error:
                result = error
            done(result)


class Barring(Client):
    """A client whose connection records whether it may handle more."""

    is_barred = False

    def bar(self) -> None:
        self.is_barred = True

    def unbar(self) -> None:
        self.is_barred = False


class Rig(test_producing.Rig):
    def __init__(self, codec: str) -> None:
        super().__init__()
        self.log = LogWorld().open({"compression.type": codec})
        self.lane = Lane()
        self.handler.background = self.lane  # type: ignore[assignment]
        self.connection = self.client = Barring()
        self.commit(topic_records("a", 1))

    def _open(self, topic: str, index: int, id_: bytes, _state: Any) -> Log:  # type: ignore[override]
        return self.log

    def work(self) -> None:
        """Finish checks and the lane's work."""
        while self.loop.pending or self.lane.jobs:
            self.loop.run()
            self.lane.run()

    def stored(self) -> list[tuple[int, list[bytes | None]]]:
        """Codec and values of each batch in the log."""
        found, offset = [], 0
        while offset < self.log.end_offset:
            records = self.log.read(offset, 1, min_one=True).records
            data = records.read() if hasattr(records, "read") else bytes(records)
            header = read_header(data)
            found.append((header.compression, [record.value for record in iter_records(data)]))
            offset = header.last_offset + 1
        return found


def batch(size: int, value: bytes = b"v", **fields: Any) -> bytes:
    return build_batch([(None, value * size)] * 2, timestamp=NOW, **fields)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", [Compression.NONE, Compression.ZSTD, Compression.GZIP])
def test_large_batches_are_compressed_in_a_lane(codec: str, sent: Compression) -> None:
    rig = Rig(codec)
    size = 200_000
    if Compression[codec.upper()] == sent:
        return
    assert rig.produce(("a", 0, batch(size, compression=sent))) is None
    assert rig.log.end_offset == 0
    assert rig.connection.is_barred, "what the client sends next must not pass"
    rig.work()
    assert not rig.connection.is_barred
    row = rows(rig.seen(rig.client.answers.pop(), 12))["a", 0]
    assert (row.error_code, row.base_offset) == (0, 0)
    assert rig.stored() == [(Compression[codec.upper()], [b"v" * size] * 2)]


def test_small_batches_are_compressed_at_once() -> None:
    rig = Rig("zstd")
    answer = rig.produce(("a", 0, batch(INLINE_RECODED // 4)))
    assert rows(answer)["a", 0].base_offset == 0
    assert not rig.lane.jobs
    assert [codec for codec, _ in rig.stored()] == [Compression.ZSTD]


def test_a_small_batch_that_decompresses_to_much_is_work_for_the_lane() -> None:
    rig = Rig("gzip")
    sent = batch(1 << 20, compression=Compression.ZSTD)
    assert len(sent) < INLINE_RECODED
    assert rig.produce(("a", 0, sent)) is None
    rig.work()
    assert rig.log.end_offset == 2


def test_a_bomb_is_refused() -> None:
    rig = Rig("gzip")
    rig.produce(("a", 0, batch(40 << 20, compression=Compression.ZSTD)))
    rig.work()
    row = rows(rig.seen(rig.client.answers.pop(), 12))["a", 0]
    assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert not rig.connection.is_barred


def test_batches_of_one_request_are_compressed_one_after_the_other() -> None:
    rig = Rig("zstd")
    rig.produce(("a", 0, batch(100_000, b"1")), ("a", 0, batch(100_000, b"2")))
    assert len(rig.lane.jobs) == 1
    rig.work()
    assert [values[0][:1] for _, values in rig.stored() if values[0]] == [b"1", b"2"]


@pytest.mark.parametrize("where", ["lane", "append"])
def test_a_failure_closes_only_its_own_connection(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig("zstd")
    rig.produce(("a", 0, batch(100_000)))
    (work, done), rig.lane.jobs = rig.lane.jobs[0], []
    if where == "lane":
        done(RuntimeError("a defect"))
    else:
        partition = rig.replicas.leader("a", 0)
        monkeypatch.setattr(type(partition), "append", lambda *a, **k: 1 // 0)
        done(work())
    monkeypatch.undo()
    assert rig.connection.closed
    rig.client = Barring()
    rig.produce(("a", 0, batch(100_000)))
    rig.work()
    assert rig.log.end_offset == 2
