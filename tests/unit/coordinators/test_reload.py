"""What is read back from the log: our records, and those that Apache Kafka may have left."""

import struct

from kraft_node.broker.coordinators.group import records
from kraft_node.broker.coordinators.group.offsets import CommittedOffset
from kraft_node.broker.coordinators.runtime.machine import TransactionalProducer
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch, check_batch
from kraft_protocol.records.control import build_marker
from kraft_protocol.wire import codec
from kraft_protocol.wire.stored import ShareGroupMetadataKey, StreamsGroupMemberMetadataKey, StreamsGroupMetadataKey
from tests.unit.coordinators.harness import OFFSETS, Logs, Node, Topics


def test_members_and_offsets_are_loaded():
    node = Node()
    (a, b), generation = node.stable_group(2)
    node.commit({("t", 0): 5}, member=a, generation=generation, metadata="m")
    before = node.described()
    node.start()
    assert node.described() == before
    assert node.heartbeat(a, generation) is ErrorCode.NONE
    assert node.sync(b, generation).response.assignment == b.encode()
    assert node.offsets() == {("t", 0): 5}


def test_sessions_restart_after_loading():
    node = Node()
    (a,), generation = node.stable_group(1)
    node.time.advance(9_999)
    node.start()
    node.time.advance(9_999)
    assert node.heartbeat(a, generation) is ErrorCode.NONE
    node.start()
    node.time.advance(10_000)
    assert node.described().group_state == "Empty"


def test_requests_during_loading_get_a_retriable_error():
    node = Node()
    (a,), generation = node.stable_group(1)
    node.coordinator.on_resign(0)
    node.coordinator.on_leader(0, 2)
    assert node.join().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.heartbeat(a, generation) is ErrorCode.NONE, "a member is not sent away for that"
    (group,) = node.fetch().response.groups
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    from kraft_protocol.wire.messages import ListGroupsRequest

    assert node.send(ListGroupsRequest(), 5).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.time.advance()
    assert node.heartbeat(a, generation) is ErrorCode.NONE
    assert "g" in node.listed()


def test_a_long_log_is_read_in_turns():
    node = Node()
    for i in range(1_000):
        node.commit({("t", 0): i, ("t", 1): i})
    node.coordinator.on_resign(0)
    node.coordinator.on_leader(0, 2)
    turns = 0
    while node.coordinator.shards[0].phase.value == "loading":
        _, _, handle = node.time._queue[0]
        node.time._queue.pop(0)
        handle.function(*handle.args)
        turns += 1
        if turns > 100:
            break
    assert turns == 6, "2000 records, 400 a turn, and one turn to find the end"
    assert node.offsets() == {("t", 0): 999, ("t", 1): 999}


def test_a_resignation_stops_the_load():
    node = Node()
    node.commit({("t", 0): 1})
    node.coordinator.on_resign(0)
    node.coordinator.on_leader(0, 2)
    node.coordinator.on_resign(0)
    node.time.advance()
    assert node.coordinator.shards == {}


def test_a_new_epoch_of_the_same_leader_keeps_loaded_groups():
    node = Node()
    (a,), generation = node.stable_group(1)
    node.coordinator.on_leader(0, 5)
    assert node.heartbeat(a, generation) is ErrorCode.NONE
    assert node.coordinator.shards[0].epoch == 5
    node.commit({("t", 0): 1}, group="simple")
    assert check_batch(node.logs.batches[0][-1][1]).partition_leader_epoch == 5
    node.coordinator.on_leader(0, 4)
    assert node.coordinator.shards[0].epoch == 5, "news of the past change nothing"


def test_a_load_that_failed_is_tried_again():
    node = Node()
    node.commit({("t", 0): 1})
    good = node.logs.batches[0]
    node.logs.batches[0] = [*good, (1, build_batch([(b"\x00\x01broken", b"x")], base_offset=1))]
    node.logs.ends[0] = 2
    node.start()
    assert node.join().error is ErrorCode.NOT_COORDINATOR
    node.logs.batches[0], node.logs.ends[0] = good, 1
    node.coordinator.on_leader(0, 2)
    node.time.advance()
    assert node.offsets() == {("t", 0): 1}


def test_damage_fails_the_partition_not_the_node():
    node = Node()
    end = node.logs.end_offset(0)
    node.logs.append_raw(0, build_batch([(b"\x00\x01broken", b"x")], base_offset=end))
    node.start()
    assert node.join().error is ErrorCode.NOT_COORDINATOR
    assert node.listed() == {}


def foreign(node: Node, *pairs):
    node.logs.append_raw(0, build_batch(pairs, base_offset=node.logs.end_offset(0)))


def test_records_of_newer_releases_are_skipped():
    node = Node()
    foreign(node, (struct.pack(">h", 999) + b"whatever", b"\x00\x00"))
    node.commit({("t", 0): 1})
    node.start()
    assert node.offsets() == {("t", 0): 1}


def streams_group(node: Node, name: str):
    keys = [
        struct.pack(">h", 17) + codec.encode(StreamsGroupMetadataKey(name), 0),
        struct.pack(">h", 19) + codec.encode(StreamsGroupMemberMetadataKey(name, "m"), 0),
    ]
    foreign(node, *[(k, b"\x00\x00") for k in keys])


