"""Parts of the node in one process: codecs beside kafka-python's, and the metadata image."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench import codec, image
from bench.environment import ROOT
from bench.row import Measured, Row, Scenario, Step

SECTION = "Parts of the node alone"
ONE_TOPIC = "one topic planned, committed and removed, beside 100,000 topics against 1,000"
LOADED = "1,000,000 partitions read from a snapshot, CPU time"
KEPT = "kept a partition by the image (tracemalloc)"
INDEX = "kept a partition by the index of a controller's brokers"
TAKEN_OVER = "from leadership to CreateTopics acknowledged, 1,000,000 partitions against 10,000"
KEYS = {LOADED: "load_s", KEPT: "kept", INDEX: "index", TAKEN_OVER: "failover"}


def _codec_row(case: str) -> str:
    return f"codec: {case}"


def codecs(step: Step) -> Measured:
    """Microseconds of each message: ours, or kafka-python's."""
    cases = codec.cases()[: step.size(100, 1)]
    which = {"ours": "ours", "kafka-python": "theirs"}[step.server.name]
    return Measured({_codec_row(case.name): codec.microseconds(getattr(case, which)) for case in cases})


def one_topic(_step: Step) -> Measured:
    """The cost of one topic more, in proportion to what is there."""
    cost = image.topic_cost()
    return Measured({ONE_TOPIC: cost["ratio"]}, dict(cost))


def many(step: Step) -> Measured:
    """The image of a million partitions, in a process of its own, so that nothing else is in memory."""
    program = "import json, sys; from bench import image; print(json.dumps(image.beside_many(int(sys.argv[1]))))"
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
        0.5,
        (("ours", "kafka-python"),),
    ),
    Scenario("image", SECTION, (Row(ONE_TOPIC, "x", False, 1.2, True),), one_topic, 0.5, (("ours", ""),)),
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
        3,
        (("ours", ""),),
    ),
]
