"""The files that state the project's version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PLACES: Final = {
    "pyproject.toml": r'^version = "(?P<version>[^"]+)"$',
    "node/src/kraft_node/base/version.py": r'^VERSION = "(?P<version>[^"]+)"$',
    "Dockerfile": r'org\.opencontainers\.image\.version="(?P<version>[^"]+)"$',
    "charts/kraftcluster/Chart.yaml": r"^(?:version|appVersion): (?P<version>\S+)$",
    "charts/kraftcluster-operator/Chart.yaml": r"^(?:version|appVersion): (?P<version>\S+)$",
    "charts/kraftcluster-operator/values.yaml": r"^(?:image|nodeImage|pipelineImage): \S+:(?P<version>[^:\s]+)$",
}
"""File -> patterns of the lines that state it."""
VERSION: Final = re.compile(r"\d+\.\d+\.\d+(rc\d+)?")
"""The version format that PyPI and image registries accept. Charts have `1.2.3-rc1`, because Helm requires SemVer."""


def stated(root: Path = ROOT) -> dict[str, list[str]]:
    """File -> the versions in it. Raises ValueError for a file without a version."""
    found = {
        name: [
            one["version"].replace("-rc", "rc") for one in re.finditer(pattern, (root / name).read_text(), re.MULTILINE)
        ]
        for name, pattern in PLACES.items()
    }
    for name, versions in found.items():
        if not versions:
            raise ValueError(f"{name}: no line states a version")
    return found


def version(root: Path = ROOT) -> str:
    """The version in all files. Raises ValueError if they differ."""
    found = stated(root)
    (first, *others) = sorted({one for versions in found.values() for one in versions})
    if others:
        words = "; ".join(f"{name}: {', '.join(versions)}" for name, versions in found.items())
        raise ValueError(f"the files state different versions: {words}")
    return first


def state(new: str, root: Path = ROOT) -> None:
    """Write `new` into every file. Raises ValueError if `new` is not a version."""
    if not VERSION.fullmatch(new):
        raise ValueError(f"{new!r} is not a version: use 1.2.3 or 1.2.3rc1")
    for name, pattern in PLACES.items():
        path = root / name
        text = path.read_text()
        wanted = new.replace("rc", "-rc") if path.name == "Chart.yaml" else new
        spans = [found.span("version") for found in re.finditer(pattern, text, re.MULTILINE)]
        for start, end in reversed(spans):
            text = text[:start] + wanted + text[end:]
        path.write_text(text)


def changes(new: str, root: Path = ROOT) -> str:
    """The changelog's section for `new`, without its heading; empty if no dated section exists."""
    pattern = rf"^## \[?{re.escape(new)}\]? - \d{{4}}-\d\d-\d\d\n(?P<text>.*?)(?=^## |^\[|\Z)"
    found = re.search(pattern, (root / "CHANGELOG.md").read_text(), re.MULTILINE | re.DOTALL)
    return found["text"].strip() if found else ""
