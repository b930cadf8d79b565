"""Steers brokers that still use ZooKeeper: UpdateMetadata 8, LeaderAndIsr 7, StopReplica 4, as a controller of old did.

A broker first gets everything (FULL), then what changes. Each broker has one request under way; changes that come
meanwhile are sent together afterwards, as the image is then. After a failure the broker gets everything again, so
a lost answer needs no other care. Only brokers that have registered as migrating get requests: an incompatible broker
gets none, and so stays out of the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Protocol

from kraft_node.base.env import Env
from kraft_node.metadata.brokers import BrokerRegistration
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.partitions import PartitionState
from kraft_node.migration.claim import ControllerClaim
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

log = logging.getLogger(__name__)

INCREMENTAL: Final = 1
FULL: Final = 2
LEADER_DURING_DELETION: Final = -2
EPOCH_DURING_DELETION: Final = -2
TIMEOUT_MS: Final = 30_000
ROWS_AT_ONCE: Final = 500
"""Partitions that are added to a full request in one turn of the loop."""
PAUSE_FIRST_MS: Final = 100
PAUSE_MAX_MS: Final = 5_000


class Peer(Protocol):
    """A channel to a broker."""

    def send(self, request: Any, version: int | None, done: Callable[[Any], None], timeout_ms: int) -> None:
        """Send; `done` gets the answer or the failure."""


class _Steered:
    """What one broker has confirmed, and what it must still receive."""

    def __init__(self, broker_id: int, epoch: int) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.needs_all = True
        self.needs_brokers = False
        self.changed: dict[Uuid, set[int]] = {}
        """Topic -> partitions."""
        self.deleted: dict[Uuid, tuple[str, int]] = {}
        """Topic -> its name and number of partitions."""
        self.hosted: dict[Uuid, set[int]] = {}
        """The replicas that the broker was ordered to host."""
        self.new: dict[Uuid, set[int]] = {}
        """Replicas that began after the broker received everything, and that it has not confirmed."""
        self.is_busy = False
        self.pause_ms = PAUSE_FIRST_MS

    @property
    def is_due(self) -> bool:
        return bool(self.needs_all or self.needs_brokers or self.changed or self.deleted)


class Steering:
    """The link to the brokers that use ZooKeeper (`links.BrokerLink`). `moved` follows the committed metadata."""

    def __init__(
        self, env: Env, node_id: int, listener: str, image: MetadataImage, peers: Callable[[int], Any]
    ) -> None:
        """`listener` is the listener between brokers, `peers` finds the channel to a broker there."""
        self._env = env
        self._node_id = node_id
        self._listener = listener
        self._image = image
        self._peers = peers
        self._held: ControllerClaim | None = None
        self._brokers: dict[int, _Steered] = {}
        self._excluded: set[tuple[int, int]] = set()
        """(broker, epoch)."""
        self.failures = 0
        """Requests that failed or were refused."""

    def begin(self, held: ControllerClaim) -> None:
        """Send everything to all of them, then what changes, in the name of this claim."""
        self._held = held
        self._brokers = {}
        for broker in list(self._image.brokers.values()):
            self._follow(broker.id)
        self._send_due()

    def end(self) -> None:
        """Send nothing more."""
        self._held = None
        self._brokers = {}
        self._excluded = set()

    def moved(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Committed metadata has changed."""
        del image
        if self._held is None:
            return
        for broker_id in delta.brokers:
            self._follow(broker_id)
        for steered in self._brokers.values():
            steered.needs_brokers |= bool(delta.brokers)
            for topic_id, change in delta.topics.items():
                if change.deleted:
                    steered.changed.pop(topic_id, None)
                    steered.deleted[topic_id] = (change.name, change.partition_count_before)
                else:
                    steered.changed.setdefault(topic_id, set()).update(change.partitions)
        self._send_due()

    def exclude(self, broker_ids: Collection[int]) -> None:
        """Send nothing to the present incarnations of these brokers, until they register again or are unfenced."""
        if self._held is None:
            return
        brokers = [self._image.brokers.get(one) for one in broker_ids]
        before, self._excluded = self._excluded, {(one.id, one.epoch) for one in brokers if one is not None}
        for broker_id, _ in before ^ self._excluded:
            self._brokers.pop(broker_id, None)
            self._follow(broker_id)
        self._send_due()

    @property
    def waiting(self) -> list[int]:
        """The brokers that have not received everything yet."""
        return sorted(one.id for one in self._brokers.values() if one.is_due or one.is_busy)

    def _follow(self, broker_id: int) -> None:
        """Steer the broker if it uses ZooKeeper; a new incarnation knows nothing."""
        broker = self._image.brokers.get(broker_id)
        is_excluded = broker is not None and broker.fenced and (broker.id, broker.epoch) in self._excluded
        if broker is None or is_excluded or not broker.is_migrating_zk_broker:
            if self._brokers.pop(broker_id, None) is not None:
                log.info("broker is not steered any more id=%d", broker_id)
            return
        known = self._brokers.get(broker_id)
        if known is None or known.epoch != broker.epoch:
            self._brokers[broker_id] = _Steered(broker_id, broker.epoch)

    # Sending

    def _send_due(self) -> None:
        for steered in self._brokers.values():
            self._send(steered)

    def _send(self, steered: _Steered) -> None:
        if steered.is_busy or not steered.is_due or not self._is_current(steered):
            return
        steered.is_busy = True
        requests = _Requests(self._image, self._node_id, self._listener, self._held, steered)
        if steered.needs_all:
            self._send_all(steered, requests)
            return
        made = requests.made()
        steered.needs_brokers = False
        steered.changed, steered.deleted = {}, {}
        self._send_next(steered, made)

    def _send_all(self, steered: _Steered, requests: _Requests) -> None:
        """Send everything; made in turns of the loop. Changes that come meanwhile are sent afterwards."""
        steered.needs_all = steered.needs_brokers = False
        steered.changed, steered.deleted = {}, {}
        log.info("broker gets all metadata id=%d epoch=%d", steered.id, steered.epoch)
        self._make_all(steered, requests, requests.parts())

    def _make_all(self, steered: _Steered, requests: _Requests, parts: Iterator[None]) -> None:
        if not self._is_current(steered):
            return
        for _ in parts:
            self._env.scheduler.call_soon(self._make_all, steered, requests, parts)
            return
        self._send_next(steered, requests.all_made())

    def _is_current(self, steered: _Steered) -> bool:
        return self._held is not None and self._brokers.get(steered.id) is steered

    def _send_next(self, steered: _Steered, requests: list[Any]) -> None:
        if not self._is_current(steered):
            return
        if not requests:
            steered.is_busy = False
            steered.pause_ms = PAUSE_FIRST_MS
            self._send(steered)
            return
        peer: Peer | None = self._peers(steered.id)
        if peer is None:
            self._failed(steered, f"it has no listener {self._listener}")
            return
        peer.send(requests[0], None, lambda answer: self._answered(steered, requests, answer), TIMEOUT_MS)

    def _answered(self, steered: _Steered, requests: list[Any], answer: Any) -> None:
        if not self._is_current(steered):
            return
        if isinstance(answer, BaseException):
            self._failed(steered, str(answer))
        elif answer.error_code:
            self._failed(steered, ErrorCode(answer.error_code).name)
        else:
            for topic, partition, code in _refused_partitions(answer):
                self.failures += 1
                log.warning(
                    "broker refuses a replica id=%d topic=%s partition=%d error=%s", steered.id, topic, partition, code
                )
            if isinstance(answer, LeaderAndIsrResponse):
                steered.new = {}
            self._send_next(steered, requests[1:])

    def _failed(self, steered: _Steered, reason: str) -> None:
        self.failures += 1
        log.warning("broker is not steered, and gets all metadata again id=%d reason=%s", steered.id, reason)
        steered.needs_all = True
        self._env.scheduler.call_later(steered.pause_ms, self._again, steered)
        steered.pause_ms = min(2 * steered.pause_ms, PAUSE_MAX_MS)

    def _again(self, steered: _Steered) -> None:
        steered.is_busy = False
        self._send(steered)


