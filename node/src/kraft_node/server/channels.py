"""A channel to each node of the cluster that is asked for, made when first needed and again when the node has moved.

Responses come in the order of requests: whoever must not wait for another's asks over a lane, a connection, of its own
(`num.replica.fetchers`).

Two of these a node at most: the Raft driver's and the controller link's ways to controllers (by the endpoints that the
quorum knows), and the broker's ways to other brokers (by their registrations). `find` is what both hand out as
`peers: node id, lane -> channel, or None when nobody knows where that node is`. It must not retry: channels say at once
that they are broken, who asks decides what then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.server.channel import Channel

if TYPE_CHECKING:
    from kraft_node.base.env import Env

CHANNELS_MAX: Final = 10_000
"""One a node and lane, and no cluster has more; at the limit those of nodes that are gone are closed."""


class Channels:
    """`locate(node_id)` says where a node listens now; `on_lost(node_id)` hears of connections that it closed."""

    __slots__ = ("_by_node", "_client_id", "_closed", "_env", "_locate", "_on_lost", "_patient")

    def __init__(
        self,
        env: Env,
        client_id: str,
        locate: Callable[[int], tuple[str, int] | None],
        *,
        on_lost: Callable[[int], None] | None = None,
        patient: bool = True,
    ) -> None:
        """`patient`: requests wait out the pause after a failed attempt to connect instead of failing at once."""
        self._env = env
        self._client_id = client_id
        self._locate = locate
        self._on_lost = on_lost
        self._patient = patient
        self._by_node: dict[tuple[int, int], Channel] = {}
        """By node id and lane."""
        self._closed = False

    def find(self, node_id: int, lane: int = 0) -> Channel | None:
        """The channel to that node; None when it is not known where it listens, or the node stops."""
        where = None if self._closed else self._locate(node_id)
        key = (node_id, lane)
        channel = self._by_node.get(key)
        if channel is not None:
            if where == (channel.host, channel.port):
                return channel
            del self._by_node[key]
            channel.close()
        if where is None:
            return None
        if len(self._by_node) >= CHANNELS_MAX:
            self._forget_the_gone()
        channel = Channel(self._env, *where, self._client_id, patient=self._patient)
        if self._on_lost is not None:
            channel.on_lost = _Lost(self._on_lost, node_id)
        self._by_node[key] = channel
        return channel

    def drop(self, node_id: int) -> None:
        """Give up the connections to a node: what is under way there fails. The next `find` makes a new one."""
        for key in [key for key in self._by_node if key[0] == node_id]:
            self._by_node.pop(key).close()

    def _forget_the_gone(self) -> None:
        for node_id in {node_id for node_id, _ in self._by_node if self._locate(node_id) is None}:
            self.drop(node_id)

    def close(self) -> None:
        """The node stops: everything under way fails."""
        self._closed = True
        channels, self._by_node = self._by_node, {}
        for channel in channels.values():
            channel.close()


class _Lost:
    """Tells which node closed its connection."""

    __slots__ = ("_node_id", "_tell")

    def __init__(self, tell: Callable[[int], None], node_id: int) -> None:
        self._tell = tell
        self._node_id = node_id

    def __call__(self, *_: Any) -> None:
        self._tell(self._node_id)
