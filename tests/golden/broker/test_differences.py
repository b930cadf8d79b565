"""docs/differences.md names exactly the deviations that the tests assert."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ASSERTED = re.compile(r'(?:differs\(|deviations\.add\()\s*"([a-z0-9-]+)"')
ROW = re.compile(r"^\| `([a-z0-9-]+)` \|", re.MULTILINE)


def test_each_row_is_asserted_and_each_assertion_has_a_row() -> None:
    rows = ROW.findall((ROOT / "docs" / "differences.md").read_text())
    stories = [path.read_text() for path in Path(__file__).parent.glob("test_*_parity.py")]
    asserted = {name for story in stories for name in ASSERTED.findall(story)}
    assert len(rows) == len(set(rows))
    assert set(rows) == asserted
