"""The sleeper: a key that is written, compacted, deleted, and never written again.

Its tombstone is compacted, too, and is removed once `delete.retention.ms` is over; the value must be gone before it.
Law `forgotten`: in the end the log has neither, though the segments that held them were clean long ago.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any, Final

from kraft_node.testing.workloads.keyed import Keyed

SLEEPING: Final = "sleeping"
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
CLEANED_MS: Final = 20_000.0
"""Longer than `log.cleaner.backoff.ms` of any seed."""
KEY: Final = b"sleeper"
FILLERS: Final = 3
"""Each filler fills a segment, so that earlier records are not in the active segment."""


async def _write(keyed: Keyed, value: bytes | None, *, sleeper: bool) -> None:
    if sleeper:
        await keyed.write_surely([(KEY, value)])
    for number in range(FILLERS):
        await keyed.write_surely([(b"filler %d" % number, bytes(range(250)))])


async def _look(keyed: Keyed) -> None:
    if KEY in await keyed.found():
        keyed.checker.broken("forgotten", keyed.partition, "compaction has kept a key that was deleted long ago")


def sleep(keyed: Keyed) -> Iterator[Coroutine[Any, Any, None]]:
    """The steps; a cleaner pass follows each step."""
    yield _write(keyed, b"awake", sleeper=True)
    yield _write(keyed, None, sleeper=True)
    yield _write(keyed, None, sleeper=False)
    yield _write(keyed, None, sleeper=False)
    yield _look(keyed)
