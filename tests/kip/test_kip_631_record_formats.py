"""KIP-631, "Record Formats": each record with the draft's fields, under the names of the release."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.records import RECORD_TYPES, decode_record, encode_record
from kraft_protocol.wire import stored
from tests.unit.controller.harness import uuid

TOPIC = uuid(7)

ENDPOINT = stored.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)

RECORDS: list[tuple[int, Any]] = [
    (0, stored.RegisterBrokerRecord(broker_id=1, incarnation_id=uuid(1), broker_epoch=5, end_points=[ENDPOINT],
                                    features=[], rack="r")),
    (1, stored.UnregisterBrokerRecord(broker_id=1, broker_epoch=5)),
    (2, stored.TopicRecord(name="foo", topic_id=TOPIC)),
    (3, stored.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1], removing_replicas=[],
                               adding_replicas=[2], leader=1, leader_epoch=3, partition_epoch=4)),
    (4, stored.ConfigRecord(resource_type=2, resource_name="foo", name="retention.ms", value="1")),
    (5, stored.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1], leader=-1)),
    (18, stored.AccessControlEntryRecord(id=uuid(9), resource_type=2, resource_name="foo", pattern_type=3,
                                         principal="User:a", host="*", operation=2, permission_type=3)),
    (7, stored.FenceBrokerRecord(id=1, epoch=5)),
    (8, stored.UnfenceBrokerRecord(id=1, epoch=5)),
    (9, stored.RemoveTopicRecord(topic_id=TOPIC)),
    (10, stored.DelegationTokenRecord(owner="User:a", requester="User:a", renewers=["User:b"], issue_timestamp=1,
                                      max_timestamp=2, expiration_timestamp=3, token_id="t")),
    (11, stored.UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v",
                                          iterations=4096)),
    (12, stored.FeatureLevelRecord(name="metadata.version", feature_level=30)),
    (14, stored.ClientQuotaRecord(
        entity=[stored.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)],
        key="producer_byte_rate", value=1.5, remove=False)),
]  # fmt: skip


@pytest.mark.parametrize(("number", "record"), RECORDS, ids=[type(record).__name__ for _, record in RECORDS])
def test_every_record_of_the_draft_is_written_and_read_under_its_number(number: int, record: Any) -> None:
    """AccessControl (6) became 18 in the release; Quota (14) is called ClientQuota."""
    for level in (7, 30):
        version = kind_of(record).version(level)
        value = encode_record(record, max(version, 0))
        assert value[:2] == bytes([1, number])
        assert decode_record(value) == record


def test_failed_replicas_were_never_released() -> None:
    """The directories of partitions and brokers (KIP-858) replaced them."""
    assert 13 not in RECORD_TYPES
    assert "log_dirs" in stored.RegisterBrokerRecord.__slots__
    assert "directories" in stored.PartitionRecord.__slots__


def replayed(*records: Any) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def test_a_partition_change_keeps_fields_that_it_does_not_name() -> None:
    image = replayed(RECORDS[2][1], RECORDS[3][1], RECORDS[5][1])
    topic = image.topics.by_name("foo")
    assert topic is not None
    state = topic.partition(0)
    assert state is not None
    assert (state.isr, state.leader, state.replicas, state.adding) == ((1,), -1, (1, 2), (2,))


def test_a_changed_leader_raises_the_leader_epoch() -> None:
    image = replayed(RECORDS[2][1], RECORDS[3][1], RECORDS[5][1])
    topic = image.topics.by_name("foo")
    assert topic is not None
    state = topic.partition(0)
    assert state is not None
    assert state.leader_epoch == 4


def test_removing_a_topic_removes_all_its_partitions() -> None:
    image = replayed(RECORDS[2][1], RECORDS[3][1], RECORDS[9][1])
    assert (len(image.topics), image.topics.partition_count) == (0, 0)


def test_fence_and_unfence_records_change_the_broker() -> None:
    """Written below metadata.version 3.3-IV; the release writes BrokerRegistrationChange (17) since."""
    image = replayed(RECORDS[0][1], RECORDS[8][1])
    assert not image.brokers.get(1).fenced  # type: ignore[union-attr]
    image.replay(RECORDS[7][1])
    assert image.brokers.get(1).fenced  # type: ignore[union-attr]


def test_a_null_value_deletes_a_configuration() -> None:
    gone = stored.ConfigRecord(resource_type=2, resource_name="foo", name="retention.ms", value=None)
    assert replayed(RECORDS[4][1]).configs.get((2, "foo")) == {"retention.ms": "1"}
    assert not replayed(RECORDS[4][1], gone).configs.get((2, "foo"))


def test_a_removed_quota_no_longer_exists() -> None:
    quota = RECORDS[13][1]
    gone = stored.ClientQuotaRecord(entity=quota.entity, key=quota.key, value=0.0, remove=True)
    assert len(list(replayed(quota).quotas.values())) == 1
    assert not [values for values in replayed(quota, gone).quotas.values() if values]
