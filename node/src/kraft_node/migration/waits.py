"""What the driver of a migration waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from kraft_node.migration.claim import ControllerClaim


class LaneJob(NamedTuple):
    """The end of work in ZooKeeper's lane."""

    work: Callable[[], Any]


class LogAppend(NamedTuple):
    """The commit of records."""

    records: Sequence[Any]


class DriverPause(NamedTuple):
    """The end of a pause."""

    delay_ms: int


class ImageChange(NamedTuple):
    """The image changes, or this time passes."""

    within_ms: int


class Announcement(NamedTuple):
    """The brokers' answers to the news that the holder of this claim is the controller: the failures, as texts."""

    held: ControllerClaim


DriverWait: TypeAlias = LaneJob | LogAppend | DriverPause | ImageChange | Announcement
DriverLife: TypeAlias = Generator[DriverWait, Any, Any]
