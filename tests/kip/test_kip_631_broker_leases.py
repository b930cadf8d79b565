"""KIP-631, "Broker Leases"; BrokerHeartbeat (63)."""

from __future__ import annotations

import itertools

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum
from tests.unit.controller.test_brokers import code_of


def test_a_broker_that_has_just_registered_is_fenced() -> None:
    quorum = Quorum()
    quorum.register(1)
    registration = quorum.image.brokers.get(1)
    assert registration is not None
    assert registration.fenced


def test_a_broker_that_wants_to_be_fenced_stays_fenced_during_its_recovery() -> None:
    """The draft's prose says ShouldFence, its schema and the release WantFence."""
    quorum = Quorum()
    quorum.register(1)
    for _ in range(5):
        quorum.pass_time(2_000)
        assert quorum.heartbeat(1, want_fence=True).is_fenced


def test_a_broker_is_unfenced_on_request_if_its_metadata_is_current() -> None:
    """In the release, current means that the broker has replayed its own registration."""
    quorum = Quorum()
    epoch = quorum.register(1).response.broker_epoch
    behind = quorum.heartbeat(1, current_metadata_offset=epoch - 1)
    assert (behind.is_fenced, behind.is_caught_up) == (True, False)
    current = quorum.heartbeat(1, current_metadata_offset=epoch)
    assert (current.is_fenced, current.is_caught_up) == (False, True)


def test_a_fenced_broker_is_not_unfenced_without_a_request() -> None:
    quorum = Quorum()
    quorum.register(1)
    quorum.heartbeat(1, want_fence=True)
    assert [r for r in quorum.written("BrokerRegistrationChangeRecord") if r.fenced == -1] == []


def test_without_heartbeats_a_lease_ends_and_the_broker_is_fenced() -> None:
    """18 s in the draft, broker.session.timeout.ms = 9000 in the release."""
    quorum = Quorum()
    quorum.start(1)
    quorum.pass_time(8_900)
    assert not quorum.image.brokers.get(1).fenced  # type: ignore[union-attr]
    quorum.pass_time(1_300)
    assert quorum.image.brokers.get(1).fenced  # type: ignore[union-attr]


def test_heartbeats_renew_the_lease() -> None:
    quorum = Quorum()
    quorum.start(1)
    for _ in range(20):
        quorum.pass_time(2_000)
        assert not quorum.heartbeat(1).is_fenced


def test_the_length_of_a_lease_is_configured() -> None:
    quorum = Quorum(broker_session_timeout_ms="3000")
    quorum.start(1)
    quorum.pass_time(3_500)
    assert quorum.image.brokers.get(1).fenced  # type: ignore[union-attr]


def test_brokers_heartbeat_at_the_configured_interval() -> None:
    """3 s in the draft, broker.heartbeat.interval.ms = 2000 in the release."""
    cluster = Cluster(1, 1)
    active = cluster.active.node
    assert active is not None
    assert active.controller is not None
    heard: list[float] = []
    lifecycle = cluster.node("b1").broker.lifecycle
    reported = lifecycle.on_acknowledged
    lifecycle.on_acknowledged = lambda: (heard.append(cluster.world.now_ms), reported())
    cluster.rest(10_000)
    pauses = [later - sooner for sooner, later in itertools.pairwise(heard)]
    assert len(pauses) >= 3
    assert all(2_000 <= pause < 2_200 for pause in pauses)


def test_a_disconnected_broker_is_fenced_and_returns_by_itself() -> None:
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    cluster.network.cut("b1", "c1")
    cluster.until(lambda: cluster.image.brokers.get(1).fenced)
    assert cluster.partition("foo").leader == 2
    assert tuple(cluster.partition("foo").isr) == (2,)
    cluster.network.heal()
    cluster.until(lambda: not cluster.image.brokers.get(1).fenced)
    cluster.until(lambda: sorted(cluster.partition("foo").isr) == [1, 2])


def test_clients_with_current_metadata_do_not_contact_fenced_brokers() -> None:
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    cluster["b1"].kill()
    cluster.until(lambda: cluster.image.brokers.get(1).fenced)
    cluster.rest(1_000)
    topic = cluster.metadata("b2", ["foo"]).topics[0]
    assert topic.partitions[0].leader_id == 2
    assert {one.node_id for one in cluster.metadata("b2", []).brokers} == {2}


def test_a_heartbeat_of_another_incarnation_is_stale() -> None:
    quorum = Quorum()
    quorum.start(1)
    wrong = m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=quorum.epoch_of(1) + 1)
    assert code_of(quorum.ask(wrong)) == ErrorCode.STALE_BROKER_EPOCH


def test_a_controller_that_is_not_active_answers_not_controller() -> None:
    cluster = Cluster(3, 1)
    standby = next(name for name in ("c1", "c2", "c3") if name != cluster.active.name)
    answer = cluster.ask(standby, m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


def test_a_new_active_controller_gives_every_broker_a_whole_lease() -> None:
    cluster = Cluster(3, 1)
    cluster.active.kill()
    cluster.rest(30_000)
    node = cluster.active.node
    assert node is not None
    assert node.controller is not None
    assert not cluster.image.brokers.get(1).fenced
    assert node.controller.cluster.sessions.timed_out == 0
