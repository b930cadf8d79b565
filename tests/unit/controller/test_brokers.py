"""Brokers register, renew their leases, miss heartbeats, shut down and return."""

from __future__ import annotations

import pytest

from kraft_node.metadata.features import METADATA_VERSION
from kraft_node.metadata.own_fields import add_snapshot_end
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import codec
from kraft_protocol.wire.messages import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    UnregisterBrokerRequest,
)
from kraft_protocol.wire.stored import FeatureLevelRecord
from tests.unit.controller.harness import Quorum, directory, uuid


def code_of(answer: object) -> ErrorCode:
    error = getattr(answer, "error", None)
    assert isinstance(error, KafkaError)
    return error.code


# Registration


def test_a_broker_registers_fenced_and_is_unfenced_after_reading_its_registration() -> None:
    quorum = Quorum()
    response = quorum.register(1).response
    broker = quorum.image.brokers.get(1)
    assert broker is not None
    assert broker.fenced
    assert response.broker_epoch == broker.epoch
    assert broker.endpoints["PLAINTEXT"].port == 9093
    behind = quorum.heartbeat(1, current_metadata_offset=broker.epoch - 1)
    assert (behind.is_fenced, behind.is_caught_up) == (True, False)
    caught_up = quorum.heartbeat(1, current_metadata_offset=broker.epoch)
    assert (caught_up.is_fenced, caught_up.is_caught_up) == (False, True)


def test_a_broker_that_wants_to_stay_fenced_stays_fenced() -> None:
    quorum = Quorum()
    quorum.register(1)
    assert quorum.heartbeat(1, want_fence=True).is_fenced


def test_the_broker_epoch_is_the_first_offset_of_the_registration() -> None:
    quorum = Quorum()
    quorum.pass_time(3_000)
    expected = quorum.log.next_offset
    assert quorum.register(1).response.broker_epoch == expected


def test_the_same_incarnation_registers_again_and_keeps_epoch_and_fencing() -> None:
    quorum = Quorum()
    quorum.start(1)
    epoch = quorum.epoch_of(1)
    assert quorum.register(1, rack="b").response.broker_epoch == epoch
    broker = quorum.image.brokers.get(1)
    assert broker is not None
    assert (broker.fenced, broker.rack) == (False, "b")


def test_a_second_process_with_an_id_is_refused_during_the_lease() -> None:
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.register(1, incarnation=2, directories=[directory(1, 5)])
    assert code_of(answer) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    quorum.time.advance(9_001)
    assert quorum.register(1, incarnation=2, directories=[directory(1, 5)]).response.error_code == 0


def test_a_restarted_broker_with_the_same_directory_replaces_its_predecessor() -> None:
    quorum = Quorum()
    quorum.start(1)
    epoch = quorum.epoch_of(1)
    assert quorum.register(1, incarnation=2).response.broker_epoch > epoch
    assert quorum.heartbeat(1).is_fenced is False


def test_a_late_request_of_the_predecessor_does_not_replace_its_successor() -> None:
    """It was under way when the process died. The successor got STALE_BROKER_EPOCH for ever (cluster seed 4110050)."""
    quorum = Quorum()
    quorum.start(1)
    epoch = quorum.register(1, incarnation=2).response.broker_epoch
    assert code_of(quorum.register(1)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert quorum.epoch_of(1) == epoch
    quorum.pass_time(10_000)
    assert code_of(quorum.register(1)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "also when the lease is over"
    assert quorum.register(1, incarnation=3).response.error_code == 0


def test_a_restarted_broker_waits_for_its_predecessors_lease_if_configured() -> None:
    """As in Apache Kafka."""
    quorum = Quorum(broker_session_replace_on_restart="false")
    quorum.start(1)
    assert code_of(quorum.register(1, incarnation=2)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    quorum.pass_time(10_000)
    assert quorum.register(1, incarnation=2).response.error_code == 0


def test_a_wrong_value_of_the_switch_is_named() -> None:
    with pytest.raises(ValueError, match=r"perhaps for configuration broker\.session\.replace\.on\.restart"):
        Quorum(broker_session_replace_on_restart="perhaps")


def test_a_heartbeat_reports_the_end_of_the_brokers_snapshot() -> None:
    quorum = Quorum()
    quorum.start(1)
    reported: list[tuple[int, int | None]] = []
    quorum.controller.brokers.on_snapshot_reported = lambda broker_id, end_offset: reported.append(
        (broker_id, end_offset)
    )
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=quorum.epoch_of(1), current_metadata_offset=99)
    add_snapshot_end(request, 4_000)
    for version in (0, 1, 2):
        quorum.respond(codec.decode(BrokerHeartbeatRequest, codec.encode(request, version), version), version)
    quorum.heartbeat(1)
    assert reported == [(1, 4_000)] * 3 + [(1, None)], "nodes of Apache Kafka say nothing"
    stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=quorum.epoch_of(1) + 1)
    add_snapshot_end(stale, 5_000)
    assert code_of(quorum.ask(stale)) == ErrorCode.STALE_BROKER_EPOCH
    assert len(reported) == 4, "only the registered incarnation is believed"


def test_a_new_incarnation_leaves_the_isrs_of_the_old_one() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2], [2, 1]])
    quorum.create("alone", [[1]])
    quorum.register(1, incarnation=2)
    assert quorum.partition("foo", 0).isr == (2,)
    assert quorum.partition("foo", 0).leader == 2
    assert quorum.partition("foo", 1).isr == (2,)
    assert (quorum.partition("alone").isr, quorum.partition("alone").leader) == ((1,), -1)
    quorum.heartbeat(1)
    assert (quorum.partition("alone").isr, quorum.partition("alone").leader) == ((1,), 1)
    assert quorum.partition("foo", 0).isr == (2,), "it has to catch up before it is in sync again"


