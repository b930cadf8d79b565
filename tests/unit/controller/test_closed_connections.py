"""A broker whose connection to the active controller is closed: how long its lease still runs."""

from __future__ import annotations

import pytest

from kraft_node.metadata.own_fields import promise_renewal
from kraft_protocol.wire.messages import BrokerHeartbeatRequest
from tests.unit.controller.harness import Quorum


class _Connection:
    lost = False


def _closing(**properties: str) -> tuple[Quorum, _Connection]:
    """Two brokers; the connection of the first is closed."""
    quorum = Quorum(**properties)
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    quorum.connection = first = _Connection()
    quorum.heartbeat(1)
    quorum.connection = _Connection()
    first.lost = True
    return quorum, first


def _silent_for(quorum: Quorum, ms: int) -> bool:
    """Whether broker 1 is fenced if only broker 2 sends heartbeats for that long."""
    for _ in range(ms // 1_000):
        quorum.pass_time(1_000)
        quorum.heartbeat(2)
    broker = quorum.image.brokers.get(1)
    assert broker is not None
    return bool(broker.fenced)


def test_a_broker_with_a_closed_connection_is_fenced_sooner() -> None:
    quorum, _ = _closing()
    assert not _silent_for(quorum, 2_000)
    assert _silent_for(quorum, 4_000)
    assert quorum.partition("foo").leader == 2
    assert not quorum.heartbeat(1).is_fenced, "it comes back with its next heartbeat"


def test_a_broker_that_heartbeats_over_another_connection_keeps_its_whole_lease() -> None:
    quorum, _ = _closing()
    assert not _silent_for(quorum, 2_000)
    quorum.heartbeat(1)
    assert not _silent_for(quorum, 7_000)
    assert _silent_for(quorum, 4_000)


def test_a_closed_connection_counts_from_its_discovery() -> None:
    quorum, first = _closing()
    first.lost = False
    assert not _silent_for(quorum, 4_000)
    first.lost = True
    assert not _silent_for(quorum, 2_000), "its next heartbeat may be on its way"
    assert _silent_for(quorum, 4_000)


def _promised(quorum: Quorum, broker_id: int) -> None:
    """A heartbeat of one of our brokers."""
    epoch = quorum.epoch_of(broker_id)
    request = BrokerHeartbeatRequest(broker_id, epoch, current_metadata_offset=quorum.log.next_offset - 1)
    promise_renewal(request)
    assert quorum.respond(request).error_code == 0


def test_a_broker_that_promises_to_renew_its_lease_at_once_is_fenced_within_half_a_second() -> None:
    quorum, first = _closing()
    first.lost = False
    quorum.connection = first
    _promised(quorum, 1)
    quorum.connection = _Connection()
    first.lost = True
    quorum.pass_time(450)
    assert not _silent_for(quorum, 0), "its heartbeat over another connection may be on its way"
    assert _silent_for(quorum, 1_000)
    assert quorum.partition("foo").leader == 2


def test_a_promise_is_as_old_as_the_latest_heartbeat() -> None:
    quorum, first = _closing()
    _promised(quorum, 1)
    quorum.connection, first.lost = first, False
    quorum.heartbeat(1)  # by a process of Apache Kafka, say
    quorum.connection, first.lost = _Connection(), True
    assert not _silent_for(quorum, 2_000)
    assert _silent_for(quorum, 3_000)


def test_a_given_time_limit_holds_for_every_broker() -> None:
    quorum, first = _closing(broker_session_closed_timeout_ms="5000")
    quorum.connection, first.lost = first, False
    _promised(quorum, 1)
    quorum.connection, first.lost = _Connection(), True
    assert not _silent_for(quorum, 4_000)
    assert _silent_for(quorum, 3_000)


def test_a_time_limit_of_zero_ignores_closed_connections() -> None:
    quorum, _ = _closing(broker_session_closed_timeout_ms="0")
    assert not _silent_for(quorum, 8_000)
    assert _silent_for(quorum, 3_000)


@pytest.mark.parametrize("text", ["soon", "-1", "1.5"])
def test_a_wrong_time_for_closed_connections_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"broker.session.closed.timeout.ms={text} must be a number"):
        Quorum(broker_session_closed_timeout_ms=text)
