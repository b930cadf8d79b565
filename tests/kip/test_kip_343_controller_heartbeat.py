"""KIP-343, "Broker Incarnation ID", "Broker State", "Controller Logic": in the release BrokerHeartbeat."""

from __future__ import annotations

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum, directory
from tests.unit.controller.test_brokers import code_of


def test_each_instance_of_a_broker_id_has_a_distinct_incarnation() -> None:
    cluster = Cluster(1, 1)
    first = cluster.image.brokers.get(1)
    cluster["b1"].kill()
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].serving)
    second = cluster.image.brokers.get(1)
    assert second.incarnation_id != first.incarnation_id
    assert second.epoch > first.epoch, "the 64-bit number that only grows is the broker epoch in the release"


def test_a_heartbeat_of_an_old_incarnation_is_refused() -> None:
    """INVALID_INCARNATION_ID in the draft, STALE_BROKER_EPOCH (77) in the release."""
    quorum = Quorum()
    quorum.start(1)
    old = quorum.epoch_of(1)
    quorum.pass_time(20_000)
    quorum.start(1, incarnation=2)
    answer = quorum.ask(m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=old))
    assert code_of(answer) == ErrorCode.STALE_BROKER_EPOCH == 77


def test_a_higher_incarnation_becomes_valid_by_registering() -> None:
    """In the draft the controller learns it from heartbeats; the release assigns epochs and refuses unknown ones."""
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.ask(m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=quorum.epoch_of(1) + 1))
    assert code_of(answer) == ErrorCode.STALE_BROKER_EPOCH
    assert quorum.register(1, incarnation=2).response.error_code == 0


def test_two_brokers_configured_with_one_id_cannot_both_live() -> None:
    quorum = Quorum()
    quorum.start(1)
    intruder = quorum.register(1, incarnation=2, directories=[directory(1, 9)])
    assert code_of(intruder) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_all_brokers_are_inactive_at_first_and_are_not_shown() -> None:
    """Inactive is called fenced in the release."""
    quorum = Quorum()
    quorum.register(1)
    quorum.register(2)
    assert {number: broker.fenced for number, broker in quorum.image.brokers.items()} == {1: True, 2: True}
    assert quorum.create("foo", partitions=1, factor=1).error_code != 0, "an inactive broker is as good as absent"


def test_inactive_brokers_are_not_in_the_metadata_for_clients() -> None:
    cluster = Cluster(1, 2)
    cluster["b2"].kill()
    cluster.until(lambda: cluster.image.brokers.get(2).fenced)
    cluster.rest(1_000)
    assert cluster.brokers_shown("b1") == {1}


def test_a_heartbeat_names_the_target_state_and_returns_the_current_state() -> None:
    """target_state and current_state are WantFence, WantShutDown and IsFenced, ShouldShutDown in the release."""
    quorum = Quorum()
    quorum.register(1)
    assert quorum.heartbeat(1, want_fence=True).is_fenced
    assert not quorum.heartbeat(1, want_fence=False).is_fenced
    assert quorum.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_targets_active_or_stopping_reaches_that_state() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    assert not quorum.image.brokers.get(1).fenced  # type: ignore[union-attr]
    quorum.heartbeat(1, want_shut_down=True)
    registration = quorum.image.brokers.get(1)
    assert registration is not None
    assert registration.in_controlled_shutdown


def test_stopping_brokers_handle_traffic_while_their_leaders_move() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    answer = quorum.heartbeat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert quorum.partition("foo").leader == 2


def test_the_two_timeouts_are_configured_apart() -> None:
    """controller.heartbeat.timeout.ms is broker.session.timeout.ms in the release; the broker's keeps its name."""
    overrides = {"broker.session.timeout.ms": "4000", "broker.heartbeat.timeout.ms": "6000"}
    cluster = Cluster(1, 1, overrides={**overrides, "broker.heartbeat.interval.ms": "1000"})
    since = cluster.world.now_ms
    cluster.network.cut("b1", "c1")
    cluster.until(lambda: cluster.image.brokers.get(1).fenced)
    assert cluster.world.now_ms - since < 5_500
    cluster.until(lambda: cluster.node("b1").broker.fence.fenced)
    assert 5_000 < cluster.world.now_ms - since < 7_500
