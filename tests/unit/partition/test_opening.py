"""Replicas without requests are opened one after the other; a failure of one does not block the others."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.metadata.image import MetadataImage
from kraft_node.partition.manager import ReplicaManager
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.memory import MemoryLog
from tests.unit.broker.world import Loop, broker_records, make_env, replay, topic_records

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