def test_a_broker_of_another_cluster_is_refused() -> None:
    quorum = Quorum()
    answer = quorum.ask(BrokerRegistrationRequest(broker_id=1, cluster_id="other", incarnation_id=uuid(1)))
    assert code_of(answer) == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_broker_must_support_the_finalized_metadata_version() -> None:
    quorum = Quorum()
    assert code_of(quorum.register(1, features={METADATA_VERSION: (7, 29)})) == ErrorCode.UNSUPPORTED_VERSION
    assert code_of(quorum.register(1, features={})) == ErrorCode.INVALID_REGISTRATION
    assert quorum.register(1, features={METADATA_VERSION: (7, 30)}).response.error_code == 0


def test_a_broker_must_support_every_finalized_feature() -> None:
    bootstrap = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=30),
        FeatureLevelRecord(name="group.version", feature_level=1),
    ]
    quorum = Quorum(bootstrap=bootstrap)
    answer = quorum.register(1, features={METADATA_VERSION: (7, 30)})
    assert code_of(answer) == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error is not None
    assert "version 1 of group.version" in str(answer.error)


def test_a_broker_must_support_the_kraft_version_in_force() -> None:
    quorum = Quorum()
    old = {METADATA_VERSION: (7, 30)}
    assert quorum.register(1, features=old).response.error_code == 0
    quorum.controller.features.kraft_version = lambda: 1
    answer = quorum.register(2, features=old)
    assert code_of(answer) == ErrorCode.UNSUPPORTED_VERSION
    assert str(answer.error).endswith(
        "Unable to register because the broker does not support finalized version 1 of kraft.version. "
        "The broker wants a version between 0 and 0, inclusive."
    )
    assert quorum.register(2).response.error_code == 0


@pytest.mark.parametrize(
    "directories",
    [[], [uuid(5)], [directory(1), directory(1)], [directory(2)]],
    ids=["none", "reserved", "twice", "of another broker"],
)
def test_missing_reserved_or_foreign_directories_are_refused(directories: list[bytes]) -> None:
    quorum = Quorum()
    quorum.start(2)
    assert code_of(quorum.register(1, directories=directories)) == ErrorCode.INVALID_REGISTRATION


def test_unregistering_takes_a_broker_out_of_isrs_and_registry() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    quorum.respond(UnregisterBrokerRequest(broker_id=1))
    assert quorum.image.brokers.get(1) is None
    assert quorum.partition("foo").isr == (2,)
    assert code_of(quorum.ask(UnregisterBrokerRequest(broker_id=1))) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_controllers_register_their_endpoints_and_features() -> None:
    quorum = Quorum()
    request = ControllerRegistrationRequest(
        controller_id=3001,
        incarnation_id=uuid(9),
        listeners=[ControllerRegistrationRequest.Listener(name="CONTROLLER", host="c", port=9093)],
        features=[
            ControllerRegistrationRequest.Feature(
                name=METADATA_VERSION, min_supported_version=7, max_supported_version=30
            )
        ],
    )
    quorum.respond(request)
    controller = quorum.image.controllers.get(3001)
    assert controller is not None
    assert controller.endpoints["CONTROLLER"].host == "c"
    assert controller.features[METADATA_VERSION] == (7, 30)


