"""The brokers that topics and users are read from, and the proof that a broker's answer is complete.

A broker applies metadata some time after the quorum has committed it. So a broker may not show what exists. Its image
is complete if it has applied all records that the quorum's leader has in its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from kraft_operator.observe.kafka import reported_quorum
from kraft_operator.observe.status import StatusReport, node_status
from kraft_operator.plan.model.observed import Quorum
from kraft_operator.plan.model.situation import BEHIND_MAX_MS
from kraft_protocol.client.aio import Address, Client, UnreachableError

BROKERS_MAX: Final = 3
"""The most brokers that one look tries. Each may take the client's timeout."""
APPLIES_S: Final = 0.2
"""Seconds between two requests for the offset of a broker. A broker applies records within milliseconds."""
APPLIES_TRIES: Final = 5
T = TypeVar("T")


class MetadataSource:
    """The nodes of one cluster, as a pass has found them."""

    def __init__(
        self,
        client: Client,
        brokers: Mapping[int, Address],
        *,
        controllers: Collection[Address] = (),
        statuses: Mapping[int, Address] | None = None,
        cluster_id: str | None = None,
        first: int | None = None,
    ) -> None:
        """`brokers` are ready brokers by node id; the broker `first` is tried first. `statuses` serve `/status`."""
        self.client = client
        self._brokers = dict(sorted(brokers.items(), key=lambda one: one[0] != first))
        self._controllers = controllers
        self._statuses = statuses or {}
        self._cluster_id = cluster_id

    def __bool__(self) -> bool:
        """Whether there is any broker."""
        return bool(self._brokers)

    def address(self, node: int) -> Address:
        """The address of a broker."""
        return self._brokers[node]

    async def first(self, read: Callable[[Address], Awaitable[T]]) -> tuple[int, T]:
        """Read from the first broker that answers. Returns its node id and the answer. Raises UnreachableError."""
        failure = UnreachableError("no broker is ready")
        for node, address in list(self._brokers.items())[:BROKERS_MAX]:
            try:
                return node, await read(address)
            except UnreachableError as error:
                failure = error
        raise failure

    async def is_complete(self, node: int) -> bool:
        """Whether a broker has applied all records that the leader had in its log; False if that is unknown.

        What is read from this broker afterwards is complete, except for requests that are still under way.
        """
        where = self._statuses.get(node)
        if where is None:
            return False
        answers = await asyncio.gather(*(reported_quorum(self.client, one) for one in self._controllers))
        described = max((one for one in answers if one is not None), key=lambda one: one[0].epoch, default=None)
        if described is None or not self._leads(described[0]):
            return False
        end = described[1]
        for _ in range(APPLIES_TRIES):
            try:
                status = await node_status(where)
            except UnreachableError:
                return False
            if status is None or not self._is_ours(status.cluster_id):
                return False
            if _has_applied(status, end):
                return True
            await asyncio.sleep(APPLIES_S)
        return False

    def _leads(self, quorum: Quorum) -> bool:
        """Whether a majority of the voters has just followed this leader. A former leader may not know the next one."""
        following = sum(voter.behind_ms <= BEHIND_MAX_MS for voter in quorum.voters.values())
        return 2 * following > len(quorum.voters) and self._is_ours(quorum.cluster_id)

    def _is_ours(self, cluster_id: str | None) -> bool:
        return not cluster_id or self._cluster_id is None or cluster_id == self._cluster_id


def _has_applied(status: StatusReport, end: int) -> bool:
    return status.offset is not None and status.offset >= end - 1
