"""Reports about a cluster's past."""

from __future__ import annotations

from typing import Any

from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.log_batches import data_batch, leader_change_batch
from kraft_node.metadata.records import encode_record
from kraft_node.raft.membership.quorum import ReplicaKey
from kraft_pipeline.archive.changes import ChangeDecoder
from kraft_pipeline.archive.health import Health, Reader
from kraft_pipeline.archive.report import html, plots
from kraft_pipeline.archive.skew import skew
from kraft_pipeline.archive.state import ClusterState, Replay
from kraft_protocol.wire import stored

NOW = 1_760_000_000_000
TOPIC, OTHER = bytes([1]) * 16, bytes([2]) * 16
DIRECTORY = bytes([9]) * 16


def broker(number: int, *, fenced: bool) -> Any:
    return stored.RegisterBrokerRecord(
        broker_id=number, broker_epoch=number, fenced=fenced, rack=f"r{number % 2}", log_dirs=[DIRECTORY]
    )


def fence(number: int, flag: int) -> Any:
    return stored.BrokerRegistrationChangeRecord(broker_id=number, broker_epoch=number, fenced=flag)


def partition(topic: bytes, number: int, replicas: list[int]) -> Any:
    return stored.PartitionRecord(
        partition_id=number, topic_id=topic, replicas=replicas, isr=replicas, leader=replicas[0]
    )


def change(topic: bytes, number: int, **fields: Any) -> Any:
    return stored.PartitionChangeRecord(partition_id=number, topic_id=topic, **fields)


def health_of(*seconds: list[Any]) -> tuple[Health, ClusterState]:
    """The report of records, a batch for each second; a controller is elected before and after them."""
    replay, reader = Replay(), Reader()
    keys = [ReplicaKey(7, b"")]
    data, offset = leader_change_batch(0, 1, 7, keys, keys, NOW), 1
    for second, made in enumerate(seconds):
        values = [encode_record(r, kind_of(r).version(30)) for r in made]
        data += data_batch(values, offset, 1, NOW + 1000 * second)
        offset += len(values)
    data += leader_change_batch(offset, 2, 8, keys, keys, NOW + 1000 * len(seconds))
    for batch in ChangeDecoder().decode(data):
        replay.add(batch)
        reader.add(batch)
    return reader.report(), replay.state()


STORY = (
    [broker(1, fenced=False), broker(2, fenced=True), fence(2, -1), broker(3, fenced=False)],
    [stored.TopicRecord("t", TOPIC), partition(TOPIC, 0, [1, 2]), partition(TOPIC, 1, [2, 1])],
    [stored.TopicRecord("gone", OTHER), partition(OTHER, 0, [2])],
    [
        fence(2, 1),
        change(TOPIC, 0, isr=[1]),
        change(TOPIC, 1, isr=[1], leader=1),
        change(OTHER, 0, leader=-1),
    ],
    [stored.RemoveTopicRecord(OTHER)],
    [fence(2, -1), change(TOPIC, 0, isr=[1, 2])],
    # A replica that is being added does not count as missing.
    [change(TOPIC, 0, replicas=[1, 2, 3], adding_replicas=[3], directories=[DIRECTORY] * 3)],
)


def test_health_is_reported_over_time() -> None:
    found, _ = health_of(*STORY)
    assert (found.partitions, found.offline_now, found.under_replicated_now) == (2, 0, 1)

    def at(series: list[int], second: float) -> int:
        return series[next(i for i, end in enumerate(found.times) if end > NOW + 1000 * second)]

    assert [at(found.under_replicated, s) for s in (0, 2, 3, 4, 5, 6)] == [0, 0, 2, 2, 2, 1]
    assert [at(found.offline, s) for s in (2, 3, 3.5, 4.5, 6)] == [0, 1, 1, 0, 0]
    assert (sum(found.leader_moves), sum(found.isr_shrinks), sum(found.isr_expansions)) == (2, 2, 1)
    assert found.moved_most == [("t", 1, 1), ("gone", 0, 1)]
    assert found.churned_most == [("t", 0, 1), ("t", 1, 1)]
    assert [(e, leader) for _, _, e, leader in found.controllers] == [(1, 7), (2, 8)]


def test_flapping_brokers_are_reported() -> None:
    found, _ = health_of(*STORY)
    assert {number: one.flaps for number, one in found.brokers.items()} == {1: 0, 2: 1, 3: 0}
    assert found.brokers[2].fenced_ms == 2000
    assert [what for _, _, what in found.brokers[2].events] == ["registered", "unfenced", "fenced", "unfenced"]


def test_load_by_broker_and_rack() -> None:
    _, state = health_of(*STORY)
    load = skew(state, {("t", 0): 10, ("t", 1): 5})
    assert [(b.name, b.replicas, b.leaders, b.preferred_leaders, b.out_of_sync, b.bytes) for b in load.brokers] == [
        ("1", 2, 2, 1, 0, 15),
        ("2", 2, 0, 1, 1, 15),
        ("3", 1, 0, 0, 1, 10),
    ]
    assert [(r.name, r.replicas) for r in load.racks] == [("r0", 2), ("r1", 3)]
    assert (load.replicas_ratio, load.leaders_ratio, load.not_preferred) == (1.2, 3.0, 1)


def test_the_page_has_no_external_references() -> None:
    found, state = health_of(*STORY)
    load = skew(state)
    pictures = plots(found, load)
    assert all(raw.startswith(b"\x89PNG") for raw in pictures.values())
    page = html("a <cluster>", found, load, pictures)
    assert "a &lt;cluster&gt;" in page
    assert page.count("data:image/png;base64,") == len(pictures)
    assert not any(word in page for word in ("http://", "https://", "<script", "<link"))
