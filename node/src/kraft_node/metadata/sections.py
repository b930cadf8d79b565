"""Keyed cells: the parts of an image other than topics.

A value in a cell never changes; it is only replaced. So a reader of an earlier state (a snapshot writer) needs only
the old values of cells that were replaced since. A delta needs only the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class SectionView(Protocol[K, V_co]):
    """The interface of a section for readers, committed or in an overlay."""

    def get(self, key: K) -> V_co | None:
        """The value of a key; None if the key is missing."""
        ...

    def __contains__(self, key: object) -> bool: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[K]: ...

    def items(self) -> Iterator[tuple[K, V_co]]:
        """Every key with its value; the order means nothing."""
        ...

    def values(self) -> Iterator[V_co]:
        """Every value, in the order of `items`."""
        ...


class Cells(SectionView[K, V], Protocol[K, V]):
    """The interface of a section for records, committed or in an overlay."""

    def put(self, key: K, value: V) -> None:
        """Fill the cell, or replace its value. A value must never change once it is in a cell."""
        ...

    def remove(self, key: K) -> None:
        """Empty the cell; allowed if it is empty."""


class Section(Generic[K, V]):
    """The committed cells of one section."""

    __slots__ = ("_cells", "_frozen", "changes")

    def __init__(self) -> None:
        self._cells: dict[K, V] = {}
        self._frozen: list[FrozenSection[K, V]] = []
        self.changes: dict[K, V | None] = {}
        """The cells changed in the current delta, with their previous values (None: the cell was empty)."""

    def get(self, key: K) -> V | None:
        """The committed value; None if the cell is empty."""
        return self._cells.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._cells

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[K]:
        return iter(self._cells)

    def items(self) -> Iterator[tuple[K, V]]:
        """The committed cells, without a copy: fill and empty no cell during the iteration."""
        return iter(self._cells.items())

    def values(self) -> Iterator[V]:
        """The committed values, without a copy: fill and empty no cell during the iteration."""
        return iter(self._cells.values())

    def put(self, key: K, value: V) -> None:
        """Fill the cell, or replace its value; the delta and frozen views keep the old value."""
        self._before(key)
        self._cells[key] = value

    def remove(self, key: K) -> None:
        """Empty the cell; allowed if it is empty."""
        if key in self._cells:
            self._before(key)
            del self._cells[key]

    def clear(self) -> None:
        """Empty every cell, before a snapshot fills them again."""
        for key in self._cells:
            self._before(key)
        self._cells.clear()

    def _before(self, key: K) -> None:
        old = self._cells.get(key)
        if key not in self.changes:
            self.changes[key] = old
        for frozen in self._frozen:
            frozen.keep(key, old)

    def take_changes(self) -> dict[K, V | None]:
        """The changes since the last call."""
        if not self.changes:
            return self.changes
        taken = self.changes
        self.changes = {}
        return taken

    def freeze(self) -> FrozenSection[K, V]:
        """A view of the present cells that stays readable while they change; end it with `thaw`."""
        frozen = FrozenSection(self, list(self._cells))
        self._frozen.append(frozen)
        return frozen

    def thaw(self, frozen: FrozenSection[K, V]) -> None:
        """End a view, which must not be read any more; allowed if it has ended already."""
        if frozen in self._frozen:
            self._frozen.remove(frozen)


class FrozenSection(Generic[K, V]):
    """A section at the time of `freeze`: its keys, and the old value of each cell that was replaced since."""

    __slots__ = ("_kept", "_section", "keys")

    def __init__(self, section: Section[K, V], keys: list[K]) -> None:
        self._section = section
        self.keys = keys
        self._kept: dict[K, V | None] = {}

    def keep(self, key: K, old: V | None) -> None:
        """Take the value that a cell had (None: it was empty) at its first change since `freeze`."""
        self._kept.setdefault(key, old)

    def value(self, key: K) -> V:
        """The value of one of `keys` at the time of `freeze`."""
        value = self._kept[key] if key in self._kept else self._section.get(key)
        assert value is not None, f"a frozen section lost its cell {key!r}"
        return value


class _Gone:
    __slots__ = ()


GONE: Final = _Gone()
"""In an overlay: the committed cell counts as empty."""


class Touched:
    """The overlay's writes with their offsets, in order, so that commits can remove them."""

    __slots__ = ("entries", "offset")

    def __init__(self) -> None:
        self.offset = -1
        """The offset of the record that is being replayed."""
        self.entries: list[tuple[int, dict[Any, tuple[int, Any]], Any]] = []

    def note(self, cells: dict[Any, tuple[int, Any]], key: Any) -> None:
        """Note that the record at `offset` writes the cell `key` of `cells`."""
        self.entries.append((self.offset, cells, key))

    def expire(self, offset: int) -> None:
        """Drop every cell that was last written at or below `offset`: the committed image contains the same."""
        done = 0
        for written, cells, key in self.entries:
            if written > offset:
                break
            done += 1
            cell = cells.get(key)
            if cell is not None and cell[0] <= offset:
                del cells[key]
        del self.entries[:done]

    def clear(self) -> None:
        """Empty all cells that the overlay has written, and forget them."""
        for _, cells, key in self.entries:
            cells.pop(key, None)
        self.entries.clear()


class OverlaySection(Generic[K, V]):
    """A section with the overlay's records."""

    __slots__ = ("_base", "_cells", "_touched")

    def __init__(self, base: Section[K, V], touched: Touched) -> None:
        self._base = base
        self._cells: dict[Any, tuple[int, Any]] = {}
        self._touched = touched

    def get(self, key: K) -> V | None:
        """The value with the uncommitted changes; None if it is missing or removed."""
        if self._cells:
            cell = self._cells.get(key)
            if cell is not None:
                value = cell[1]
                return None if value is GONE else value
        return self._base.get(key)

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        difference = 0
        for key, (_, value) in self._cells.items():
            difference += (value is not GONE) - (key in self._base)
        return len(self._base) + difference

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys and values with the uncommitted changes; unchanged entries come first."""
        cells = self._cells
        if not cells:
            yield from self._base.items()
            return
        for key, value in self._base.items():
            if key not in cells:
                yield key, value
        for key, (_, value) in cells.items():
            if value is not GONE:
                yield key, value

    def values(self) -> Iterator[V]:
        """Values with the uncommitted changes; unchanged values come first."""
        return (value for _, value in self.items())

    def put(self, key: K, value: V) -> None:
        """Set the value until the commit of the record puts it into the image below."""
        self._cells[key] = (self._touched.offset, value)
        self._touched.note(self._cells, key)

    def remove(self, key: K) -> None:
        """Let the cell count as empty until the commit of the record; allowed if it is empty."""
        self._cells[key] = (self._touched.offset, GONE)
        self._touched.note(self._cells, key)
