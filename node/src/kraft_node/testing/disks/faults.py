"""Disk faults in a cluster, and which of them must lose no acknowledged record. `cluster_faults` injects them.

Permitted at any time on any number of nodes: a *full* disk (the process ends and restarts once there is space; it loses
no more than by a SIGKILL); a disk that does not *respond* for longer than a session while the process runs; a failing
*fsync* on a machine that is only a controller (the process ends, and unsynced data is gone).

Permitted on one broker at a time, under the conditions of a power loss in `cluster_faults`, and on a minority of the
voters while all others are caught up: an *empty* disk under the same node id; *bit rot* in synced records and
snapshots (where a checksum covers them); for brokers also a failing fsync, and a *dead directory* beside working
directories. In a share of the seeds, the rotten bits are in a batch that is read next, from the broker that has them.
The node may detect rot at its start, much later, or never. Nobody may be served rotten data: the law `rot`. Only
rotten metadata may end the node: a damaged partition ends neither the process nor its directory (the law `grain`). A
disk with these faults is replaced by an empty disk once other nodes have all data that was on it.

A process runs for at most `GIVES_UP_MS` after a failed fsync: the law `fsync`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import read_file
from kraft_node.metadata.features import ELR_VERSION
from kraft_node.metadata.partitions import NO_LEADER
from kraft_node.testing.fault_injector import FaultInjector
from kraft_node.testing.machine import SimCluster, SimMachine
from kraft_node.testing.script import Script
from kraft_node.testing.workloads.rereader import Rereader
from kraft_node.testing.workloads.voters import CHANGES_MAX_MS
from kraft_protocol.ids import METADATA_TOPIC_NAME, ZERO_UUID
from kraft_protocol.records.batch import iter_headers

if TYPE_CHECKING:
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.disk import SimDisk

WHOLE_MAX_MS: Final = 6_000.0
MENDS_MAX_MS: Final = 60_000.0
"""Without other faults, other nodes have all data of a disk within this time."""
GIVES_UP_MS: Final = 3_000.0
STOPS_MS: Final = 8_000.0
READS_MS: Final = 6_000.0
LEFT_ALONE_MS: Final = 6_000.0
"""Within this time killed brokers have left the ISRs, or not."""
ALONE_SHARE: Final = 0.6
RESTORED_MAX_MS: Final = 330_000.0
"""The upper bound of a clean stop, see `cluster_faults`."""
SYNCS: Final = ("fsync", "fsync_dir", "syncfs")
BEHIND_MAX: Final = 20
"""Metadata records that a voter may lack and still count as caught up."""
VOTERS_MIN: Final = 3
COVERED_FROM: Final = 16
"""The first byte of a batch after base offset, length and leader epoch; the checksum covers all later bytes but
magic."""


class DiskFaults(FaultInjector):
    """Injects the disk faults."""

    def __init__(self, cluster: SimCluster, checker: Checker) -> None:
        super().__init__(cluster, checker)
        self.over = False
        """No more faults: a process that ends now, after a slow stop, is restarted."""
        self._frail: tuple[SimMachine, int] | None = None
        """The machine that lost records last, and its broker epoch when it did."""
        self.rotten: SimMachine | None = None
        """The machine with a disk that must be replaced although it works."""

    def _again(self, machine: SimMachine) -> None:
        """Restart the machine soon, or so late that it has been fenced."""
        rng = self.world.rng
        self._rest(rng.choice((50.0, 500.0, 3000.0)))
        if not machine.running and not self._broken():
            machine.start()
        if rng.random() < 0.6:
            self.world.run(lambda: machine.serving or self._broken(), 4000)

    # -- what one broker at a time may suffer

    def whole(self) -> bool:
        """Whether any one broker's unsynced records are also on another running broker, as `cluster_faults`
        requires."""
        image = self._newest_image()
        if image is None or self.rotten is not None or any(machine.node is None for machine in self.cluster.machines):
            return False
        if not image.feature_level(ELR_VERSION):
            return False  # without a controller all brokers are fenced, so this broker would be the last in its ISRs
        if not all(is_registered(machine, image) for machine in self.cluster.brokers):
            return False
        return all(
            set(state.isr) == set(state.replicas) and len(state.isr) > 1
            for topic in image.topics
            for _, state in topic.partitions()
        )

    def _may_lose(self, machine: SimMachine) -> bool:
        whole = self.world.run(lambda: self.whole() or self._broken(), WHOLE_MAX_MS)
        if not whole or self._broken() or not machine.running:
            return False
        assert machine.node is not None
        assert machine.node.broker is not None
        assert machine.node.broker.lifecycle is not None
        self._frail = machine, machine.node.broker.lifecycle.broker_epoch
        return True

    def _wait_until_noticed(self) -> bool:
        """Wait, within a limit, until the cluster no longer relies on records that a broker has lost."""
        return self._frail is None or self.world.run(self._out_of_isrs, WHOLE_MAX_MS)

    def _out_of_isrs(self) -> bool:
        assert self._frail is not None
        machine, epoch = self._frail
        image = self._newest_image()
        registered = None if image is None else image.brokers.get(machine.config.node_id)
        return registered is not None and registered.epoch > epoch

    def _newest_image(self) -> MetadataImage | None:
        images = [m.node.raft.image for m in self.cluster.machines if m.node is not None and m.node.raft is not None]
        return max(images, key=lambda image: image.offset, default=None)

    def voters_whole(self, without: SimMachine) -> bool:
        """Whether all other voters run, remember their votes, and have all known metadata."""
        image = self._newest_image()
        others = [machine for machine in self.cluster.controllers if machine is not without]
        if image is None or len(others) + 1 < VOTERS_MIN or self.rotten is not None:
            return False
        return all(_is_current(machine, image.offset) for machine in others) and self._outvoted(without)

    def _outvoted(self, machine: SimMachine) -> bool:
        """Whether the other voters that still have their disks are a majority of every voter set in use."""
        present = {
            other.config.node_id: other.directory_id for other in self.cluster.controllers if other is not machine
        }
        for other in self.cluster.controllers:
            if other.node is None or other.node.raft is None:
                continue
            voters = other.node.raft.voters
            having = [v for v in voters if v.key.id in present and v.key.directory in (ZERO_UUID, present[v.key.id])]
            if len(having) < voters.majority:
                return False
        return True

    def _may_lose_disk(self, machine: SimMachine) -> bool:
        """Wait, within a limit, until other nodes have everything that is on a disk."""
        if machine in self.cluster.controllers:
            self.world.run(lambda: self.voters_whole(machine) or self._broken(), WHOLE_MAX_MS)
        if machine in self.cluster.brokers and not self._may_lose(machine):
            return False
        if machine in self.cluster.controllers and not self.voters_whole(machine):
            return False
        return not self._broken()

    def _power(self, machine: SimMachine) -> None:
        if machine not in self.cluster.brokers or self._may_lose(machine):
            machine.lose_power()
        elif self._wait_until_noticed():
            machine.kill()
        self._again(machine)

    def _wipe(self, machine: SimMachine) -> None:
        if self._may_lose_disk(machine):
            machine.replace_disk(self.cluster.cluster_id)
        elif self._wait_until_noticed():
            machine.kill()
        self._again(machine)

    def _fail_log_fsync(self, machine: SimMachine) -> None:
        """Fail the fsync of segments only: a process that ignores this error would end for no other reason."""
        self._fail_fsync(machine, ".log")

    def _fail_fsync(self, machine: SimMachine, suffix: str = "") -> None:
        """Fail an fsync: the process must end, and unsynced data may be gone. `suffix` selects the files."""
        if machine in self.cluster.brokers and not self._may_lose(machine):
            return
        struck: list[float] = []

        def fail(operation: str, path: str) -> OSError | None:
            if operation not in SYNCS or not path.endswith(suffix):
                return None
            struck.append(self.world.now_ms)
            return OSError(errno.EIO, "input/output error", path)

        machine.ailing, machine.disk.fail = "fsyncs fail", fail
        self.world.run(lambda: not machine.running or self._broken(), self.world.rng.choice((300.0, 1500.0, 4000.0)))
        if struck:
            until_ms = max(struck[0], machine.host.paused_until_ms) + GIVES_UP_MS
            self.world.run(lambda: not machine.running, until_ms - self.world.now_ms)
        if struck and machine.running:
            self.checker.broken("fsync", machine.name, f"continues after an fsync failed at {struck[0]:.0f} ms")
        machine.lose_power()
        machine.ailing = machine.disk.fail = None
        self._again(machine)

    def _lose_directory(self, machine: SimMachine) -> None:
        """Kill one of several directories: the broker continues without it. After a restart it has its old or another
        disk."""
        if machine not in self.cluster.brokers or len(machine.config.log_dirs) < 2 or not self._may_lose(machine):
            return
        rng = self.world.rng
        path = machine.config.log_dirs[-1]
        self.world.note("faults", f"{path} of {machine.name} dies")
        machine.disk.dead = path
        self._rest(rng.choice((500.0, 1500.0, 4000.0)))
        machine.stop()
        self.world.run(lambda: not machine.running or self._broken(), STOPS_MS)
        machine.kill()
        machine.disk.revive(path)
        if rng.random() < 0.5:
            machine.replace_directory(path, self.cluster.cluster_id)
        self._again(machine)

    def _rot(self, machine: SimMachine) -> None:
        """Rot bits on a machine that is down for a while."""
        if not self._may_lose_disk(machine):
            return
        machine.kill()
        places = list(_covered(machine.disk, machine.config.all_dirs))
        if places:
            rng = self.world.rng
            path, start, end = rng.choice(places)
            position = rng.randrange(start, end)
            machine.disk.flip(path, position, rng.randrange(8))
            self.world.note("faults", f"a bit of {machine.name} has rotted in {path} at {position}")
            machine.rotten, self.rotten = True, machine
            machine.metadata_rotten = METADATA_TOPIC_NAME in path
        self._again(machine)
        if not machine.running:
            super().heal()
            self._replace_rotten()

    def _rot_under_reader(self, machine: SimMachine) -> None:
        """Rot a bit of an old batch on a running leader, and let a client read that batch from it.

        The bit is in the batch's magic byte, so every walk over the batch notices it, not only a client.
        """
        if machine not in self.cluster.brokers or not self._may_lose_disk(machine):
            return
        if self._rot_led(machine) is not None:
            self.rotten = machine

    def _rot_led(self, machine: SimMachine) -> Callable[[], None] | None:
        """Rot a bit in the magic of an old batch that this machine leads, and read the batch.

        Returns what restores the bit if its file is still there, not set aside; None if there is no such batch.
        """
        rng = self.world.rng
        node, disk = machine.node, machine.disk
        if node is None or node.broker is None or disk.dead is not None:
            return None
        # Only topics that are never deleted, with records of clients.
        known = (p for p in node.broker.replicas.opened() if p.topic in self.checker.policies)
        led = [p for p in known if p.is_leader and p.log.high_watermark > 1]
        if not led:
            return None
        partition = rng.choice(led)
        places = list(_in_folder(disk, partition.log.path))
        path, start, _ = rng.choice(places[: max(1, len(places) // 2)])
        bit = rng.randrange(8)
        disk.flip(path, start, bit)
        damaged = read_file(disk, path)[start : start + 1]
        machine.rotten = True
        self.world.note("faults", f"the magic of a batch of {machine.name} has rotted in {path} at {start}")
        reader = Rereader(self.cluster, self.checker, f"reader{len(self.done)}", (partition.topic, partition.index))
        end = partition.log.high_watermark
        script = Script(self.world, reader.session.name, reader.run(end), reader.session.host)
        self.world.run(lambda: script.done or self._broken(), READS_MS)
        script.stop()

        def restore() -> None:
            if disk.exists(path) and read_file(disk, path)[start : start + 1] == damaged:
                disk.flip(path, start, bit)
                self.world.note("faults", f"{path} of {machine.name} is restored")

        return restore

    def _restore_rotten(self, machine: SimMachine) -> None:
        """Rot an old batch, perhaps on the only broker that has all acknowledged records; an administrator restores the
        file while the node is stopped.

        The node is stopped cleanly, because a kill makes eligible leader replicas count as incomplete.
        """
        if machine not in self.cluster.brokers or not machine.running:
            return
        rng = self.world.rng
        if rng.random() < ALONE_SHARE:
            for other in self.cluster.brokers:
                if other is not machine and other not in self.cluster.controllers:
                    other.kill()
            self._rest(LEFT_ALONE_MS)
        restore = self._rot_led(machine)
        for other in self.cluster.brokers:
            if not other.running and not self._broken():
                other.start()
        if restore is None or self._broken():
            return
        self._rest(rng.choice((50.0, 500.0, 3000.0)))
        machine.stop()
        stopped = self.world.run(lambda: not machine.running or self._broken(), RESTORED_MAX_MS)
        if not stopped or self._broken():
            return
        restore()
        machine.rotten = False
        self._again(machine)

    def _replace_rotten(self) -> None:
        """Replace the disk with bit rot; other nodes have its data."""
        machine = self.rotten
        if machine is None or self._broken():
            return
        if machine.running and machine in self.cluster.controllers:
            self.cluster.voters_stay = True
            self.world.run(self._broken, CHANGES_MAX_MS)  # earlier requests are done or abandoned by then
            self.world.run(lambda: self._outvoted(machine) or self._broken(), MENDS_MAX_MS)
            self.cluster.voters_stay = False
        if machine.running:  # before a disk is removed, the other nodes must have everything on it
            self.world.run(lambda: self._whole_without(machine) or self._broken(), MENDS_MAX_MS)
        if machine.running and not machine.metadata_rotten and machine.has_lost_directories():
            self.checker.broken("grain", machine.name, "a damaged replica has ended its log directory")
        machine.kill()
        mended = self.world.run(lambda: self._whole_without(machine) or self._broken(), MENDS_MAX_MS)
        if self._broken():
            return
        if not mended:
            self.checker.broken("alive", machine.name, "records of its rotten disk do not reach other brokers")
            return
        machine.replace_disk(self.cluster.cluster_id)
        self.rotten = None
        if not machine.running:
            machine.start()

    def _whole_without(self, machine: SimMachine) -> bool:
        image, gone = self._newest_image(), {machine.config.node_id}
        if image is None or any(m.node is None for m in self.cluster.machines if m is not machine):
            return False
        if machine in self.cluster.controllers:
            others = [other for other in self.cluster.controllers if other is not machine]
            if not all(_is_current(other, image.offset) for other in others) or not self._outvoted(machine):
                return False
        if not all(is_registered(other, image) for other in self.cluster.brokers if other is not machine):
            return False
        return all(
            state.leader != NO_LEADER and set(state.isr) - gone == set(state.replicas) - gone
            for topic in image.topics
            for _, state in topic.partitions()
        )

    # -- faults that any machine may have at any time

    def _fill_disk(self, machine: SimMachine) -> None:
        """Fill the disk, and free space later."""
        machine.ailing, machine.disk.full = "the disk is full", True
        until_ms = self.world.rng.choice((300.0, 1500.0, 4000.0))
        self.world.run(lambda: not machine.running or self._broken(), until_ms)
        self._rest(until_ms)
        machine.disk.full = False
        if machine.running and machine.has_lost_directories():
            machine.kill()
        machine.ailing = None
        if not machine.running:
            self._again(machine)

    def _stall_disk(self, machine: SimMachine) -> None:
        machine.host.stalled_until_ms = self.world.now_ms + self.world.rng.choice((1500.0, 5000.0, 15_000.0))


def is_registered(machine: SimMachine, image: MetadataImage) -> bool:
    """Whether the broker's current process is registered: an earlier process's ISR membership ends with its
    registration."""
    assert machine.node is not None
    broker, registered = machine.node.broker, image.brokers.get(machine.config.node_id)
    if broker is None or broker.lifecycle is None or registered is None or registered.fenced:
        return False
    return broker.lifecycle.broker_epoch == registered.epoch


def _is_current(machine: SimMachine, offset: int) -> bool:
    """Whether that controller has all metadata up to `offset` on disk, except up to `BEHIND_MAX` records."""
    node = machine.node
    if node is None or node.raft is None or not node.raft.started:
        return False
    raft = node.raft
    return not raft.node.is_amnesiac and raft.leader_id >= 0 and raft.image.offset >= offset - BEHIND_MAX


def _covered(disk: SimDisk, directories: list[str]) -> Iterator[tuple[str, int, int]]:
    """Path and byte range of data that a checksum covers: batches of logs and snapshots."""
    for top in directories:
        for name in disk.listdir(top):
            folder = f"{top}/{name}"
            if disk.is_dir(folder):
                yield from _in_folder(disk, folder)


def _in_folder(disk: SimDisk, folder: str) -> Iterator[tuple[str, int, int]]:
    for name in disk.listdir(folder):
        if not name.endswith((".log", ".checkpoint")) or not name[:1].isdigit():
            continue
        path = f"{folder}/{name}"
        file = disk.open(path, read_only=True)
        raw = memoryview(file.pread(0, disk.size(path)))
        file.close()
        for header in iter_headers(raw):
            yield path, header.position + COVERED_FROM, header.position + header.length


__all__ = ["DiskFaults", "is_registered"]
