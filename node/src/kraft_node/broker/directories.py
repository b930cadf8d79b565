"""Reports to the controller the log directory of each replica (AssignReplicasToDirs, KIP-858).

The controller needs it to know which replicas are lost with a directory. With one directory it knows this by itself.
With several, the broker chooses when it creates the log, and reports the choice here, some at a time, until the
controller has accepted it.

A replica whose log was damaged is reported in a lost directory. If a directory follows, the controller takes the log
for a new, empty one. A log that is whole again is therefore reported as unassigned first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from kraft_node.broker.controller_link import problem_of
from kraft_protocol.ids import DIRECTORY_UNASSIGNED, Uuid
from kraft_protocol.wire.messages import AssignReplicasToDirsRequest as Request

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler
    from kraft_node.broker.controller_link import Answer, ControllerLink

log = logging.getLogger(__name__)

GATHER_MS: Final = 100
"""How long assignments gather before they are sent: partitions come in bursts."""
RETRY_MS: Final = 1000
TIMEOUT_MS: Final = 30_000
REQUEST_MAX: Final = 2000
"""Maximum of assignments in one request, as in Kafka; the rest follows in the next."""


class DirectoryAssignments:
    """Assignments that the controller has not accepted yet: at most one per replica of this broker, the latest
    counts."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerLink,
        scheduler: Scheduler,
        is_supported: Callable[[], bool],
    ) -> None:
        """`is_supported`: whether the metadata.version supports assignments; until then they wait."""
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._scheduler = scheduler
        self._is_supported = is_supported
        self.pending: dict[tuple[Uuid, int], Uuid] = {}
        self._returning: set[tuple[Uuid, int]] = set()
        """Pending replicas that the controller must first hear to be unassigned."""
        self.accepted: Callable[[Uuid, int], None] = lambda _topic_id, _index: None
        """Called with the replica once the controller has accepted its directory, or refused it for good."""
        self._under_way = False

    def note(self, topic_id: Uuid, index: int, directory: Uuid, *, returns: bool = False) -> None:
        """The replica's log is in `directory`. `returns`: it counted as lost, and has all its records again."""
        key = (topic_id, index)
        self.pending[key] = directory
        if returns:
            self._returning.add(key)
        else:
            self._returning.discard(key)
        self._later(GATHER_MS)

    def correct(self, topic_id: Uuid, index: int, directory: Uuid) -> None:
        """The replica's log has moved to `directory`, which the metadata names: a pending report of another directory
        is out of date, and perhaps under way."""
        if self.pending.get((topic_id, index), directory) != directory:
            self.pending[topic_id, index] = directory
            self._later(GATHER_MS)

    def metadata_version_changed(self) -> None:
        """Send assignments that waited for the metadata.version."""
        if self.pending:
            self._later(GATHER_MS)

    def _later(self, delay_ms: int) -> None:
        if not self._under_way:
            self._under_way = True
            self._scheduler.call_later(delay_ms, self._send)

    def _send(self) -> None:
        if not self._is_supported():
            self._under_way = False
            return
        taken = {
            key: DIRECTORY_UNASSIGNED if key in self._returning else directory
            for key, directory in islice(self.pending.items(), REQUEST_MAX)
        }
        directories: dict[Uuid, dict[Uuid, list[int]]] = {}
        for (topic_id, index), directory in taken.items():
            directories.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        request = Request(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                Request.DirectoryData(
                    directory,
                    [
                        Request.TopicData(topic_id, [Request.PartitionData(index) for index in indexes])
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in directories.items()
            ],
        )
        self._controller.send(request, None, lambda answer: self._answered(taken, answer), TIMEOUT_MS)

    def _answered(self, taken: dict[tuple[Uuid, int], Uuid], answer: Answer) -> None:
        self._under_way = False
        problem = problem_of(answer)
        if problem is not None:
            log.warning("controller did not accept directory assignments count=%d error=%s", len(taken), problem)
            self._later(RETRY_MS)
            return
        for replica, directory in taken.items():
            # The controller's answer for a replica (topic deleted, or no longer a replica) is final.
            if directory == DIRECTORY_UNASSIGNED:
                self._returning.discard(replica)  # its directory follows
            elif self.pending.get(replica) == directory and replica not in self._returning:
                del self.pending[replica]
                self.accepted(*replica)
        if self.pending:
            self._later(GATHER_MS)
