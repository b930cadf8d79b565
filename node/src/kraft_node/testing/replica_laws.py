"""Laws of a cluster that no client can observe, checked in its nodes between two events.

- `metadata`     nodes that have applied the metadata up to the same offset have the same metadata; no node goes back
- `voters`     one node leads an epoch of the quorum. All nodes find the same voters at an offset of the committed log.
  In the end no voter has lost its disk, and each voter listens at its address in the log
- `assignment`   leader ∈ ISR ⊆ replicas; no fenced broker is in an ISR or leads; a partition's epochs only grow
- `proposed`     an ISR grows only by a proposal of a leader that knew the preceding state. It grows only by followers
  that have reached the start of the leader's epoch, in the broker epoch in which they reached it
- `elected`      a new leader was in sync before, except for the last leader without another candidate
- `reassigned`   a reassignment is complete only when all added replicas are in sync
- `epochs`       one broker leads a partition in a leader epoch
- `unfenced`     a broker is unfenced only when it has replayed its own registration
- `isr`          every ISR member, in the broker epoch in which it joined, has all records below any high watermark
- `high`         a replica's high watermark never goes back while its process lives, and lies within its log. Exception:
  a replica that ends before the leader's log begins is emptied, perhaps in steps
- `divergence`   below their high watermarks all replicas of a partition hold the same bytes
- `rot`          only disks with bit rot hold data that fails its checksum
- `epoch cache`  a log's leader epochs equal the epochs in its batches
- `answered`     a controller answers a write only when its image holds the records (`controller_laws`)
- `departed`     a broker that may stop leads no partition (`controller_laws`)
- `coordinators` a coordinator's state is what a new one loads from its log (`coordinator_laws`)
- `orphan`       in the end no broker keeps a replica that the metadata does not assign to it

State observed in a process is forgotten with the process. Nothing here changes a node: bytes are read below caches.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.partitions import NO_LEADER
from kraft_node.testing.controller_laws import ControllerLaws
from kraft_node.testing.coordinator_laws import CoordinatorLaws
from kraft_node.testing.machine import CONTROLLER
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.records.batch import BatchHeader, check_batch, iter_headers
from kraft_protocol.records.errors import BatchError

if TYPE_CHECKING:
    from kraft_node.metadata.partitions import PartitionState
    from kraft_node.partition.partition import Partition
    from kraft_node.server.quorum.driver import RaftDriver
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster, SimMachine

EVERY_EVENTS: Final = 12
"""Checks run less often than events: nodes themselves report steps that break their own laws."""

Key = tuple[bytes, int]
"""Topic id and partition index."""


class _Replica:
    """Observations of one replica during one life of its process and of the replica, which may be removed and
    return."""

    __slots__ = ("compared", "high_watermark", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.high_watermark = 0
        self.compared = 0


class ReplicaLaws:
    """Watches all nodes of a cluster."""

    def __init__(self, cluster: SimCluster, checker: Checker, compacted: frozenset[str]) -> None:
        """`compacted`: topics with replicas that may hold different bytes."""
        self.cluster = cluster
        self.checker = checker
        self.controllers = ControllerLaws(checker)
        self.coordinators = CoordinatorLaws(checker)
        self._compacted = compacted
        self._looks = 0
        self._images: dict[str, tuple[int, int]] = {}
        """By machine: process and metadata offset."""
        self._metadata: dict[int, int] = {}
        self._states: dict[Key, tuple[int, PartitionState]] = {}
        """Metadata offset and newest state."""
        self._leaders: dict[tuple[Key, int], str] = {}
        self._replicas: dict[tuple[str, int, Key], _Replica] = {}
        self._starts: dict[Key, int] = {}
        """The highest start of a leader's log."""
        self._committed: dict[Key, int] = {}
        """The highest high watermark observed."""
        self._batches: dict[tuple[Key, int], tuple[int, str]] = {}
        """By partition and base offset: the checksum, and the first replica that had the batch."""
        self._quorum_leaders: dict[int, str] = {}
        self._voters: dict[int, Any] = {}
        """The voters in the committed log, by offset."""
        self.unclean: frozenset[str] = frozenset()
        """Topics with unclean elections: a leader may be out of sync, and what it lacks is truncated."""
        self.compared = 0
        """Batches that were compared with a second replica's."""

    def look(self) -> None:
        """Called after every event; checks at intervals."""
        self._looks += 1
        if self._looks % EVERY_EVENTS == 0:
            self.look_now()

    def look_now(self) -> None:
        """Check everything now."""
        for machine in self.cluster.machines:
            node = machine.node
            if node is None or node.raft is None:
                continue
            self._look_at_image(machine, node.raft.image)
            self._look_at_quorum(machine, node.raft)
            self.controllers.watch(machine)
        self._look_at_leases()
        for machine in self.cluster.brokers:
            node = machine.node
            if node is None or node.raft is None:
                continue
            if node.broker is not None:
                for partition in node.broker.replicas.opened():
                    self._look_at_replica(machine, partition)
                self.coordinators.watch(machine, self.newest_epoch)

    def newest_epoch(self, partition: Partition) -> int:
        """The highest leader epoch that any node has known."""
        known = self._states.get((bytes(partition.topic_id), partition.index))
        return -1 if known is None else known[1].leader_epoch

    # -- the quorum

    def _look_at_quorum(self, machine: SimMachine, raft: RaftDriver) -> None:
        if not raft.started:
            return
        core = raft.node
        if core.is_leader and self._quorum_leaders.setdefault(core.epoch, machine.name) != machine.name:
            text = f"{self._quorum_leaders[core.epoch]} and {machine.name} lead epoch {core.epoch}"
            self.checker.broken("voters", machine.name, text)
        offset, version = core.voter_sets.offset, core.voter_sets.kraft_version
        if version and 0 <= offset < core.high_watermark:
            known = self._voters.setdefault(offset, core.voters)
            if known != core.voters:
                text = f"finds voters {core.voters.ids} stated at {offset}, another node {known.ids}"
                self.checker.broken("voters", machine.name, text)

    def _unsettled_voters(self) -> str | None:
        for machine in self.cluster.machines:
            assert machine.node is not None
            assert machine.node.raft is not None
            for voter in machine.node.raft.voters:
                found = next(other for other in self.cluster.controllers if other.config.node_id == voter.key.id)
                if voter.key.directory not in (ZERO_UUID, found.directory_id):
                    return f"{machine.name} counts with the disk that {found.name} had"
                where = voter.endpoints.get(CONTROLLER)
                if self.cluster.dynamic and where != (found.name, found.controller_port):
                    return f"{machine.name} believes {found.name} at {where}"
        return None

    # -- metadata

    def _look_at_image(self, machine: SimMachine, image: Any) -> None:
        seen = self._images.get(machine.name)
        if seen == (machine.starts, image.offset):
            return
        if seen is not None and seen[0] == machine.starts and image.offset < seen[1]:
            self.checker.broken("metadata", machine.name, f"went back from offset {seen[1]} to {image.offset}")
        self._images[machine.name] = (machine.starts, image.offset)
        digest = zlib.crc32(repr(_content(image)).encode())
        known = self._metadata.setdefault(image.offset, digest)
        if known != digest:
            self.checker.broken("metadata", machine.name, f"differs from another node's at offset {image.offset}")
        for topic in image.topics:
            for number, state in topic.partitions():
                self._look_at_state(image, f"{topic.name}-{number}", (bytes(topic.id), number), state)

    def _look_at_state(self, image: Any, name: str, key: Key, state: PartitionState) -> None:
        offset, before = self._states.get(key, (-1, state))
        if image.offset <= offset:
            return
        self._states[key] = (image.offset, state)
        epochs, earlier = (state.leader_epoch, state.partition_epoch), (before.leader_epoch, before.partition_epoch)
        if epochs[0] < earlier[0] or epochs[1] < earlier[1]:
            self.checker.broken("assignment", name, f"epochs {earlier} became {epochs}")
        if not set(state.isr) <= set(state.replicas):
            self.checker.broken("assignment", name, f"ISR {state.isr}, replicas {state.replicas}")
        if not set(state.elr) <= set(state.replicas):
            self.checker.broken("assignment", name, f"ELR {state.elr}, replicas {state.replicas}")
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self.checker.broken("assignment", name, f"leader {state.leader}, ISR {state.isr}")
        if epochs[1] != earlier[1] + 1:
            return  # several changes at once
        if name.rpartition("-")[0] in self.unclean:
            return
        if epochs[0] == earlier[0] and not set(state.isr) <= set(before.isr):
            self._look_at_proposer(image, name, key, before, state)
        # ISR and ELR members may have returned from a kill, and so left both sets, in this very change.
        # Of the last known leaders the first whose log is not lost may lead.
        lost = _lost_logs(image, before)
        known = [member for member in before.last_known_elr if member not in lost] or list(before.last_known_elr)
        if state.leader_recovering and not before.leader_recovering and known[:1] != [state.leader]:
            text = f"{state.leader} leads out of sync: ISR {before.isr}, ELR {before.elr}, {before.last_known_elr}"
            self.checker.broken("elected", name, text)
        lacking = _settled(state) - _settled(before) - set(state.isr)
        if lacking:
            text = f"{lacking} are replicas, ISR {state.isr}; it was {before.isr} of {before.replicas}"
            self.checker.broken("reassigned", name, text)
        fenced = [member for member in state.isr if (broker := image.brokers.get(member)) is None or broker.fenced]
        if fenced and (state.leader != NO_LEADER or len(state.isr) > 1):
            self.checker.broken("assignment", name, f"{fenced} are fenced, ISR {state.isr}, leader {state.leader}")
        if _has_candidates(before) and not _has_candidates(state) and not lost & set(before.last_known_elr):
            self.checker.broken("assignment", name, "no eligible leader is left")

    def _look_at_proposer(self, image: Any, name: str, key: Key, before: PartitionState, state: PartitionState) -> None:
        partition = self._led(image, key, state)
        if partition is None or partition.lead is None:
            return
        if partition.partition_epoch < before.partition_epoch:
            text = f"ISR {before.isr} of partition epoch {before.partition_epoch} became {state.isr}, the leader knew"
            self.checker.broken("proposed", name, f"{text} {partition.partition_epoch}")
        for member in set(state.isr) - set(before.isr):
            follower, registered = partition.lead.followers.get(member), image.brokers.get(member)
            if follower is None or registered is None:
                continue
            if -1 < follower.broker_epoch < registered.epoch:
                text = f"{member} joined with broker epoch {follower.broker_epoch}, but now has {registered.epoch}"
                self.checker.broken("proposed", name, text)
            if -1 < follower.end_offset < partition.leader_start_offset:
                self._joined_early(name, partition, member, follower.end_offset)

    def _look_at_proposal(self, name: str, partition: Partition) -> None:
        """Check that the followers a leader proposes to add have reached the start of its epoch."""
        lead = partition.lead
        if lead is None or lead.proposal is None:
            return
        for member, epoch in lead.proposal.members:
            follower = lead.followers.get(member)
            if follower is None or member in partition.isr or follower.broker_epoch != epoch:
                continue
            if -1 < follower.end_offset < partition.leader_start_offset:
                self._joined_early(name, partition, member, follower.end_offset)

    def _joined_early(self, name: str, partition: Partition, member: int, end_offset: int) -> None:
        text = f"{member} joined at {end_offset}, the epoch begins at {partition.leader_start_offset}"
        self.checker.broken("proposed", name, text)

    def _led(self, image: Any, key: Key, state: PartitionState) -> Partition | None:
        """The running replica that leads in the epoch of `state`; None if it does not run or does not know that epoch.

        Its broker must have the registered broker epoch.

        A process that has just started may not know what its predecessor knew; the predecessor's proposals still count.
        """
        registered = image.brokers.get(state.leader)
        for machine in self.cluster.brokers:
            node = machine.node
            if machine.config.node_id != state.leader or registered is None or node is None or node.broker is None:
                continue
            lifecycle, partition = node.broker.lifecycle, node.broker.replicas.peek(key)
            if lifecycle is None or lifecycle.broker_epoch != registered.epoch or partition is None:
                continue
            if partition.is_leader and partition.leader_epoch == state.leader_epoch:
                return partition
        return None

    def _look_at_leases(self) -> None:
        """Check that every unfenced broker's process has replayed the metadata up to its own registration."""
        images = [m.node.raft.image for m in self.cluster.controllers if m.node is not None and m.node.raft is not None]
        if not images:
            return
        newest = max(images, key=lambda image: image.offset)
        for machine in self.cluster.brokers:
            node, registered = machine.node, newest.brokers.get(machine.config.node_id)
            if node is None or node.raft is None or node.broker is None or registered is None or registered.fenced:
                continue
            lifecycle, offset = node.broker.lifecycle, node.raft.image.offset
            if lifecycle is not None and lifecycle.broker_epoch == registered.epoch and offset < registered.epoch:
                text = f"is unfenced in epoch {registered.epoch} with metadata up to {offset}"
                self.checker.broken("unfenced", machine.name, text)

    # -- replicas

    def _look_at_replica(self, machine: SimMachine, partition: Partition) -> None:
        log = partition.log
        key = (bytes(partition.topic_id), partition.index)
        place = (machine.name, machine.starts, key)
        known = self._replicas.get(place)
        if known is None or known.partition is not partition:
            known = self._replicas[place] = _Replica(partition)
        high = log.high_watermark
        name = f"{partition.topic}-{partition.index}"
        is_unclean = partition.topic in self.unclean
        is_emptied = known.high_watermark < self._starts.get(key, 0)
        if high < known.high_watermark and not is_unclean and not is_emptied:
            self.checker.broken("high", name, f"of {machine.name} went back from {known.high_watermark} to {high}")
        if high > log.end_offset:
            self.checker.broken("high", name, f"of {machine.name} is {high}, but its log ends at {log.end_offset}")
        known.high_watermark = high
        if high > self._committed.get(key, 0) and not is_unclean:
            self._committed[key] = high
        if partition.is_leader:
            self._starts[key] = max(log.start_offset, self._starts.get(key, 0))
            leader = self._leaders.setdefault((key, partition.leader_epoch), machine.name)
            if leader != machine.name:
                text = f"{leader} and {machine.name} lead in epoch {partition.leader_epoch}"
                self.checker.broken("epochs", name, text)
            self._look_at_isr(machine, partition, key)
            self._look_at_proposal(name, partition)
        readable = log.dir.failed is None and not machine.rotten and machine.disk.dead is None
        if high > known.compared and partition.topic not in self._compacted and readable and not is_unclean:
            self._compare(machine, partition, key, known)

    def _look_at_isr(self, machine: SimMachine, partition: Partition, key: Key) -> None:
        """Check the leader's ISR, as far as its members run in the broker epochs that its metadata names."""
        assert machine.node is not None
        image = machine.node.raft.image  # type: ignore[union-attr]
        state = image.topics.partition(partition.topic_id, partition.index)
        if state is None or state.leader_epoch != partition.leader_epoch or len(partition.isr) < 2:
            return
        newest = self._states[key][1]
        if partition.leader_epoch < newest.leader_epoch:
            return  # replaced without knowing it: the missing records may be its successor's
        for other in self.cluster.brokers:
            number = other.config.node_id
            if other is machine or number not in partition.isr or other.node is None or other.node.broker is None:
                continue
            if number not in newest.isr:
                continue  # a damaged replica has left, and may begin anew before the leader knows it (seed 61334)
            registered, lifecycle = image.brokers.get(number), other.node.broker.lifecycle
            replica = other.node.broker.replicas.peek(key)
            if registered is None or lifecycle is None or lifecycle.broker_epoch != registered.epoch or replica is None:
                continue
            if replica.log.dir.failed is not None:
                continue  # the controller does not know it yet
            if replica.log.end_offset < self._committed.get(key, 0):
                self.checker.broken(
                    "isr", f"{partition.topic}-{partition.index}",
                    f"{other.name} is in sync and has {replica.log.end_offset}, but the high watermark was "
                    f"{self._committed[key]}",
                )  # fmt: skip

    def _compare(self, machine: SimMachine, partition: Partition, key: Key, known: _Replica) -> None:
        log = partition.log
        name = f"{partition.topic}-{partition.index}"
        for records, header in batches_in(log, max(known.compared, log.start_offset), log.high_watermark):
            raw = records[header.position : header.position + header.length]
            epoch = log.leader_epochs.epoch_at(max(header.base_offset, log.start_offset))  # records may be deleted
            if epoch != header.partition_leader_epoch:
                text = f"{machine.name} takes offset {header.base_offset} for one of epoch {epoch}, it is of epoch"
                self.checker.broken("epoch cache", name, f"{text} {header.partition_leader_epoch}")
            try:
                check_batch(raw)
            except BatchError as e:
                self.checker.broken("rot", name, f"{machine.name} holds at offset {header.base_offset}: {e}")
            checksum = zlib.crc32(raw)
            first = self._batches.setdefault((key, header.base_offset), (checksum, machine.name))
            self.compared += first[1] != machine.name
            if first[0] != checksum:
                text = f"{first[1]} and {machine.name} hold different batches at offset {header.base_offset}"
                self.checker.broken("divergence", name, text)
            known.compared = header.last_offset + 1

    # -- the end

    def unsettled(self) -> str | None:
        """Why the cluster is not at rest after all faults are over; None if it is."""
        running = [machine for machine in self.cluster.machines if machine.node is not None]
        images = [machine.node.raft.image for machine in running]  # type: ignore[union-attr]
        if len(running) < len(self.cluster.machines):
            return "not all nodes run"
        newest = max(images, key=lambda image: image.offset)
        for machine, image in zip(running, images, strict=True):
            if image.offset != newest.offset:
                return f"{machine.name} has metadata up to {image.offset}, another replica up to {newest.offset}"
        voters = self._unsettled_voters()
        if voters:
            return voters
        for topic in newest.topics:
            for number, state in topic.partitions():
                name = f"{topic.name}-{number}"
                if state.leader == NO_LEADER:
                    return f"{name} has no leader"
                if set(state.isr) != set(state.replicas) or state.is_reassigning:
                    return f"{name} has the ISR {state.isr} of {state.replicas}"
                behind = self._behind(topic, number, state)
                if behind:
                    return behind
        return None

    def _behind(self, topic: Any, number: int, state: PartitionState) -> str | None:
        ends = {}
        for machine in self.cluster.brokers:
            if machine.config.node_id in state.replicas:
                assert machine.node is not None
                assert machine.node.broker is not None
                replica = machine.node.broker.replicas.peek((topic.id, number))
                if replica is None:
                    if len(state.replicas) > 1:
                        return f"{topic.name}-{number} is not opened by {machine.name}"
                    continue
                ends[machine.name] = (replica.log.high_watermark, replica.log.end_offset)
        values = {offset for pair in ends.values() for offset in pair}
        return f"{topic.name}-{number} is not replicated: {ends}" if len(values) > 1 else None

    def judge(self) -> None:
        """Check the final state, once the cluster is at rest."""
        self.look_now()
        self.coordinators.judge(self.cluster.brokers)
        for machine in self.cluster.brokers:
            node = machine.node
            assert node is not None
            assert node.broker is not None
            for partition in node.broker.replicas.opened():
                state = node.broker.image.topics.partition(partition.topic_id, partition.index)
                if state is None or machine.config.node_id not in state.replicas:
                    self.checker.broken("orphan", f"{partition.topic}-{partition.index}", f"kept by {machine.name}")


