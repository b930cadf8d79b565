"""The consumer of `bench.measurements.disk_pressure`."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from bench.clients import frames
from bench.measurements import disk_pressure
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import codec
from kraft_protocol.wire.messages import FetchRequest, FetchResponse


class Wire:
    """A server with one partition of ten batches, which sends at most 1.5 batches at a time, as Apache Kafka may."""

    asked: list[int]

    def __init__(self, _: int) -> None:
        self.batches = [build_batch([(b"k", b"v" * 200)], base_offset=n, timestamp=1) for n in range(10)]

    def ask(self, request: bytes) -> bytes:
        at = 4 + 2 + 2 + 4  # size, API, version, correlation id
        body = at + 2 + struct.unpack_from(">h", request, at)[0]
        (row,) = codec.decode(FetchRequest, request[body:], 11).topics[0].partitions
        self.asked.append(row.fetch_offset)
        data = b"".join(self.batches[row.fetch_offset :])[: 3 * len(self.batches[0]) // 2]
        partition = FetchResponse.PartitionData(high_watermark=10, records=data, aborted_transactions=None)
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
        return request[at - 4 : at] + codec.encode(FetchResponse(responses=[topic]), 11)

    def close(self) -> None:
        pass


def test_the_rest_of_an_incomplete_batch_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second batch was skipped: a consumer of cold data read half of it."""
    Wire.asked = []
    monkeypatch.setattr(frames, "Wire", Wire)
    target: Any = SimpleNamespace(port=0)
    disk_pressure.read_all(target, "t")
    assert Wire.asked == list(range(10))
