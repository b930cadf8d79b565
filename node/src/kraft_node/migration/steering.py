"""Steers brokers that still use ZooKeeper, as a controller of ZooKeeper times did (`control_requests`).

A broker first gets everything (FULL), then what changes. Each broker has one request under way; changes that come
meanwhile are sent together afterwards, as the image is then. After a failure the broker gets everything again, so
a lost answer needs no other care. Only brokers that have registered as migrating get requests: an incompatible broker
gets none, and so stays out of the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator
from functools import partial
from typing import Any, Final, Protocol

from kraft_node.base.env import Env
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.image import MetadataImage
from kraft_node.migration.claim import ControllerClaim
from kraft_node.migration.control_requests import ControlRequests, Replicas, encoded
from kraft_protocol.errors import ErrorCode, error_name
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import LeaderAndIsrResponse

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 30_000
ANNOUNCEMENT_MS: Final = 10_000
"""How long the answer to an announcement may take: meanwhile ZooKeeper's brokers have no controller."""
STRAY_FAILURES_MAX: Final = 2
"""After so many failures a broker finds no stray logs until it restarts."""
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
        self.replicas = Replicas(broker_id, epoch)
        self.needs_all = True
        self.needs_brokers = False
        self.changed: dict[Uuid, set[int]] = {}
        """Topic -> partitions."""
        self.deleted: dict[Uuid, tuple[str, int]] = {}
        """Topic -> its name and number of partitions."""
        self.is_busy = False
        self.pause_ms = PAUSE_FIRST_MS
        self.finds_strays = True
        """Whether the next full LeaderAndIsr is one by name: with it, the broker deletes all other logs."""
        self.stray_failures = 0

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

    def announce(self, held: ControllerClaim, done: Callable[[list[str]], None]) -> None:
        """`links.BrokerLink`: all brokers that use ZooKeeper must confirm it within `ANNOUNCEMENT_MS`."""
        brokers = [(one.id, one.epoch) for one in self._image.brokers.values() if one.is_migrating_zk_broker]
        waiting = {broker_id for broker_id, _ in brokers}
        failures: list[str] = []

        def answered(broker_id: int, answer: Any) -> None:
            if isinstance(answer, BaseException):
                failures.append(f"broker {broker_id}: {answer}")
            elif answer.error_code:
                failures.append(f"broker {broker_id}: {error_name(answer.error_code)}")
            waiting.discard(broker_id)
            if not waiting:
                done(sorted(failures))

        for broker_id, epoch in brokers:
            replicas = Replicas(broker_id, epoch)
            requests = ControlRequests(self._image, self._node_id, self._listener, held.epoch, replicas)
            peer: Peer | None = self._peers(broker_id)
            if peer is None:
                missing = ConnectionError(f"it has no listener {self._listener}")
                self._env.scheduler.call_soon(answered, broker_id, missing)
            else:
                peer.send(requests.controller_only(), None, partial(answered, broker_id), ANNOUNCEMENT_MS)
        if not brokers:
            self._env.scheduler.call_soon(done, [])

    def begin(self, held: ControllerClaim) -> None:
        """Send everything to all these brokers, then what changes, in the name of this claim."""
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
        """Steer the broker if it uses ZooKeeper; a new incarnation has no state yet."""
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
        assert self._held is not None, "law: only the holder of a claim steers"
        steered.is_busy = True
        requests = ControlRequests(self._image, self._node_id, self._listener, self._held.epoch, steered.replicas)
        if steered.needs_all:
            log.info("broker gets all metadata id=%d epoch=%d", steered.id, steered.epoch)
            parts = requests.everything(finds_strays=steered.finds_strays)
        else:
            parts = requests.changes(steered.changed, steered.deleted, brokers=steered.needs_brokers)
        # Changes that come while the requests are made are sent afterwards.
        steered.needs_all = steered.needs_brokers = False
        steered.changed, steered.deleted = {}, {}
        self._make(steered, requests, parts)

    def _make(self, steered: _Steered, requests: ControlRequests, parts: Iterator[None]) -> None:
        """Make the requests in turns of the loop; short ones at once."""
        if not self._is_current(steered):
            return
        for _ in parts:
            self._env.scheduler.call_soon(self._make, steered, requests, parts)
            return
        self._send_next(steered, requests.made())

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
        self._encode(steered, requests[1:], encoded(requests[0]))

    def _encode(self, steered: _Steered, others: list[Any], steps: Generator[None, None, Any]) -> None:
        """Encode a request in turns of the loop, and send it; `others` follow."""
        if not self._is_current(steered):
            return
        try:
            next(steps)
        except StopIteration as end:
            self._send_one(steered, end.value, others)
        else:
            self._env.scheduler.call_soon(self._encode, steered, others, steps)

    def _send_one(self, steered: _Steered, request: Any, others: list[Any]) -> None:
        peer: Peer | None = self._peers(steered.id)
        if peer is None:
            self._failed(steered, f"it has no listener {self._listener}")
            return
        peer.send(request, None, lambda answer: self._answered(steered, others, answer), TIMEOUT_MS)

    def _answered(self, steered: _Steered, others: list[Any], answer: Any) -> None:
        if not self._is_current(steered):
            return
        if isinstance(answer, BaseException):
            self._failed(steered, str(answer))
        elif answer.error_code:
            if isinstance(answer, LeaderAndIsrResponse) and answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                self._note_stray_failure(steered)
            self._failed(steered, error_name(answer.error_code))
        else:
            for topic, partition, code in _refused_partitions(answer):
                self.failures += 1
                log.warning(
                    "broker refuses a replica id=%d topic=%s partition=%d error=%s", steered.id, topic, partition, code
                )
            if isinstance(answer, LeaderAndIsrResponse):
                steered.replicas.new = {}
                if not steered.finds_strays and steered.stray_failures < STRAY_FAILURES_MAX:
                    steered.finds_strays = steered.needs_all = True
            self._send_next(steered, others)

    @staticmethod
    def _note_stray_failure(steered: _Steered) -> None:
        """Let the broker find no stray logs next time: it fails if a log has no topic id, and so follows no leader.

        A kill can leave a log like that behind. An incremental request gives it its id, so that the search succeeds.
        """
        if steered.finds_strays:
            steered.finds_strays = False
            steered.stray_failures += 1

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
            yield topic, row.partition_index, error_name(row.error_code)
