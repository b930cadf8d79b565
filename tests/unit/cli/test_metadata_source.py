"""The metadata shell's reading of the log from controllers."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.cli.metadata_source import Controllers
from kraft_protocol.wire import messages as m


def fetched(high_watermark: int) -> m.FetchResponse:
    partition = m.FetchResponse.PartitionData(high_watermark=high_watermark)
    return m.FetchResponse(responses=[m.FetchResponse.FetchableTopicResponse(partitions=[partition])])


def test_a_leader_without_a_high_watermark_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader does not know yet what is committed: the shell would show an empty cluster."""
    answers = [fetched(-1), fetched(0)]

    class Leader:
        address = "controller:9093"

        def request(self, *_: object) -> Any:
            return answers.pop(0)

    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(Controllers, "_connected", lambda _: Leader())
    Controllers("controller:9093")
    assert answers == []
