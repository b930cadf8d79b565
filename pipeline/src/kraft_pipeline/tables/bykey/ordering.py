"""Which of two rows with the same key is newer.

Within a partition the later offset is newer, across partitions the later time. If the specification names an `orderBy`
column and both rows have a value there, the greater value is newer, also within a partition. Ties are broken by topic
and partition, so the order of batches has no effect. A later time also outweighs a lower offset: offsets restart when a
topic is created again, and fall when an unclean election truncates a log. In a replay it does not, because a producer's
clock may have gone back since the dead letter.

Tables store all of this in columns of their rows. Merges on executors use it; it does no input or output.
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
    """Names of the columns that order rows; `by` is the column of `orderBy`, or ""."""

    topic: str
    partition: str
    offset: str
    time: str
    by: str = ""
    replayed: bool = False
    """Whether a change may be older than the row in its partition, as in a replay: only the offsets decide there."""

    @property
    def columns(self) -> list[str]:
        """The names of all order columns; `by` is left out if it is ""."""
        names = (self.topic, self.partition, self.offset, self.time, self.by)
        return [name for name in names if name]

    @property
    def plain(self) -> Order:
        """The same order without `orderBy`: offset and time decide."""
        return self._replace(by="")


def newer(one: pa.Table, other: pa.Table, order: Order) -> NDArray[np.bool_]:
    """A mask of the rows of `one` that are newer than the rows of `other` at the same index.

    A row of `other` without a time is older, unless `by` decides.
    """

    def both(name: str, compare: Any) -> Any:
        return pc.fill_null(compare(one.column(name), other.column(name)), False)

    def either(*parts: Any) -> Any:
        found = parts[0]
        for part in parts[1:]:
            found = pc.or_(found, part)
        return found

    topic, partition = both(order.topic, pc.equal), both(order.partition, pc.equal)
    same, later = pc.and_(topic, partition), both(order.time, pc.greater)
    if order.replayed:
        later = pc.and_(later, pc.invert(same))
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
    """The indexes in both tables of each pair of rows with the same keys; null keys never match."""
    left = one.select(keys).append_column(_PLACE, pa.array(np.arange(one.num_rows)))
    right = other.select(keys).append_column(_OTHER, pa.array(np.arange(other.num_rows)))
    found = left.join(right, keys, join_type="inner")
    return found.column(_PLACE).to_numpy(), found.column(_OTHER).to_numpy()
