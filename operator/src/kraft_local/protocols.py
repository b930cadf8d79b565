"""Protocols for the observations and reports of a local cluster's supervisor. Tests implement them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kraft_operator.plan.model.observed import Aged, Disks, Metadata, Quorum
from kraft_protocol.client.aio import Address


class Display(Protocol):
    """Shows events and the status to the user."""

    def event(self, text: str) -> None: ...

    def status(self, resource: dict[str, Any]) -> None: ...


class ViewSource(Protocol):
    """The interface of `observe.kafka.View`. Tests have an implementation without views."""

    async def look(
        self,
        controllers: Mapping[int, Address],
        brokers: Mapping[int, Address],
        statuses: Mapping[int, Address] | None = None,
    ) -> None: ...

    async def look_at_disks(self, brokers: Mapping[int, Address], name_of: Callable[[str], str]) -> None: ...

    @property
    def quorum(self) -> Aged[Quorum]: ...

    @property
    def metadata(self) -> Aged[Metadata]: ...

    @property
    def disks(self) -> dict[int, Aged[Disks]]: ...
