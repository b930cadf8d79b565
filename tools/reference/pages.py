"""All generated pages of the reference, by path."""

from __future__ import annotations

from pathlib import Path

from tools.reference import commands, coordinators, metrics, resources


def pages(root: Path) -> dict[str, str]:
    """Path below the repository -> text."""
    return {**resources.pages(), **commands.pages(), **metrics.pages(root), **coordinators.pages(root)}
