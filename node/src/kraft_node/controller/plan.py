"""The result of a manager: the records to append, and the answer to send once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Plan:
    """Records (empty for a query) and the response that is valid once they are committed.

    `atomic`: all records go into one batch, which is committed or lost as a whole. Otherwise they may be split over
    several batches (a broker with a million partitions is fenced in many batches).
    """

    __slots__ = ("appended", "atomic", "records", "response")

    def __init__(self, response: Any, records: Sequence[Any] = (), *, atomic: bool = True) -> None:
        self.response = response
        self.records = records
        self.atomic = atomic
        self.appended: Callable[[int], None] | None = None
        """Called with the log's last offset once the records, if any, are appended."""
