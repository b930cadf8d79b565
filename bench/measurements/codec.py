"""`python -m bench.measurements.codec [--json]`: our codecs beside kafka-python's, as ratios of one run.

Both take and give whole frames, with length and header, in the form of the wire.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from kraft_protocol.wire import codec, frames
from kraft_protocol.wire import messages as m

ROUNDS = 9
TOPIC_ID = bytes(range(16))


@dataclass
class Case:
    """The same bytes (decode) or the same message (encode) for both codecs."""

    name: str
    aim: float
    ours: Callable[[], object]
    theirs: Callable[[], object]


def _produce_request() -> Any:
    topic = m.ProduceRequest.TopicProduceData
    partition = m.ProduceRequest.PartitionProduceData
    return m.ProduceRequest(
        acks=-1, timeout_ms=30000, topic_data=[topic("topic", partition_data=[partition(0, bytes(1000))])]
    )


def _produce_response() -> Any:
    topic = m.ProduceResponse.TopicProduceResponse
    partition = m.ProduceResponse.PartitionProduceResponse
    return m.ProduceResponse([topic("topic", partition_responses=[partition(0, 0, 12345, -1, 0)])])


def _fetch_request() -> Any:
    topic = m.FetchRequest.FetchTopic
    partition = m.FetchRequest.FetchPartition
    wanted = [partition(p, 5, 1_000_000 + p, partition_max_bytes=1 << 20) for p in range(100)]
    return m.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic("topic", partitions=wanted)])


def _fetch_response() -> Any:
    topic = m.FetchResponse.FetchableTopicResponse
    partition = m.FetchResponse.PartitionData
    data = [partition(p, 0, 1000, 1000, 0, records=bytes(100)) for p in range(100)]
    return m.FetchResponse(responses=[topic("topic", partitions=data)])


def _metadata_response() -> Any:
    topic = m.MetadataResponse.MetadataResponseTopic
    partition = m.MetadataResponse.MetadataResponsePartition
    brokers = [m.MetadataResponse.MetadataResponseBroker(i, f"host{i}", 9092) for i in range(3)]
    topics = [
        topic(0, f"topic-{t}", partitions=[partition(0, p, p, 5, [0, 1, 2], [0, 1, 2]) for p in range(3)])
        for t in range(1000)
    ]
    return m.MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def _theirs(module: str, name: str) -> Any:
    return getattr(__import__(f"kafka.protocol.{module}", fromlist=[name]), name)


def cases() -> list[Case]:
    """The measured cases; kafka-python decodes our bytes, and encodes the decoded messages."""
    built = [
        ("ProduceRequest", "producer", 9, _produce_request(), 3.0, None),
        ("ProduceResponse", "producer", 9, _produce_response(), None, 7.0),
        ("FetchRequest", "consumer", 12, _fetch_request(), 1.5, None),
        ("FetchResponse", "consumer", 12, _fetch_response(), None, 7.0),
        ("MetadataResponse", "metadata", 12, _metadata_response(), 3.0, 3.0),
    ]
    made = []
    for name, module, version, message, decode_aim, encode_aim in built:
        raw = _frame(message, version)
        theirs = _theirs(module, name)
        other = theirs.decode(raw, version=version, header=True, framed=True)
        again = bytes(other.encode(header=True, framed=True))
        assert again == raw, f"{name}: the two codecs disagree"
        if decode_aim:
            made.append(
                Case(
                    f"{name} v{version} decode",
                    decode_aim,
                    _decoding(type(message), raw, version),
                    partial(theirs.decode, raw, version=version, header=True, framed=True),
                )
            )
        if encode_aim:
            made.append(
                Case(
                    f"{name} v{version} encode",
                    encode_aim,
                    _encoding(message, version),
                    partial(other.encode, header=True, framed=True),
                )
            )
    return made


def _encoding(message: Any, version: int) -> Callable[[], Any]:
    """The work of a client for a request, and of a server for a response."""
    key = message.SCHEMA.api_key
    if message.SCHEMA.kind == "request":
        return partial(frames.encode_request, 7, key, version, "client", message)
    return partial(frames.encode_response, 7, key, version, message)


def _frame(message: Any, version: int) -> bytes:
    return b"".join(bytes(part) for part in _encoding(message, version)())


def _decoding(cls: type[Any], raw: bytes, version: int) -> Callable[[], object]:
    """The work of a server for a request's frame, and of a client for a response's."""
    key = cls.SCHEMA.api_key
    view = memoryview(raw)
    if cls.SCHEMA.kind == "request":

        def request() -> object:
            frame = view[4:]
            header = frames.decode_request_header(frame)
            return codec.decode_from(cls, frame, header.body_offset, header.api_version)

        return request
    return lambda: frames.decode_response(view[4:], key, version)


def timed(function: Callable[[], object], times: int) -> float:
    """Seconds per call."""
    gc.disable()  # as timeit does: a collection would fall on a random case
    begun = time.process_time()  # not the wall clock: other processes must not count
    for _ in range(times):
        function()
    taken = time.process_time() - begun
    gc.enable()
    return taken / times


def measure(case: Case) -> dict[str, float]:
    """Microseconds per call of both, and the factor by which ours is faster (median of interleaved rounds)."""
    case.ours()  # compiles on first use
    times = max(1, int(0.02 / max(timed(case.theirs, 1), 1e-7)))
    pairs = [(timed(case.ours, times), timed(case.theirs, times)) for _ in range(ROUNDS)]
    ratios = [theirs / ours for ours, theirs in pairs]
    return {
        "ours_us": statistics.median(p[0] for p in pairs) * 1e6,
        "theirs_us": statistics.median(p[1] for p in pairs) * 1e6,
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "aim": case.aim,
    }


def microseconds(function: Callable[[], object]) -> float:
    """Microseconds per call: the median of ROUNDS runs of about 20 ms."""
    function()  # compiles on first use
    times = max(1, int(0.02 / max(timed(function, 1), 1e-7)))
    return statistics.median(timed(function, times) for _ in range(ROUNDS)) * 1e6


def results() -> dict[str, dict[str, float]]:
    """All cases by name."""
    return {case.name: measure(case) for case in cases()}


def main() -> int:
    """Print the table; exit code 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.codec", description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = results()
    if options.json:
        print(json.dumps(found))
    else:
        table = Table("message", "ours µs", "kafka-python µs", "times faster (least)", "aim")
        for name, r in found.items():
            shown = f"{r['ratio']:.1f} ({r['least']:.1f})"
            table.add_row(name, f"{r['ours_us']:.1f}", f"{r['theirs_us']:.1f}", shown, f"≥ {r['aim']}")
        Console().print(table)
    return 0 if all(r["ratio"] >= r["aim"] for r in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
