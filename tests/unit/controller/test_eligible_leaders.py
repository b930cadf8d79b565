"""Eligible leader replicas and balanced recovery (KIP-966)."""

from __future__ import annotations

import pytest

from kraft_node.base.config.resources import BROKER_RESOURCE, TOPIC_RESOURCE
from kraft_node.controller.settings import cleared_elrs
from kraft_node.metadata.features import ELR_VERSION, METADATA_VERSION
from kraft_protocol.errors import KafkaError
from kraft_protocol.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, Uuid
from kraft_protocol.wire.messages import IncrementalAlterConfigsRequest, UpdateFeaturesRequest
from kraft_protocol.wire.stored import FeatureLevelRecord
from tests.unit.controller.harness import Quorum, directory
from tests.unit.controller.test_partitions import alter, assign, reassign, set_config


@pytest.fixture
def elr_quorum() -> Quorum:
    bootstrap = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=30),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
    ]
    quorum = Quorum(bootstrap=bootstrap, min_insync_replicas="2")
    quorum.start(1, 2, 3)
    quorum.create("foo", [[1, 2, 3]])
    return quorum


def test_below_the_minimum_isr_departing_replicas_stay_eligible(elr_quorum: Quorum) -> None:
    quorum = elr_quorum
    quorum.heartbeat(1, want_fence=True)
    assert quorum.partition("foo").elr == ()
    quorum.heartbeat(2, want_fence=True)
    state = quorum.partition("foo")
    assert (state.isr, state.elr, state.leader) == ((3,), (2,), 3)
    quorum.heartbeat(3, want_fence=True)
    state = quorum.partition("foo")
    assert (state.isr, state.elr, state.leader) == ((), (2, 3), -1)
    quorum.heartbeat(2)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.leader_recovering) == (2, (2,), (3,), 0)


def test_a_replica_that_was_removed_and_added_again_is_not_eligible(elr_quorum: Quorum) -> None:
    """Simulated clusters (seed 49): a broker that moved away and back was elected with an empty log."""
    quorum = elr_quorum
    quorum.start(4)
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(2, want_fence=True)
    state = quorum.partition("foo")
    assert (state.isr, state.elr) == ((3,), (2,))
    assert reassign(quorum, [4, 1, 2]).error_code == 0
    alter(quorum, [3, 4], sender=3)
    state = quorum.partition("foo")
    assert (state.replicas, state.isr, state.elr) == ((4, 1, 2), (4,), (2,)), "3 was in sync, and is no replica"


def test_a_clean_restart_keeps_eligibility_but_an_unclean_one_loses_it(elr_quorum: Quorum) -> None:
    quorum = elr_quorum
    for broker in (1, 2):
        quorum.heartbeat(broker, want_fence=True)
    epoch = quorum.epoch_of(2)
    quorum.register(2, incarnation=2, previous_epoch=epoch)
    assert quorum.partition("foo").elr == (2,)
    quorum.register(2, incarnation=3)
    assert quorum.partition("foo").elr == ()


def test_enabling_elr_remembers_a_fenced_last_in_sync_replica() -> None:
    """Simulated clusters (seed 40040): after its unclean restart, no replica was eligible to lead."""
    quorum = Quorum(bootstrap=[FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)])
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    for broker in (1, 2):
        quorum.heartbeat(broker, want_fence=True)
    state = quorum.partition("foo")
    assert (state.leader, state.isr) == (-1, (2,))
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=ELR_VERSION, max_version_level=1, upgrade_type=1)
    assert quorum.respond(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == 0
    quorum.register(2, incarnation=2)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), (2,))
    quorum.heartbeat(2)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.leader_recovering) == (2, (2,), 1), "balanced recovery (KIP-966)"


