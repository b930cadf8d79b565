"""Every reason of Degraded has a line in the runbook."""

from __future__ import annotations

import re

from kraft_operator.plan.conditions import WAITING
from tests.unit.operator.sample import ROOT

NAMED = re.compile(r'(?:\bblock\(|\bBlocked\(|_tell_wrong\([^"]*)\s*"([A-Z][A-Za-z]+)"')


def test_the_runbook_names_every_reason() -> None:
    found: set[str] = set()
    for path in (ROOT / "operator/src/kraft_operator").rglob("*.py"):
        found |= set(NAMED.findall(path.read_text()))
    assert len(found) > 25, found
    section = (
        (ROOT / "docs/reference/operator-conditions.md")
        .read_text()
        .partition("## When it is Degraded")[2]
        .partition("\n## ")[0]
    )
    reported = {reason for line in section.splitlines() for reason in re.findall(r"`([A-Z][A-Za-z]+)`", line[:140])}
    assert found - WAITING <= reported, found - WAITING - reported
