"""A broker's life: it registers, is unfenced, keeps its lease, and shuts down."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.broker.lifecycle import BrokerIdentity, BrokerState, Lifecycle
from kraft_node.metadata.own_fields import promises_renewal, snapshot_end_of
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import codec
from kraft_protocol.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tests.unit.broker.world import CLUSTER_ID, Controller, Loop, make_env, topic_id

DIRECTORY = topic_id(77)


class Rig:
    def __init__(self, interval_ms: str = "2000") -> None:
        self.loop = Loop()
        self.controller = Controller()
        self.offset = 0
        self.offline: list[Any] = []
        self.cordoned: list[Any] | None = None
        self.states: list[BrokerState] = []
        self.failures: list[str] = []
        config = NodeConfig.parse(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:9093",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "broker.heartbeat.interval.ms": interval_ms,
                "initial.broker.registration.timeout.ms": "60000",
            }
        )
        identity = BrokerIdentity(
            1, CLUSTER_ID, [("PLAINTEXT", "host", 9092, 0)], {"metadata.version": (7, 30)}, [DIRECTORY], "rack-a", 41
        )
        self.lifecycle = Lifecycle(
            make_env(self.loop),
            BrokerConfig(config),
            identity,
            self.controller,
            lambda: self.offset,
            lambda: self.offline,
            lambda: self.cordoned,
            lambda: 7_000,
        )
        self.lifecycle.on_state = self.states.append
        self.lifecycle.on_failure = self.failures.append
        self.lifecycle.start()
        self.lifecycle.ready_to_unfence()

    def register(self, epoch: int = 5) -> None:
        self.controller.take(BrokerRegistrationRequest).answer(BrokerRegistrationResponse(broker_epoch=epoch))

    def heartbeat(self, **answer: Any) -> Any:
        sent = self.controller.take(BrokerHeartbeatRequest)
        sent.answer(BrokerHeartbeatResponse(**answer))
        return sent.request


@pytest.fixture
def rig() -> Rig:
    return Rig()


def running(rig: Rig) -> None:
    rig.register()
    rig.heartbeat(is_fenced=True, is_caught_up=False)
    rig.offset = 9
    rig.lifecycle.metadata_moved()
    rig.heartbeat(is_fenced=False, is_caught_up=True)


def test_the_registration_describes_the_broker(rig: Rig) -> None:
    request = rig.controller.take(BrokerRegistrationRequest).request
    assert (request.broker_id, request.cluster_id, request.rack) == (1, CLUSTER_ID, "rack-a")
    assert request.incarnation_id == rig.lifecycle.incarnation_id != bytes(16)
    assert [(e.name, e.host, e.port, e.security_protocol) for e in request.listeners] == [
        ("PLAINTEXT", "host", 9092, 0)
    ]
    assert [(f.name, f.min_supported_version, f.max_supported_version) for f in request.features] == [
        ("metadata.version", 7, 30)
    ]
    assert request.log_dirs == [DIRECTORY]
    assert request.previous_broker_epoch == 41
    assert request.is_migrating_zk_broker is False


def test_heartbeats_report_the_end_of_the_latest_snapshot(rig: Rig) -> None:
    rig.register(epoch=5)
    beat = rig.heartbeat(is_fenced=True)
    assert snapshot_end_of(beat) == 7_000
    for version in (0, 1, 2):
        sent = codec.decode(BrokerHeartbeatRequest, codec.encode(beat, version), version)
        assert snapshot_end_of(sent) == 7_000
        assert sent.current_metadata_offset == beat.current_metadata_offset


def test_the_lease_is_renewed_at_once_when_the_connection_closes(rig: Rig) -> None:
    running(rig)
    rig.loop.run(500)
    assert rig.controller.sent == []  # the next one is due after two seconds
    rig.lifecycle.renew()
    assert promises_renewal(rig.heartbeat(is_fenced=False))
    rig.loop.run(1_900)
    assert rig.controller.sent == [], "the interval begins anew"
    rig.loop.run(200)
    rig.heartbeat(is_fenced=False)


def test_a_pending_heartbeat_is_not_doubled_when_the_connection_closes(rig: Rig) -> None:
    running(rig)
    rig.loop.run(2_000)
    assert len(rig.controller.sent) == 1
    rig.lifecycle.renew()
    assert len(rig.controller.sent) == 1, "the controller link sends it again"


@pytest.mark.parametrize("registered", [False, True])
def test_a_broker_without_a_lease_does_not_renew_it(rig: Rig, registered: bool) -> None:
    if registered:
        running(rig)
        rig.lifecycle.begin_shutdown(lambda: None)
    before = len(rig.controller.sent)
    rig.lifecycle.renew()
    assert len(rig.controller.sent) == before


def test_a_broker_is_unfenced_after_it_reads_its_own_registration(rig: Rig) -> None:
    rig.register(epoch=5)
    assert rig.heartbeat(is_fenced=True).current_metadata_offset == 0
    rig.lifecycle.metadata_moved()
    assert rig.controller.sent == []  # not caught up: no heartbeat before the interval
    assert rig.states == [BrokerState.STARTING]
    rig.offset = 5
    rig.lifecycle.metadata_moved()
    beat = rig.heartbeat(is_fenced=False, is_caught_up=True)
    assert (beat.broker_epoch, beat.current_metadata_offset, beat.want_fence) == (5, 5, False)
    assert rig.states == [BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.RUNNING]
    assert not rig.lifecycle.fenced


def test_metadata_read_during_a_heartbeat_is_reported_right_after_it(rig: Rig) -> None:
    rig.register(epoch=5)
    rig.offset = 6
    rig.lifecycle.metadata_moved()
    rig.heartbeat(is_fenced=True)
    assert rig.heartbeat(is_fenced=False).current_metadata_offset == 6


def test_a_fenced_broker_asks_for_unfencing_once_an_interval(rig: Rig) -> None:
    rig.register(epoch=5)
    rig.heartbeat(is_fenced=True)
    rig.offset = 5
    rig.lifecycle.metadata_moved()
    rig.heartbeat(is_fenced=True)
    rig.lifecycle.metadata_moved()
    assert rig.controller.sent == []
    rig.loop.run(1999)
    assert rig.controller.sent == []
    rig.loop.run(1)
    rig.heartbeat(is_fenced=False)
    assert rig.lifecycle.state == BrokerState.RUNNING


def test_heartbeats_keep_their_interval(rig: Rig) -> None:
    running(rig)
    for _ in range(3):
        rig.loop.run(1999)
        assert rig.controller.sent == []
        rig.loop.run(1)
        rig.heartbeat(is_fenced=False)


@pytest.mark.parametrize("interval_ms", ["0", "-1"])
def test_heartbeats_without_an_interval_leave_the_loop_idle(interval_ms: str) -> None:
    """In a combined node each answer came in the same turn of the loop, and the next heartbeat with it."""
    rig = Rig(interval_ms)
    running(rig)
    rig.loop.run(0)
    assert not rig.controller.sent
    rig.loop.run(1)
    rig.heartbeat(is_fenced=False)


def test_a_failed_registration_is_tried_again_with_growing_pauses(rig: Rig) -> None:
    duplicate = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    for pause in (100, 200, 400, 800, 1000, 1000):
        rig.controller.take(BrokerRegistrationRequest).answer(duplicate)
        rig.loop.run(pause - 1)
        assert rig.controller.sent == []
        rig.loop.run(1)
    rig.register()
    assert (rig.lifecycle.state, rig.lifecycle.broker_epoch) == (BrokerState.STARTING, 5)


def test_a_broker_that_cannot_register_names_the_error(rig: Rig) -> None:
    while not rig.failures and rig.loop.now_ms < 1_100_000:
        if rig.controller.sent:
            rig.controller.take(BrokerRegistrationRequest).answer(
                BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
            )
        rig.loop.run(1000)
    assert rig.failures == ["the broker could not be registered with the controller: INCONSISTENT_CLUSTER_ID"]
    assert rig.loop.now_ms == 1_060_000


def test_a_heartbeat_is_retried_after_a_connection_error(rig: Rig) -> None:
    running(rig)
    rig.loop.run(2000)
    rig.controller.take(BrokerHeartbeatRequest).answer(ConnectionError("refused"))
    rig.loop.run(100)
    rig.heartbeat(is_fenced=False)


def test_a_failed_directory_is_reported_at_once(rig: Rig) -> None:
    running(rig)
    rig.offline = [DIRECTORY]
    rig.lifecycle.directories_changed()
    assert rig.heartbeat(is_fenced=False).offline_log_dirs == [DIRECTORY]


def test_a_directory_that_fails_during_a_heartbeat_is_reported_right_after_it(rig: Rig) -> None:
    running(rig)
    rig.loop.run(2000)
    rig.offline = [DIRECTORY]
    rig.lifecycle.directories_changed()
    assert rig.heartbeat(is_fenced=False).offline_log_dirs == []
    rig.loop.run(1)
    assert rig.heartbeat(is_fenced=False).offline_log_dirs == [DIRECTORY]
    rig.loop.run(1)
    assert rig.controller.sent == []


def test_cordoned_directories_are_reported_from_recovery_on(rig: Rig) -> None:
    rig.cordoned = [DIRECTORY]
    rig.register()
    assert rig.heartbeat(is_fenced=True).cordoned_log_dirs is None  # as in Kafka: dynamic values may not be known yet
    rig.offset = 9
    rig.lifecycle.metadata_moved()
    assert rig.heartbeat(is_fenced=False, is_caught_up=True).cordoned_log_dirs == [DIRECTORY]
    rig.cordoned = []
    rig.lifecycle.directories_changed()
    assert rig.heartbeat(is_fenced=False).cordoned_log_dirs == []


def test_controlled_shutdown_waits_for_the_controllers_permission(rig: Rig) -> None:
    running(rig)
    done: list[int] = []
    rig.lifecycle.begin_shutdown(lambda: done.append(1))
    assert rig.lifecycle.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert rig.heartbeat(is_fenced=False, should_shut_down=False).want_shut_down
    assert not done
    rig.loop.run(50)
    assert rig.heartbeat(is_fenced=True, should_shut_down=True).want_shut_down
    assert done == [1]
    assert rig.lifecycle.state == BrokerState.SHUTTING_DOWN
    rig.loop.run(600_000)
    assert rig.controller.sent == []
    assert done == [1]


def test_a_repeated_registration_keeps_the_incarnation(rig: Rig) -> None:
    running(rig)
    rig.lifecycle.register_again()
    again = rig.controller.take(BrokerRegistrationRequest)
    assert (again.request.incarnation_id, again.request.log_dirs) == (rig.lifecycle.incarnation_id, [DIRECTORY])
    rig.lifecycle.register_again()
    assert not rig.controller.sent, "one request at a time"
    again.answer(BrokerRegistrationResponse(broker_epoch=5))
    rig.register()
    rig.heartbeat(is_fenced=False, is_caught_up=True)
    rig.loop.run(2000)
    rig.heartbeat(is_fenced=False, is_caught_up=True)
    assert rig.lifecycle.state == BrokerState.RUNNING


def test_a_refused_repeated_registration_is_sent_again(rig: Rig) -> None:
    running(rig)
    rig.lifecycle.register_again()
    rig.controller.take(BrokerRegistrationRequest).answer(OSError("gone"))
    rig.lifecycle.directories_changed()
    rig.register()
    rig.heartbeat(is_fenced=False, is_caught_up=True)
    assert rig.lifecycle.state == BrokerState.RUNNING


def test_a_shutdown_while_the_registration_is_sent_again_is_a_controlled_one(rig: Rig) -> None:
    running(rig)
    done: list[int] = []
    rig.lifecycle.register_again()
    rig.lifecycle.begin_shutdown(lambda: done.append(1))
    rig.register()
    assert rig.heartbeat(should_shut_down=True).want_shut_down
    assert done == [1]


def test_controlled_shutdown_ends_after_its_time_limit(rig: Rig) -> None:
    running(rig)
    done: list[int] = []
    rig.lifecycle.begin_shutdown(lambda: done.append(1))
    rig.loop.run(299_999)
    assert not done
    rig.loop.run(1)
    assert done == [1]


def test_a_shutdown_during_a_heartbeat_is_requested_right_after_it(rig: Rig) -> None:
    running(rig)
    rig.loop.run(2000)
    done: list[int] = []
    rig.lifecycle.begin_shutdown(lambda: done.append(1))
    assert not rig.heartbeat(is_fenced=False).want_shut_down
    rig.loop.run(50)
    assert rig.heartbeat(should_shut_down=True).want_shut_down
    assert done == [1]


def test_an_unregistered_broker_shuts_down_at_once(rig: Rig) -> None:
    done: list[int] = []
    rig.lifecycle.begin_shutdown(lambda: done.append(1))
    assert done == [1]
    rig.register()
    assert rig.controller.sent == []
