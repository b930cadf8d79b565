"""Leader elections: when brokers start and stop, on request of users, and in periodic sweeps.

ElectLeaders (43) v0-2. Everything here uses `change.PartitionChange`, one partition at a time, for the partitions that
the index names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from kraft_node.controller.change import Election
from kraft_node.controller.cluster import Cluster, check_operation_size
from kraft_node.controller.index import members
from kraft_node.controller.plan import Plan
from kraft_node.metadata.partitions import NO_LEADER, NO_LEADER_CHANGE, PartitionState, TopicView
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import ElectLeadersRequest, ElectLeadersResponse
from kraft_protocol.wire.stored import PartitionChangeRecord

SWEEP_ELECTIONS_MAX: Final = 1_000
"""Maximum of elections in one periodic sweep. If there are more, the sweep continues after other waiting work."""

PREFERRED: Final = 0
UNCLEAN: Final = 1


def _remember_last_in_sync(state: PartitionState, record: PartitionChangeRecord) -> None:
    """Keep the last in-sync replica of a leaderless partition as the last known leader if it leaves the ISR.

    The partition lost its leader before eligible leader replicas were enabled, so no leader was noted then. Without
    this, balanced recovery (KIP-966) finds no candidate, and the partition stays offline, as in Kafka. A reassignment
    of a leaderless partition notes -1 as its last leader, which names nobody.
    """
    is_leaderless = state.leader == NO_LEADER and record.leader == NO_LEADER_CHANGE
    is_known = state.last_known_elr not in ((), (NO_LEADER,))
    leaves_none = record.isr == [] and not (record.eligible_leader_replicas or is_known)
    if is_leaderless and leaves_none and len(state.isr) == 1:
        record.last_known_elr = list(state.isr)


class Leaders:
    """Plans elections and ISR shrinks."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _in_sync_on(self, broker_id: int) -> Iterable[tuple[Uuid, int]]:
        return self._cluster.index.in_sync_on(broker_id, self._cluster.view.topics)

    # Brokers starting and stopping

    def broker_leaves_isrs(self, broker_id: int, records: list[Any]) -> None:
        """The broker is fenced or shuts down: it leaves all ISRs (unless it is the last member) and leads nothing."""
        self._update(self._in_sync_on(broker_id), records, without=broker_id)

    def broker_unregistered(self, broker_id: int, records: list[Any]) -> None:
        """The broker is gone for good: its partitions, and those that only it could have led, need leaders."""
        self._update(self._in_sync_on(broker_id), records, without=broker_id)
        self._update(self._cluster.index.eligible_on(broker_id), records, without=broker_id)

    def broker_restarted(self, broker_id: int, clean: bool, records: list[Any]) -> None:
        """A new incarnation registered: the in-sync state of the old one does not count; after an unclean stop, nor
        does its ELR.
        """
        index = self._cluster.index
        if not self._cluster.elr_enabled or clean:
            self._update(self._in_sync_on(broker_id), records, without=broker_id)
            return
        self._update(self._in_sync_on(broker_id), records, unclean=broker_id)
        self._update(index.eligible_on(broker_id), records, unclean=broker_id)

    def broker_unfenced(self, broker_id: int, records: list[Any]) -> None:
        """The broker is back: leaderless partitions may get a leader now."""
        self._update(self._cluster.index.leaderless(), records, arriving=broker_id)

    def directories_lost(self, broker_id: int, lost: Collection[Uuid], records: list[Any]) -> None:
        """Log directories of the broker have failed: it leaves the ISRs of their partitions."""
        topics = self._cluster.view.topics

        def concerned() -> Iterable[tuple[Uuid, int]]:
            for topic_id, number in self._in_sync_on(broker_id):
                state = topics.partition(topic_id, number)
                if state is not None and broker_id in state.replicas and state.directory(broker_id) in lost:
                    yield topic_id, number

        self._update(concerned(), records, without=broker_id)

    def _update(
        self,
        partitions: Iterable[tuple[Uuid, int]],
        records: list[Any],
        *,
        without: int = NO_LEADER,
        arriving: int = NO_LEADER,
        unclean: int = NO_LEADER,
    ) -> None:
        """New ISR and leader for each partition: `without` and `unclean` leave, `arriving` counts as active already."""
        cluster = self._cluster
        brokers = cluster.view.brokers
        gone = {without, unclean} - {NO_LEADER}

        def acceptable(broker_id: int) -> bool:
            if broker_id in gone:
                return False
            broker = brokers.get(broker_id)
            return broker is not None and (broker_id == arriving or broker.active)

        topic: TopicView | None = None
        may_be_unclean = False
        for topic_id, number in partitions:
            if topic is None or topic.id != topic_id:
                topic = cluster.topic_with(topic_id)
                assert topic is not None, f"law: the index names only existing topics, not {topic_id!r}"
                may_be_unclean = cluster.topic_config(topic.name).unclean_leader_election_enable
            state = topic.partition(number)
            assert state is not None, f"law: the index names only existing partitions, not {topic.name}-{number}"
            change = cluster.change(topic, number, state, acceptable)
            if may_be_unclean:
                change.election = Election.UNCLEAN
            if unclean != NO_LEADER:
                change.unclean_shutdown = frozenset((unclean,))
            if gone:
                change.isr = [broker_id for broker_id in state.isr if broker_id not in gone]
            record = change.record()
            if record is not None:
                if unclean != NO_LEADER:
                    _remember_last_in_sync(state, record)
                records.append(record)

    # Elections on request

    def elect(self, request: ElectLeadersRequest, api_version: int) -> Plan:
        """ElectLeaders: plan preferred or unclean elections for the requested partitions (None: all)."""
        kind = request.election_type if api_version >= 1 else PREFERRED
        asks = request.topic_partitions is None or len(request.topic_partitions) > 0
        if asks and kind not in (PREFERRED, UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
        response = ElectLeadersResponse()
        records: list[Any] = []
        if request.topic_partitions is None:
            for topic in self._cluster.view.topics:
                everywhere = [number for number, _ in topic.partitions()]
                self._elect_in(topic.name, everywhere, kind, records, response, quiet=True)
        else:
            for asked in request.topic_partitions:
                self._elect_in(asked.topic, asked.partitions, kind, records, response, quiet=False)
        check_operation_size(records)
        return Plan(response, records, atomic=False)

    def _elect_in(
        self,
        name: str,
        numbers: Iterable[int],
        kind: int,
        records: list[Any],
        response: ElectLeadersResponse,
        *,
        quiet: bool,
    ) -> None:
        result = ElectLeadersResponse.ReplicaElectionResult(topic=name)
        response.replica_election_results.append(result)
        for number in numbers:
            try:
                records.append(self._elect_one(name, number, kind))
                code, message = 0, None
            except KafkaError as e:
                if quiet and e.code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                code, message = int(e.code), e.message
            partition = ElectLeadersResponse.PartitionResult(
                partition_id=number, error_code=code, error_message=message
            )
            result.partition_result.append(partition)

    def _elect_one(self, name: str, number: int, kind: int) -> Any:
        topic = self._cluster.topic_named(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        state = topic.partition(number)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
        if state.has_preferred_leader if kind == PREFERRED else state.leader != NO_LEADER:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        change = self._cluster.change(topic, number, state)
        change.election = Election.PREFERRED if kind == PREFERRED else Election.UNCLEAN
        record = change.record()
        if record is None:
            if kind == PREFERRED:
                raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
            message = "Eligible topic partition leaders are not available."
            raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
        return record

    # Sweeps

    def elect_preferred(self) -> tuple[list[Any], bool]:
        """Plan to return leadership to preferred replicas that may lead again.

        Also returns whether more may be left.
        """
        return self._sweep(members(self._cluster.index.imbalanced), Election.PREFERRED, lambda _: True)

    def elect_unclean(self) -> tuple[list[Any], bool]:
        """Plan leaders for leaderless partitions of topics that allow unclean election. Also returns whether more may
        be left.
        """
        return self._sweep(
            self._cluster.index.leaderless(),
            Election.UNCLEAN,
            lambda topic: self._cluster.topic_config(topic.name).unclean_leader_election_enable,
        )

    def _sweep(
        self, partitions: Iterable[tuple[Uuid, int]], election: Election, suits: Callable[[TopicView], bool]
    ) -> tuple[list[Any], bool]:
        records: list[Any] = []
        for topic_id, number in partitions:
            if len(records) >= SWEEP_ELECTIONS_MAX:
                return records, True
            topic = self._cluster.topic_with(topic_id)
            state: PartitionState | None = None if topic is None else topic.partition(number)
            if topic is None or state is None or not suits(topic):
                continue
            if election is Election.PREFERRED and not self._cluster.is_active(state.preferred_leader):
                continue
            change = self._cluster.change(topic, number, state)
            change.election = election
            record = change.record()
            if record is not None:
                records.append(record)
        return records, False
