"""How fast the cleaner compacts on one core: MB of log per second, for records of several sizes.

`python -m bench.compaction` writes a dirty log into a temporary directory and compacts it piece by piece, as a lane
does. Keys are drawn from 100,000. Values have the stated size, or vary evenly around it. Processor time is measured, so
other load on the machine has little effect.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from kraft_node.log.compaction.cleaning import Cleaning
from kraft_node.log.config import make_config
from kraft_node.log.files import FileCache, LogDir
from kraft_node.log.log import Log
from kraft_node.log.opening import open_log
from kraft_node.runtime.disk import RealDisk
from kraft_protocol.records.batch import build_batch

KEYS: Final = 100_000
VALUE_BYTES: Final = (100, 250, 1000)
BATCH_BYTES: Final = 16 * 1024
ROWS: Final = (
    *((size, max(1, BATCH_BYTES // size), False) for size in VALUE_BYTES),
    (100, BATCH_BYTES // 100, True),
    (100, 10, False),
)
"""Bytes per value, records per batch, whether value sizes vary from 20 to 180 %."""
LOG_BYTES: Final = 256 << 20
CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
NOW_MS: Final = 1_700_000_000_000


def make_log(folder: Path) -> Log:
    (folder / "t-0").mkdir(parents=True)
    disk = RealDisk()

    def later(_delay_ms: float, _function: Callable[..., None], *_args: Any) -> None:
        """Deletes nothing during the measurement."""

    clock = SimpleNamespace(monotonic_ms=lambda: NOW_MS, wall_ms=lambda: NOW_MS)
    scheduler = SimpleNamespace(call_soon=lambda *_: None, call_later=later)
    background = SimpleNamespace(submit=lambda *_: None)
    env: Any = SimpleNamespace(
        clock=clock, scheduler=scheduler, background=background, disk=disk, rng=SimpleNamespace(randrange=lambda _: 0)
    )
    log_dir = LogDir(env, str(folder), FileCache(disk))
    return open_log(log_dir, str(folder / "t-0"), "t", 0, make_config(CONFIG))


def fill(
    log: Log, value_bytes: int, log_bytes: int = LOG_BYTES, *, count: int | None = None, varied: bool = False
) -> int:
    """Write the dirty log in batches of `count` records. Returns its size in bytes."""
    rng = random.Random(1)
    count = count or max(1, BATCH_BYTES // value_bytes)
    least, most = (value_bytes // 5, 2 * value_bytes - value_bytes // 5) if varied else (value_bytes, value_bytes)
    while log.size_bytes < log_bytes:
        pairs = [(b"key-%09d" % rng.randrange(KEYS), rng.randbytes(rng.randint(least, most))) for _ in range(count)]
        log.append_as_follower(_placed(build_batch(pairs, timestamp=NOW_MS), log.end_offset))
    log.roll(log.end_offset)
    log.high_watermark = log.end_offset
    return log.size_bytes


def _placed(batch: bytes, offset: int) -> bytes:
    """The batch at another base offset, which no checksum covers."""
    return offset.to_bytes(8, "big") + batch[8:]


def compact(log: Log) -> tuple[float, float]:
    """Processor seconds of a cleaner pass, and of its longest piece of work."""
    longest = 0.0
    begin = time.process_time()
    for work in Cleaning(log, 0, NOW_MS, KEYS * 10).steps():
        started = time.process_time()
        work()
        if getattr(work, "__name__", "") == "work":  # a slice of work; the loop runs during fsyncs
            longest = max(longest, time.process_time() - started)
    return time.process_time() - begin, longest


def main() -> int:
    for value_bytes, count, varied in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            log = make_log(Path(folder))
            size = fill(log, value_bytes, count=count, varied=varied)
            seconds, longest = compact(log)
            left = log.size_bytes
        what = f"{'varied ' if varied else ''}{value_bytes}-byte values, {count} a batch"
        print(
            f"compaction of {what}: {size / seconds / 1e6:.0f} MB/s, "
            f"{size >> 20} MiB to {left >> 20} MiB, longest piece {longest * 1000:.1f} ms"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
