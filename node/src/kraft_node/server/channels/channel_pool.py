"""A channel to each node of the cluster, made on first use and made again if the node has moved.

Responses come in the order of requests. A request that must not wait for another request uses its own lane, which is a
separate connection (`num.replica.fetchers`).

A node has at most two pools. The pool of the Raft driver and the controller link connects to controllers, with the
endpoints that the quorum knows. The pool of the broker connects to other brokers, with their registrations. Both pass
`find` on as `peers: node id, lane -> channel, or None if the node's address is unknown`. This module must not retry:
channels report failures at once, and the caller decides what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.server.channels.channel import Channel
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.metadata.image import MetadataView

CHANNELS_MAX: Final = 10_000
"""Maximum of channels, one per node and lane, more than in any cluster; at the limit the channels of removed nodes are
closed."""


def broker_address(image: MetadataView, listener: str, node_id: int) -> tuple[str, int] | None:
    """Where a registered broker has the listener; None if it has none, or is not registered."""
    registration = image.brokers.get(node_id)
    endpoint = None if registration is None else registration.endpoint(listener)
    return None if endpoint is None else (endpoint.host, endpoint.port)


class Channels:
    """`locate(node_id)` returns a node's address. `on_lost(node_id)` is called when the node has closed a connection,
    `on_moved(node_id)` when one to its former address was closed here."""

    __slots__ = (
        "_by_node",
        "_client_id",
        "_closed",
        "_env",
        "_locate",
        "_on_lost",
        "_on_moved",
        "_patient",
        "_security",
    )

    def __init__(
        self,
        env: Env,
        client_id: str,
        locate: Callable[[int], tuple[str, int] | None],
        *,
        on_lost: Callable[[int], None] | None = None,
        on_moved: Callable[[int], None] | None = None,
        patient: bool = True,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """`patient`: after a failed attempt to connect, requests wait for the next attempt instead of failing at
        once."""
        self._env = env
        self._client_id = client_id
        self._locate = locate
        self._on_lost = on_lost
        self._on_moved = on_moved
        self._patient = patient
        self._security = security
        self._by_node: dict[tuple[int, int], Channel] = {}
        """By node id and lane."""
        self._closed = False

    def find(self, node_id: int, lane: int = 0) -> Channel | None:
        """The channel to the node; None if its address is unknown, or this node stops."""
        where = None if self._closed else self._locate(node_id)
        key = (node_id, lane)
        channel = self._by_node.get(key)
        if channel is not None:
            if where == (channel.host, channel.port):
                return channel
            del self._by_node[key]
            channel.close()
            if self._on_moved is not None:
                self._env.scheduler.call_soon(self._on_moved, node_id)
        if where is None:
            return None
        if len(self._by_node) >= CHANNELS_MAX:
            self._forget_the_gone()
        channel = Channel(self._env, *where, self._client_id, patient=self._patient, security=self._security)
        if self._on_lost is not None:
            channel.on_lost = _Lost(self._on_lost, node_id)
        self._by_node[key] = channel
        return channel

    def drop(self, node_id: int) -> None:
        """Close the connections to a node: pending requests fail. The next `find` makes a new channel."""
        for key in [key for key in self._by_node if key[0] == node_id]:
            self._by_node.pop(key).close()

    def _forget_the_gone(self) -> None:
        for node_id in {node_id for node_id, _ in self._by_node if self._locate(node_id) is None}:
            self.drop(node_id)

    def close(self) -> None:
        """The node stops: all pending requests fail."""
        self._closed = True
        channels, self._by_node = self._by_node, {}
        for channel in channels.values():
            channel.close()


class _Lost:
    """Reports which node closed its connection."""

    __slots__ = ("_node_id", "notify")

    def __init__(self, notify: Callable[[int], None], node_id: int) -> None:
        self.notify = notify
        self._node_id = node_id

    def __call__(self, *_: Any) -> None:
        self.notify(self._node_id)
