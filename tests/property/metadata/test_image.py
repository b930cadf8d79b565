"""Image, overlay, delta and snapshot against the simple model of the same records."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.overlay import Overlay
from kraft_node.metadata.snapshot import SnapshotCursor
from kraft_protocol.wire import stored
from tests.property.metadata.naive import Naive, Stories, dump
from tests.tiers import examples

SEEDS = st.integers(0, 2**32)


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.integers(0, 150))
def test_an_image_is_the_sum_of_its_records(seed: int, count: int) -> None:
    stories = Stories(seed)
    image = MetadataImage()
    for record in stories.records(count):
        image.replay(record)
    assert dump(image) == stories.model.dump()


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.lists(st.integers(1, 12), max_size=12))
def test_an_overlay_reads_as_if_everything_had_been_committed(seed: int, runs: list[int]) -> None:
    """Records enter the overlay at once and are committed later, in pieces of any size."""
    stories = Stories(seed)
    rng = Random(seed)
    loader = MetadataLoader()
    overlay = Overlay(loader.image)
    waiting: list[tuple[int, object]] = []
    offset = 0
    for run in runs:
        records = stories.records(run)
        overlay.apply(offset, records)
        waiting += enumerate(records, offset)
        offset += run
        assert dump(overlay) == stories.model.dump()
        commits = rng.randint(0, len(waiting))
        loader.apply(waiting[:commits], 1, 0)
        del waiting[:commits]
        overlay.committed()
        assert dump(overlay) == stories.model.dump()
    loader.apply(waiting, 1, 0)
    overlay.committed()
    assert overlay.is_empty
    assert not overlay._touched.entries
    assert dump(loader.image) == dump(overlay) == stories.model.dump()


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, st.integers(0, 60), st.integers(0, 60))
def test_losing_leadership_leaves_the_committed_metadata(seed: int, committed: int, lost: int) -> None:
    stories = Stories(seed)
    image = MetadataImage()
    for record in stories.records(committed):
        image.replay(record)
    before = stories.model.dump()
    overlay = Overlay(image)
    overlay.apply(committed, stories.records(lost))
    overlay.clear()
    assert dump(overlay) == dump(image) == before


def _in_lists(stories: Stories) -> set[int]:
    """The brokers in replicas and ISRs. In these stories an ISR may have other brokers than the replicas."""
    partitions = [one for _, partitions in stories.model.topics.values() for one in partitions.values()]
    return {broker for one in partitions for broker in (*one["replicas"], *one["isr"])}


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.integers(0, 100), st.integers(1, 7), st.integers(0, 5))
def test_a_snapshot_replayed_is_the_image_of_its_beginning(seed: int, count: int, size: int, meanwhile: int) -> None:
    """This holds although the image changes between the slices."""
    stories = Stories(seed)
    stories.model.replay(first := stored.FeatureLevelRecord(name="metadata.version", feature_level=30))
    image = MetadataImage()
    for record in [first, *stories.records(count)]:
        image.replay(record)
    then = stories.model.dump()
    again = MetadataImage()
    with SnapshotCursor(image) as cursor:
        while records := cursor.next_slice(size):
            for record in records:
                again.replay(record)
            for record in stories.records(meanwhile):
                image.replay(record)
            assert image.topics.lists.replica_brokers() == _in_lists(stories), "released lists are kept, but unused"
    assert dump(again) == then
    assert dump(image) == stories.model.dump()


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, st.integers(0, 60), st.integers(1, 30))
def test_a_delta_names_exactly_the_changes(seed: int, count: int, more: int) -> None:
    stories = Stories(seed)
    image = MetadataImage()
    for record in stories.records(count):
        image.replay(record)
    image.take_delta()
    before = stories.model.dump()
    for record in stories.records(more):
        image.replay(record)
    delta = image.take_delta()
    after = stories.model.dump()
    for section in ("features", "brokers", "controllers", "configs", "acls", "scram", "tokens"):
        changed = {
            key for key in {**before[section], **after[section]} if before[section].get(key) != after[section].get(key)
        }
        assert changed <= set(getattr(delta, section))
    for topic_id in {**before["topics"], **after["topics"]}:
        old, new = before["topics"].get(topic_id), after["topics"].get(topic_id)
        if old == new:
            continue
        change = delta.topics[topic_id]
        assert change.deleted == (new is None)
        assert change.created == (old is None)
        if new is not None:
            old_partitions = {} if old is None else old[1]
            differing = {number for number, state in new[1].items() if old_partitions.get(number) != state}
            assert differing <= change.partitions
    assert image.take_delta().is_empty


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, st.integers(1, 20), st.integers(1, 20), st.booleans())
def test_a_metadata_transaction_applies_whole_or_not_at_all(seed: int, count: int, inside: int, aborted: bool) -> None:
    stories = Stories(seed)
    loader = MetadataLoader()
    overlay = Overlay(loader.image)
    before = stories.records(count)
    model_before: Naive = stories.model.copy()
    end = stored.AbortTransactionRecord(reason="no") if aborted else stored.EndTransactionRecord()
    records = [*before, stored.BeginTransactionRecord(name="x"), *stories.records(inside), end]
    expected = (model_before if aborted else stories.model).dump()
    overlay.apply(0, records[:-1])
    assert dump(overlay) == stories.model.dump()
    for offset, record in enumerate(records[:-1]):
        loader.apply([(offset, record)], 1, 0)
        overlay.committed()
    assert dump(loader.image) == model_before.dump()
    assert loader.image.offset == count - 1
    assert dump(overlay) == stories.model.dump()
    overlay.apply(len(records) - 1, [end])
    assert dump(overlay) == expected
    loader.apply([(len(records) - 1, end)], 1, 0)
    overlay.committed()
    assert dump(loader.image) == dump(overlay) == expected
    assert loader.image.offset == len(records) - 1
