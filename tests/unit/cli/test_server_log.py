"""What kafka-server-start prints: one line a fact, whatever clients call their groups."""

from __future__ import annotations

import json
import logging

import pytest

from kraft_node.cli.server_start import formatter

GROUP = "Ünseen\n2026-01-01T00:00:00.000Z ERROR server forged\r\x1b[2J\udcff"


def line(*, as_json: bool) -> str:
    record = logging.LogRecord("kraft_node.broker", logging.INFO, "", 0, "Group %s: empty", (GROUP,), None)
    return formatter(as_json=as_json).format(record)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_fact_is_one_line_that_any_terminal_takes(as_json: bool) -> None:
    text = line(as_json=as_json)
    assert text.isprintable()
    assert text.encode()


def test_what_can_be_printed_stays_and_the_rest_is_named() -> None:
    assert line(as_json=False).endswith(
        r" INFO  broker Group Ünseen\n2026-01-01T00:00:00.000Z ERROR server forged\r\x1b[2J\udcff: empty"
    )


def test_an_object_holds_the_text_as_it_is() -> None:
    assert json.loads(line(as_json=True))["message"] == f"Group {GROUP}: empty"
