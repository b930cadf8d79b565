"""Logs on a simulated disk, under simulated time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_node.log.log_dir import LogDir
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.results import FetchSlice
from kraft_node.log.segments.files import FileCache
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import START_WALL_MS, SimHost, World
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import Record, build_batch, iter_headers, iter_records, whole_batches

DIR = "/data"
NOW = START_WALL_MS


class LogWorld:
    """One machine with one log directory and one log."""

    def __init__(self, seed: int = 1, disk: SimDisk | None = None) -> None:
        self.world = World(seed)
        self.disk = disk or SimDisk(random.Random(seed), lambda: NOW + int(self.world.now_ms))
        self.disk.mkdir(f"{DIR}/t-0")
        self.disk.fsync_dir("/")
        self.disk.fsync_dir(DIR)
        self.host = SimHost(self.world, "n1", self.disk)
        net: Any = None
        self.env = self.host.env(net)
        self.dir = LogDir(self.env, DIR, FileCache(self.disk, 8))

    def open(self, overrides: Mapping[str, str] | None = None, **how: Any) -> Log:
        return open_log(self.dir, f"{DIR}/t-0", "t", 0, make_config(overrides), **how)

    def rest(self, ms: float = 100_000) -> None:
        self.world.rest(ms)


def batch(*values: bytes, **how: Any) -> bytes:
    how.setdefault("timestamp", NOW)
    return build_batch([(b"k", value) for value in values], **how)


def read_bytes(found: FetchSlice) -> bytes:
    return found.records if isinstance(found.records, bytes) else found.records.read()


def all_records(log: Log) -> list[Record]:
    """The records that a reader gets from the start, fetch by fetch."""
    got: list[Record] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = read_bytes(log.read(offset, 10_000))
        before = offset
        for header in whole_headers(data):
            got += [record for record in iter_records(data, header) if record.offset >= offset]
            offset = max(offset, header.next_offset)
        assert offset > before, f"no progress at {offset}"
    return got


def data_records(log: Log) -> list[Record]:
    """The same without the records of control batches."""
    return [record for record, header in _with_headers(log) if not header.is_control]


def _with_headers(log: Log) -> list[tuple[Record, Any]]:
    found = []
    for number in range(len(log.segment_bases)):
        data = log.segments.at(number).file().pread(0, log.segments.at(number).size)
        for header in whole_headers(data):
            found += [(record, header) for record in iter_records(data, header) if record.offset >= log.start_offset]
    return found


def whole_headers(data: bytes) -> list[Any]:
    return list(iter_headers(whole_batches(data, with_junk=True)))


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in all_records(log)]


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:  # type: ignore[name-defined]
    return pytest.raises(KafkaError, check=lambda e: e.code == code)


def idempotent(sequence: int, *vals: bytes, epoch: int = 0, pid: int = 7, **how: object) -> bytes:
    return batch(*(vals or (b"v",)), producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **how)
