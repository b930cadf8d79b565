"""The metadata image: the cost of one more topic beside many topics, and the memory of a partition.

    python bench/measurements/image.py [--partitions 1000000]

Prints the time to plan (overlay), commit (image, delta) and forget one topic of 10 partitions beside 1,000 and beside
100,000 others. The ratio must not exceed 1.2. Prints the bytes of a partition for three shapes of cluster. Exits 1
when a bound is missed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2] / "node" / "src"))
sys.path.insert(0, str(Path(__file__).parents[2] / "protocol" / "src"))

from kraft_node.metadata.features import SUPPORTED_RANGES
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.log_batches import data_batch, iter_values
from kraft_node.metadata.overlay import Overlay
from kraft_node.metadata.snapshot import SnapshotCursor
from kraft_protocol.ids import Uuid
from kraft_protocol.records.batch import iter_headers
from kraft_protocol.wire import stored

LEVEL = 30
RATIO_MAX = 1.2
BYTES_A_PARTITION_MAX = 64
BROKERS = 30


def topic_records(number: int, partitions: int, directories: list[Uuid]) -> list[object]:
    """The records of one topic, placed as the striped placer places it."""
    topic_id = Uuid((number + 1).to_bytes(16, "big"))
    records: list[object] = [stored.TopicRecord(name=f"bench-topic-{number:07d}", topic_id=topic_id)]
    for partition in range(partitions):
        start = number + partition
        replicas = [start % BROKERS, (start + 1) % BROKERS, (start + 2) % BROKERS]
        records.append(
            stored.PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=list(replicas),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[directories[replica] for replica in replicas],
            )
        )
    return records


def directories() -> list[Uuid]:
    """A directory id for each broker, at the index of the broker's id."""
    return [Uuid(broker.to_bytes(2, "big") * 8) for broker in range(1, BROKERS + 1)]


def filled(topics: int, partitions: int) -> MetadataLoader:
    """A loader with an image of `topics` topics, each of `partitions` partitions. It has no brokers."""
    loader = MetadataLoader()
    known = directories()
    for number in range(topics):
        for record in topic_records(number, partitions, known):
            loader.image.replay(record)
    loader.image.take_delta()
    return loader


def one_topic_us(loader: MetadataLoader, rounds: int = 400) -> float:
    """Median microseconds of creating and deleting one topic."""
    overlay = Overlay(loader.image)
    known = directories()
    times = []
    offset = max(loader.image.offset, 0) + 1
    for index in range(rounds):
        records = topic_records(10_000_000 + index, 10, known)
        gone = stored.RemoveTopicRecord(topic_id=records[0].topic_id)  # type: ignore[attr-defined]
        start = time.perf_counter_ns()
        for run in (records, [gone]):
            overlay.apply(offset, run)
            loader.apply(list(enumerate(run, offset)), 1, 0)
            loader.publish()
            overlay.committed()
            offset += len(run)
        times.append((time.perf_counter_ns() - start) / 1000)
    return median(times)


def topic_cost() -> dict[str, float]:
    """Microseconds for one topic beside few and beside many, and their ratio: medians of interleaved rounds."""
    small, large = filled(1_000, 1), filled(100_000, 1)
    gc.collect()
    rounds = [(one_topic_us(small), one_topic_us(large)) for _ in range(5)]
    beside_small, beside_large = median(r[0] for r in rounds), median(r[1] for r in rounds)
    ratio = median(large_us / small_us for small_us, large_us in rounds)
    return {"small_us": beside_small, "large_us": beside_large, "ratio": ratio, "aim": RATIO_MAX}


def measure_cost() -> bool:
    """Print the cost of one more topic. Returns whether the ratio is within its bound."""
    cost = topic_cost()
    print("one topic of 10 partitions, planned, committed, removed again:")
    print(f"  beside   1,000 topics  {cost['small_us']:8.1f} us")
    print(f"  beside 100,000 topics  {cost['large_us']:8.1f} us   ratio {cost['ratio']:.2f} (bound {RATIO_MAX})")
    return cost["ratio"] <= RATIO_MAX


def measure_memory(partitions: int) -> bool:
    """Print the bytes per partition of three shapes. Returns whether all are within the bound."""
    good = True
    print("kept for each partition, everything included:")
    for each in (1000, 100, 10):
        topics = partitions // each
        gc.collect()
        tracemalloc.start()
        loader = filled(topics, each)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        weight = size / (topics * each)
        print(f"  {topics:7,} topics x {each:4} = {topics * each:9,} partitions  {weight:6.1f} bytes a partition")
        good &= weight <= BYTES_A_PARTITION_MAX
        del loader
    return good


