"""`python -m tools.raft_roles`: draw the diagram of roles in docs/raft.md from the table in `raft.roles.states`."""

from __future__ import annotations

import sys
from pathlib import Path

from kraft_node.raft.roles.states import TRANSITIONS, Role

PAGE = Path(__file__).resolve().parent.parent / "docs" / "raft.md"
BEGIN = "```mermaid\nstateDiagram-v2\n"
END = "```\n"


def _name(role: Role | None) -> str:
    return "[*]" if role is None else role.value.capitalize()


def diagram() -> str:
    """The diagram's lines between the fences."""
    return "".join(
        f"    {_name(old)} --> {_name(new)} : {why}\n"
        for old, after in TRANSITIONS.items()
        for new, why in after.items()
    )


def redrawn(page: str) -> str:
    """The page with the diagram for the current table. Raises ValueError if the page has no diagram."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no diagram of roles")
    return head + begin + diagram() + end + tail


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text()))
    sys.exit(0)
