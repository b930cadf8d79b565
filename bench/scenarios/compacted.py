"""The cleaners of both servers on the same dirty log: from the change of `cleanup.policy` until all of it is clean."""

from __future__ import annotations

import random
from pathlib import Path

from bench.clients import asking, frames, load
from bench.runs.row import Measured, Row, Scenario, Step
from bench.scenarios.storage import altered, honest_during, p99, spread
from bench.servers.process import MIB, cpu_s, settle

KEYS = 100_000
VALUE_BYTES = 250
RECORDS = 64
"""The batch then has 16 KiB."""
BATCHES = 2000
SEGMENT = 64 * MIB
RATE, CPU, BESIDE = (
    "compaction of 250-byte values by a server's cleaner",
    "compaction of 250-byte values, CPU per GB",
    "honest producer's p99 beside compaction",
)


def compacted(step: Step) -> Measured:
    """A log of 512 MiB with 100,000 keys is compacted while an honest producer works."""
    rng = random.Random(1)
    total = step.size(512, 130) * MIB
    requests = []
    for _ in range(BATCHES):
        pairs = [(b"key-%09d" % rng.randrange(KEYS), rng.randbytes(VALUE_BYTES)) for _ in range(RECORDS)]
        requests.append(frames.produce("dirty", 0, frames.keyed_batch(pairs)))
    size = sum(map(len, requests)) / BATCHES
    with step.started(log_cleaner_backoff_ms="1000", **asking.TRIMMED_OFTEN) as target:
        asking.create(target, ["dirty"], configs={"segment.bytes": str(SEGMENT)})
        asking.create(target, ["honest"])
        asking.until_accepted(target, requests[0], "compaction")
        load.send(target, requests, count=total // size)
        settle()
        wanted = _active_base(target.data / "dirty-0")
        spent = cpu_s(target)

        def clean() -> None:
            altered(target, "dirty", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
            asking.until("the log is clean", lambda: _cleaned(target.data, "dirty") >= wanted, 0.05, 1800)

        seconds, beside = honest_during(target, clean)
        cpu = cpu_s(target) - spent
    figures = {RATE: total / 1e6 / seconds, CPU: cpu / total * 1e9, BESIDE: p99(beside)}
    return Measured(figures, {"seconds": seconds, "beside": spread(beside)})


def _active_base(folder: Path) -> int:
    """The base offset of the newest segment, which no cleaner touches."""
    return max(int(path.stem) for path in folder.glob("*.log"))


def _cleaned(data: Path, topic: str) -> int:
    """The end of the clean part of the topic's only partition, from the file that both servers keep; 0 before that."""
    path = data / "cleaner-offset-checkpoint"
    if not path.exists():
        return 0
    entries = [line.split() for line in path.read_text().split("\n")]
    return next((int(entry[2]) for entry in entries if len(entry) == 3 and entry[0] == topic), 0)


SCENARIOS = [
    Scenario(
        "compacted",
        "One node",
        (Row(RATE, "MB/s", True), Row(CPU, "s/GB", False), Row(BESIDE, "ms", False)),
        compacted,
        3,
    )
]
