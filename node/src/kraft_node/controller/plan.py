"""What a manager hands to the core: the records to append and the answer to give once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Plan:
    """Records (none for a mere question) and the response that holds once they are committed.

    `atomic`: all records go into one batch, which is committed or lost as a whole; otherwise they may be spread over
    several (a broker with a million partitions is fenced in many batches).
    """

    __slots__ = ("appended", "atomic", "records", "response")

    def __init__(self, response: Any, records: Sequence[Any] = (), *, atomic: bool = True) -> None:
        self.response = response
        self.records = records
        self.atomic = atomic
        self.appended: Callable[[int], None] | None = None
        """Told the last offset of the log once the records, if any, are appended."""
