"""The costs of the index: some bytes for each partition, and no look at blocks without the broker."""

from __future__ import annotations

import tracemalloc
from typing import Any

from kraft_node.controller.state.blocks import BLOCK_PARTITIONS, BrokerBlocks
from kraft_node.controller.state.indexes import Indexes
from kraft_node.metadata.image import MetadataImage
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import stored
from tests.unit.controller.harness import flat

DIRECTORY = Uuid(b"directory-of-all")
INDEX_BYTES_MAX = 12
"""A partition, of topics of 100 on 10 brokers: four for a block of each broker, and what a topic costs."""


def image_of(topics: int, partitions: int, brokers: list[int]) -> MetadataImage:
    """Topics whose partitions rotate over the brokers, three replicas each."""
    image = MetadataImage()
    for number in range(topics):
        add_topic(image, number, partitions, brokers)
    return image


def add_topic(image: MetadataImage, number: int, partitions: int, brokers: list[int]) -> Uuid:
    topic_id = Uuid((number + 1).to_bytes(16, "big"))
    image.replay(stored.TopicRecord(name=f"t{number}", topic_id=topic_id))
    for partition in range(partitions):
        replicas = [brokers[(number + partition + i) % len(brokers)] for i in range(min(3, len(brokers)))]
        image.replay(
            stored.PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                directories=[DIRECTORY] * len(replicas),
            )
        )
    return topic_id


def derived(image: MetadataImage) -> Indexes:
    made = Indexes()
    made.begin(image)
    made.finish(image)
    return made


class Watched:
    """Topics that count look-ups."""

    def __init__(self, topics: Any) -> None:
        self._topics = topics
        self.asked: list[Uuid] = []

    def by_id(self, topic_id: Uuid) -> Any:
        self.asked.append(topic_id)
        return self._topics.by_id(topic_id)


def test_a_partition_costs_the_index_some_bytes() -> None:
    image = image_of(100, 100, list(range(10)))
    tracemalloc.start()
    made = derived(image)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(list(flat(made.index.in_sync_on(3, image.topics)))) == 3_000
    assert size / 10_000 <= INDEX_BYTES_MAX


def test_the_loss_of_a_broker_reads_only_its_own_blocks() -> None:
    image = image_of(50, 4, [1, 2, 3])
    own = add_topic(image, 50, 2, [4])
    index = derived(image).index
    topics: Any = Watched(image.topics)
    assert list(flat(index.in_sync_on(4, topics))) == [(own, 0), (own, 1)]
    assert index.leads_any(4, topics, 9)
    assert set(topics.asked) == {own}


def test_a_block_without_the_broker_is_searched_at_most_once_more() -> None:
    image = image_of(1, BLOCK_PARTITIONS + 1, [1])
    index = derived(image).index
    topic_id = image.topics.by_name("t0").id  # type: ignore[union-attr]
    change = stored.PartitionChangeRecord(
        topic_id=topic_id, partition_id=BLOCK_PARTITIONS, isr=[], leader=-1, eligible_leader_replicas=[1]
    )
    index.partition_changed(change, image.topics)
    image.replay(change)
    assert len(list(flat(index.in_sync_on(1, image.topics)))) == BLOCK_PARTITIONS
    assert list(index._in_sync.of(1)) == [(topic_id, 0)]
    assert list(flat(index.leaderless())) == [(topic_id, BLOCK_PARTITIONS)]
    assert list(flat(index.eligible_on(1))) == [(topic_id, BLOCK_PARTITIONS)]


def test_numbers_of_deleted_topics_are_reused() -> None:
    """Topics may come and go for years: the index stays as large as the present topics need."""
    blocks = BrokerBlocks()
    for number in range(1, 1_000):
        topic_id = Uuid(number.to_bytes(16, "big"))
        blocks.add(topic_id, 0, (1, 2))
        blocks.add(topic_id, 3 * BLOCK_PARTITIONS + 1, (1,))
        assert set(blocks.of(1)) == {(topic_id, 0), (topic_id, 3 * BLOCK_PARTITIONS)}
        blocks.forget(topic_id)
        assert list(blocks.of(1)) == []
    assert len(blocks._blocks) == 2
    assert all(len(named) <= 2 for named in blocks._by_broker.values())
