"""A member of the classic protocol, in a group that may have members of KIP-848 or have had them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kraft_node.testing.workloads.consumer import Consumer, Rejoin

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.groups.ownership import Ownership
    from kraft_node.testing.machine import SimCluster


class ClassicMember(Consumer):
    """A `Consumer` that reports what it owns. It gives up everything before it joins again."""

    def __init__(
        self,
        cluster: SimCluster,
        checker: Checker,
        ownership: Ownership,
        name: str,
        topics: dict[str, int],
        is_newest: Callable[[int, str], bool],
        *,
        sessions: bool,
    ) -> None:
        super().__init__(cluster, checker, name, ownership.group, topics, sessions=sessions)
        self._ownership = ownership
        self._is_newest = is_newest
        self._owner = ""

    async def _join(self) -> Sequence[tuple[str, int]]:
        self._ownership.ended(self._owner)
        assigned = await super()._join()
        if self._is_newest(self._coordinator, self.group):
            self._owner = self._member
            self._ownership.assigned_to(self._owner, assigned, self.session.world.now_ms)
        return assigned

    async def _heartbeat(self) -> bool:
        sent_ms = self.session.world.now_ms
        try:
            goes_on = await super()._heartbeat()
        except Rejoin:
            self._ownership.ended(self._owner)
            raise
        if goes_on and self._is_newest(self._coordinator, self.group):
            self._ownership.confirmed(self._owner, sent_ms)
        return goes_on

    async def _leave(self) -> None:
        self._ownership.ended(self._owner)
        await super()._leave()
