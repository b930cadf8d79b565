"""A report that is kept in a file remembers the scrubs before it: what was read and found, from time to time."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, Final

SCRUBS_MAX: Final = 1000
"""Of one file: some 200 KB; three years of nightly ones."""


def entry(report: dict[str, Any]) -> dict[str, Any]:
    """One scrub: when it began, its totals, and how many places of each kind it found."""
    return {"time": report["time"], **report["totals"], "kinds": report["kinds"]}


def keep(report: dict[str, Any], path: Path) -> dict[str, Any]:
    """The report with the scrubs that the file remembers, put in its place whole or not at all. Raises OSError."""
    report = {**report, "history": [*_remembered(path), entry(report)][-SCRUBS_MAX:]}
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.write_text(json.dumps(report, indent=1) + "\n")
    os.replace(draft, path)
    return report


def _remembered(path: Path) -> list[dict[str, Any]]:
    """None where there is no file, or another one than a report."""
    try:
        found = json.loads(path.read_text())["history"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return found if isinstance(found, list) else []
