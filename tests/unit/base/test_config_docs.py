"""docs/configuration.md and the list of supported keys match the sources."""

from __future__ import annotations

from fnmatch import fnmatchcase

from kraft_node.base.config import BROKER, TOPIC
from kraft_node.base.config.acting import ACTING
from kraft_node.base.config.effects import UNSAFE_TO_IGNORE, WITHOUT_EFFECT, reason
from tools import config_docs

HINT = "run: python -m tools.config_docs"


def test_the_acting_keys_are_those_that_the_sources_read() -> None:
    text = config_docs.source_text()
    expected = config_docs.acting_module(config_docs.acting_broker_keys(text), config_docs.acting_topic_keys(text))
    assert config_docs.ACTING.read_text() == expected, HINT


def test_the_page_is_current() -> None:
    assert config_docs.PAGE.read_text() == config_docs.page(), HINT


def test_every_key_acts_or_has_a_reason() -> None:
    assert set(BROKER) >= ACTING
    assert all(reason(name) for name in BROKER if name not in ACTING)
    assert not ACTING & set(UNSAFE_TO_IGNORE)


def test_every_reason_is_that_of_some_key() -> None:
    names = [*BROKER, *TOPIC]
    assert [pattern for pattern, _ in WITHOUT_EFFECT if not any(fnmatchcase(name, pattern) for name in names)] == []
