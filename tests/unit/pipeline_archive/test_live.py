"""Reading the metadata log from controllers: what is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_pipeline.archive.live import Controllers
from kraft_protocol.client.cluster import Settings
from kraft_protocol.client.errors import BrokerError
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m


class Leader:
    """Answers fetches one after the other."""

    def __init__(self, *answers: m.FetchResponse) -> None:
        self.answers = [*answers]

    def request(self, request: Any) -> m.FetchResponse:
        assert isinstance(request, m.FetchRequest)
        return self.answers.pop(0)

    def close(self) -> None:
        """Nothing is open."""


def fetched(high_watermark: int, error: int = 0) -> m.FetchResponse:
    partition = m.FetchResponse.PartitionData(error_code=error, high_watermark=high_watermark)
    return m.FetchResponse(responses=[m.FetchResponse.FetchableTopicResponse(partitions=[partition])])


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Controllers:
    monkeypatch.setattr("time.sleep", lambda _: None)
    return Controllers(Settings("127.0.0.1:1", retry_s=60))


def ask(controllers: Controllers, leader: Leader, monkeypatch: pytest.MonkeyPatch) -> int:
    """Read the log, which is empty. Returns the number of records."""
    monkeypatch.setattr(controllers, "_connected", lambda: leader)
    return sum(batch.num_rows for batch in controllers.read())


@pytest.mark.parametrize(
    "unready",
    [
        pytest.param(fetched(-1), id="without a high watermark"),
        pytest.param(fetched(-1, ErrorCode.OFFSET_NOT_AVAILABLE), id="offset not available"),
        pytest.param(fetched(-1, ErrorCode.FENCED_LEADER_EPOCH), id="another epoch"),
    ],
)
def test_a_new_leader_is_asked_again(
    controllers: Controllers, unready: m.FetchResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know yet what is committed: to read nothing would look like a log without new records."""
    leader = Leader(unready, fetched(0))
    assert ask(controllers, leader, monkeypatch) == 0
    assert leader.answers == []


def test_other_errors_end_the_reading(controllers: Controllers, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(fetched(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED), fetched(0))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        ask(controllers, leader, monkeypatch)
    assert len(leader.answers) == 1
