"""The files of a formatted log directory, read and written: meta.properties, bootstrap.checkpoint, the first
snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.properties import format_properties, parse_properties
from kraft_node.base.env import Disk, read_file, write_atomic
from kraft_node.cli.common import ToolError
from kraft_node.log.checkpoints import meta_properties
from kraft_node.metadata.features import METADATA_VERSION, metadata_version
from kraft_node.runtime.disk import RealDisk
from kraft_protocol.ids import METADATA_TOPIC_NAME, Uuid, uuid_text

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.cli.storage_format import InitialVoter

META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
FIRST_SNAPSHOT: Final = f"{METADATA_TOPIC_NAME}-0/00000000000000000000-0000000000.checkpoint"

_NO_EPOCH: Final = 0
"""The leader epoch of the batches in these files, and of the snapshot id (0, 0)."""


def read_directories(paths: Sequence[str]) -> tuple[list[str], list[str], dict[str, dict[str, str]]]:
    """The existing directories of `paths`, the problems of the others, and the meta.properties by directory."""
    found: list[str] = []
    problems: list[str] = []
    values: dict[str, dict[str, str]] = {}
    for path in paths:
        if not os.path.isdir(path):
            problems.append(f"{path} is not a directory" if os.path.exists(path) else f"{path} does not exist")
            continue
        found.append(path)
        try:
            entries = read_meta_properties(path)
        except (OSError, ValueError) as e:
            problems.append(f"{path}: {META_PROPERTIES} cannot be read: {e}")
            continue
        if entries is None:
            problems.append(f"{path} is not formatted.")
        else:
            values[path] = entries
    return found, problems, values


def read_meta_properties(path: str, disk: Disk | None = None) -> dict[str, str] | None:
    """The entries of a directory's meta.properties; None if the file does not exist.

    Raises OSError, and ValueError if a node could not start with it.
    """
    try:
        raw = read_file(disk or RealDisk(), os.path.join(path, META_PROPERTIES))
    except FileNotFoundError:
        return None
    text = raw.decode("latin-1")
    meta_properties.parse(text)
    return parse_properties(text)


def write_directories(
    config: NodeConfig,
    *,
    cluster_id: str,
    records: Sequence[Any],
    levels: Mapping[str, int],
    voters: Sequence[InitialVoter] | None,
    ignore_formatted: bool,
    new_uuid: Callable[[], Uuid],
    say: Callable[[str], None],
    disk: Disk | None = None,
    now_ms: Callable[[], int] | None = None,
) -> list[str]:
    """Format the unformatted directories of `config`, and return them.

    `disk` and `now_ms` (milliseconds since the epoch) are this machine's by default; a simulation passes its own.

    Raises ToolError before any write if a directory is already formatted (unless `ignore_formatted`), or belongs to
    another cluster or node.
    """
    disk = disk or RealDisk()
    todo = _unformatted(disk, sorted(config.all_dirs), cluster_id, config.node_id, ignore_formatted=ignore_formatted)
    if not todo:
        say("All of the log directories are already formatted.")
        return []
    now = now_ms() if now_ms is not None else time.time_ns() // 1_000_000
    bootstrap = _snapshot(now, 0, [], records)
    release = metadata_version(levels[METADATA_VERSION]).name
    listener = config.controller_listener_names[0]
    taken = {(read_meta_properties(path, disk) or {}).get("directory.id", "") for path in config.all_dirs}
    for path in todo:
        directory_id = new_uuid()
        kind = "data directory"
        if path == config.metadata_log_dir:
            kind = "metadata directory"
            own = next((voter for voter in voters or () if voter.node_id == config.node_id), None)
            if voters is not None:
                kind = "dynamic metadata voter directory" if own else "dynamic metadata directory"
            if own is not None:
                directory_id = own.directory_id
                if uuid_text(directory_id) in taken:
                    raise ToolError(f"The directory id {uuid_text(directory_id)} already belongs to another directory")
        say(f"Formatting {kind} {path} with metadata.version {release}.")
        first = None
        if voters is not None and path == config.metadata_log_dir:
            first = _snapshot(now, now, _quorum_controls(voters, listener), [])
        _write(disk, path, config.node_id, cluster_id, directory_id, bootstrap, first)
    return todo


def _unformatted(
    disk: Disk, paths: Sequence[str], cluster_id: str, node_id: int, *, ignore_formatted: bool
) -> list[str]:
    todo: list[str] = []
    for path in paths:
        if disk.exists(path) and not disk.is_dir(path):
            raise ToolError(f"{path} is not a directory")
        file = os.path.join(path, META_PROPERTIES)
        try:
            entries = read_meta_properties(path, disk)
        except ValueError as e:
            raise ToolError(f"{file} cannot be read: {e}") from None
        if entries is None:
            todo.append(path)
            continue
        if entries.get("version", "0") == "0" and "broker.id" in entries:
            entries["node.id"] = entries["broker.id"]
        for key, expected in (("cluster.id", cluster_id), ("node.id", str(node_id))):
            if entries.get(key, expected) != expected:
                raise ToolError(f"Invalid {key} in: {file}. Expected {expected}, but read {entries[key]}")
        if not ignore_formatted:
            raise ToolError(
                f"Log directory {path} is already formatted. Use --ignore-formatted to ignore this directory and "
                "format the others."
            )
    return todo


def _write(
    disk: Disk, path: str, node_id: int, cluster_id: str, directory_id: Uuid, bootstrap: bytes, first: bytes | None
) -> None:
    """Write a directory's files; `first` is the first snapshot of a dynamic quorum."""
    _make(disk, path)
    if first is not None:
        disk.mkdir(os.path.join(path, os.path.dirname(FIRST_SNAPSHOT)))
        write_atomic(disk, os.path.join(path, FIRST_SNAPSHOT), first)
    write_atomic(disk, os.path.join(path, BOOTSTRAP_CHECKPOINT), bootstrap)
    entries = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": uuid_text(directory_id),
    }
    # Written last: a directory without this file is not formatted.
    write_atomic(disk, os.path.join(path, META_PROPERTIES), format_properties(entries).encode("latin-1"))


