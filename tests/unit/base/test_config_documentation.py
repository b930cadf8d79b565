"""Each configuration key is documented in our own words, for DescribeConfigs."""

from __future__ import annotations

from itertools import chain

from kraft_node.base.config import BROKER, CLIENT_METRICS, GROUP, TOPIC, effects
from kraft_node.base.config.documentation import _texts, documentation
from kraft_node.base.config.read_keys import READ_TOPIC_KEYS

KEYS = dict(chain(BROKER.items(), TOPIC.items(), GROUP.items(), CLIENT_METRICS.items()))


def test_every_key_that_acts_has_a_text() -> None:
    acting = {name for name in BROKER if effects.reason(name) is None and not BROKER[name].internal}
    acting |= {name for name in READ_TOPIC_KEYS if not TOPIC[name].internal}
    acting |= {name for name in GROUP if name.startswith("consumer.")} | CLIENT_METRICS.keys()
    assert [name for name in sorted(acting) if documentation(name).startswith("No effect")] == []


def test_every_text_is_of_a_key() -> None:
    assert _texts().keys() <= KEYS.keys()


def test_texts_are_short_sentences() -> None:
    for name in KEYS:
        text = documentation(name)
        assert text[0].isupper() or text.startswith("https:"), name
        assert text.endswith("."), name
        assert len(text.split()) <= 40, name
