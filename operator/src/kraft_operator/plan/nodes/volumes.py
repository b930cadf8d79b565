"""Removal of volumes from a pool: empty, prove empty, restart without the volume, keep or delete the claim.

The steps, in order. Each is marked on the claim (`Volume.marks`) before the next step relies on it:

1. Write `Emptying` on the claim. The pod still mounts the volume, even if the pod is recreated.
2. Cordon the broker's directory on it: the broker creates no new log there.
3. Move its replicas to the broker's other directories, a few at a time, to the directory with the most free space.
4. The broker reports that the directory is cordoned, and then that it is empty. Write `Empty` on the claim.
5. The ordinary roll restarts the pod without the volume. The proof of step 4 must hold again right before. The restart
   writes `LeftOut` on the claim first. If the pod ends for another reason, the next pod mounts the volume again, and
   step 4 is repeated.
6. Remove the cordon and forget the volume in the record. The policy keeps or deletes the claim.

A broker that does not answer proves nothing. A volume that returns to its pool loses its mark and its cordon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft_operator.plan.model.observed import EMPTY, EMPTYING, LEFT_OUT, PROVEN, Directory, Disks, Kube, Pod, Volume
from kraft_operator.plan.model.record import Node, Record
from kraft_operator.plan.model.situation import Situation, is_broker
from kraft_operator.plan.model.steps import Blocked, Cordon, DeleteVolume, MarkVolume, MoveLogs
from kraft_operator.plan.model.values import same
from kraft_operator.plan.model.wanted import Wanted
from kraft_operator.plan.replicas.drain import drained

RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
"""The dynamic value that throttles copies between the directories of a broker."""


def brokers_to_query(record: Record, wanted: Wanted, kube: Kube) -> frozenset[int]:
    """Brokers that must report their log directories for the plan."""
    if wanted.load:
        return frozenset(node.id for node in record.nodes if node.broker)
    found = set()
    for node in record.nodes:
        pool, volume = wanted.pool(node.pool), kube.volumes.get((node.id, node.disk))
        if not node.broker or pool is None or volume is None or not pool.size_bytes:
            continue
        gone = {*node.volumes, *volume.size_bytes} - pool.size_bytes.keys() - volume.unmarked
        under_way = {name for name in gone if name in node.volumes or volume.marks.get(name) not in PROVEN}
        if under_way or volume.marks.keys() & pool.size_bytes.keys():
            found.add(node.id)
    return frozenset(found)


def rates(s: Situation) -> Mapping[str, str]:
    """The throttle as a dynamic value while volumes are being emptied; else empty."""
    busy = s.wanted.drain_bytes and any(_unproven(s, node) for node in s.record.nodes if node.broker)
    return {RATE: str(s.wanted.drain_bytes)} if busy else {}


def empty(s: Situation) -> None:
    """Plan the next step for each node that has volumes to be removed."""
    if s.wanted.hibernated:
        return
    for node in s.record.nodes:
        volume = s.kube.volumes.get((node.id, node.disk))
        skipped = node.leaving or node.stopped or node.id in s.wanted.skip or not node.formatted
        if volume is not None and not skipped and s.wanted.pool(node.pool) is not None:
            _empty(s, node, volume)


def _empty(s: Situation, node: Node, volume: Volume) -> None:
    removed = s.removed(node)
    back = tuple(sorted(volume.marks.keys() - removed))
    fresh = tuple(sorted(removed - volume.marks.keys()))
    pod = s.kube.pods.get(node.id)
    stays = () if pod is None or pod.terminating else _left_out(volume, pod)
    if fresh:
        s.plan.steps.append(MarkVolume(node.id, node.disk, fresh, EMPTYING))
    elif stays:
        # The restart was not carried out after its mark was written.
        s.plan.steps.append(MarkVolume(node.id, node.disk, stays, EMPTY))
    elif removed or back:
        if not node.broker and (pod is None or not is_broker(pod)):
            _mark_controllers(s, node)
        elif pod is not None and s.up(node.id) and node.id in s.disks:
            _at_broker(s, node, volume, s.disks[node.id], back)
            return
        elif s.kept(node):
            s.plan.waits.append(
                f"{node.kind}: volume {min(s.kept(node))} is emptied once the broker reports its content"
            )
        if back and (pod is None or not is_broker(pod)):
            s.plan.steps.append(MarkVolume(node.id, node.disk, back, ""))
    _delete(s, node, volume)


def _left_out(volume: Volume, pod: Pod) -> tuple[str, ...]:
    """Volumes that the next pod was to leave out, and that this pod mounts."""
    return tuple(sorted(name for name, mark in volume.marks.items() if mark == LEFT_OUT and pod.mounts(name)))


def _unproven(s: Situation, node: Node) -> frozenset[str]:
    """Removed volumes that were never proven to be empty."""
    volume = s.kube.volumes.get((node.id, node.disk))
    marks = {} if volume is None else volume.marks
    return frozenset(name for name in s.removed(node) if marks.get(name) not in PROVEN)


def _mark_controllers(s: Situation, node: Node) -> None:
    """Mark volumes of a node that is not a broker as empty. The metadata log is on the first volume, which stays."""
    left = tuple(sorted(_unproven(s, node)))
    if not left:
        return
    if drained(s, node):
        s.plan.steps.append(MarkVolume(node.id, node.disk, left, EMPTY))
    else:
        s.plan.waits.append(f"{node.kind}: volume {left[0]} stays until all partitions are known")


def _at_broker(s: Situation, node: Node, volume: Volume, disks: Disks, back: tuple[str, ...]) -> None:
    marked = {disks.directories[name].path for name in volume.marks if name in disks.directories}
    there = {directory.path for directory in disks.directories.values()}
    mine = {disks.directories[name].path for name in s.removed(node) if name in disks.directories}
    # Directories that others have cordoned stay cordoned. A directory that the broker has lost cannot be cordoned.
    cordon = tuple(sorted((disks.cordoned & there - marked) | mine))
    if set(cordon) != disks.cordoned:
        s.plan.steps.append(Cordon(node.id, cordon))
        return
    # A volume that the pod does not mount yet stays marked until the next start. Until then it gets no replicas.
    mounted = tuple(name for name in back if name in disks.directories)
    if mounted:
        s.plan.steps.append(MarkVolume(node.id, node.disk, mounted, ""))
    else:
        for name in sorted(s.removed(node)):
            _next(s, node, volume, disks, name)
        _delete(s, node, volume)


def _next(s: Situation, node: Node, volume: Volume, disks: Disks, name: str) -> None:
    directory, mark = disks.directories.get(name), volume.marks.get(name)
    if directory is None:
        if mark not in PROVEN:
            text = f"volume {name} of {node.kind} is to be removed, and the broker has no log directory on it:"
            s.plan.block("VolumeNotSeen", f"{text} its content is unknown, so the volume stays")
    elif directory.error:
        text = f"volume {name} of {node.kind} is to be removed, and its log directory has failed (error"
        s.plan.block("VolumeFailed", f"{text} {directory.error}): its content is unknown; replace the node's disk")
    elif not directory.replicas and not directory.coming:
        if mark != EMPTY:
            s.plan.steps.append(MarkVolume(node.id, node.disk, (name,), EMPTY))
    elif mark == EMPTY:
        s.plan.steps.append(MarkVolume(node.id, node.disk, (name,), EMPTYING))
    else:
        _move(s, node, disks, name, directory)


def _move(s: Situation, node: Node, disks: Disks, name: str, directory: Directory) -> None:
    """Move the next replicas, the largest first, because they are the hardest to place."""
    others = {
        one.path: one
        for other, one in disks.directories.items()
        if other not in s.removed(node) and not one.error and one.path not in disks.cordoned
    }
    moving = {key for one in others.values() for key in one.coming}
    room = s.wanted.drain_at_once - len(moving)
    free = {path: one.usable - _pending(disks, one) if one.usable >= 0 else 2**62 for path, one in others.items()}
    moves: dict[tuple[str, int], str] = {}
    wide: tuple[str, int] | None = None
    todo = sorted(directory.replicas.items(), key=lambda item: (-item[1], item[0]))
    for key, size in todo:
        if key in moving or len(moves) >= room:
            continue
        path = max(free, key=lambda one: (free[one], one), default="")
        if not path or free[path] < size:
            wide = wide or key
            continue
        moves[key] = path
        free[path] -= size
    # A copy into this directory that is under way is undone: the replica stays in its present directory.
    for key in directory.coming:
        home = next((path for path, one in others.items() if key in one.replicas), None)
        if home is not None:
            moves[key] = home
    left = len(directory.replicas)
    s.plan.waits.append(f"{node.kind}: {left} replicas have to leave volume {name}, {len(moving)} are on their way")
    if wide is not None and not moves and not moving:
        text = f"volume {name} of {node.kind} is to be removed, and no other volume has room for {wide[0]}-{wide[1]}"
        text += f" ({directory.replicas[wide]} bytes): enlarge a volume, or keep this volume"
        s.plan.block("CannotEmpty", text)
    throttle = rates(s)
    known = s.metadata is not None and all(same(s.metadata.dynamic_config.get(k), v) for k, v in throttle.items())
    if moves and (known or not throttle):
        s.plan.steps.append(MoveLogs(node.id, moves))


def _pending(disks: Disks, directory: Directory) -> int:
    """The most bytes that copies under way into `directory` can still take."""
    sizes = {key: size for one in disks.directories.values() for key, size in one.replicas.items()}
    return sum(sizes.get(key, 0) for key in directory.coming)


def _delete(s: Situation, node: Node, volume: Volume) -> None:
    """Delete claims of emptied volumes without references, if the policy is Delete."""
    pool, pod = s.wanted.pool(node.pool), s.kube.pods.get(node.id)
    if pool is None or not pool.delete_volumes or (pod is not None and not pod.volumes):
        return
    mounted = frozenset() if pod is None else pod.volumes
    gone = {name for name in s.removed(node) if volume.marks.get(name) in PROVEN} - mounted - {*node.volumes}
    if gone:
        s.plan.steps.append(DeleteVolume(node.id, node.disk, tuple(sorted(gone))))


def released(s: Situation, node: Node) -> frozenset[str]:
    """Volumes that the record can forget: empty, not mounted by a pod, and not cordoned."""
    volume, pod = s.kube.volumes.get((node.id, node.disk)), s.kube.pods.get(node.id)
    if volume is None or (pod is not None and not pod.volumes):
        return frozenset()
    mounted = frozenset() if pod is None else pod.volumes
    gone = {name for name in s.removed(node) if volume.marks.get(name) in PROVEN} - mounted
    forgotten = gone - {*node.volumes}
    if not node.broker:
        return frozenset(gone)
    disks = s.disks.get(node.id)
    if pod is None or disks is None:
        return frozenset(forgotten)
    there = {directory.path for directory in disks.directories.values()}
    return frozenset(forgotten if disks.cordoned - there else gone)


def volumes_empty(s: Situation, node: Node) -> Blocked | None:
    """Return the reason against a restart that leaves out volumes, or None. They must be empty and cordoned now.

    The next pod of a broker that is down leaves out nothing (`Situation.kept`).
    """
    pod = s.kube.pods.get(node.id)
    if not s.dropped(node) or pod is None or not is_broker(pod):
        return None
    disks = s.disks.get(node.id)
    for name in sorted(s.dropped(node)):
        directory = None if disks is None else disks.directories.get(name)
        if disks is None or directory is None or directory.error:
            text = f"volume {name} of {node.kind} is to be removed, and its content is unknown"
            return Blocked("VolumeNotSeen", f"{text}: the broker stays up until it reports the content")
        if directory.replicas or directory.coming or directory.path not in disks.cordoned:
            return Blocked("VolumeNotEmpty", f"volume {name} of {node.kind} is to be removed, but is no longer empty")
    return None


def leaving_out(s: Situation, node: Node) -> MarkVolume | None:
    """The mark that a restart of the node writes before, or None if the next pod mounts all volumes of this pod."""
    dropped = tuple(sorted(s.dropped(node)))
    return MarkVolume(node.id, node.disk, dropped, LEFT_OUT) if dropped else None
