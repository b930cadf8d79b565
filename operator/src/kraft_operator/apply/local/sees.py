"""What the supervisor of a local cluster looks and tells through: the seams that tests fill with their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kraft_operator.kafka.client import Address
from kraft_operator.plan.observed import Disks, Metadata, Quorum, Seen


class Tells(Protocol):
    """Whoever shows what goes on."""

    def event(self, text: str) -> None: ...

    def status(self, resource: dict[str, Any]) -> None: ...


class Sees(Protocol):
    """What `observe.kafka.View` does; tests have one that sees nothing."""

    async def look(
        self,
        controllers: Mapping[int, Address],
        brokers: Mapping[int, Address],
        statuses: Mapping[int, Address] | None = None,
    ) -> None: ...

    async def look_at_disks(self, brokers: Mapping[int, Address], name_of: Callable[[str], str]) -> None: ...

    @property
    def quorum(self) -> Seen[Quorum]: ...

    @property
    def metadata(self) -> Seen[Metadata]: ...

    @property
    def disks(self) -> dict[int, Seen[Disks]]: ...
