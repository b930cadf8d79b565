"""Batches that `RESTORE` of Delta has taken out of a table.

RESTORE removes the rows of later versions, but not the numbers of their batches in `txn`. A writer that continued after
its last batch would never write these rows again. They count as lost records: the run stops until a user accepts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft_pipeline.sources.positions import Loss, Position

APP: Final = "kraft.app"
BATCH: Final = "kraft.batch"
POSITION: Final = "kraft.position"
RESTORE: Final = "RESTORE"


def taken_back(commits: Iterable[Mapping[str, Any]], app: str, batch: int, position: Position) -> list[Loss]:
    """The records of an application's batches that the newest version lacks, because the table was restored.

    `commits`: infos of commits with `version`, newest first; reading ends at the last batch that the table has.
    `batch` and `position`: the application's last batch and its end. If the log does not show which version was
    restored, all records since the start of reading count as lost. A last batch that is older than the log is in each
    version of the log.
    """
    restored, target, has_skipped = -1, None, False
    kept, before = -1, Position({})
    for commit in commits:
        is_own = commit.get(APP) == app and BATCH in commit
        if target is not None and not _is_within(commit, target):
            has_skipped |= is_own
            continue
        target = None
        if is_own:
            kept, before = int(commit[BATCH]), Position.from_json(commit[POSITION])
            break
        if commit.get("operation") == RESTORE:
            restored, target = max(restored, commit["version"]), _target(commit)
    is_older = kept < 0 and target is None and not has_skipped
    if restored < 0 or kept >= batch or is_older:
        return []
    cause = f"RESTORE took batches {kept + 1} to {batch} out of the table in its version {restored}"
    first = {key: before.offsets.get(key, position.begun.get(key, 0)) for key in position.offsets}
    return [
        Loss(*key, first[key], end, cause, f"restore {app} {restored}")
        for key, end in sorted(position.offsets.items())
        if first[key] < end
    ]


def _target(commit: Mapping[str, Any]) -> tuple[str, int]:
    """The version or the time in milliseconds that a RESTORE has as its target; version -1 if it is not known."""
    given = commit.get("operationParameters") or {}
    for name in ("version", "datetime"):
        text = str(given.get(name, ""))
        if text.isdecimal():
            return name, int(text)
    return "version", -1


def _is_within(commit: Mapping[str, Any], target: tuple[str, int]) -> bool:
    name, limit = target
    return bool(commit["version" if name == "version" else "timestamp"] <= limit)
