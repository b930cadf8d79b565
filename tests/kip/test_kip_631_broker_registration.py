"""KIP-631, "Broker Registration", "Handling Broker ID Conflicts", "New Error Codes"; BrokerRegistration (62)."""

from __future__ import annotations

from kraft_node.metadata.features import METADATA_VERSION
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Answer, Quorum, directory, uuid


def code_of(answer: Answer) -> int:
    if answer.error is not None:
        return int(answer.error.code)
    return int(answer.response.error_code)


def test_each_broker_registers_itself_with_the_active_controller() -> None:
    cluster = Cluster(3, 2)
    for number in (1, 2):
        registration = cluster.image.brokers.get(number)
        assert registration.endpoint("PLAINTEXT").port == 9092
        assert registration.incarnation_id == cluster.node(f"b{number}").broker.lifecycle.incarnation_id
        assert METADATA_VERSION in registration.features


def test_the_broker_epoch_is_the_next_available_offset_of_the_log() -> None:
    quorum = Quorum()
    next_offset = quorum.log.next_offset
    assert quorum.register(1).response.broker_epoch == next_offset


def test_a_new_epoch_is_higher_than_any_earlier_one_of_the_broker() -> None:
    quorum = Quorum()
    epochs = []
    for incarnation in range(1, 5):
        epochs.append(quorum.register(1, incarnation=incarnation).response.broker_epoch)
        quorum.pass_time(10_000)
    assert epochs == sorted(set(epochs))


def test_a_registration_sent_again_gets_the_same_successful_result() -> None:
    """The first answer was lost: same incarnation id, same epoch."""
    quorum = Quorum()
    first = quorum.register(1, incarnation=7).response
    again = quorum.register(1, incarnation=7).response
    assert (first.error_code, first.broker_epoch) == (again.error_code, again.broker_epoch)
    quorum.heartbeat(1)
    third = quorum.register(1, incarnation=7).response
    assert third.broker_epoch == first.broker_epoch
    registration = quorum.image.brokers.get(1)
    assert registration is not None
    assert not registration.fenced, "it is no new incarnation: what it was, it stays"


def test_a_broker_that_does_not_support_an_active_feature_is_refused() -> None:
    quorum = Quorum()
    assert code_of(quorum.register(1, features={METADATA_VERSION: (7, 29)})) == ErrorCode.UNSUPPORTED_VERSION
    assert quorum.image.brokers.get(1) is None
    assert code_of(quorum.register(1, features={METADATA_VERSION: (7, 30)})) == 0


def test_a_broker_id_in_use_is_refused_as_duplicate_broker_registration() -> None:
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.register(1, incarnation=2, directories=[directory(1, 5)])
    assert code_of(answer) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_id_can_be_reused_after_the_previous_lease() -> None:
    quorum = Quorum()
    first = quorum.register(1).response.broker_epoch
    elsewhere = [directory(1, 5)]
    quorum.pass_time(8_999)
    assert code_of(quorum.register(1, incarnation=2, directories=elsewhere)) != 0
    quorum.pass_time(2)
    second = quorum.register(1, incarnation=2, directories=elsewhere).response
    assert (second.error_code, second.broker_epoch > first) == (0, True)


def test_registrations_and_heartbeats_both_count_as_contact_even_of_a_fenced_broker() -> None:
    quorum = Quorum()
    elsewhere = [directory(1, 5)]
    quorum.register(1)
    quorum.pass_time(6_000)
    assert quorum.heartbeat(1, want_fence=True).is_fenced
    quorum.pass_time(6_000)
    assert code_of(quorum.register(1, incarnation=2, directories=elsewhere)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    quorum.register(1)
    quorum.pass_time(6_000)
    assert code_of(quorum.register(1, incarnation=2, directories=elsewhere)) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_restarted_broker_with_the_same_directories_need_not_wait() -> None:
    """Ours: the lock of the directories proves that the former process has ended."""
    quorum = Quorum()
    quorum.start(1)
    before = quorum.epoch_of(1)
    assert quorum.register(1, incarnation=2).response.broker_epoch > before
    assert code_of(quorum.ask(m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=before))) == (
        ErrorCode.STALE_BROKER_EPOCH
    )


def test_a_broker_of_another_cluster_is_refused() -> None:
    """The draft's INVALID_CLUSTER_ID is called INCONSISTENT_CLUSTER_ID (104) in the release."""
    quorum = Quorum()
    answer = quorum.ask(m.BrokerRegistrationRequest(broker_id=1, cluster_id="other", incarnation_id=uuid(1)))
    assert code_of(answer) == ErrorCode.INCONSISTENT_CLUSTER_ID == 104


def test_a_refused_broker_names_the_reason_and_retries_until_it_is_accepted() -> None:
    cluster = Cluster(1, 1, start=False)
    cluster["c1"].start()
    cluster.until(lambda: cluster.active.name == "c1")
    assert register_stranger(cluster).error_code == 0
    cluster["b1"].start()
    cluster.rest(3_000)
    assert not cluster["b1"].serving
    assert cluster.node("b1").broker.lifecycle._last_problem == "DUPLICATE_BROKER_REGISTRATION"
    cluster.until(lambda: cluster["b1"].serving, 12_000)


def test_only_the_active_controller_registers_brokers() -> None:
    cluster = Cluster(3, 0)
    standby = next(name for name in ("c1", "c2", "c3") if name != cluster.active.name)
    assert register_stranger(cluster, standby).error_code == ErrorCode.NOT_CONTROLLER


def test_a_broker_that_receives_a_registration_closes_the_connection() -> None:
    """The draft lets brokers answer NOT_CONTROLLER; in the release their listeners lack these requests."""
    cluster = Cluster(1, 1)
    assert register_stranger(cluster, "b1") is None
    assert cluster.ask("b1", m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)) is None


def register_stranger(cluster: Cluster, name: str | None = None) -> m.BrokerRegistrationResponse:
    """Register another process as broker 1."""
    request = m.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id=cluster.cluster_id,
        incarnation_id=uuid(99),
        listeners=[m.BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="x", port=1, security_protocol=0)],
        features=[
            m.BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in {
                METADATA_VERSION: (7, 30),
                "group.version": (0, 1),
                "transaction.version": (0, 2),
                "eligible.leader.replicas.version": (0, 1),
                "share.version": (0, 1),
                "streams.version": (0, 1),
                "kraft.version": (0, 1),
            }.items()
        ],
        log_dirs=[Uuid(b"x" * 16)],
    )
    answer: m.BrokerRegistrationResponse = cluster.ask(name or cluster.active.name, request)
    return answer
