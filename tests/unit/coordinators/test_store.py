"""The coordinator's view of the broker: a partition's log, and the topics of the image."""

from functools import partial

import pytest

from kraft_node.broker.coordinators.store import ImageView, ReplicaStore
from kraft_node.log.results import AppendInfo
from kraft_node.metadata.image import MetadataImage
from kraft_node.partition.acks import ACKS_ALL
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import check_batch, iter_records
from kraft_protocol.wire.stored import PartitionRecord, RegisterBrokerRecord, TopicRecord

OFFSETS = "__consumer_offsets"
TOPIC_ID = b"o" * 16


class Log:
    """The parts of a log that the store reads."""

    def __init__(self):
        self.start_offset, self.end_offset, self.high_watermark = 3, 9, 7


class Leader:
    def __init__(self):
        self.leader_epoch = 4
        self.log = Log()
        self.waiting = []
        self.appended = []

    def append(self, batch, acks, now_ms, *, internal, guard=None):
        assert acks == ACKS_ALL
        assert internal
        self.appended.append(batch)
        return AppendInfo(42, 43, -1, 0)

    def is_replicated(self, offset):
        return self.log.high_watermark >= offset

    def when_replicated(self, offset, done):
        self.waiting.append(done)


class Replicas:
    def __init__(self):
        self.partition = Leader()

    def leader(self, topic, index):
        assert topic == OFFSETS
        return self.partition


def test_records_are_appended_as_one_batch_with_the_given_time():
    replicas = Replicas()
    store = ReplicaStore(replicas, OFFSETS, compression=3)
    assert store.append(5, 4, [(b"k", b"v"), (b"gone", None)], 123_000) == 42
    (batch,) = replicas.partition.appended
    header = check_batch(batch)
    assert (header.compression, header.producer_id) == (3, -1)
    assert [(r.key, r.value, r.timestamp) for r in iter_records(batch)] == [
        (b"k", b"v", 123_000),
        (b"gone", None, 123_000),
    ]


def test_an_epoch_of_the_past_does_not_write():
    store = ReplicaStore(Replicas(), OFFSETS)
    with pytest.raises(KafkaError, match="leader epoch 4, not 3") as caught:
        store.append(5, 3, [(b"k", b"v")], 0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_commits_are_reported_once_and_lost_leadership_is_no_commit():
    replicas = Replicas()
    store = ReplicaStore(replicas, OFFSETS)
    reported = []
    for offset in (7, 8, 9, 10):
        store.when_committed(0, offset, partial(reported.append, offset), partial(reported.append, "closed"))
    assert reported == [7]
    replicas.partition.waiting[0](ErrorCode.NONE)
    replicas.partition.waiting[1](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert reported == [7, 8]
    replicas.partition.waiting[2](ErrorCode.KAFKA_STORAGE_ERROR)
    assert reported == [7, 8, "closed"]
    assert (store.start_offset(0), store.end_offset(0), store.high_watermark(0)) == (3, 9, 7)


def image():
    endpoint = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    found = MetadataImage()
    found.replay(RegisterBrokerRecord(broker_id=1, broker_epoch=1, end_points=[endpoint], fenced=False))
    found.replay(TopicRecord(name=OFFSETS, topic_id=TOPIC_ID))
    for partition, leader in ((0, 1), (1, -1), (2, 2)):
        found.replay(
            PartitionRecord(
                partition_id=partition, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2], leader=leader, leader_epoch=0
            )
        )
    return found


def test_the_image_answers_about_topics_and_leaders():
    asked = []
    view = ImageView(image(), lambda name, _ctx: asked.append(name))
    assert (view.topic_id(OFFSETS), view.topic_name(TOPIC_ID)) == (TOPIC_ID, OFFSETS)
    assert (view.topic_id("x"), view.topic_name(b"x" * 16), view.partition_count("x")) == (None, None, None)
    assert view.partition_count(OFFSETS) == 3
    assert [view.has_partition(OFFSETS, p) for p in (-1, 0, 2, 3)] == [False, True, True, False]
    assert not view.has_partition("x", 0)
    assert view.leader_endpoint(OFFSETS, 0, "PLAINTEXT") == (1, "h", 9092)
    assert view.leader_endpoint(OFFSETS, 0, "OTHER") is None
    assert view.leader_endpoint(OFFSETS, 1, "PLAINTEXT") is None, "no leader"
    assert view.leader_endpoint(OFFSETS, 2, "PLAINTEXT") is None, "a leader that is not registered"
    assert view.leader_endpoint(OFFSETS, 9, "PLAINTEXT") is None
    view.create_internal_topic(OFFSETS, None)
    assert asked == [OFFSETS]
