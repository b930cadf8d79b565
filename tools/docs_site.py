"""Hooks for the documentation site, named by `mkdocs.yml`.

- Decision records are added to the navigation automatically.
- A link that leaves `docs/` points to the file in the repository, if `[project.urls]` of `pyproject.toml` has a
  `Repository`. Otherwise it becomes plain text. A link to a missing file is an error.
- A picture replaces each Mermaid diagram that has a picture: the site loads no external script.
"""

from __future__ import annotations

import logging
import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
DECISIONS: Final = "Decisions"
BRANCH: Final = "main"
_LINK: Final = re.compile(r"\[([^\[\]]*)\]\(([\w.][\w./-]*)(#[^)\s]*)?\)")
_MERMAID: Final = re.compile(r"```mermaid\n(\w[\w-]*)\n.*?```\n", re.DOTALL)
PICTURES: Final = {"raft.md": "![Roles of a replica and how they follow one another](images/raft-roles.svg)\n"}
log = logging.getLogger("mkdocs.plugins.docs_site")


def on_config(config: Any) -> Any:
    """Set the repository's address from `pyproject.toml`, if it is there, and list the decision records."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        address = tomllib.load(file)["project"].get("urls", {}).get("Repository")
    if address is not None:
        config["repo_url"] = address
        config["repo_name"] = address.rpartition("/")[2]
    for part in config["nav"]:
        for pages in part.values():
            for entry in pages:
                if isinstance(entry, dict) and DECISIONS in entry:
                    entry[DECISIONS] = [{_title(path): f"decisions/{path.name}"} for path in _decisions()]
    return config


def _decisions() -> list[Path]:
    return sorted((DOCS / "decisions").glob("[0-9]*.md"))


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Convert links out of `docs/`, and replace diagrams by pictures. Returns the page's text."""
    source = Path(page.file.abs_src_path)
    picture = PICTURES.get(page.file.src_uri)
    if picture is not None:
        markdown = _MERMAID.sub(picture, markdown)
    elif "```mermaid" in markdown:
        log.warning("%s: a Mermaid diagram without a picture: add one to tools/diagrams", page.file.src_uri)

    def outside(found: re.Match[str]) -> str:
        target = (source.parent / found[2]).resolve()
        if (target / "README.md").is_file() and target.is_relative_to(DOCS):
            return f"[{found[1]}]({found[2].rstrip('/')}/README.md{found[3] or ''})"
        if target.is_relative_to(DOCS) and not target.is_dir():
            return found[0]
        if not target.exists():
            log.warning("%s: missing file: %s", page.file.src_uri, found[2])
        if not config["repo_url"]:
            return found[1]
        kind = "tree" if target.is_dir() else "blob"
        return f"[{found[1]}]({config['repo_url']}/{kind}/{BRANCH}/{target.relative_to(ROOT)}{found[3] or ''})"

    return _LINK.sub(outside, markdown)
