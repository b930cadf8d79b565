"""The log directories of a node together: their ids differ, and one of them gets a new log."""

from __future__ import annotations

from collections.abc import Sequence

from kraft_node.log.errors import LogDirInvalid
from kraft_node.log.manager.directory import Directory
from kraft_protocol.ids import Uuid, uuid_text


def check_ids(directories: Sequence[Directory]) -> None:
    """Refuse copied directories: two directories with the same id cannot be distinguished. Raises LogDirInvalid."""
    seen: dict[bytes, str] = {}
    for directory in directories:
        if directory.online and directory.id in seen:
            other, number = seen[directory.id], uuid_text(Uuid(directory.id))
            raise LogDirInvalid(directory.path, f"it has the directory.id of {other}, {number}")
        seen[directory.id] = directory.path


def chosen(directories: Sequence[Directory], preferred: str | None, directory_id: Uuid | None) -> Directory:
    """The directory of path `preferred`, else the one of that id, else the one with the fewest logs.

    Directories that are offline never count, cordoned ones only if they are named. Raises KafkaError
    KAFKA_STORAGE_ERROR if all are offline.
    """
    alive = [directory for directory in directories if directory.online]
    if not alive:
        raise directories[0].storage_error()
    for directory in alive:
        if directory.path == preferred:
            return directory
    for directory in alive:
        if directory.id == directory_id:
            return directory
    open_to_all = [directory for directory in alive if not directory.cordoned]
    # As in Kafka: if all directories are cordoned, the requested log must still be created in one of them.
    return min(open_to_all, key=lambda directory: directory.count) if open_to_all else alive[0]
