"""The requests of a controller of ZooKeeper times to one broker: UpdateMetadata 8, LeaderAndIsr 7, StopReplica 4.

Requests are made topic by topic in pieces, and long requests are encoded in steps, so that no turn of the loop is long.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from kraft_node.metadata.brokers import BrokerRegistration
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.partitions import PartitionState
from kraft_protocol.buffers import FileSlice
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.api import API
from kraft_protocol.wire.codec import EncodedMessage, encode_in_steps
from kraft_protocol.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

INCREMENTAL: Final = 1
FULL: Final = 2
LEADER_DURING_DELETION: Final = -2
EPOCH_DURING_DELETION: Final = -2
ROWS_AT_ONCE: Final = 500
"""Partitions that are added to a request in one turn of the loop. A request with more is encoded in steps."""

Rows = list[tuple[int, PartitionState]]
"""(number, state) of partitions of one topic."""


class Replicas:
    """What one broker was ordered to host."""

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.hosted: dict[Uuid, set[int]] = {}
        self.new: dict[Uuid, set[int]] = {}
        """Replicas that began after the broker received everything, and that it has not confirmed."""


class ControlRequests:
    """Makes the requests that tell one broker what it does not know: `everything`, or `changes`; then `made`."""

    def __init__(
        self, image: MetadataImage, node_id: int, listener: str, controller_epoch: int, replicas: Replicas
    ) -> None:
        self._image = image
        self._listener = listener
        self._replicas = replicas
        self._epoch = controller_epoch
        self._kind = self._leaders_kind = INCREMENTAL
        self._live: Mapping[int, BrokerRegistration] = {}
        self._leaders: set[int] = set()
        self._first: list[Any] = []
        """What goes before all else."""
        self._gone: list[Any] = []
        self._updates: dict[Uuid, Any] = {}
        self._states: dict[Uuid, Any] = {}
        self._stops: list[Any] = []
        self._header: dict[str, Any] = {
            "controller_id": node_id,
            "is_k_raft_controller": True,
            "controller_epoch": controller_epoch,
            "broker_epoch": replicas.broker_epoch,
        }

    def controller_only(self) -> UpdateMetadataRequest:
        """The request that says who the controller is, and which brokers are alive. Partitions stay as they are."""
        return self._update_metadata([])

    def everything(self, *, finds_strays: bool = True) -> Iterator[None]:
        """Collect all topics, each as it is when its turn comes. Yields at the end of a turn.

        `finds_strays`: let the broker delete the logs of which the request says nothing.
        """
        self._kind = FULL
        self._leaders_kind = FULL if finds_strays else INCREMENTAL
        self._replicas.hosted = {}
        yield from self._collect({topic.id: None for topic in self._image.topics})

    def changes(
        self, changed: Mapping[Uuid, set[int]], deleted: Mapping[Uuid, tuple[str, int]], *, brokers: bool
    ) -> Iterator[None]:
        """Collect partitions that have changed, and topics that were deleted. Yields at the end of a turn.

        `brokers`: brokers have come or gone. A broker ignores LeaderAndIsr with a leader that it takes for dead, so it
        gets the list of brokers first.
        """
        if brokers:
            self._first.append(self.controller_only())
        for topic_id, (name, count) in deleted.items():
            self._delete(topic_id, name, count)
        yield from self._collect(changed)

    def made(self) -> list[Any]:
        """The requests, in the order in which they must be sent."""
        leaders = self._leader_and_isr()
        update = self._update_metadata([*self._gone, *self._updates.values()])
        if self._kind == FULL:  # a broker that knows nothing must first learn who the controller is
            return [update, leaders]
        stops = StopReplicaRequest(**self._header, topic_states=self._stops)
        # Replicas of a deleted topic end before a topic of the same name begins.
        found = [*self._first, *(one for one in (stops, leaders) if one.topic_states)]
        return found if self._first and not update.topic_states else [*found, update]

    # Collecting

    def _collect(self, wanted: Mapping[Uuid, set[int] | None]) -> Iterator[None]:
        """`wanted`: topic -> numbers of partitions; None: all."""
        rows = 0
        self._live = self._live_brokers()
        for topic_id, numbers in wanted.items():
            topic = self._image.topics.by_id(topic_id)
            if topic is None:
                continue  # deleted since the first turn
            ordered = range(len(topic)) if numbers is None else sorted(numbers)
            for first in range(0, len(ordered), ROWS_AT_ONCE):
                topic = self._image.topics.by_id(topic_id)
                if topic is None:
                    break
                found = [(number, topic.partition(number)) for number in ordered[first : first + ROWS_AT_ONCE]]
                self._add(topic.name, topic_id, [(number, state) for number, state in found if state is not None])
                rows += len(found)
                if rows >= ROWS_AT_ONCE:
                    rows = 0
                    yield
                    self._live = self._live_brokers()

    def _live_brokers(self) -> dict[int, BrokerRegistration]:
        return {broker.id: broker for broker in self._image.brokers.values() if not broker.fenced}

    def _add(self, name: str, topic_id: Uuid, rows: Rows) -> None:
        if not rows:
            return
        update = self._updates.get(topic_id)
        if update is None:
            update = self._updates[topic_id] = UpdateMetadataRequest.UpdateMetadataTopicState(name, topic_id, [])
        update.partition_states.extend(map(self._row, rows))
        if self._kind == INCREMENTAL:
            self._stop_moved(name, topic_id, rows)
        states = [*self._led(topic_id, rows)]
        if states:
            led = self._states.get(topic_id)
            if led is None:
                led = self._states[topic_id] = LeaderAndIsrRequest.LeaderAndIsrTopicState(name, topic_id, [])
            led.partition_states.extend(states)

    def _row(self, row: tuple[int, PartitionState]) -> Any:
        number, state = row
        return UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=number,
            controller_epoch=self._epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=list(state.replicas),
            offline_replicas=[replica for replica in state.replicas if replica not in self._live],
        )

    def _led(self, topic_id: Uuid, rows: Rows) -> Iterator[Any]:
        """The states of this broker's replicas."""
        known = self._replicas.hosted.setdefault(topic_id, set())
        for number, state in rows:
            if self._replicas.broker_id not in state.replicas:
                continue
            yield LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                partition_index=number,
                controller_epoch=self._epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
                is_new=self._is_new(topic_id, number),
                leader_recovery_state=state.leader_recovering,
            )
            known.add(number)
            self._leaders.add(state.leader)

    def _is_new(self, topic_id: Uuid, number: int) -> bool:
        """Whether the broker cannot have a log of this replica yet.

        A broker of 3.x creates an empty log even while one of its directories is offline. Otherwise it
        refuses the replica with KAFKA_STORAGE_ERROR. Apache Kafka's controllers call every replica of a full request
        new: an empty log could then replace the log in the offline directory, and lead if it is the whole ISR.
        """
        replicas = self._replicas
        if self._kind == INCREMENTAL and number not in replicas.hosted[topic_id]:
            replicas.new.setdefault(topic_id, set()).add(number)
        return number in replicas.new.get(topic_id, ())

    def _stop_moved(self, name: str, topic_id: Uuid, rows: Rows) -> None:
        """Delete the replicas that were reassigned to other brokers."""
        known = self._replicas.hosted.get(topic_id, set())
        moved = [(number, s) for number, s in rows if number in known and self._replicas.broker_id not in s.replicas]
        known.difference_update(number for number, _ in moved)
        self._stop(name, [(number, state.leader_epoch) for number, state in moved])

    def _delete(self, topic_id: Uuid, name: str, count: int) -> None:
        of = UpdateMetadataRequest
        gone = [
            of.UpdateMetadataPartitionState(
                partition_index=number, controller_epoch=self._epoch, leader=LEADER_DURING_DELETION
            )
            for number in range(count)
        ]
        # First of all: a topic of the same name may have been created since.
        self._gone.append(of.UpdateMetadataTopicState(name, topic_id, gone))
        hosted = self._replicas.hosted.pop(topic_id, set())
        self._stop(name, [(number, EPOCH_DURING_DELETION) for number in sorted(hosted)])

    def _stop(self, name: str, epochs: list[tuple[int, int]]) -> None:
        """`epochs`: (partition, leader epoch)."""
        of = StopReplicaRequest
        if epochs:
            rows = [of.StopReplicaPartitionState(number, epoch, True) for number, epoch in epochs]
            self._stops.append(of.StopReplicaTopicState(name, rows))

    # Requests

    def _update_metadata(self, states: list[Any]) -> UpdateMetadataRequest:
        of = UpdateMetadataRequest
        brokers = [
            of.UpdateMetadataBroker(
                id=broker.id,
                endpoints=[
                    of.UpdateMetadataEndpoint(e.port, e.host, e.name, e.security_protocol)
                    for e in broker.endpoints.values()
                ],
                rack=broker.rack,
            )
            for broker in self._live_brokers().values()
        ]
        return of(**self._header, type=self._kind, topic_states=states, live_brokers=brokers)

    def _leader_and_isr(self) -> LeaderAndIsrRequest:
        of = LeaderAndIsrRequest
        live = self._live_brokers()
        leaders = [live[leader] for leader in sorted(self._leaders) if leader in live]
        found = [(broker.id, broker.endpoint(self._listener)) for broker in leaders]
        addresses = [of.LeaderAndIsrLiveLeader(number, e.host, e.port) for number, e in found if e is not None]
        states = [*self._states.values()]
        return of(**self._header, type=self._leaders_kind, topic_states=states, live_leaders=addresses)


def encoded(request: Any) -> Generator[None, None, Any]:
    """The request, encoded in steps if it is long. Yields at the end of a turn. Raises EncodeError.

    A long request has no rows afterwards: to free all of them at once would take a turn of 20 ms.
    """
    topics = request.topic_states
    if sum(len(topic.partition_states) for topic in topics) <= ROWS_AT_ONCE:
        return request
    version = API[request.SCHEMA.api_key].max_version
    body = bytearray()
    for part in (yield from encode_in_steps(request, version)):
        assert not isinstance(part, FileSlice), "law: requests hold no slices of files"
        body = body + part if body else bytearray(part)
    freed = 0
    for topic in topics:
        while topic.partition_states:
            freed += len(topic.partition_states[-ROWS_AT_ONCE:])
            del topic.partition_states[-ROWS_AT_ONCE:]
            if freed >= ROWS_AT_ONCE:
                freed = 0
                yield
    return EncodedMessage(request, version, body)
