"""meta.properties: the owner of a directory (KIP-78, KIP-631, KIP-858).

Version 1 has cluster id, node id and directory id; version 0, from clusters with ZooKeeper, has broker id and perhaps
cluster id.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.properties import format_properties, parse_properties
from kraft_node.base.env import Disk, read_file, write_atomic
from kraft_node.log.errors import LogDirInvalid
from kraft_node.log.names import META_PROPERTIES
from kraft_protocol.ids import Uuid, parse_uuid, uuid_text

VERSION: Final = 1


class MetaProperties(NamedTuple):
    """The content of the file; None for missing entries."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None


def parse(text: str) -> MetaProperties:
    """The properties in `text`. Raises ValueError."""
    try:
        entries = parse_properties(text)
    except ConfigError as e:
        raise ValueError(str(e)) from None
    version = _number("version", entries.get("version", "0"))
    if version not in (0, 1):
        raise ValueError(f"unknown version {version}")
    key = "node.id" if version else "broker.id"
    node = entries.get(key)
    directory = entries.get("directory.id")
    return MetaProperties(
        version,
        entries.get("cluster.id"),
        None if node is None else _number(key, node),
        None if directory is None else _uuid("directory.id", directory),
    )


def _number(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{key} is not a number: {text}") from None


def _uuid(key: str, text: str) -> Uuid:
    try:
        return parse_uuid(text)
    except ValueError as e:
        raise ValueError(f"{key} is {e}") from None


def render(properties: MetaProperties) -> str:
    """The file's text, always as version 1."""
    entries = {"version": str(VERSION)}
    if properties.cluster_id is not None:
        entries["cluster.id"] = properties.cluster_id
    if properties.node_id is not None:
        entries["node.id"] = str(properties.node_id)
    if properties.directory_id is not None:
        entries["directory.id"] = uuid_text(properties.directory_id)
    return format_properties(entries)


def read(disk: Disk, directory: str) -> MetaProperties | None:
    """The properties of a log directory; None if it is not formatted. Raises OSError, LogDirInvalid."""
    try:
        data = read_file(disk, f"{directory}/{META_PROPERTIES}")
    except FileNotFoundError:
        return None
    try:
        return parse(data.decode("latin-1"))
    except ValueError as e:
        raise LogDirInvalid(directory, f"{META_PROPERTIES} cannot be read: {e}") from None


def write(disk: Disk, directory: str, properties: MetaProperties) -> None:
    """Write the file, durably. Raises OSError."""
    write_atomic(disk, f"{directory}/{META_PROPERTIES}", render(properties).encode("latin-1"))


def check(directory: str, found: MetaProperties | None, cluster_id: str | None, node_id: int) -> MetaProperties:
    """`found`, if this node may use the directory.

    Raises LogDirInvalid if it is not formatted, or belongs to another node, or to another cluster than `cluster_id`
    (None: unknown).
    """
    if found is None:
        raise LogDirInvalid(directory, f"not formatted, it has no {META_PROPERTIES} (see kafka-storage format)")
    if found.cluster_id is None or found.node_id is None:
        raise LogDirInvalid(directory, f"{META_PROPERTIES} names no cluster.id or no node.id")
    if found.node_id != node_id:
        raise LogDirInvalid(directory, f"it belongs to node {found.node_id}, this is node {node_id}")
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise LogDirInvalid(directory, f"it belongs to cluster {found.cluster_id}, the others to {cluster_id}")
    return found