def _refused_partitions(answer: Any) -> Iterator[tuple[Any, int, str]]:
    rows = [(topic.topic_id.hex(), row) for topic in getattr(answer, "topics", ()) for row in topic.partition_errors]
    rows += [(row.topic_name, row) for row in getattr(answer, "partition_errors", ())]
    for topic, row in rows:
        if row.error_code:
            yield topic, row.partition_index, ErrorCode(row.error_code).name


class _Requests:
    """The requests that tell one broker what it does not know."""

    def __init__(
        self, image: MetadataImage, node_id: int, listener: str, held: ControllerClaim | None, steered: _Steered
    ) -> None:
        assert held is not None, "law: only the holder of a claim steers"
        self._image = image
        self._listener = listener
        self._steered = steered
        self._epoch = held.epoch
        self._live = {broker.id: broker for broker in image.brokers.values() if not broker.fenced}
        self._all: tuple[list[Any], list[Any], set[int]] = ([], [], set())
        """Of everything: states for UpdateMetadata and LeaderAndIsr, and the leaders of the latter."""
        self._header: dict[str, Any] = {
            "controller_id": node_id,
            "is_k_raft_controller": True,
            "controller_epoch": held.epoch,
            "broker_epoch": steered.epoch,
        }

    def parts(self) -> Iterator[None]:
        """Make everything, as the image is when each topic's turn comes. Yields after `ROWS_AT_ONCE` partitions."""
        self._steered.hosted = {}
        updates, states, leaders = self._all
        rows = 0
        for topic_id in [topic.id for topic in self._image.topics]:
            topic = self._image.topics.by_id(topic_id)
            if topic is None:
                continue  # deleted since the first turn
            part = [(topic.name, topic_id, [*topic.partitions()])]
            updates += self._updates(part)
            states += self._states(FULL, part, leaders)
            rows += len(part[0][2])
            if rows >= ROWS_AT_ONCE:
                rows = 0
                yield

    def all_made(self) -> list[Any]:
        """The requests of `parts`. A broker that knows nothing must first learn who the controller is."""
        updates, states, leaders = self._all
        return [self._update_metadata(FULL, updates), self._leader_and_isr(FULL, states, leaders)]

    def made(self) -> list[Any]:
        """The requests about what has changed, in order."""
        topics = [*self._changed()]
        stops = self._stop_replica(topics)
        of_leaders: set[int] = set()
        leaders = self._leader_and_isr(INCREMENTAL, self._states(INCREMENTAL, topics, of_leaders), of_leaders)
        # Replicas of a deleted topic end before a topic of the same name begins.
        found: list[Any] = [one for one in (stops, leaders) if one.topic_states]
        return [*found, self._update_metadata(INCREMENTAL, [*self._deletions(), *self._updates(topics)])]

    def _changed(self) -> Iterator[tuple[str, Uuid, list[tuple[int, PartitionState]]]]:
        for topic_id, numbers in self._steered.changed.items():
            topic = self._image.topics.by_id(topic_id)
            if topic is not None:
                found = [(number, topic.partition(number)) for number in sorted(numbers)]
                yield topic.name, topic_id, [(number, state) for number, state in found if state is not None]

    def _deletions(self) -> Iterator[Any]:
        """They come first: a topic of the same name may have been created since."""
        of = UpdateMetadataRequest
        for topic_id, (name, count) in self._steered.deleted.items():
            gone = [
                of.UpdateMetadataPartitionState(
                    partition_index=number, controller_epoch=self._epoch, leader=LEADER_DURING_DELETION
                )
                for number in range(count)
            ]
            yield of.UpdateMetadataTopicState(name, topic_id, gone)

    def _updates(self, topics: list[Any]) -> list[Any]:
        of = UpdateMetadataRequest
        return [of.UpdateMetadataTopicState(name, topic_id, [*map(self._row, rows)]) for name, topic_id, rows in topics]

    def _update_metadata(self, kind: int, states: list[Any]) -> UpdateMetadataRequest:
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
            for broker in self._live.values()
        ]
        return of(**self._header, type=kind, topic_states=states, live_brokers=brokers)

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

    def _states(self, kind: int, topics: list[Any], leaders: set[int]) -> list[Any]:
        """The states of this broker's replicas; adds their leaders to `leaders`."""
        of = LeaderAndIsrRequest
        hosted = self._steered.hosted
        states = []
        for name, topic_id, rows in topics:
            known = hosted.setdefault(topic_id, set())
            found = []
            for number, state in rows:
                if self._steered.id not in state.replicas:
                    continue
                found.append(
                    of.LeaderAndIsrPartitionState(
                        partition_index=number,
                        controller_epoch=self._epoch,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=list(state.isr),
                        partition_epoch=state.partition_epoch,
                        replicas=list(state.replicas),
                        adding_replicas=list(state.adding),
                        removing_replicas=list(state.removing),
                        is_new=self._is_new(kind, topic_id, number),
                        leader_recovery_state=state.leader_recovering,
                    )
                )
                known.add(number)
                leaders.add(state.leader)
            if found:
                states.append(of.LeaderAndIsrTopicState(name, topic_id, found))
        return states

    def _leader_and_isr(self, kind: int, states: list[Any], leaders: set[int]) -> LeaderAndIsrRequest:
        of = LeaderAndIsrRequest
        live = [self._live[leader] for leader in sorted(leaders) if leader in self._live]
        return of(**self._header, type=kind, topic_states=states, live_leaders=[*self._addresses(live)])

    def _is_new(self, kind: int, topic_id: Uuid, number: int) -> bool:
        """Whether the broker cannot have a log of this replica yet.

        A broker of 3.x creates an empty log even while one of its directories is offline. Otherwise it
        refuses the replica with KAFKA_STORAGE_ERROR. Apache Kafka's controllers call every replica of a full request
        new: an empty log could then replace the log in the offline directory, and lead if it is the whole ISR.
        """
        steered = self._steered
        if kind == INCREMENTAL and number not in steered.hosted[topic_id]:
            steered.new.setdefault(topic_id, set()).add(number)
        return number in steered.new.get(topic_id, ())

    def _addresses(self, brokers: list[BrokerRegistration]) -> Iterator[Any]:
        for broker in brokers:
            endpoint = broker.endpoint(self._listener)
            if endpoint is not None:
                yield LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker.id, endpoint.host, endpoint.port)

    def _stop_replica(self, topics: list[Any]) -> StopReplicaRequest:
        """Delete the replicas of deleted topics, and those that were reassigned to other brokers."""
        of = StopReplicaRequest
        hosted = self._steered.hosted
        states = []
        for topic_id, (name, _) in self._steered.deleted.items():
            rows = [
                of.StopReplicaPartitionState(number, EPOCH_DURING_DELETION, True)
                for number in sorted(hosted.pop(topic_id, ()))
            ]
            states.append(of.StopReplicaTopicState(name, rows))
        for name, topic_id, changed in topics:
            known = hosted.get(topic_id, set())
            away = [
                (number, state)
                for number, state in changed
                if number in known and self._steered.id not in state.replicas
            ]
            known.difference_update(number for number, _ in away)
            rows = [of.StopReplicaPartitionState(number, state.leader_epoch, True) for number, state in away]
            states.append(of.StopReplicaTopicState(name, rows))
        return of(**self._header, topic_states=[state for state in states if state.partition_states])
