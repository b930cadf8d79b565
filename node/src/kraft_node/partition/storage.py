"""Between partitions and log directories: which directory a partition's log is in, and what happens to logs not wanted.

Called by `ReplicaManager` (open, delete) and by the broker (strays, configurations). A log is found by name; whether it
is the log of this topic or of an older one with the same name is told by the topic id that it carries (KIP-516), and
only a log with the id that was asked for is ever deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraft_node.base.ids import ZERO_UUID, Uuid, uuid_text

if TYPE_CHECKING:
    from kraft_node.base.config.topic import TopicConfig
    from kraft_node.log.log import Log
    from kraft_node.log.manager import LogManager
    from kraft_node.metadata.partitions import PartitionState

log = logging.getLogger(__name__)


class Storage:
    """The broker's log directories as partitions need them."""

    def __init__(self, logs: LogManager, node_id: int, topic_config: Callable[[str], TopicConfig]) -> None:
        self._logs = logs
        self._node_id = node_id
        self._topic_config = topic_config

    def open(self, topic: str, index: int, topic_id: Uuid, state: PartitionState) -> Log:
        """The log of a partition, created when there is none, with the topic's configuration in force.

        Raises KafkaError KAFKA_STORAGE_ERROR when its directory is dead.
        """
        config = self._topic_config(topic)
        found = self._logs.get(topic, index)
        if found is not None and found.topic_id not in (None, ZERO_UUID, topic_id):
            log.warning(
                "The log of %s-%d belongs to an older topic of that name (%s): set aside",
                topic,
                index,
                uuid_text(Uuid(found.topic_id)),
            )
            self._logs.set_aside(topic, index)
            found = None
        if found is None:
            return self._logs.create(topic, index, topic_id, config, directory_id=state.directory(self._node_id))
        return found

    def delete(self, topic: str, index: int, topic_id: Uuid) -> None:
        """Delete a partition's log, unless it is another topic's by now; fine when there is none."""
        found: Any = self._logs.topic_id(topic, index)
        if found is None:
            return
        if found == topic_id:
            self._logs.delete(topic, index)
