"""Which of two rows with one key is the newer one.

Of one partition the record with the later offset, of two partitions the one with the later time. If the specification
names a column by `orderBy` and both rows have a value there, the greater value is the newer one, also within a
partition. Records of equal rank go by topic and partition, so that the order of the batches decides nothing. A later
time also makes up for a lower offset: a topic that was made anew, or cut off by an unclean election, counts from below.

Tables keep all of this in columns of their rows. Used by merges on executors; no input or output.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_PLACE: Final = "_kraft_place"
_OTHER: Final = "_kraft_other"


class Order(NamedTuple):
    """The columns that tell; `by` is that of `orderBy`, "" if there is none."""

    topic: str
    partition: str
    offset: str
    time: str
    by: str = ""

    @property
    def columns(self) -> list[str]:
        """The columns that decide, in their order; absent ones are left out."""
        return [name for name in self if name]

    @property
    def plain(self) -> Order:
        """The same order without `orderBy`: offset and time decide."""
        return self._replace(by="")


def newer(one: pa.Table, other: pa.Table, order: Order) -> NDArray[np.bool_]:
    """Which rows of `one` are newer than those at the same places of `other`; a row without an order is the oldest."""

    def both(name: str, compare: Any) -> Any:
        return pc.fill_null(compare(one.column(name), other.column(name)), False)

    def either(*parts: Any) -> Any:
        found = parts[0]
        for part in parts[1:]:
            found = pc.or_(found, part)
        return found

    topic, partition = both(order.topic, pc.equal), both(order.partition, pc.equal)
    same, later = pc.and_(topic, partition), both(order.time, pc.greater)
    place = either(both(order.topic, pc.greater), pc.and_(topic, both(order.partition, pc.greater)))
    found = either(
        pc.and_(same, both(order.offset, pc.greater)),
        later,
        pc.and_(both(order.time, pc.equal), place),
        pc.is_null(other.column(order.time)),
    )
    if order.by:
        ranked = pc.and_(pc.is_valid(one.column(order.by)), pc.is_valid(other.column(order.by)))
        ahead = either(both(order.by, pc.greater), pc.and_(both(order.by, pc.equal), found))
        found = pc.if_else(ranked, ahead, found)
    return np.asarray(found).astype(np.bool_)


def matches(one: pa.Table, other: pa.Table, keys: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places in two tables of each pair of rows that have the same keys."""
    left = one.select(keys).append_column(_PLACE, pa.array(np.arange(one.num_rows)))
    right = other.select(keys).append_column(_OTHER, pa.array(np.arange(other.num_rows)))
    found = left.join(right, keys, join_type="inner")
    return found.column(_PLACE).to_numpy(), found.column(_OTHER).to_numpy()
