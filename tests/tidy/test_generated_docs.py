"""Generated pages and pictures match their sources; every page of the documentation is in the site's navigation."""

from __future__ import annotations

import re
from pathlib import Path

from tools import diagrams, raft_roles, reference
from tools.diagrams import __main__ as pictures
from tools.reference import __main__ as pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WORDS_MAX = 1_500
LONGER = {
    "roadmap.md": "one list of what is left",
    "benchmarks/README.md": "generated",
    "benchmarks/former.md": "the record of a protocol that is no longer used",
    "compatibility.md": "generated",
    "configuration.md": "generated",
    "differences.md": "a table that tests hold to",
    "kips.md": "a table that tests hold to",
}
"""Pages that may be longer, and why. New pages are not added here: split them."""


def test_generated_pages_follow_their_sources() -> None:
    assert pages.stale() == [], f"run `make reference`; {reference.__name__} writes these pages"


def test_pictures_follow_their_sources() -> None:
    assert pictures.stale() == [], f"run `make reference`; {diagrams.__name__} draws these pictures"


def test_the_diagram_of_roles_follows_its_table() -> None:
    page = raft_roles.PAGE.read_text()
    assert raft_roles.redrawn(page) == page, "run `make reference`"


def _pages() -> list[str]:
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    missing = [page for page in _pages() if page not in named and not page.startswith("decisions/")]
    assert missing == [], "name them under `nav` in mkdocs.yml"
    assert sorted(named - set(_pages())) == [], "mkdocs.yml names pages that do not exist"


def test_pages_are_short_enough_to_read() -> None:
    long = [
        page
        for page in _pages()
        if not page.startswith("reference/") and len((DOCS / page).read_text().split()) > WORDS_MAX
    ]
    assert sorted(set(long) - set(LONGER)) == [], f"split pages of more than {WORDS_MAX} words"
    assert sorted(set(LONGER) - set(long)) == [], "short enough now: take them off the list"
