"""The lines of the tables in `kafka`, read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class KeyRow(NamedTuple):
    """A key, in the notation of `kafka`."""

    name: str
    kind: str
    default: str
    constraint: str
    flags: str

    @property
    def is_cluster_wide(self) -> bool:
        """Whether all brokers change the key at run time, without a restart."""
        return "c" in self.flags


def rows(*tables: str) -> Iterator[KeyRow]:
    """The keys of tables, in their order."""
    for table in tables:
        for line in table.splitlines():
            yield KeyRow(*line.split(" "))
