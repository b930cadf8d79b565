"""The node's directories together: locks and identity checked, the broker's logs, the metadata log.

Only `node` calls it. The start is refused for a directory of another node or cluster, an unformatted directory, or one
in use. An unreadable log directory is left out as long as another directory works (KIP-112). The metadata directory is
never left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.log.checkpoints import meta_properties
from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.errors import LogDirError
from kraft_node.log.manager.directory import lock_directory
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.manager.timing import STRAY_DELAY_MS, Timing
from kraft_node.log.manager.withdrawals import OnFailure, OnWithdrawn
from kraft_node.log.metadata_log import MetadataLog
from kraft_protocol.ids import METADATA_TOPIC_NAME, Uuid, uuid_text

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.env import DiskLock, Env

log = logging.getLogger("kraft_node.server.storage")


STRAY_DELAY_KEY: Final = "stray.log.delete.delay.ms"


class StorageRefused(Exception):  # noqa: N818 - a fact, not a fault
    """Why the directories do not allow the start; names the directory."""


class NodeStorage:
    """The node's data on disk."""

    __slots__ = ("_locks", "cluster_id", "logs", "metadata", "metadata_directory_id", "previous_broker_epoch")

    def __init__(
        self,
        logs: LogManager,
        metadata: MetadataLog,
        cluster_id: str,
        metadata_directory_id: Uuid,
        locks: list[DiskLock],
    ) -> None:
        self.logs = logs
        self.metadata = metadata
        self.cluster_id = cluster_id
        self.metadata_directory_id = metadata_directory_id
        self.previous_broker_epoch = logs.previous_broker_epoch
        """The broker epoch of the last clean stop; -1 if the stop was not clean."""
        self._locks = locks

    def online_directories(self) -> list[str]:
        """The log directories that still work."""
        return [directory.path for directory in self.logs.directories if directory.online]

    def close_logs(self, broker_epoch: int, done: Callable[[], None]) -> None:
        """Make all logs durable and mark their directories as cleanly stopped, then call `done`."""
        self.logs.shutdown(done, broker_epoch=broker_epoch)

    def release(self) -> None:
        """Release the locks; called last."""
        self.logs.release()
        for lock in self._locks:
            lock.release()


def open_storage(env: Env, config: NodeConfig, on_failure: OnFailure, on_withdrawn: OnWithdrawn) -> NodeStorage:
    """Open all directories. The callbacks report directories and logs that fail later. Raises StorageRefused."""
    locks: list[DiskLock] = []
    timing = Timing(config)
    timing.stray_delay_ms = _stray_delay_ms(config)
    logs = LogManager(
        env,
        config.log_dirs,
        node_id=config.node_id,
        timing=timing,
        on_failure=on_failure,
        on_withdrawn=on_withdrawn,
    )
    try:
        logs.start()
        cluster_id, directory_id = _metadata_directory(env, config, logs, locks)
        metadata = MetadataLog(env, config.metadata_log_dir, config=_metadata_log_config(config), lock=False)
    except (LogDirError, OSError, ValueError) as e:
        logs.release()
        for lock in locks:
            lock.release()
        if isinstance(e, OSError) and e.filename is None:  # its calls do not name the file
            raise StorageRefused(f"{config.metadata_log_dir}: {e}") from None
        raise StorageRefused(str(e)) from None
    return NodeStorage(logs, metadata, cluster_id, directory_id, locks)


def _metadata_log_config(config: NodeConfig) -> LogConfig:
    """Retention belongs to the raft driver (it follows snapshots), rolling to the log."""
    return make_config(
        {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.bytes": str(config.int("metadata.log.segment.bytes")),
            "segment.ms": str(config.int("metadata.log.segment.ms")),
        }
    )


def _metadata_directory(env: Env, config: NodeConfig, logs: LogManager, locks: list[DiskLock]) -> tuple[str, Uuid]:
    """Cluster id and directory id of the metadata directory, which may be one of the log directories."""
    path = config.metadata_log_dir
    for directory in logs.directories:
        if directory.path == path:
            if directory.failed is not None:
                raise directory.failed
            assert logs.cluster_id is not None, "law: a started manager knows its cluster"
            return logs.cluster_id, directory.directory_id
    if not env.disk.is_dir(path):
        raise LogDirError(path, f"the directory does not exist, but it must hold {METADATA_TOPIC_NAME}")
    locks.append(lock_directory(env.disk, path))
    found = meta_properties.check(path, meta_properties.read(env.disk, path), logs.cluster_id, config.node_id)
    assert found.cluster_id is not None, "law: a checked file names its cluster"
    if found.directory_id is None:
        raise LogDirError(path, "meta.properties has no directory.id")
    for directory in logs.directories:
        if directory.online and directory.id == found.directory_id:
            raise LogDirError(path, f"it has the directory.id of {directory.path}, {uuid_text(found.directory_id)}")
    return found.cluster_id, found.directory_id


def _stray_delay_ms(config: NodeConfig) -> int:
    text = config.texts.get(STRAY_DELAY_KEY, "").strip()
    if not text:
        return STRAY_DELAY_MS
    try:
        return max(-1, int(text))
    except ValueError:
        raise StorageRefused(f"{STRAY_DELAY_KEY} must be milliseconds, or -1 for never, not {text!r}") from None