def measure_snapshot(partitions: int) -> None:
    """Print the seconds of a snapshot of this many partitions, and its longest slice. It has no bound."""
    loader = filled(partitions // 100, 100)
    times = []
    start = time.perf_counter()
    with SnapshotCursor(loader.image) as cursor:
        frozen = time.perf_counter() - start
        while True:
            before = time.perf_counter()
            if not cursor.next_slice():
                break
            times.append(time.perf_counter() - before)
    total = time.perf_counter() - start
    longest = max(times) * 1000
    print(f"snapshot of {partitions:,} partitions: {total:.2f} s, begun in {frozen * 1000:.1f} ms, ", end="")
    print(f"longest slice {longest:.1f} ms (records made, not yet encoded)")


def opening() -> list[object]:
    """The records before the topics: the level, and brokers that do not exist."""
    known = directories()
    kind = stored.RegisterBrokerRecord
    features = [kind.BrokerFeature(name, r.min_level, r.max_level) for name, r in SUPPORTED_RANGES.items()]
    brokers = [
        kind(
            broker_id=broker,
            incarnation_id=known[broker],
            broker_epoch=broker + 1,
            end_points=[kind.BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9, 0)],
            features=features,
            fenced=False,
            log_dirs=[known[broker]],
        )
        for broker in range(BROKERS)
    ]
    return [stored.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL), *brokers]


def encoded(partitions: int) -> list[bytes]:
    """The batches of a snapshot with this many partitions, 100 per topic."""
    loader = filled(partitions // 100, 100)
    for record in opening():
        loader.image.replay(record)
    batches = []
    with SnapshotCursor(loader.image) as cursor:
        while values := cursor.next_values(200):
            batches.append(data_batch(values, 0, 1, 0))
    return batches


def loaded(batches: list[bytes]) -> MetadataLoader:
    """A loader that has read the snapshot, like a node."""
    loader = MetadataLoader()
    values = (value for batch in batches for header in iter_headers(batch) for value in iter_values(batch, header))
    loader.load_values(values, 2_000_000, 1, lambda: 0)
    loader.publish(is_snapshot=True)
    return loader


def failover_ms(*loaders: MetadataLoader) -> list[float]:
    """Median milliseconds from a leadership notification to an acknowledged CreateTopics, without the disk. Failovers
    of the loaders alternate, so that other load affects all of them alike."""
    from tests.unit.controller.harness import Quorum

    quorums = [Quorum(active=False, loader=loader, broker_session_timeout_ms="3600000") for loader in loaders]
    for quorum in quorums:
        quorum.time.advance(1)  # the index is built between other work
        assert quorum.controller.cluster.indexes.is_complete
    taken: list[list[float]] = [[] for _ in loaders]
    for number in range(51):
        for quorum, times in zip(quorums, taken, strict=True):
            begun = time.perf_counter()
            quorum.lead()
            result = quorum.create(f"after-{number}", partitions=1, factor=3)
            times.append((time.perf_counter() - begun) * 1000)
            assert result.error_code == 0, result
            quorum.lose()
    return [median(times) for times in taken]


def beside_many(partitions: int = 1_000_000) -> dict[str, float]:
    """The cost of reading and keeping an image of this many partitions, and of a controller's failover with it."""
    from kraft_node.controller.state.indexes import Indexes

    batches = encoded(partitions)
    gc.collect()
    begun = time.process_time()
    loader = loaded(batches)
    figures = {"load_s": time.process_time() - begun}
    some = encoded(partitions // 4)  # tracing is ten times slower, and the size per partition is the same
    gc.collect()
    tracemalloc.start()
    weighed = loaded(some)
    gc.collect()
    figures["kept"] = tracemalloc.get_traced_memory()[0] / (partitions // 4)
    indexes = Indexes()
    indexes.begin(weighed.image)
    indexes.finish(weighed.image)
    figures["index"] = tracemalloc.get_traced_memory()[0] / (partitions // 4) - figures["kept"]
    tracemalloc.stop()
    del indexes, weighed, some
    few, figures["failover_ms"] = failover_ms(loaded(encoded(10_000)), loader)
    figures["failover"] = figures["failover_ms"] / few
    return figures


def main() -> int:
    """Print all figures. Returns 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=200_000)
    arguments = parser.parse_args()
    good = measure_cost()
    good &= measure_memory(arguments.partitions)
    measure_snapshot(arguments.partitions)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
