"""Parts of the node in one process: codecs beside kafka-python's, and the metadata image."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench.measurements import codec, compaction, image
from bench.runs.environment import ROOT
from bench.runs.row import Measured, Row, Scenario, Step

SECTION = "Parts of the node alone"
ONE_TOPIC = "one topic planned, committed and removed, beside 100,000 topics against 1,000"
LOADED = "1,000,000 partitions read from a snapshot, CPU time"
KEPT = "kept a partition by the image (tracemalloc)"
INDEX = "kept a partition by the index of a controller's brokers"
TAKEN_OVER = "from leadership to CreateTopics acknowledged, 1,000,000 partitions against 10,000"
LONGEST = "compaction: longest piece of work on the loop"
KEYS = {LOADED: "load_s", KEPT: "kept", INDEX: "index", TAKEN_OVER: "failover"}


def _compaction_row(shape: compaction.LogShape) -> str:
    return f"compaction of {shape.name} on one core"


def compactions(step: Step) -> Measured:
    """MB of dirty log per second of CPU time, and the longest piece of work."""
    figures, longest = {}, 0.0
    for number, shape in enumerate(compaction.COMPARED):
        log = compaction.make_log(step.folder / str(number))
        compaction.fill(log, shape, step.size(compaction.LOG_MIB << 20, 4 << 20))
        size, found = log.size_bytes, compaction.compact(log)
        figures[_compaction_row(shape)] = size / found.seconds / 1e6
        longest = max(longest, found.longest)
    return Measured({**figures, LONGEST: longest * 1000})


def _codec_row(case: str) -> str:
    return f"codec: {case}"


def codecs(step: Step) -> Measured:
    """Microseconds per message: ours, or kafka-python's."""
    cases = codec.cases()
    which = {"ours": "ours", "kafka-python": "theirs"}[step.server.name]
    return Measured({_codec_row(case.name): codec.microseconds(getattr(case, which)) for case in cases})


def one_topic(_step: Step) -> Measured:
    """The cost of one more topic, relative to the existing number."""
    cost = image.topic_cost()
    return Measured({ONE_TOPIC: cost["ratio"]}, dict(cost))


def many(step: Step) -> Measured:
    """The image of a million partitions, in a separate process, so that no other data is in memory."""
    program = (
        "import json, sys; from bench.measurements import image; print(json.dumps(image.beside_many(int(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, str(step.size(1_000_000, 20_000))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return Measured({row: found[key] for row, key in KEYS.items()}, found)


SCENARIOS = [
    Scenario(
        "codecs",
        SECTION,
        tuple(Row(_codec_row(case.name), "µs", False, round(1 / case.aim, 3)) for case in codec.cases()),
        codecs,
        1.5,
        (("ours", "kafka-python"),),
    ),
    Scenario(
        "compaction",
        SECTION,
        (
            *(Row(_compaction_row(shape), "MB/s", True, 100.0, absolute=True) for shape in compaction.COMPARED),
            Row(LONGEST, "ms", False, 10.0, absolute=True),
        ),
        compactions,
        2,
        (("ours", ""),),
    ),
    Scenario("image", SECTION, (Row(ONE_TOPIC, "x", False, 1.2, True),), one_topic, 1, (("ours", ""),)),
    Scenario(
        "image-of-many",
        SECTION,
        (
            Row(LOADED, "s", False, 5.0, True),
            Row(KEPT, "bytes", False, 64.0, True),
            Row(INDEX, "bytes", False, 33.0, True),
            Row(TAKEN_OVER, "x", False, 1.2, True),
        ),
        many,
        2,
        (("ours", ""),),
        rounds=1,
    ),
]
