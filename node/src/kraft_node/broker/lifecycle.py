"""A broker's life cycle with the controller: registration, heartbeats, unfencing, controlled shutdown (KIP-631).

The states in order: NOT_RUNNING, STARTING (registers and catches up with the metadata log), RECOVERY (caught up;
compares logs with the metadata and requests to be unfenced). Then RUNNING (was unfenced), PENDING_CONTROLLED_SHUTDOWN
(waits for the controller's permission to stop), SHUTTING_DOWN.

The broker uses it. It sends only through the controller link; one registration or heartbeat is pending at a time. It
must not make decisions about partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.controller_link import problem_of
from kraft_node.metadata.own_fields import add_snapshot_end, promise_renewal
from kraft_protocol.ids import Uuid, random_uuid
from kraft_protocol.wire.messages import BrokerHeartbeatRequest, BrokerRegistrationRequest

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.env import Env, Timer
    from kraft_node.broker.controller_link import Answer, ControllerLink

log = logging.getLogger(__name__)

RETRY_FIRST_MS: Final = 100
RETRY_MAX_MS: Final = 1000
"""Pauses between failed registrations double up to this: a controller that returns is found within a second."""
SHUTDOWN_RETRY_MS: Final = 50
"""While shutting down, the delay until the next request whether all leaders have moved."""
SHUTDOWN_WAIT_MAX_MS: Final = 300_000
"""Kafka waits this long for the controller's permission before it stops anyway."""