def test_reassigning_a_leaderless_partition_keeps_the_last_known_leader() -> None:
    """Cluster seed 12 with small segments: the reassignment recorded -1 as the last leader, as Apache Kafka does."""
    quorum = Quorum(bootstrap=[FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)])
    quorum.start(1, 2, 3)
    quorum.create("foo", [[1, 2]])
    for broker in (1, 2):
        quorum.heartbeat(broker, want_fence=True)
    assert reassign(quorum, [3, 1, 2]).error_code == 0
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=ELR_VERSION, max_version_level=1, upgrade_type=1)
    assert quorum.respond(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == 0
    assert reassign(quorum, [1, 2]).error_code == 0
    quorum.register(2, incarnation=2)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), (2,))
    quorum.heartbeat(2)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.leader_recovering) == (2, (2,), 1)


@pytest.mark.parametrize(
    ("leader_directory", "own_directory", "last"), [(9, 2, (2,)), (3, 2, (3, 2)), (9, 8, (3,))], ids=str
)
def test_if_the_last_leader_lost_its_directory_another_eligible_replica_is_remembered(
    elr_quorum: Quorum, leader_directory: int, own_directory: int, last: tuple[int, ...]
) -> None:
    """Cluster seed 1200215: nothing elected a leader. A later unfencing would have elected the empty replica."""
    quorum = elr_quorum
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    quorum.pass_time(20_000)
    quorum.register(3, incarnation=2, directories=[directory(leader_directory)])
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (2,), (3,))
    quorum.register(2, incarnation=2, directories=[directory(own_directory)])
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), last)
    quorum.heartbeat(2)
    leads = last == (2,)
    assert quorum.partition("foo").leader == (2 if leads else -1)
    assert quorum.partition("foo").leader_recovering == (1 if leads else 0)


def test_a_replica_without_an_assigned_directory_may_have_its_log(elr_quorum: Quorum) -> None:
    quorum = elr_quorum
    own = [directory(2), directory(2, which=1)]
    quorum.register(2, incarnation=2, directories=own)
    quorum.heartbeat(2)
    quorum.create("bar", [[1, 2, 3]])
    assert quorum.partition("bar").directory(2) == DIRECTORY_UNASSIGNED
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    quorum.pass_time(20_000)
    quorum.register(3, incarnation=2, directories=[directory(9)])
    quorum.register(2, incarnation=3, directories=own)
    assert quorum.partition("bar").last_known_elr == (2,), "3 has lost its log"


def return_unclean(quorum: Quorum, broker: int, own: Uuid) -> None:
    quorum.register(broker, incarnation=2, directories=[own])
    quorum.heartbeat(broker)


@pytest.mark.parametrize("first", [True, False], ids=["before the leader", "after the leader"])
def test_a_replica_with_records_leads_if_the_last_leader_returns_without_its_log(
    elr_quorum: Quorum, first: bool
) -> None:
    """If it returned before the leader, no one knew it. The next unfencing elected the empty leader; the others
    truncated to it."""
    quorum = elr_quorum
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    quorum.pass_time(20_000)
    if first:
        return_unclean(quorum, 2, directory(2))
        state = quorum.partition("foo")
        assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (3,), (3, 2))
    return_unclean(quorum, 3, directory(9))
    assign(quorum, 3, directory(9))
    if not first:
        assert quorum.partition("foo").leader == -1
        return_unclean(quorum, 2, directory(2))
    return_unclean(quorum, 1, directory(1))
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.leader_recovering) == (2, (2,), 1)
    assert (state.elr, state.last_known_elr) == ((), ())


def test_a_last_leader_that_returns_with_its_log_leads_before_the_others(elr_quorum: Quorum) -> None:
    quorum = elr_quorum
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    quorum.pass_time(20_000)
    return_unclean(quorum, 2, directory(2))
    quorum.register(3, incarnation=2, directories=[directory(3)])
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), (3, 2))
    quorum.heartbeat(3)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.last_known_elr, state.leader_recovering) == (3, (3,), (), 1)


def test_a_replica_that_begins_anew_is_not_elected_while_others_may_have_records(elr_quorum: Quorum) -> None:
    """Brokers of Apache Kafka make an empty replica even if it is eligible, after a clean stop with fewer disks."""
    quorum = elr_quorum
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    quorum.pass_time(20_000)
    epochs = {broker: quorum.epoch_of(broker) for broker in (2, 3)}
    for broker in (2, 3):
        other = directory(broker, which=1)
        quorum.register(broker, incarnation=2, directories=[other], previous_epoch=epochs[broker])
        quorum.heartbeat(broker)
        assign(quorum, broker, other)
    quorum.heartbeat(1)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), ())


