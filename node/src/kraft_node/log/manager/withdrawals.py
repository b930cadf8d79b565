"""Logs that must no longer be used: damaged logs, logs to be opened again, and logs of a dead directory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kraft_node.log.checkpoints.offsets import offset_in
from kraft_node.log.log import Log
from kraft_node.log.manager.directory import Directory, directory_of
from kraft_node.log.manager.seams import LogTable
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.log.errors import LogDirDamaged
    from kraft_node.log.log_dir import LogDir, ReportedLog
    from kraft_node.log.manager.futures import Futures

logger = logging.getLogger("kraft_node.log")


OnWithdrawn: TypeAlias = Callable[[str, int, "LogDirDamaged | None"], None]
"""Called with a log that must be dropped: topic, partition, and its damage; None if it may be opened again at once."""
OnFailure: TypeAlias = Callable[[str, list[tuple[str, int]], BaseException], None]
"""Called for a failed directory: path, its partitions, the reason."""


class WithdrawnLogs(LogTable, Protocol):
    """The logs of a broker, and who is told when one must no longer be used."""

    futures: Futures
    on_failure: OnFailure | None
    on_withdrawn: OnWithdrawn | None


class Withdrawals:
    """The actions of one `LogManager` for logs that its directories give up."""

    def __init__(self, manager: WithdrawnLogs) -> None:
        self._manager = manager

    def damage(self, topic: str, partition: int) -> LogDirDamaged | None:
        """Why the log is quarantined; None if it is not."""
        directory = self._manager.directory_of(topic, partition)
        return None if directory is None else directory.quarantined.get((topic, partition))

    def is_restored(self, topic: str, partition: int) -> bool:
        """Whether the log was found damaged before the last clean stop, and is whole again."""
        key = (topic, partition)
        directory = self._manager.directory_of(topic, partition)
        return directory is not None and key in directory.suspects and key not in directory.quarantined

    def settle(self, topic: str, partition: int) -> None:
        """The controller counts on a restored log again, or never stopped: its damage is past."""
        directory = self._manager.directory_of(topic, partition)
        if directory is not None and (topic, partition) not in directory.quarantined:
            directory.suspects.pop((topic, partition), None)

    def quarantine(self, directory: Directory, topic: str, partition: int, damage: LogDirDamaged) -> KafkaError:
        """Withhold the log from all callers from now on. Its files stay: an administrator, or the leader's copy,
        replaces them.
        """
        manager = self._manager
        directory.quarantined[topic, partition] = damage
        # Without a log in memory: after a clean stop this is the end of the log.
        directory.suspects.setdefault((topic, partition), offset_in(directory.recovery_points, topic, partition))
        directory.unrecovered.pop((topic, partition), None)
        logger.error("replica quarantined topic=%s partition=%d reason=%s", topic, partition, damage)
        if manager.on_withdrawn is not None:
            manager.env.scheduler.call_soon(manager.on_withdrawn, topic, partition, damage)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(damage))

    def withdrawn(self, reported: ReportedLog, damage: LogDirDamaged | None) -> None:
        """An open log is damaged, or (None) must be opened again: close it, and make its users release it."""
        manager = self._manager
        topic, partition = reported.topic, reported.partition
        log = manager.entry(topic, partition)
        if not isinstance(log, Log) or log is not reported:
            manager.futures.withdrawn(reported, damage)
            return
        log.close()
        directory = directory_of(log)
        manager.forget_open(log)
        if damage is not None:
            directory.suspects[topic, partition] = log.end_offset
            self.quarantine(directory, topic, partition, damage)
            return
        directory.unrecovered[topic, partition] = None
        logger.warning("log is opened anew topic=%s partition=%d reason=no descriptor was left", topic, partition)
        if manager.on_withdrawn is not None:
            manager.env.scheduler.call_soon(manager.on_withdrawn, topic, partition, None)

    def failed(self, failed: LogDir) -> None:
        """A directory is dead: forget its logs, and notify their users."""
        manager = self._manager
        manager.futures.forget(failed)
        lost: list[tuple[str, int]] = []
        for key in list(manager.partitions()):
            entry = manager.entry(*key)
            if entry is not None and (entry.dir if isinstance(entry, Log) else entry) is failed:
                lost.append(key)
                if isinstance(entry, Log):
                    entry.close()
                    manager.forget_open(entry)
        assert failed.failed is not None, "law: a directory is dead for a reason"
        logger.error("log directory is offline dir=%s logs=%d error=%s", failed.path, len(lost), failed.failed)
        if manager.on_failure is not None:
            manager.env.scheduler.call_soon(manager.on_failure, failed.path, lost, failed.failed)
