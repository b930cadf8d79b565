"""History of scrubs: a report in a file keeps the summaries of earlier scrubs."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, Final

SCRUBS_MAX: Final = 1000
"""Summaries in one file: some 200 KB, or three years of nightly scrubs."""


def entry(report: dict[str, Any]) -> dict[str, Any]:
    """Summary of one scrub: its start, totals, and number of findings by kind."""
    return {"time": report["time"], **report["totals"], "kinds": report["kinds"]}


def keep(report: dict[str, Any], path: Path) -> dict[str, Any]:
    """Add the file's history to the report, replace the file atomically, and return the report. Raises OSError."""
    report = {**report, "history": [*_remembered(path), entry(report)][-SCRUBS_MAX:]}
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.write_text(json.dumps(report, indent=1) + "\n")
    os.replace(draft, path)
    return report


def _remembered(path: Path) -> list[dict[str, Any]]:
    """The history in a file; empty if the file is missing or not a report."""
    try:
        found = json.loads(path.read_text())["history"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return found if isinstance(found, list) else []
