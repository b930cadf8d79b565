"""The controller while its cluster migrates from ZooKeeper: what it refuses, and what an abort leaves."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.controller.migration import REMIND_MS
from kraft_node.metadata.partitions import MetadataError
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    BrokerRegistrationRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    UpdateFeaturesRequest,
)
from kraft_protocol.wire.stored import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from tests.unit.controller.harness import CLUSTER_ID, Quorum, directory, uuid

KEY = "zookeeper.metadata.migration.enable"
LEVEL = 21
MIGRATION, PRE_MIGRATION, POST_MIGRATION = 1, 2, 3
MIGRATES: dict[str, Any] = {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": "z:2181"}
TOPIC = Uuid(b"t" * 16)


def quorum(*, enabled: bool = True, **more: Any) -> Quorum:
    properties: dict[str, Any] = MIGRATES if enabled else {}
    return Quorum(bootstrap=[FeatureLevelRecord("metadata.version", LEVEL)], **properties, **more)


def registration(broker_id: int, *, zookeeper: bool = True, incarnation: int = 1) -> BrokerRegistrationRequest:
    of = BrokerRegistrationRequest
    return of(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid(broker_id * 1000 + incarnation),
        listeners=[of.Listener("PLAINTEXT", "localhost", 9092, 0)],
        features=[of.Feature("metadata.version", LEVEL, LEVEL)],
        rack=None,
        is_migrating_zk_broker=zookeeper,
        log_dirs=[directory(broker_id)],
    )


def migrate(world: Quorum) -> None:
    world.controller.migration.append(
        [BeginTransactionRecord("ZK Migration"), ZkMigrationStateRecord(MIGRATION), EndTransactionRecord()], _nothing
    )
    world.commit()


def topic_records() -> list[Any]:
    partition = PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1], isr=[1], leader=1, leader_epoch=4)
    return [TopicRecord("old", TOPIC), partition]


def creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, 1, 1)], timeout_ms=1000)


def _nothing() -> None:
    pass


def uses_zookeeper(world: Quorum, broker_id: int) -> bool:
    broker = world.image.brokers.get(broker_id)
    assert broker is not None
    return broker.is_migrating_zk_broker


def refusal(world: Quorum, request: Any) -> ErrorCode | None:
    error = world.ask(request).error
    return None if error is None else ErrorCode(error.code)


def test_an_empty_log_begins_before_the_migration() -> None:
    assert quorum().image.zk_migration_state == PRE_MIGRATION
    assert quorum(enabled=False).image.zk_migration_state == 0


def test_an_empty_log_below_the_level_of_migrations_is_not_begun() -> None:
    """The controllers began a cluster that never had a ZooKeeper, and only one log line said so."""
    low = [FeatureLevelRecord("metadata.version", 7)]
    world = Quorum(bootstrap=low, active=False, **MIGRATES)
    with pytest.raises(MetadataError, match=r"metadata.version 3.3-IV3 has no migration: delete .* 3.6-IV1 or later"):
        world.lead()
    assert world.log.records == []
    assert Quorum(bootstrap=low).image.zk_migration_state == 0


def test_an_active_controller_names_the_missing_key_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """A controller with the key had died with its claim of ZooKeeper: one line said that this one needs the key."""
    world = Quorum(loader=quorum().loader)
    migration = world.controller.migration
    assert "nothing is migrated yet" in str(migration.missing_key)
    world.pass_time(5 * REMIND_MS)
    lines = [one for one in caplog.messages if f"set {KEY}=true here" in one]
    assert len(lines) >= 5
    world.lose()
    assert migration.missing_key is None
    caplog.clear()
    world.pass_time(5 * REMIND_MS)
    assert not caplog.messages


def test_a_key_that_is_missing_too_early_is_named_until_no_broker_uses_zookeeper() -> None:
    first = quorum()
    first.ask(registration(1))
    migrate(first)
    world = Quorum(loader=first.loader)
    assert world.controller.migration.missing_key == "brokers 1 still use ZooKeeper, and changes are refused"
    world.ask(registration(1, zookeeper=False, incarnation=2))
    world.time.advance(0)
    world.commit()
    assert world.controller.migration.missing_key is None
    assert world.image.zk_migration_state == POST_MIGRATION


def test_a_cluster_that_never_had_a_zookeeper_stays_as_it_is() -> None:
    world = quorum(enabled=False)
    later = Quorum(loader=world.loader, **MIGRATES)
    assert later.image.zk_migration_state == 0
    assert refusal(later, creation("a")) is None


def test_changes_are_refused_before_the_migration() -> None:
    world = quorum()
    world.ask(registration(1))
    assert refusal(world, creation("a")) is ErrorCode.NOT_CONTROLLER
    migrate(world)
    assert refusal(world, creation("a")) is None


def test_brokers_with_zookeeper_register_only_for_a_migration() -> None:
    assert refusal(quorum(enabled=False), registration(1)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    world = quorum()
    assert world.ask(registration(1)).response.error_code == 0
    assert uses_zookeeper(world, 1)
    assert refusal(world, registration(2, zookeeper=False)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    migrate(world)
    assert world.ask(registration(2, zookeeper=False)).response.error_code == 0
    assert not uses_zookeeper(world, 2)


def test_a_registration_waits_for_the_end_of_the_transaction_and_outlives_its_abort() -> None:
    world = quorum()
    world.ask(registration(1))
    migration = world.controller.migration
    migration.append([BeginTransactionRecord("ZK Migration"), *topic_records()], _nothing)
    world.commit()
    assert refusal(world, registration(2)) is ErrorCode.NOT_CONTROLLER
    assert world.controller.cluster.topic_named("old") is not None
    migration.append([AbortTransactionRecord("no answer")], _nothing)
    world.commit()
    assert world.ask(registration(2)).response.error_code == 0
    assert set(dict(world.image.brokers.items())) == {1, 2}
    assert world.controller.cluster.topic_named("old") is None
    assert not world.controller.cluster.index.leads_any(1, world.controller.cluster.view.topics, 1000)
    migration.append([BeginTransactionRecord("ZK Migration"), *topic_records()], _nothing)
    migration.append([ZkMigrationStateRecord(MIGRATION), EndTransactionRecord()], _nothing)
    world.commit()
    assert world.image.topics.by_name("old") is not None
    assert world.controller.cluster.index.leads_any(1, world.controller.cluster.view.topics, 1000)


def test_heartbeats_change_no_state_while_the_transaction_is_open() -> None:
    world = quorum()
    world.ask(registration(1))
    migration = world.controller.migration
    migration.append([BeginTransactionRecord("ZK Migration")], _nothing)
    world.commit()
    since = len(world.log.records)
    assert world.heartbeat(1).is_fenced
    world.pass_time(60_000)
    assert world.log.records[since:] == []
    migration.append([ZkMigrationStateRecord(MIGRATION), EndTransactionRecord()], _nothing)
    world.commit()
    assert not world.heartbeat(1).is_fenced


def test_a_new_controller_aborts_what_its_predecessor_has_read() -> None:
    world = quorum()
    world.controller.migration.append([BeginTransactionRecord("ZK Migration"), *topic_records()], _nothing)
    world.commit()
    world.lose()
    world.lead()
    assert isinstance(world.log.records[-1], AbortTransactionRecord)
    assert world.image.zk_migration_state == PRE_MIGRATION
    assert world.image.topics.by_name("old") is None


def test_appends_of_a_former_leader_are_refused_and_never_called_back() -> None:
    world = quorum()
    called: list[int] = []
    world.controller.migration.append([BeginTransactionRecord("x")], lambda: called.append(1))
    world.lose()
    with pytest.raises(KafkaError) as refused:
        world.controller.migration.append([EndTransactionRecord()], lambda: called.append(2))
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    world.lead()
    world.pass_time(1_000)
    assert called == []


def test_partitions_without_a_leader_get_one_after_the_migration() -> None:
    """Their broker had come back just before ZooKeeper was claimed, so no controller elected it."""
    world = quorum()
    world.ask(registration(1))
    assert not world.heartbeat(1).is_fenced
    world.pass_time(1)  # the searches of the activation and of the heartbeat end
    topic, partition = topic_records()
    partition.leader = -1
    migration = world.controller.migration
    migration.append([BeginTransactionRecord("ZK Migration"), topic, partition], _nothing)
    migration.append([ZkMigrationStateRecord(MIGRATION), EndTransactionRecord()], _nothing)
    world.commit()
    world.pass_time(1)
    state = world.image.topics.partition(TOPIC, 0)
    assert state is not None
    assert (state.leader, state.leader_epoch) == (1, 5)


def test_changes_wait_while_zookeeper_is_too_far_behind() -> None:
    world = quorum()
    world.ask(registration(1))
    migrate(world)
    world.controller.migration.is_behind = lambda: True
    assert refusal(world, creation("a")) is ErrorCode.NOT_CONTROLLER
    assert world.ask(registration(1, incarnation=1)).response.error_code == 0
    world.controller.migration.is_behind = lambda: False
    assert refusal(world, creation("a")) is None


def test_the_migration_is_finished_once_the_key_is_false_and_no_broker_uses_zookeeper() -> None:
    world = quorum()
    world.ask(registration(1))
    migrate(world)
    world.lose()
    later = Quorum(loader=world.loader)
    assert later.image.zk_migration_state == MIGRATION
    assert refusal(later, creation("a")) is ErrorCode.NOT_CONTROLLER
    later.pass_time(30_000)
    assert later.ask(registration(1, zookeeper=False, incarnation=2)).response.error_code == 0
    later.pass_time(1)
    assert later.image.zk_migration_state == POST_MIGRATION
    assert refusal(later, creation("a")) is None


def test_the_migration_is_finished_at_once_without_brokers_on_zookeeper() -> None:
    world = quorum()
    migrate(world)
    assert Quorum(loader=world.loader).image.zk_migration_state == POST_MIGRATION


def test_the_metadata_version_changes_only_once_the_migration_is_finished() -> None:
    """Without brokers with ZooKeeper it could be raised, and then no broker could register with ZooKeeper again."""
    world = quorum()
    migrate(world)
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="metadata.version", max_version_level=LEVEL + 1)
    request = UpdateFeaturesRequest(feature_updates=[update])
    refused = world.ask(request).response
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "once the migration from ZooKeeper is finished" in refused.error_message
    later = Quorum(loader=world.loader)
    assert later.image.zk_migration_state == POST_MIGRATION
    assert later.ask(request).response.error_code == 0
    assert later.image.metadata_level == LEVEL + 1


@pytest.mark.parametrize("name", ["team/app", "/app", "app/", ".", "..", "a\x01", "\N{KEY}"])
def test_acls_of_names_that_no_znode_can_have_wait_for_the_end_of_the_migration(name: str) -> None:
    """`/app` was written to ZooKeeper as `app`; the folder of `team/app` stopped the next synchronization forever."""
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    world = quorum(**authorizer)
    migrate(world)
    creation = CreateAclsRequest.AclCreation(
        resource_type=3,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    other = CreateAclsRequest.AclCreation(3, "team-app", 3, "User:a", "*", 3, 3)
    refused, made = world.ask(CreateAclsRequest(creations=[creation, other])).response.results
    assert (refused.error_code, made.error_code) == (ErrorCode.INVALID_REQUEST, 0)
    assert repr(name) in refused.error_message
    later = Quorum(loader=world.loader, **authorizer)
    assert later.image.zk_migration_state == POST_MIGRATION
    assert later.ask(CreateAclsRequest(creations=[creation])).response.results[0].error_code == 0


def test_quotas_and_users_of_names_that_no_znode_can_have_are_refused() -> None:
    """ZooKeeper's client raised an error for a path with `..`, which ended the driver of the migration."""
    world = quorum()
    migrate(world)
    of = AlterClientQuotasRequest
    entries = [
        of.EntryData([of.EntityData("client-id", name)], [of.OpData("producer_byte_rate", 5.0, False)])
        for name in ("..", "a/b", None)
    ]
    answers = world.ask(of(entries=entries)).response.entries
    assert [one.error_code for one in answers] == [ErrorCode.INVALID_REQUEST, 0, 0]
    user = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(".", 1, 4096, b"salt", b"password")
    (result,) = world.ask(AlterUserScramCredentialsRequest(upsertions=[user])).response.results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_the_leader_epoch_counts_up_when_an_isr_shrinks_during_the_migration() -> None:
    """ZooKeeper's brokers take a smaller ISR only with a new leader epoch."""
    for migrates in (True, False):
        world = quorum()
        world.ask(registration(1))
        migrate(world)
        if not migrates:
            world.log.append(ZkMigrationStateRecord(POST_MIGRATION))
            world.commit()
        world.heartbeat(1)
        topic, partition = topic_records()
        partition.replicas, partition.isr = [1, 2], [1, 2]
        world.log.append(topic, partition)
        world.commit()
        view = world.controller.cluster.topic_named("old")
        assert view is not None
        state = view.partition(0)
        assert state is not None
        change = world.controller.cluster.change(view, 0, state)
        change.isr = [1]
        record = change.record()
        assert record is not None
        assert (record.leader == 1) is migrates