def _make(disk: Disk, path: str) -> None:
    """Make a directory and those above it. Their names last: a loss of power must not take what is promised in them."""
    missing = []
    while path and not disk.exists(path):  # a relative path ends in the working directory
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        disk.mkdir(each)
        disk.fsync_dir(os.path.dirname(each) or ".")


def _snapshot(now: int, last_timestamp_ms: int, controls: Sequence[tuple[int, bytes]], records: Sequence[Any]) -> bytes:
    """A snapshot file written at `now`: header (and quorum) control batch, the records, footer (KIP-630)."""
    from kraft_protocol.records.batch import build_batch
    from kraft_protocol.records.control import ControlType, build_control_batch
    from kraft_protocol.wire.codec import encode
    from kraft_protocol.wire.stored import SnapshotFooterRecord, SnapshotHeaderRecord

    header = encode(SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms), 0)
    first = [(int(ControlType.SNAPSHOT_HEADER), header), *controls]
    parts = [build_control_batch(first, base_offset=0, leader_epoch=_NO_EPOCH, timestamp=now)]
    offset = len(first)
    if records:
        from kraft_node.metadata.records import encode_record

        values: list[tuple[bytes | None, bytes | None]] = [(None, encode_record(record, 0)) for record in records]
        parts.append(build_batch(values, base_offset=offset, leader_epoch=_NO_EPOCH, timestamp=now))
        offset += len(values)
    footer = [(int(ControlType.SNAPSHOT_FOOTER), encode(SnapshotFooterRecord(version=0), 0))]
    parts.append(build_control_batch(footer, base_offset=offset, leader_epoch=_NO_EPOCH, timestamp=now))
    return b"".join(parts)


def _quorum_controls(voters: Sequence[InitialVoter], listener: str) -> list[tuple[int, bytes]]:
    """The control records that define a dynamic quorum of `voters` (KIP-853)."""
    from kraft_node.metadata.features import KRAFT_VERSION, SUPPORTED_RANGES
    from kraft_protocol.records.control import ControlType
    from kraft_protocol.wire.codec import encode
    from kraft_protocol.wire.stored import KRaftVersionRecord, VotersRecord

    supported = SUPPORTED_RANGES[KRAFT_VERSION]
    listed = [
        VotersRecord.Voter(
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
            endpoints=[VotersRecord.Endpoint(name=listener, host=voter.host, port=voter.port)],
            k_raft_version_feature=VotersRecord.KRaftVersionFeature(
                min_supported_version=supported.min_level, max_supported_version=supported.max_level
            ),
        )
        for voter in voters
    ]
    return [
        (int(ControlType.KRAFT_VERSION), encode(KRaftVersionRecord(version=0, k_raft_version=1), 0)),
        (int(ControlType.KRAFT_VOTERS), encode(VotersRecord(version=0, voters=listed), 0)),
    ]
