"""Replicas without requests are opened one after the other; a failure of one does not block the others."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.metadata.image import MetadataImage
from kraft_node.partition.manager import ReplicaManager
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import stored
from tests.unit.broker.memory import MemoryLog
from tests.unit.broker.world import Loop, broker_records, make_env, replay, topic_id, topic_records

BAD = 1


class Rig:
    """Three replicated partitions; the second partition's log cannot be opened."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error
        self.loop = Loop()
        self.image = MetadataImage()
        env = make_env(self.loop)
        self.replicas = ReplicaManager(env, 1, self.image, self._open, lambda *_: None)  # type: ignore[arg-type]
        self.replicas.apply(replay(self.image, broker_records(1, 2)))
        self.replicas.apply(replay(self.image, topic_records("t", 1, 3, isr=(1, 2))))
        self.replicas.activate()

    def _open(self, topic: str, index: int, id_: bytes, _state: Any) -> MemoryLog:
        if index == BAD and self.error is not None:
            raise self.error
        return MemoryLog(id_, SimpleNamespace(min_insync_replicas=1, delete=True))

    def opened(self) -> list[int]:
        return sorted(partition.index for partition in self.replicas.opened())


def test_an_unexpected_exception_does_not_wedge_the_queue_of_replicas_to_open() -> None:
    rig = Rig(ValueError("nobody expected this"))
    with pytest.raises(ValueError, match="nobody expected this"):
        rig.loop.run()
    rig.loop.run()
    assert rig.opened() == [0, 2]


def test_a_replica_without_a_descriptor_is_opened_later() -> None:
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no descriptor")
    error.__cause__ = OSError(errno.EMFILE, "too many open files")
    rig = Rig(error)
    rig.loop.run()
    assert rig.opened() == [0, 2]
    rig.error = None
    rig.loop.run(200)
    assert rig.opened() == [0, 1, 2]


def dropped_by(rig: Rig, delta: Any) -> tuple[list[int], list[tuple[str, int, bytes]]]:
    """The partitions whose fetchers end with this metadata, and the logs that are deleted."""
    ended: list[int] = []
    deleted: list[tuple[str, int, bytes]] = []
    rig.replicas.dropped = lambda partition: ended.append(partition.index)
    rig.replicas._delete_log = lambda *log: deleted.append(log)  # type: ignore[method-assign, assignment]
    rig.replicas.apply(delta)
    return ended, deleted


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_replicas_of_a_deleted_topic_are_not_fetched_any_more(is_snapshot: bool) -> None:
    """A snapshot does not list what was deleted. Only replicas with a partition have a fetcher."""
    rig = Rig(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "damaged"))
    rig.loop.run()
    assert len(rig.replicas) == 2
    delta = replay(rig.image, [stored.RemoveTopicRecord(topic_id=topic_id(1))])
    delta.is_snapshot = is_snapshot
    ended, deleted = dropped_by(rig, delta)
    assert ended == [0, 2]
    assert [log[:2] for log in deleted] == [("t", index) for index in ([0, 2] if is_snapshot else [0, 1, 2])]
    assert (rig.opened(), len(rig.replicas)) == ([], 0)