def _lost_logs(image: Any, state: PartitionState) -> set[int]:
    """The replicas whose brokers have registered without the log directory."""
    brokers = [image.brokers.get(member) for member in state.replicas]
    return {broker.id for broker in brokers if broker and not broker.has_online_directory(state.directory(broker.id))}


def _has_candidates(state: PartitionState) -> bool:
    return state.leader != NO_LEADER or bool(state.isr or state.elr or state.last_known_elr)


def _settled(state: PartitionState) -> set[int]:
    """The replicas that are not being added."""
    return set(state.replicas) - set(state.adding)


def _content(image: Any) -> list[Any]:
    """The content of an image, in a canonical order."""
    topics = sorted(
        (topic.name, bytes(topic.id), [(number, repr(state)) for number, state in topic.partitions()])
        for topic in image.topics
    )
    brokers = sorted((broker.id, broker.epoch, broker.fenced, broker.in_controlled_shutdown) for broker in
                     image.brokers.values())  # fmt: skip
    configs = sorted((key, sorted(values.items())) for key, values in image.configs.items())
    quotas = sorted((repr(entity), sorted(values.items())) for entity, values in image.quotas.items())
    access = sorted((bytes(key), repr(entry)) for key, entry in image.acls.items())
    users = sorted((key, repr(credentials)) for key, credentials in image.scram.items())
    features = sorted(image.features.items())
    return [topics, brokers, configs, quotas, access, users, features, image.next_producer_id]


def batches_in(log: Any, start: int, end: int) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The headers of the batches in [start, end) of a node's log, each with the records that it was read with. Ends
    early where nothing can be read."""
    while start < end:
        found = log.read(start, 1 << 20, limit_offset=end)
        raw = memoryview(found.records if isinstance(found.records, bytes) else found.records.read())
        before = start
        for header in iter_headers(raw):
            start = header.last_offset + 1
            yield raw, header
        if start == before:
            return
