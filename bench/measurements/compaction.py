"""How fast the cleaner compacts on one core: MB of log per second of processor time, for logs of several shapes.

`python -m bench.measurements.compaction [--mib N] [--rounds N] [word ...]` writes a dirty log for each shape whose name
has one of the words, and compacts it piece by piece, as a lane does. It prints the best of the rounds for both scans
together and apart: the first notes keys, the second copies. Keys are drawn from 100,000. Processor time is measured, so
other load has less effect.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from kraft_node.base.env import Env
from kraft_node.log.compaction.cleaning import Cleaning, Slices
from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_node.log.log_dir import LogDir
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments.files import FileCache
from kraft_node.runtime.disk import RealDisk
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.compression import Compression

KEYS: Final = 100_000
BATCH_BYTES: Final = 16 * 1024


class LogShape(NamedTuple):
    """How the records of a log look."""

    name: str
    least: int
    """Values have at least so many bytes."""
    most: int
    batch: int
    """Records per batch."""
    codec: Compression = Compression.NONE
    keys: int = KEYS
    """0: no key comes twice, so all batches stay."""


def _alike(size: int) -> LogShape:
    return LogShape(f"{size}-byte values", size, size, BATCH_BYTES // size)


SHAPES: Final = (
    _alike(100),
    _alike(250),
    _alike(1000),
    LogShape("values of 20 to 180 bytes", 20, 180, BATCH_BYTES // 100),
    LogShape("values of 20 bytes to 2 KB", 20, 2000, BATCH_BYTES // 1000),
    LogShape("100-byte values, 10 a batch", 100, 100, 10),
    LogShape("100-byte values, 3 a batch", 100, 100, 3),
    LogShape("100-byte values, 1 a batch", 100, 100, 1),
    LogShape("values of 20 to 180 bytes, 10 a batch", 20, 180, 10),
    LogShape("values of 20 to 180 bytes, 1 a batch", 20, 180, 1),
    LogShape("values of 20 bytes to 2 KB, 1 a batch", 20, 2000, 1),
    LogShape("100-byte values, 10 a batch, all stay", 100, 100, 10, keys=0),
    LogShape("values of 20 to 180 bytes, all stay", 20, 180, BATCH_BYTES // 100, keys=0),
    LogShape("250-byte values, lz4", 250, 250, BATCH_BYTES // 250, Compression.LZ4),
    LogShape("250-byte values, zstd", 250, 250, BATCH_BYTES // 250, Compression.ZSTD),
    LogShape("250-byte values, zstd, all stay", 250, 250, BATCH_BYTES // 250, Compression.ZSTD, 0),
)
COMPARED: Final = tuple(shape for shape in SHAPES if not shape.codec and shape.keys and shape.batch != 3)
"""The rows of `python -m bench`: figures that do not depend on the codecs' libraries."""
LOG_MIB: Final = 128
CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
NOW_MS: Final = 1_700_000_000_000


def make_log(folder: Path) -> Log:
    """An empty compacted log below `folder`, with a clock that stands still and no work in the background."""
    (folder / "t-0").mkdir(parents=True)
    disk = RealDisk()

    def later(_delay_ms: float, _function: Callable[..., None], *_args: Any) -> None:
        """Deletes nothing during the measurement."""

    clock: Any = SimpleNamespace(monotonic_ms=lambda: NOW_MS, wall_ms=lambda: NOW_MS)
    scheduler: Any = SimpleNamespace(call_soon=lambda *_: None, call_later=later)
    rng: Any = SimpleNamespace(randrange=lambda _: 0)
    background: Any = SimpleNamespace(submit=lambda *_: None)
    net: Any = None
    env = Env(clock, scheduler, rng, disk, background, net)
    log_dir = LogDir(env, str(folder), FileCache(disk))
    return open_log(log_dir, str(folder / "t-0"), "t", 0, make_config(CONFIG))


def fill(log: Log, shape: LogShape, log_bytes: int) -> int:
    """Write the dirty log. Returns the bytes of its records before compression."""
    rng = random.Random(1)
    pool = rng.randbytes(1 << 20)
    if shape.codec:
        pool = pool[: 1 << 19].hex().encode()  # of hexadecimal digits, half remains
    records = plain = 0
    while plain < log_bytes:
        batches = []
        for _ in range(max(1, BATCH_BYTES // shape.most // shape.batch)):
            pairs = []
            for number in range(shape.batch):
                size, at = rng.randint(shape.least, shape.most), rng.randrange(1 << 19)
                key = rng.randrange(shape.keys) if shape.keys else records + number
                pairs.append((b"key-%09d" % key, pool[at : at + size]))
                plain += size
            plain += 20 * shape.batch
            batches.append(_placed(build_batch(pairs, timestamp=NOW_MS, compression=shape.codec), records))
            records += shape.batch
        log.append_as_follower(b"".join(batches))
    log.roll(log.end_offset)
    log.high_watermark = log.end_offset
    return plain


def _placed(batch: bytes, offset: int) -> bytes:
    """The batch at another base offset, which no checksum covers."""
    return offset.to_bytes(8, "big") + batch[8:]


class Timed(Cleaning):
    """A pass that notes when its first scan ended."""

    noted = 0.0

    def _read_keys(self, bases: list[int]) -> Slices:
        is_left = yield from super()._read_keys(bases)
        self.noted = time.process_time()
        return is_left


class Figures(NamedTuple):
    """Processor seconds of a pass, of each of its scans, and of its longest piece of work."""

    seconds: float
    noting: float
    copying: float
    longest: float


def compact(log: Log) -> Figures:
    """Compact the log in one pass, as the cleaner does, and measure the pass."""
    longest = 0.0
    begin = time.process_time()
    cleaning = Timed(log, 0, NOW_MS, 1 << 30)
    for work in cleaning.steps():
        started = time.process_time()
        work()
        if getattr(work, "__name__", "") == "work":  # a slice of work; the loop runs during fsyncs
            longest = max(longest, time.process_time() - started)
    end = time.process_time()
    return Figures(end - begin, cleaning.noted - begin, end - cleaning.noted, longest)


def measure(shape: LogShape, log_bytes: int, rounds: int) -> str:
    """The line of a shape: the best of the rounds, each on the same log."""
    found: list[Figures] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            log = make_log(Path(folder))
            plain = fill(log, shape, log_bytes)
            size = log.size_bytes
            found.append(compact(log))
            left = log.size_bytes
    rate, noting, copying = (size / min(each[n] for each in found) / 1e6 for n in range(3))
    of_plain = f" ({rate * plain / size:.0f} of records)" if shape.codec else ""
    return (
        f"{shape.name}: {rate:.0f} MB/s{of_plain}, noting {noting:.0f}, copying {copying:.0f}; "
        f"{size >> 20} MiB to {left >> 20} MiB, longest piece {min(each.longest for each in found) * 1000:.1f} ms"
    )


def main() -> int:
    """Print the line of each selected shape. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="measure shapes whose name has one of these")
    parser.add_argument("--mib", type=int, default=LOG_MIB, help="size of the records of each log")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    for shape in SHAPES:
        if not args.words or any(word in shape.name for word in args.words):
            print(measure(shape, args.mib << 20, args.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
