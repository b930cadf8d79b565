"""What the driver of a migration needs of its surroundings: the metadata log, and the brokers that use ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from kraft_node.migration.claim import ControllerClaim


class RecordsRefusedError(Exception):
    """The controller cannot append these records; the message says why."""


class MigrationLog(Protocol):
    """The metadata log, for the active controller."""

    def append(self, records: Sequence[Any], committed: Callable[[], None]) -> None:
        """Append in this order; `committed` is called when the image has them, or the transaction holds them.

        It is never called if the leadership is lost before. Raises RecordsRefusedError: nothing was appended.
        """


class BrokerLink(Protocol):
    """The brokers that still get their metadata from ZooKeeper's controller."""

    def announce(self, held: ControllerClaim, done: Callable[[list[str]], None]) -> None:
        """Tell them that the holder of this claim is the controller, and nothing else.

        `done` gets the reasons why brokers have not confirmed it; empty if all have.
        """

    def begin(self, held: ControllerClaim) -> None:
        """Send them everything, then what changes, in the name of this claim."""

    def end(self) -> None:
        """Send nothing more."""

    def exclude(self, broker_ids: Collection[int]) -> None:
        """Send nothing to the present incarnations of these brokers, until they register again."""
