"""The stop of a node, in the reverse order of its start.

The controller moves leadership away, the broker's connections close, logs are flushed and closed with their
clean-shutdown mark, an active controller that migrates writes to ZooKeeper what it lacks, and Raft hands over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Timer
    from kraft_node.server.parts import NodeParts

log = logging.getLogger("kraft_node.server.node")

CONTROLLED_SHUTDOWN_MAX_MS: Final = 10_000
"""How long a stop waits for the controller to move leadership away. A stop usually takes seconds."""

ZOOKEEPER_MAX_MS: Final = 10_000
"""How long a stop waits until ZooKeeper has every change: after a revert, nobody could write the others."""

RAFT_SHUTDOWN_MAX_MS: Final = 5_000
"""How long a stop waits until the other voters know that this node leaves."""


class NodeShutdown:
    """The stop of one node: clean after `begin`, at once after `abandon_start`."""

    def __init__(self, node: NodeParts) -> None:
        self._node = node
        self._done: Callable[[], None] | None = None
        self._is_complete = False
        self._hands_over = False
        self._timer: Timer | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the stop has begun. Stays true."""
        return self._done is not None

    def begin(self, done: Callable[[], None]) -> None:
        """Stop cleanly, then call `done`; a second call is ignored."""
        if self._done is not None:
            return
        self._done = done
        broker = self._node.broker
        if broker is None or broker.lifecycle is None:
            self._close_broker()
            return
        self._timer = self._node.env.scheduler.call_later(CONTROLLED_SHUTDOWN_MAX_MS, self._leave_overdue)
        broker.begin_shutdown(self._close_broker)

    def _leave_overdue(self) -> None:
        log.warning("controlled shutdown timed out ms=%d", CONTROLLED_SHUTDOWN_MAX_MS)
        self._close_broker()

    def _close_broker(self) -> None:
        node = self._node
        broker, node.broker = node.broker, None
        self._cancel_timer()
        for listener in node.broker_listeners:
            listener.close()
        epoch = -1
        if broker is not None:
            if broker.lifecycle is not None:
                epoch = broker.lifecycle.broker_epoch
            broker.close()
            if node.raft is not None:  # logs that are being closed are no longer deleted or set aside
                loader = node.raft.loader
                loader.publishers = [publisher for publisher in loader.publishers if publisher != broker.apply]
        if node.storage is not None:
            node.storage.close_logs(epoch, self._finish_migration)
        else:
            self._finish_migration()

    def _finish_migration(self) -> None:
        """The active controller of a migration writes to ZooKeeper what is committed, while it still leads."""
        migration = self._node.migration
        if migration is None:
            self._close_raft()
            return
        self._timer = self._node.env.scheduler.call_later(ZOOKEEPER_MAX_MS, self._leave_zookeeper_behind)
        migration.driver.finish(self._close_raft)

    def _leave_zookeeper_behind(self) -> None:
        assert self._node.migration is not None
        lag = self._node.migration.driver.lag
        log.warning("ZooKeeper is not up to date at the stop ms=%d records=%d", ZOOKEEPER_MAX_MS, lag)
        self._close_raft()

    def _close_raft(self) -> None:
        """Controller listeners stay until leadership is handed over: closed connections would look like a crash."""
        if self._hands_over:
            return
        self._hands_over = True
        self._cancel_timer()
        raft = self._node.raft
        if raft is None:
            self._complete()
            return
        self._timer = self._node.env.scheduler.call_later(RAFT_SHUTDOWN_MAX_MS, self._complete)
        raft.shutdown(self._complete)

    def _complete(self) -> None:
        self._cancel_timer()
        if self._is_complete:
            return
        self._is_complete = True
        for listener in self._node.listeners:
            listener.close()
        self._close_channels()
        self._release()
        assert self._done is not None
        self._done()

    def abandon_start(self) -> None:
        """Clean up a start that failed half-way."""
        self._close_channels()
        for listener in self._node.listeners:
            listener.close()
        self._release()

    def _close_channels(self) -> None:
        node = self._node
        if node.registration is not None:
            node.registration.close()
        if node.migration is not None:
            node.migration.close()
        if node.link is not None:
            node.link.close()
        for channels in (node.peers, node.controller_channels, node.raft_channels):
            if channels is not None:
                channels.close()

    def _release(self) -> None:
        if self._node.http is not None:
            self._node.http.close()
        if self._node.storage is not None:
            self._node.storage.release()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
