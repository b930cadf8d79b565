"""Which of two rows with the same key is newer.

Within a partition the later offset is newer, across partitions the later time. If the specification names an `orderBy`
column and both rows have a value there, the greater value is newer, also within a partition. NaN is no value. Ties are
broken by topic and partition, so the order of batches has no effect.

Offsets restart when a topic is created again, and fall when an unclean election truncates a log. `Within` says what
that means for two rows of one partition. If a table has recorded the generations of topics, the row of the later
generation of a topic is newer (`generations`).

Tables store all of this in columns of their rows. Merges on executors use it; it does no input or output.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

GENERATION: Final = "_topic_generation"
"""Column of the generation of a row's topic. Tables have it if a topic was made again."""
_PLACE: Final = "_kraft_place"
_OTHER: Final = "_kraft_other"


class Within(Enum):
    """What makes a change newer than a row of the same partition."""

    EITHER = "either"
    """A greater offset, or a later time: for changes in the order of the log."""
    OFFSET = "offset"
    """A greater offset: for a replay, because a producer's clock may have gone back since the dead letter."""
    BOTH = "both"
    """A greater offset and no earlier time: for the replay of a former topic of unknown generation."""


class Order(NamedTuple):
    """Names of the columns that order rows; `by` is the column of `orderBy`, or ""."""

    topic: str
    partition: str
    offset: str
    time: str
    by: str = ""
    generation: str = ""
    within: Within = Within.EITHER

    @property
    def columns(self) -> list[str]:
        """The names of all order columns; names that are "" are left out."""
        names = (self.topic, self.partition, self.offset, self.time, self.by, self.generation)
        return [name for name in names if name]

    @property
    def plain(self) -> Order:
        """The same order without `orderBy`: offset and time decide."""
        return self._replace(by="")

    def ranked(self, rows: pa.Table) -> pa.ChunkedArray:
        """A mask of the rows with a value of `orderBy`."""
        return pc.invert(pc.is_null(rows.column(self.by), nan_is_null=True))

    def generations(self, rows: pa.Table) -> pa.ChunkedArray:
        """The generations of the rows' topics; 0 without a value."""
        return pc.fill_null(rows.column(self.generation), 0)


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
    same, later, ahead = pc.and_(topic, partition), both(order.time, pc.greater), both(order.offset, pc.greater)
    if order.within is not Within.EITHER:
        later = pc.and_(later, pc.invert(same))
    if order.within is Within.BOTH:
        ahead = pc.and_(ahead, pc.invert(both(order.time, pc.less)))
    place = either(both(order.topic, pc.greater), pc.and_(topic, both(order.partition, pc.greater)))
    found = either(
        pc.and_(same, ahead),
        later,
        pc.and_(both(order.time, pc.equal), place),
        pc.is_null(other.column(order.time)),
    )
    if order.generation:
        first, second = order.generations(one), order.generations(other)
        found = either(found, pc.and_(topic, pc.greater(first, second)))
        if order.within is not Within.EITHER:
            found = pc.and_(found, pc.invert(pc.and_(topic, pc.less(first, second))))
    if order.by:
        ranked = pc.and_(order.ranked(one), order.ranked(other))
        greater = either(both(order.by, pc.greater), pc.and_(both(order.by, pc.equal), found))
        found = pc.if_else(ranked, greater, found)
    return np.asarray(found).astype(np.bool_)


def matches(one: pa.Table, other: pa.Table, keys: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indexes in both tables of each pair of rows with the same keys; null keys never match."""
    left = one.select(keys).append_column(_PLACE, pa.array(np.arange(one.num_rows)))
    right = other.select(keys).append_column(_OTHER, pa.array(np.arange(other.num_rows)))
    found = left.join(right, keys, join_type="inner")
    return found.column(_PLACE).to_numpy(), found.column(_OTHER).to_numpy()