def test_a_group_of_the_new_protocol_is_listed_and_can_be_converted():
    node = Node()
    streams_group(node, "g")
    foreign(node, (struct.pack(">h", 11) + codec.encode(ShareGroupMetadataKey("s"), 0), b"\x00\x00"))
    node.logs.append_raw(
        0,
        build_batch(
            [records.encode_change(records.OffsetChange("g", "t", 0, CommittedOffset(7, -1, "", node.time.wall_ms())))],
            base_offset=node.logs.end_offset(0),
        ),
    )
    node.start()
    assert node.listed() == {"g": ("Empty", "streams", "streams"), "s": ("Empty", "share", "share")}
    assert node.listed(types=["streams"]).keys() == {"g"}
    assert node.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert node.offsets() == {("t", 0): 7}
    assert node.join(group="s").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    (a,), generation = node.stable_group(1)
    assert node.listed()["g"] == ("Stable", "classic", "consumer")
    node.start()
    assert node.listed()["g"] == ("Stable", "classic", "consumer")
    assert node.heartbeat(a, generation) is ErrorCode.NONE
    assert node.offsets() == {("t", 0): 7}


def test_a_group_of_the_new_protocol_can_be_deleted():
    node = Node()
    streams_group(node, "g")
    node.start()
    assert node.delete("g") == {"g": ErrorCode.NONE}
    node.start()
    assert node.listed() == {}


def test_transactional_offsets_are_visible_after_their_commit_marker():
    node = Node()

    def pending(producer: int, offset: int):
        change = records.OffsetChange("g", "t", 0, CommittedOffset(offset, -1, "", node.time.wall_ms()))
        return build_batch(
            [records.encode_change(change)],
            base_offset=node.logs.end_offset(0),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    def marker(producer: int, commit: bool):
        return build_marker(
            commit=commit,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=node.logs.end_offset(0),
        )

    node.commit({("t", 0): 1})
    node.logs.append_raw(0, pending(100, 50))
    node.start()
    assert node.offsets(wanted={"t": [0]}) == {("t", 0): 1}
    (group,) = node.fetch(wanted={"t": [0]}, stable=True).response.groups
    assert group.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    node.logs.append_raw(0, marker(100, commit=True))
    node.start()
    assert node.offsets() == {("t", 0): 50}
    node.logs.append_raw(0, pending(101, 60))
    node.logs.append_raw(0, marker(101, commit=False))
    node.start()
    assert node.offsets(stable=True) == {("t", 0): 50}
    node.logs.append_raw(0, pending(102, 70))
    node.commit({("t", 0): 71})
    node.logs.append_raw(0, marker(102, commit=True))
    node.start()
    assert node.offsets() == {("t", 0): 71}, "a later plain commit is not overtaken"


def test_a_marker_written_while_active_applies_at_once():
    node = Node()
    change = records.OffsetChange("g", "t", 0, CommittedOffset(5, -1, "", 0))
    end = node.logs.end_offset(0)
    node.logs.append_raw(
        0,
        build_batch(
            [records.encode_change(change)],
            base_offset=end,
            producer_id=9,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        ),
    )
    node.start()
    node.logs.hold = True
    done = []
    producer = TransactionalProducer(9, 0)
    node.coordinator.runtime.shard_at(0).end_transaction(producer, done.append, commit=True, coordinator_epoch=0)
    assert node.offsets() == {}, "the marker is not committed yet"
    assert done == []
    node.logs.commit()
    assert node.offsets() == {("t", 0): 5}
    assert done == [None]


def test_a_group_that_exceeds_a_lowered_limit_is_rebalanced_after_loading():
    node = Node()
    (a, _), generation = node.stable_group(2)
    node.config.max_size = 1
    node.start()
    assert node.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_groups_are_stored_in_the_partition_of_their_hash():
    topics = Topics(t=1)
    topics.counts[OFFSETS] = 50
    node = Node(topics=topics)
    node.commit({("t", 0): 1}, group="console-consumer-1")
    (partition,) = node.logs.batches
    assert partition == 24, "as Java computes it"


def reloaded_behind(node: Node) -> Logs:
    """Offset 7 is committed, 8 is only written when all nodes stop: the checkpointed high watermark is behind both."""
    logs = node.logs
    node.commit({("t", 0): 6})
    checkpointed = dict(logs.marks)
    node.commit({("t", 0): 7})
    logs.hold = True
    node.commit({("t", 0): 8})
    logs.marks = checkpointed
    node.start()
    return logs


def test_stable_read_after_reload_waits_until_loaded_offsets_are_committed():
    node = Node()
    logs = reloaded_behind(node)
    stable = node.fetch(stable=True)
    assert not stable.answered, "the high watermark is behind an offset that was acknowledged"
    logs.commit()
    assert {p.committed_offset for t in stable.response.groups[0].topics for p in t.partitions} == {8}
    assert node.offsets(stable=True) == {("t", 0): 8}


def test_stable_read_after_reload_times_out_as_not_coordinator():
    node = Node()
    reloaded_behind(node)
    stable = node.fetch(stable=True)
    node.wait(node.config.commit_timeout_ms)
    (group,) = stable.response.groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR


def test_stable_read_after_a_timed_out_commit_still_waits():
    node = Node()
    node.commit({("t", 0): 1})
    node.logs.hold = True
    commit = node.commit({("t", 0): 2})
    node.wait(node.config.commit_timeout_ms)
    assert commit.answered
    stable = node.fetch(stable=True)
    assert not stable.answered, "the commit that timed out may still be committed"
    node.logs.commit()
    assert {p.committed_offset for t in stable.response.groups[0].topics for p in t.partitions} == {2}


def test_plain_read_after_reload_returns_offsets_below_the_high_watermark():
    """As in Kafka: a plain read ends at the coordinator's last committed offset and never waits."""
    node = Node()
    logs = reloaded_behind(node)
    assert node.offsets() == {("t", 0): 6}
    logs.commit()
    assert node.offsets() == {("t", 0): 8}
