"""Leader elections: when brokers start and stop, on request of users, and in periodic sweeps.

ElectLeaders (43) v0-2. Everything here uses `change.PartitionChange`, one partition at a time, for the partitions that
the index names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Any, Final, TypeAlias

from kraft_node.controller.partitions.change import Election
from kraft_node.controller.plan import Plan, Turns
from kraft_node.controller.state.controller_state import ControllerState, check_operation_size
from kraft_node.metadata.brokers import is_online
from kraft_node.metadata.partitions import NO_LEADER, PartitionState, TopicView
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import ElectLeadersRequest, ElectLeadersResponse

PARTITIONS_A_TURN: Final = 1_000
"""Some partitions that a long plan changes in one turn of the loop: about 25 ms, and one batch of records."""

PARTITION_COST: Final = 10
BLOCK_COST: Final = 1
"""The parts of a turn that a changed partition and a searched block cost. A block may hold no partition."""

PREFERRED: Final = 0
UNCLEAN: Final = 1

Blocks: TypeAlias = Iterable[tuple[Uuid, list[int]]]
"""Partitions by topic and block, each block read when it is its turn."""


def _all_at_once(turns: Turns) -> list[Any]:
    """The records of all turns, for a caller that appends them together."""
    records: list[Any] = []
    while True:
        try:
            records += next(turns)
        except StopIteration as end:
            return [*records, *end.value]


class Leaders:
    """Plans elections and ISR shrinks."""

    __slots__ = ("_again", "_cluster", "_electing", "partitions_a_turn")

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster
        self.partitions_a_turn = PARTITIONS_A_TURN
        """Some partitions that a turn may change; simulations set less."""
        self._electing = False
        """Whether `broker_unfenced` is between two turns."""
        self._again = False
        """Whether a broker was unfenced meanwhile."""

    def _in_sync_on(self, broker_id: int) -> Blocks:
        return self._cluster.index.in_sync_on(broker_id, self._cluster.view.topics)

    def _in_sync_or_eligible_on(self, broker_id: int) -> Blocks:
        return chain(self._in_sync_on(broker_id), self._cluster.index.eligible_on(broker_id))

    # Brokers starting and stopping

    def broker_leaves_isrs(self, broker_id: int) -> Turns:
        """The broker is fenced or shuts down: it leaves all ISRs (unless it is the last member) and leads nothing."""
        return self._update(self._in_sync_on(broker_id), without=broker_id)

    def broker_unregistered(self, broker_id: int) -> Turns:
        """The broker is gone for good. Its partitions need leaders, and so do partitions that only this broker could
        have led."""
        return self._update(self._in_sync_or_eligible_on(broker_id), without=broker_id)

    def broker_restarted(self, broker_id: int, clean: bool, directories: Collection[Uuid]) -> Turns:
        """A new incarnation registered: the in-sync state of the old incarnation does not count; after an unclean
        stop, nor does its ELR. `directories` are the log directories of the new incarnation.
        """
        if not self._cluster.elr_enabled or clean:
            return self._update(self._in_sync_on(broker_id), without=broker_id)
        blocks = self._in_sync_or_eligible_on(broker_id)
        return self._update(blocks, unclean=broker_id, directories=directories)

    def broker_unfenced(self, broker_id: int) -> Turns:
        """A broker was unfenced, or (-1) this controller has become active: leaderless partitions may get a leader now.

        One search at a time: if a broker comes back during a search, that search begins anew at its end.
        """
        if self._electing:
            self._again = True
            return []
        self._electing = True
        try:
            while True:
                self._again = False
                last = yield from self._update(self._cluster.index.leaderless(), arriving=broker_id)
                if not self._again:
                    return last
                yield last
                broker_id = NO_LEADER
        finally:
            self._electing = False

    def directories_lost(self, broker_id: int, lost: Collection[Uuid]) -> list[Any]:
        """Log directories of the broker have failed: it leaves the ISRs of their partitions."""
        topics = self._cluster.view.topics

        def is_lost(topic_id: Uuid, number: int) -> bool:
            state = topics.partition(topic_id, number)
            return state is not None and broker_id in state.replicas and state.directory(broker_id) in lost

        concerned = (
            (topic_id, [number for number in numbers if is_lost(topic_id, number)])
            for topic_id, numbers in self._in_sync_on(broker_id)
        )
        return _all_at_once(self._update(concerned, without=broker_id))

    def _update(
        self,
        blocks: Blocks,
        *,
        without: int = NO_LEADER,
        arriving: int = NO_LEADER,
        unclean: int = NO_LEADER,
        directories: Collection[Uuid] = (),
    ) -> Turns:
        """New ISR and leader for each partition: `without` and `unclean` leave, `arriving` counts as active already in
        the first turn; later turns see its own record. `unclean` has `directories` from now on."""
        cluster = self._cluster
        gone = {without, unclean} - {NO_LEADER}
        arrives = {arriving} - {NO_LEADER}

        def acceptable(broker_id: int) -> bool:
            return broker_id not in gone and (broker_id in arrives or cluster.is_active(broker_id))

        def plan_some(topic_id: Uuid, numbers: list[int], records: list[Any]) -> None:
            self._update_some(topic_id, numbers, acceptable, gone, unclean, directories, records)

        return self._in_turns(blocks, plan_some, arrives.clear)

    def _in_turns(
        self,
        blocks: Blocks,
        plan_some: Callable[[Uuid, list[int], list[Any]], None],
        after_turn: Callable[[], None] = lambda: None,
    ) -> Turns:
        """The records that `plan_some` adds for the partitions of each block, about `partitions_a_turn` a turn."""
        records: list[Any] = []
        cost = 0
        for topic_id, numbers in blocks:
            cost += BLOCK_COST + PARTITION_COST * len(numbers)
            if numbers:
                plan_some(topic_id, numbers, records)
            if cost >= PARTITION_COST * self.partitions_a_turn:
                yield records
                records = []
                cost = 0
                after_turn()
        return records

    def _update_some(
        self,
        topic_id: Uuid,
        numbers: Iterable[int],
        acceptable: Callable[[int], bool],
        gone: Collection[int],
        unclean: int,
        directories: Collection[Uuid],
        records: list[Any],
    ) -> None:
        """`_update` for partitions of one topic."""
        cluster = self._cluster
        topic = cluster.topic_with(topic_id)
        assert topic is not None, f"law: the index names only existing topics, not {topic_id!r}"
        may_be_unclean = cluster.topic_config(topic.name).unclean_leader_election_enable
        for number in numbers:
            state = topic.partition(number)
            assert state is not None, f"law: the index names only existing partitions, not {topic.name}-{number}"
            change = cluster.change(topic, number, state, acceptable)
            if may_be_unclean:
                change.election = Election.UNCLEAN
            if unclean != NO_LEADER:
                change.unclean_shutdown = frozenset((unclean,))
            if gone:
                change.isr = [broker_id for broker_id in state.isr if broker_id not in gone]
            if state.leader == NO_LEADER and unclean in (*state.isr, *state.elr):
                change.last_known_elr = self._last_known(state, unclean, directories)
            record = change.record()
            if record is not None:
                records.append(record)

    def _last_known(self, state: PartitionState, unclean: int, directories: Collection[Uuid]) -> list[int]:
        """The candidates for a leaderless partition: its last known leader, then replicas that stopped uncleanly later.

        `unclean` is the replica that returns now, with `directories`. Kafka keeps only the last known leader. If its
        log directory is lost, Kafka elects the empty replica, and the others truncate to it. Here the next candidate
        leads (`Isr.assign_directories`). The last known leader is missing if the partition lost it before eligible
        leader replicas were enabled, or if a reassignment noted -1.
        """
        cluster = self._cluster
        known = [b for b in state.last_known_elr if b != NO_LEADER]
        candidates = known if unclean in known else [*known, unclean]
        with_log = [
            b
            for b in candidates
            if (is_online(state.directory(b), directories) if b == unclean else cluster.may_have_records(state, b))
        ]
        return with_log or known or [unclean]

    # Elections on request

    def elect(self, request: ElectLeadersRequest, api_version: int) -> Plan:
        """ElectLeaders: plan preferred or unclean elections for the requested partitions (None: all)."""
        kind = request.election_type if api_version >= 1 else PREFERRED
        names_any = request.topic_partitions is None or len(request.topic_partitions) > 0
        if names_any and kind not in (PREFERRED, UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
        response = ElectLeadersResponse()
        records: list[Any] = []
        if request.topic_partitions is None:
            for topic in self._cluster.view.topics:
                everywhere = [number for number, _ in topic.partitions()]
                self._elect_in(topic.name, everywhere, kind, records, response, quiet=True)
        else:
            for requested in request.topic_partitions:
                self._elect_in(requested.topic, requested.partitions, kind, records, response, quiet=False)
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

    def elect_preferred(self) -> Turns:
        """Plan to return leadership to preferred replicas that may lead again."""
        return self._sweep(self._cluster.index.led_by_others(), Election.PREFERRED, lambda _: True)

    def elect_unclean(self) -> Turns:
        """Plan leaders for leaderless partitions of topics that allow unclean election."""
        return self._sweep(
            self._cluster.index.leaderless(),
            Election.UNCLEAN,
            lambda topic: self._cluster.topic_config(topic.name).unclean_leader_election_enable,
        )

    def _sweep(self, blocks: Blocks, election: Election, suits: Callable[[TopicView], bool]) -> Turns:
        cluster = self._cluster

        def plan_some(topic_id: Uuid, numbers: list[int], records: list[Any]) -> None:
            topic = cluster.topic_with(topic_id)
            if topic is None or not suits(topic):
                return
            for number in numbers:
                state: PartitionState | None = topic.partition(number)
                if state is None:
                    continue
                if election is Election.PREFERRED and not cluster.is_active(state.preferred_leader):
                    continue
                change = cluster.change(topic, number, state)
                change.election = election
                record = change.record()
                if record is not None:
                    records.append(record)

        return self._in_turns(blocks, plan_some)