# Heartbeats


def test_heartbeats_of_an_unregistered_incarnation_are_stale() -> None:
    quorum = Quorum()
    quorum.start(1)
    unknown = quorum.ask(BrokerHeartbeatRequest(broker_id=9, broker_epoch=1))
    assert code_of(unknown) == ErrorCode.STALE_BROKER_EPOCH
    old = quorum.ask(BrokerHeartbeatRequest(broker_id=1, broker_epoch=quorum.epoch_of(1) - 1))
    assert code_of(old) == ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_when_its_lease_has_run_out() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    for _ in range(6):
        quorum.pass_time(2_000)
        quorum.heartbeat(2)
    broker = quorum.image.brokers.get(1)
    assert broker is not None
    assert broker.fenced
    assert (quorum.partition("foo").isr, quorum.partition("foo").leader) == ((2,), 2)
    assert quorum.controller.cluster.sessions.timed_out == 1
    assert not quorum.heartbeat(1).is_fenced, "it comes back with its next heartbeat"


def test_heartbeats_keep_the_lease() -> None:
    quorum = Quorum()
    quorum.start(1)
    for _ in range(20):
        quorum.pass_time(2_000)
        assert not quorum.heartbeat(1).is_fenced
    assert len([r for r in quorum.written("BrokerRegistrationChangeRecord") if r.fenced == 1]) == 0


def test_a_stall_of_the_controller_fences_no_broker() -> None:
    quorum = Quorum()
    quorum.start(1)
    quorum.time.now += 20_000  # the process stood still for that long; heartbeats wait in socket buffers
    quorum.time.advance(0)
    quorum.heartbeat(1)
    quorum.pass_time(2_000)
    assert not quorum.heartbeat(1).is_fenced
    assert quorum.controller.cluster.sessions.timed_out == 0


def test_a_broker_may_ask_to_be_fenced() -> None:
    quorum = Quorum()
    quorum.start(1)
    assert quorum.heartbeat(1, want_fence=True).is_fenced
    assert not quorum.heartbeat(1).is_fenced


def test_a_fenced_broker_may_stop_at_once() -> None:
    quorum = Quorum()
    quorum.register(1)
    assert quorum.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_without_leaderships_may_stop_at_once() -> None:
    quorum = Quorum()
    quorum.start(1)
    response = quorum.heartbeat(1, want_shut_down=True)
    assert response.should_shut_down
    assert response.is_fenced