class BrokerState(IntEnum):
    """The values of the metric BrokerState (KIP-631)."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class BrokerIdentity:
    """The data of a broker in its registration."""

    __slots__ = ("cluster_id", "directories", "endpoints", "features", "node_id", "previous_epoch", "rack")

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        endpoints: Sequence[tuple[str, str, int, int]],
        features: Mapping[str, tuple[int, int]],
        directories: Sequence[Uuid],
        rack: str | None = None,
        previous_epoch: int = -1,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.endpoints = endpoints
        """(listener, host, port, security protocol number) for clients."""
        self.features = features
        """Supported (lowest, highest) level by feature; finalized levels must be within."""
        self.directories = directories
        self.rack = rack
        self.previous_epoch = previous_epoch
        """The epoch of the last clean shutdown; -1 without a clean shutdown."""


class Lifecycle:
    """Registers the broker and keeps its lease."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        identity: BrokerIdentity,
        controller: ControllerLink,
        metadata_offset: Callable[[], int],
        offline_directories: Callable[[], list[Uuid]],
        cordoned_directories: Callable[[], list[Uuid] | None] = lambda: None,
        snapshot_end: Callable[[], int] = lambda: 0,
    ) -> None:
        """`cordoned_directories` is None while the cluster's metadata.version does not know of them. `snapshot_end`:
        the end offset of this node's latest metadata snapshot, 0 without a snapshot."""
        self.env = env
        self.config = config
        self.identity = identity
        self.incarnation_id = random_uuid(env.rng)
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.fenced = True
        self.caught_up = False
        self.on_state: Callable[[BrokerState], None] = lambda _state: None
        self.on_failure: Callable[[str], None] = lambda _reason: None
        """Called once with the reason if the broker cannot be registered within
        `initial.broker.registration.timeout.ms`.
        """
        self.on_acknowledged: Callable[[], None] = lambda: None
        """Called after every heartbeat that a controller has acknowledged."""
        self._controller = controller
        self._metadata_offset = metadata_offset
        self._offline_directories = offline_directories
        self._cordoned_directories = cordoned_directories
        self._snapshot_end = snapshot_end
        self._timer: Timer | None = None
        self._give_up: Timer | None = None
        self._under_way = False
        self._retry_ms = RETRY_FIRST_MS
        self._want_fence = True
        self._has_news = False
        """Whether the directories have changed since the pending heartbeat was sent."""
        self._must_repeat = False
        """Whether the registration must be sent again before the next heartbeat."""
        self._has_requested_unfencing = False
        """Whether a heartbeat has requested to be unfenced with a sufficient offset."""
        self._shutdown_done: Callable[[], None] | None = None
        self._last_problem = "no answer yet"

    # --- registering ---

    def start(self) -> None:
        """Start registering; heartbeats follow automatically."""
        assert self.state == BrokerState.NOT_RUNNING, f"law: a broker starts once, not in state {self.state.name}"
        self._enter(BrokerState.STARTING)
        timeout = self.config.int("initial.broker.registration.timeout.ms")
        self._give_up = self.env.scheduler.call_later(timeout, self._registration_timed_out)
        self._register()

    def _register(self) -> None:
        self._timer = None
        identity = self.identity
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[BrokerRegistrationRequest.Listener(*endpoint) for endpoint in identity.endpoints],
            features=[
                BrokerRegistrationRequest.Feature(name, lowest, highest)
                for name, (lowest, highest) in identity.features.items()
            ],
            rack=identity.rack,
            log_dirs=sorted(identity.directories),
            previous_broker_epoch=identity.previous_epoch,
        )
        self._send(request, self._registered)

    def register_again(self) -> None:
        """The metadata.version was raised: it supports log directories, which the registration lacks.

        The incarnation and so the epoch stay the same. Without directories, the controller does not notice a failed
        directory (KIP-858).
        """
        if self._is_alive:
            self._must_repeat = True
            self.directories_changed()

    def _registered(self, answer: Any) -> None:
        problem = problem_of(answer)
        if problem is not None:
            self._last_problem = problem
            log.info("broker is not registered yet reason=%s", problem)
            self._must_repeat = self._is_alive
            self._again(self._heartbeat if self._is_alive else self._register, self._next_retry())
            return
        if self._give_up is not None:
            self._give_up.cancel()
        self._retry_ms = RETRY_FIRST_MS
        self.broker_epoch = answer.broker_epoch
        log.info("broker is registered id=%d epoch=%d", self.identity.node_id, self.broker_epoch)
        self._look_whether_caught_up()
        self._heartbeat()

    def _look_whether_caught_up(self) -> None:
        """A broker that has replayed its own registration knows everything committed before: RECOVERY begins."""
        if self.state == BrokerState.STARTING and 0 <= self.broker_epoch <= self._metadata_offset():
            self._enter(BrokerState.RECOVERY)

    def _registration_timed_out(self) -> None:
        if self.state == BrokerState.STARTING and self.broker_epoch < 0:
            self.on_failure(f"the broker could not be registered with the controller: {self._last_problem}")

    # --- heartbeats ---

    def ready_to_unfence(self) -> None:
        """Logs and handlers are ready: request to be unfenced from now on."""
        self._want_fence = False
        self.metadata_moved()

    def metadata_moved(self) -> None:
        """The image has moved: while fenced, report to the controller at once when it has reached the registration."""
        self._look_whether_caught_up()
        if (
            self.fenced
            and not self._under_way
            and not self._want_fence
            and not self._has_requested_unfencing
            and self.state == BrokerState.RECOVERY
            and self._metadata_offset() >= self.broker_epoch
        ):
            self._cancel_timer()
            self._heartbeat()

    def directories_changed(self) -> None:
        """A log directory has gone offline, or the cordoned directories have changed: send a heartbeat at once."""
        if not self._is_alive:
            return
        if self._under_way:
            self._has_news = True
        else:
            self._cancel_timer()
            self._heartbeat()

    def renew(self) -> None:
        """The connection to the active controller has closed: send a heartbeat over another one at once.

        The controller takes a broker that does not do so for dead (`controller.state.sessions`). A pending heartbeat is
        sent again by the controller link.
        """
        if self._is_alive and not self._under_way:
            self._cancel_timer()
            self._heartbeat()

    @property
    def _is_alive(self) -> bool:
        """Whether the broker is registered and not shutting down."""
        alive = self.state in (BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.RUNNING)
        return alive and self.broker_epoch >= 0

    def _heartbeat(self) -> None:
        if self._must_repeat and self._is_alive:
            self._must_repeat = False
            self._register()
            return
        self._timer = None
        self._look_whether_caught_up()
        self._has_news = False
        offset = self._metadata_offset()
        self._has_requested_unfencing = not self._want_fence and offset >= self.broker_epoch
        request = BrokerHeartbeatRequest(
            broker_id=self.identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=offset,
            want_fence=self._want_fence,
            want_shut_down=self.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=self._offline_directories(),
        )
        if self.state != BrokerState.STARTING:
            # Before that, dynamic configurations may not be known yet.
            request.cordoned_log_dirs = self._cordoned_directories()
        add_snapshot_end(request, self._snapshot_end())
        promise_renewal(request)  # `renew` keeps the promise
        self._send(request, self._heartbeat_answered)

    def _heartbeat_answered(self, answer: Any) -> None:
        stopping = self.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
        problem = problem_of(answer)
        if problem is not None:
            log.warning("heartbeat failed broker=%d error=%s", self.identity.node_id, problem)
            self._again(self._heartbeat, SHUTDOWN_RETRY_MS if stopping else self._next_retry())
            return
        self._retry_ms = RETRY_FIRST_MS
        self.on_acknowledged()
        if stopping:
            if answer.should_shut_down:
                self._leave()
            else:
                self._again(self._heartbeat, SHUTDOWN_RETRY_MS)
            return
        self.caught_up = self.caught_up or answer.is_caught_up
        if answer.is_fenced and not self.fenced:
            log.warning("controller has fenced this broker id=%d", self.identity.node_id)
        self.fenced = answer.is_fenced
        if not self.fenced and self.state == BrokerState.RECOVERY:
            self._enter(BrokerState.RUNNING)
        interval_ms = max(1, self.config.int("broker.heartbeat.interval.ms"))
        self._again(self._heartbeat, 0 if self._has_news else interval_ms)
        self.metadata_moved()

    # --- shutting down ---

    def begin_shutdown(self, done: Callable[[], None]) -> None:
        """Request from the controller to move leaders to other brokers. Call `done` when it permits the stop, or after
        the time-out."""
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            done()
            return
        registered = self.broker_epoch >= 0
        self._shutdown_done = done
        self._cancel_timer()
        if self._give_up is not None:
            self._give_up.cancel()
        if not registered:
            self._leave()
            return
        self._enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        self._give_up = self.env.scheduler.call_later(SHUTDOWN_WAIT_MAX_MS, self._leave)
        if not self._under_way:
            self._heartbeat()

    def _leave(self) -> None:
        self._cancel_timer()
        if self._give_up is not None:
            self._give_up.cancel()
        self._enter(BrokerState.SHUTTING_DOWN)
        done, self._shutdown_done = self._shutdown_done, None
        if done is not None:
            done()

    def close(self) -> None:
        """Drop everything at once, like a killed process."""
        self._cancel_timer()
        if self._give_up is not None:
            self._give_up.cancel()
        self.state = BrokerState.NOT_RUNNING

    # --- sending ---

    def _send(self, request: Any, handle: Callable[[Any], None]) -> None:
        self._under_way = True

        def answered(answer: Answer) -> None:
            self._under_way = False
            if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
                return
            if self.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN and handle != self._heartbeat_answered:
                self._heartbeat()
                return
            handle(answer)

        timeout = self.config.int("broker.session.timeout.ms") // 2
        if self.broker_epoch < 0:
            # Leave time for an error message before registering is given up.
            timeout = min(timeout, self.config.int("initial.broker.registration.timeout.ms") // 2)
        self._controller.send(request, None, answered, max(1, timeout))

    def _again(self, call: Callable[[], None], delay_ms: float) -> None:
        self._cancel_timer()
        self._timer = self.env.scheduler.call_later(delay_ms, call)

    def _next_retry(self) -> int:
        pause = self._retry_ms
        self._retry_ms = min(RETRY_MAX_MS, 2 * pause)
        return pause

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self, state: BrokerState) -> None:
        log.info("broker changes its state id=%d from=%s to=%s", self.identity.node_id, self.state.name, state.name)
        self.state = state
        self.on_state(state)
