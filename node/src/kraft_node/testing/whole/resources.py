"""The laws of resources, once a cluster is at rest and all clients have ended.

- `space`        disk in use equals live segments: no deleted file is open, each directory of a partition belongs to an
                 open replica, and each segment file in it to a segment of the log. It holds when
                 `file.delete.delay.ms` is over, on a disk without bit rot (damaged logs are set aside). Directories
                 that a start has found without a replica stay for `stray.log.delete.delay.ms`
- `descriptors`  each open file has a name, and is open at most OPENED_MAX times
- `idle`         a node has no connection beyond those that clients and nodes have open
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kraft_node.log import names
from kraft_protocol.ids import METADATA_TOPIC_NAME

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster, SimMachine

OPENED_MAX: Final = 3
"""For writing, for reading, and by a job that ends."""


def unfreed(machine: SimMachine) -> str | None:
    """What is on the disk and should not be; None if all is well."""
    node, disk = machine.node, machine.disk
    if node is None or node.broker is None or machine.rotten or disk.dead is not None:
        return None
    for path, size in disk.pinned().items():
        return f"{path} is deleted but open, and takes {size} bytes"
    logs = {partition.log.path: partition.log for partition in node.broker.replicas.opened()}
    for top in machine.config.log_dirs:
        for name in disk.names(top):
            path = f"{top}/{name}"
            if not disk.is_dir(path) or name.startswith(METADATA_TOPIC_NAME) or name.endswith(names.STRAY_DIR):
                continue
            log = logs.get(path)
            if log is None:
                return f"{path} belongs to no replica"
            unknown = _unknown_segments(disk.names(path), log)
            if unknown:
                return f"{path} has files of segments that are not live: {unknown}"
    return None


def _unknown_segments(found: list[str], log: Any) -> list[str]:
    """Files of segments that the log does not have."""
    live = {names.offset_name(base, names.LOG) for base in log.segments.bases}
    return [name for name in found if names.LOG in name and name not in live]


def opened_often(machine: SimMachine) -> str | None:
    """The first file that is open more than OPENED_MAX times, as text; None without one."""
    opened = Counter(file.path for file in machine.disk.opened)
    for path, count in sorted(opened.items()):
        if count > OPENED_MAX:
            return f"{path} is open {count} times"
    return None


def extra_connections(cluster: SimCluster, machine: SimMachine) -> str | None:
    """How many more connections a node holds than its machine has accepted, as text; None if it holds no more."""
    node = machine.node
    if node is None:
        return None
    held, network = node._gate.count, cluster.network
    ends = [transport for transport in network.transports if transport.host is machine.host]
    accepted = sum(transport.peer not in network.listeners for transport in ends)
    return f"{held} connections, its machine has {accepted}" if held > accepted else None


__all__ = ["extra_connections", "opened_often", "unfreed"]