def test_controlled_shutdown_moves_leaders_and_waits_until_other_brokers_know() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    behind = quorum.log.next_offset - 1
    quorum.heartbeat(2, current_metadata_offset=behind)
    response = quorum.heartbeat(1, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    broker = quorum.image.brokers.get(1)
    assert broker is not None
    assert broker.in_controlled_shutdown
    assert (quorum.partition("foo").leader, quorum.partition("foo").isr) == (2, (2,))
    assert not quorum.heartbeat(1, want_shut_down=True).should_shut_down, "broker 2 has not seen it yet"
    quorum.heartbeat(2)
    assert quorum.heartbeat(1, want_shut_down=True).should_shut_down
    assert quorum.image.brokers.get(1).fenced  # type: ignore[union-attr]


def test_in_controlled_shutdown_an_only_replica_gives_up_leadership() -> None:
    quorum = Quorum()
    quorum.start(1)
    quorum.create("foo", [[1]])
    assert not quorum.heartbeat(1, want_shut_down=True).should_shut_down
    assert (quorum.partition("foo").leader, quorum.partition("foo").isr) == (-1, (1,))
    assert quorum.heartbeat(1, want_shut_down=True).should_shut_down


# Directories


def test_a_broker_with_a_failed_directory_leaves_the_isrs_of_its_replicas() -> None:
    quorum = Quorum()
    good, bad = directory(1, 0), directory(1, 1)
    quorum.start(2)
    quorum.start(1, directories=[good, bad])
    quorum.create("foo", [[1, 2], [1, 2]])
    assign(quorum, 1, bad, "foo", 0)
    assign(quorum, 1, good, "foo", 1)
    quorum.heartbeat(1, offline_log_dirs=[bad])
    assert (quorum.partition("foo", 0).leader, quorum.partition("foo", 0).isr) == (2, (2,))
    assert (quorum.partition("foo", 1).leader, quorum.partition("foo", 1).isr) == (1, (1, 2))
    broker = quorum.image.brokers.get(1)
    assert broker is not None
    assert broker.directories == (good,)


def test_a_returning_broker_does_not_lead_replicas_in_a_failed_directory() -> None:
    """The directory died after the registration: the heartbeat that asks to be unfenced is the first to report it."""
    quorum = Quorum()
    good, bad = directory(1, 0), directory(1, 1)
    quorum.start(1, directories=[good, bad])
    quorum.create("t", [[1], [1]])
    assign(quorum, 1, good, "t", 0)
    assign(quorum, 1, bad, "t", 1)
    quorum.register(1, incarnation=2, directories=[good, bad])
    quorum.heartbeat(1, offline_log_dirs=[bad])
    assert not quorum.heartbeat(1, offline_log_dirs=[bad]).is_fenced
    states = [quorum.partition("t", number) for number in (0, 1)]
    assert [state.leader for state in states] == [1, -1]


def test_a_replica_assigned_to_an_offline_directory_leaves_the_isr() -> None:
    quorum = Quorum()
    quorum.start(2)
    quorum.start(1, directories=[directory(1, 0), directory(1, 1)])
    quorum.create("foo", [[1, 2]])
    assign(quorum, 1, directory(1, 7), "foo", 0)
    assert quorum.partition("foo").directory(1) == directory(1, 7)
    assert (quorum.partition("foo").leader, quorum.partition("foo").isr) == (2, (2,))


def test_a_repeated_assignment_to_an_offline_directory_leaves_the_isr_again() -> None:
    """The assignment does not change then; the code relied on its record."""
    quorum = Quorum()
    quorum.start(2)
    quorum.start(1, directories=[directory(1, 0), directory(1, 1)])
    quorum.create("foo", [[2, 1]])
    assign(quorum, 1, directory(1, 7), "foo", 0)
    state = quorum.partition("foo")
    assert state.isr == (2,)
    request = AlterPartitionRequest
    members = [request.BrokerState(broker_id) for broker_id in (2, 1)]
    part = request.PartitionData(0, state.leader_epoch, [], members, 0, state.partition_epoch)
    quorum.respond(request(2, quorum.epoch_of(2), [request.TopicData(quorum.topic_id("foo"), [part])]))
    assert quorum.partition("foo").isr == (2, 1)
    assign(quorum, 1, directory(1, 7), "foo", 0)
    assert quorum.partition("foo").isr == (2,)


def test_a_last_replica_in_a_lost_directory_permits_an_unclean_leader() -> None:
    quorum = Quorum()
    quorum.start(2)
    quorum.start(1, directories=[directory(1, 0), directory(1, 1)])
    quorum.create("foo", [[1, 2]], configs={"unclean.leader.election.enable": "true"})
    quorum.heartbeat(2, want_fence=True)
    quorum.heartbeat(2)
    assert quorum.partition("foo").isr == (1,)
    assign(quorum, 1, directory(1, 7), "foo", 0)
    assert (quorum.partition("foo").leader, quorum.partition("foo").isr) == (2, (2,))


def test_new_partitions_are_in_the_only_directory_or_yet_unassigned() -> None:
    quorum = Quorum()
    quorum.start(1)
    quorum.start(2, directories=[directory(2, 0), directory(2, 1)])
    quorum.create("foo", [[1, 2]])
    assert quorum.partition("foo").directories == (directory(1), uuid(1))


def test_cordoned_directories_are_noted_and_get_no_new_replicas() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.heartbeat(1, cordoned_log_dirs=[directory(1)])
    assert quorum.create("foo", partitions=3, factor=1).error_code == 0
    assert {quorum.partition("foo", number).leader for number in range(3)} == {2}
    assert quorum.create("bar", partitions=1, factor=2).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    quorum.heartbeat(1, cordoned_log_dirs=[])
    assert quorum.create("bar", partitions=1, factor=2).error_code == 0


def assign(quorum: Quorum, broker_id: int, where: bytes, topic: str, number: int) -> None:
    from kraft_protocol.wire.messages import AssignReplicasToDirsRequest as Request

    quorum.respond(
        Request(
            broker_id=broker_id,
            broker_epoch=quorum.epoch_of(broker_id),
            directories=[
                Request.DirectoryData(
                    id=where,
                    topics=[
                        Request.TopicData(
                            topic_id=quorum.topic_id(topic), partitions=[Request.PartitionData(partition_index=number)]
                        )
                    ],
                )
            ],
        )
    )
