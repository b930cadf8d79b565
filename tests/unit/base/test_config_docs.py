"""docs/configuration.md and the list of supported keys match the sources."""

from __future__ import annotations

from fnmatch import fnmatchcase

from kraft_node.base.config import BROKER, TOPIC
from kraft_node.base.config.effects import UNSAFE_TO_IGNORE, WITHOUT_EFFECT, reason
from kraft_node.base.config.read_keys import READ_KEYS
from tools import config_docs

HINT = "run: python -m tools.config_docs"


def test_the_generated_list_of_keys_matches_the_sources() -> None:
    text = config_docs.source_text()
    expected = config_docs.read_keys_module(config_docs.broker_keys_read(text), config_docs.topic_keys_read(text))
    assert config_docs.READ_KEYS_FILE.read_text() == expected, HINT


def test_the_page_is_current() -> None:
    assert config_docs.PAGE.read_text() == config_docs.page(), HINT


def test_every_key_has_an_effect_or_a_reason() -> None:
    assert set(BROKER) >= READ_KEYS
    assert all(reason(name) for name in BROKER if name not in READ_KEYS)
    assert not READ_KEYS & set(UNSAFE_TO_IGNORE)


def test_every_reason_matches_a_key() -> None:
    names = [*BROKER, *TOPIC]
    assert [pattern for pattern, _ in WITHOUT_EFFECT if not any(fnmatchcase(name, pattern) for name in names)] == []