def test_a_lost_replica_that_is_whole_again_leads_at_once(elr_quorum: Quorum) -> None:
    """It counted as begun anew, was no longer eligible, and the records that only it had were lost."""
    quorum = elr_quorum
    for broker in (1, 2):
        quorum.heartbeat(broker, want_fence=True)
    assign(quorum, 3, DIRECTORY_LOST)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr) == (-1, (), (2, 3))
    assign(quorum, 3, DIRECTORY_UNASSIGNED)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.leader_recovering) == (3, (3,), (2,), 0)
    assign(quorum, 3, directory(3))
    assert quorum.partition("foo").leader == 3


def test_the_only_replica_is_elected_at_once_though_its_log_is_lost() -> None:
    """Nothing is left that could be lost. In Kafka it waits for the next broker that is unfenced."""
    bootstrap = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=30),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
    ]
    quorum = Quorum(bootstrap=bootstrap)
    quorum.start(1, 2)
    quorum.create("foo", [[1]])
    quorum.heartbeat(1, want_fence=True)
    quorum.pass_time(20_000)
    return_unclean(quorum, 1, directory(9))
    assert quorum.partition("foo").leader == -1
    assign(quorum, 1, directory(9))
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.leader_recovering) == (1, (1,), 1)


def test_a_changed_minimum_isr_clears_eligible_replicas(elr_quorum: Quorum) -> None:
    quorum = elr_quorum
    for broker in (1, 2):
        quorum.heartbeat(broker, want_fence=True)
    assert quorum.partition("foo").elr == (2,)
    set_config(quorum, 2, "foo", "min.insync.replicas", "1")
    assert quorum.partition("foo").elr == ()


@pytest.mark.parametrize(("minimum", "kept"), [("1", (3,)), ("3", (2, 3))])
@pytest.mark.parametrize("resource", [(TOPIC_RESOURCE, "foo"), (BROKER_RESOURCE, "")])
def test_a_leaderless_partition_keeps_its_candidates_when_the_minimum_isr_changes(
    elr_quorum: Quorum, resource: tuple[int, str], minimum: str, kept: tuple[int, ...]
) -> None:
    """Seed 60004 of `whole` with rare paths: nothing could elect a leader, for as long as it waited.

    With a minimum of one, the elected replica commits alone. Then the others may not lead, so only the last leader is
    kept.
    """
    quorum = elr_quorum
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    assert quorum.partition("foo").elr == (2, 3)
    set_config(quorum, *resource, "min.insync.replicas", minimum)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), kept, (3,))
    quorum.heartbeat(3)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr) == (3, (3,), tuple(b for b in kept if b != 3))


def test_a_partition_with_a_leader_loses_its_eligible_replicas_when_the_minimum_isr_changes(
    elr_quorum: Quorum,
) -> None:
    """Its leader may commit alone from now on."""
    quorum = elr_quorum
    for broker in (1, 2):
        quorum.heartbeat(broker, want_fence=True)
    assert quorum.partition("foo").elr == (2,)
    set_config(quorum, TOPIC_RESOURCE, "foo", "min.insync.replicas", "1")
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.elr) == (3, (3,), ())


def test_the_minimum_isr_does_not_change_while_very_many_partitions_have_no_leader(
    elr_quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their candidates do not fit into the operation, and the plan must not walk over all of them."""
    quorum = elr_quorum
    quorum.create("bar", [[1, 2, 3]] * 3)
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    monkeypatch.setattr(cleared_elrs, "RECORDS_PER_USER_OPERATION_MAX", 2)
    request = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="bar")
    request.configs = [IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", value="1")]
    with pytest.raises(KafkaError, match="more than 2 partitions have no leader"):
        quorum.controller.configs.alter_incrementally(IncrementalAlterConfigsRequest(resources=[request]))
    assert quorum.partition("bar").elr == (2, 3)
