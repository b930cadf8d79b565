"""Protocols for the observations and reports of a local cluster's supervisor. Tests implement them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kraft_operator.plan.model.observed import Aged, ControllerMigration, Disks, Metadata, Quorum
from kraft_protocol.client.aio import Address


class Display(Protocol):
    """Shows events and the status to the user."""

    def event(self, text: str) -> None:
        """Show an event as it happens. The text may have several lines."""
        ...

    def status(self, resource: dict[str, Any]) -> None:
        """Show the resource with its newest status. Called at the end of each pass."""
        ...


class ViewSource(Protocol):
    """The interface of `observe.kafka.View`. Tests have an implementation without views."""

    async def look(
        self,
        controllers: Mapping[int, Address],
        brokers: Mapping[int, Address],
        statuses: Mapping[int, Address] | None = None,
    ) -> None:
        """Refresh `quorum` and `metadata`. Without an answer, the former view stays. Addresses are by node id."""
        ...

    async def look_at_disks(self, brokers: Mapping[int, Address], name_of: Callable[[str], str]) -> None:
        """Refresh `disks` from these brokers. `name_of` returns the volume of a path."""
        ...

    async def look_at_migration(self, controllers: Mapping[int, Address]) -> None:
        """Refresh `migration` from the addresses where controllers serve `/status`."""
        ...

    @property
    def migration(self) -> Aged[Mapping[int, ControllerMigration]]:
        """The last state of a migration from ZooKeeper by controller, with its age."""
        ...

    @property
    def quorum(self) -> Aged[Quorum]:
        """The last view of the quorum, with its age; no value before the first answer."""
        ...

    @property
    def metadata(self) -> Aged[Metadata]:
        """The last view of the metadata, with its age; no value before the first answer."""
        ...

    @property
    def disks(self) -> dict[int, Aged[Disks]]:
        """Log directories by broker, for the brokers that answered the last request."""
        ...
