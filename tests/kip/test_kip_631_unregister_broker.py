"""KIP-631, "UnregisterBroker" (64), and the requests of kafka-cluster's unregister."""

from __future__ import annotations

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum


def test_an_unregistered_broker_leaves_the_cluster() -> None:
    cluster = Cluster(1, 2)
    cluster["b2"].kill()
    cluster.until(lambda: cluster.image.brokers.get(2).fenced)
    assert cluster.ask("b1", m.UnregisterBrokerRequest(broker_id=2)).error_code == 0
    assert cluster.image.brokers.get(2) is None
    cluster.rest(1_000)
    shown = cluster.ask("b1", m.DescribeClusterRequest(include_fenced_brokers=True)).brokers
    assert [one.broker_id for one in shown] == [1]


def test_unregistering_writes_one_record_with_broker_and_epoch() -> None:
    quorum = Quorum()
    quorum.start(1)
    epoch = quorum.epoch_of(1)
    quorum.respond(m.UnregisterBrokerRequest(broker_id=1))
    (record,) = quorum.written("UnregisterBrokerRecord")
    assert (record.broker_id, record.broker_epoch) == (1, epoch)


def test_an_unregistered_broker_is_in_no_isr() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    quorum.respond(m.UnregisterBrokerRequest(broker_id=1))
    assert (quorum.partition("foo").isr, quorum.partition("foo").leader) == ((2,), 2)


def test_unregistering_twice_returns_an_unknown_broker() -> None:
    """NONE in the draft; BROKER_ID_NOT_REGISTERED (102) in the release."""
    cluster = Cluster(1, 1)
    answer = cluster.ask("b1", m.UnregisterBrokerRequest(broker_id=7))
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED == 102


def test_a_standby_controller_answers_not_controller() -> None:
    cluster = Cluster(3, 1)
    standby = next(name for name in ("c1", "c2", "c3") if name != cluster.active.name)
    assert cluster.ask(standby, m.UnregisterBrokerRequest(broker_id=1)).error_code == ErrorCode.NOT_CONTROLLER


def test_a_live_unregistered_broker_registers_again_only_after_a_restart() -> None:
    cluster = Cluster(1, 2)
    cluster["b2"].kill()
    assert cluster.ask("b1", m.UnregisterBrokerRequest(broker_id=2)).error_code == 0
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    assert cluster.image.brokers.get(2) is not None
