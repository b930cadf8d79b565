"""The leader's log does not hold the end offset of this log: find the leader's start and end, and continue from there.

The leader's log may end before this log, after an unclean election: the records beyond its end are lost. Or it may
start after this log, if its retention deleted records while this broker was down: all records here are older than the
leader's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.replication.truncation import cut
from kraft_node.log.errors import CutLater
from kraft_node.partition.listed_offsets import EARLIEST, LATEST
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import ListOffsetsRequest

if TYPE_CHECKING:
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.partition.partition import Partition

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 30_000


class Reposition:
    """One repositioning by up to two ListOffsets requests; calls `done` with whether the partition can be fetched
    again. Answers do nothing once `is_followed` is false: another fetcher may have fetched since, or the log is closed.
    """

    __slots__ = ("_done", "_is_followed", "_leader_epoch", "_node_id", "_partition", "_peer")

    def __init__(
        self,
        node_id: int,
        partition: Partition,
        peer: ControllerLink,
        is_followed: Callable[[], bool],
        done: Callable[[bool], None],
    ) -> None:
        self._node_id = node_id
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._peer = peer
        self._is_followed = is_followed
        self._done = done
        self._request_offset(LATEST, self._latest)

    def _request_offset(self, timestamp: int, then: Callable[[int], None]) -> None:
        partition = self._partition
        row = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=self._leader_epoch, timestamp=timestamp
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[row])

        def answered(answer: Any) -> None:
            offset = _offset(answer)
            try:
                if offset < 0 or not self._is_current():
                    self._done(False)
                else:
                    then(offset)
            except CutLater as later:
                self._done(later.is_soon)
            except KafkaError as error:
                log.warning(
                    "log cannot be reset to the leader's start partition=%s-%d error=%s",
                    partition.topic,
                    partition.index,
                    error,
                )
                self._done(False)

        request = ListOffsetsRequest(replica_id=self._node_id, topics=[topic])
        self._peer.send(request, None, answered, TIMEOUT_MS)

    def _is_current(self) -> bool:
        partition = self._partition
        return partition.leader_epoch == self._leader_epoch and not partition.is_leader and self._is_followed()

    def _latest(self, end_offset: int) -> None:
        if end_offset < self._partition.log.end_offset:
            cut(self._partition, end_offset)
            self._done(True)
        else:
            self._request_offset(EARLIEST, self._earliest)

    def _earliest(self, start_offset: int) -> None:
        partition = self._partition
        if start_offset > partition.log.end_offset:
            log.info(
                "log is reset to the leader's start partition=%s-%d start_offset=%d former_end=%d",
                partition.topic, partition.index, start_offset, partition.log.end_offset,
            )  # fmt: skip
            partition.log.reset_to(start_offset)
        self._done(True)


def _offset(answer: Any) -> int:
    """The offset in a ListOffsets response; -1 for an error."""
    if isinstance(answer, KafkaError | OSError):
        return -1
    for topic in answer.topics:
        for row in topic.partitions:
            return -1 if row.error_code != ErrorCode.NONE else int(row.offset)
    return -1
