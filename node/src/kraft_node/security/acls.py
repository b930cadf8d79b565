"""The access control entries by resource: literal names in a dict, prefixes in one dict per length.

A look-up costs a dict access for the name, for the wildcard, and for each existing length of prefixes of the type. The
entries for the principal come on top. It does not grow with the total number of entries.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from kraft_node.security.names import WILDCARD, PatternType
from kraft_protocol.ids import Uuid

Entries: TypeAlias = "dict[str, list[Any]]"
"""The entries of one resource pattern: AccessControlEntryRecords by principal."""

NOTHING: Final[Entries] = {}


class _OfType:
    """The entries for one type of resource."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, Entries] = {}
        self.prefixed: dict[str, Entries] = {}
        self.lengths: list[int] = []
        """The different lengths of prefixes, the shortest first."""

    def patterns(self, record: Any) -> dict[str, Entries]:
        return self.prefixed if record.pattern_type == PatternType.PREFIXED else self.literal

    def add(self, record: Any) -> None:
        patterns = self.patterns(record)
        entries = patterns.get(record.resource_name)
        if entries is None:
            entries = patterns[record.resource_name] = {}
            length = len(record.resource_name)
            if patterns is self.prefixed and length not in self.lengths:
                insort(self.lengths, length)
        entries.setdefault(record.principal, []).append(record)

    def remove(self, record: Any) -> None:
        patterns = self.patterns(record)
        name, who = record.resource_name, record.principal
        entries = patterns[name]
        entries[who] = [other for other in entries[who] if other.id != record.id]
        if not entries[who]:
            del entries[who]
        if not entries:
            del patterns[name]
            if patterns is self.prefixed and all(len(prefix) != len(name) for prefix in patterns):
                self.lengths.remove(len(name))


class AclIndex:
    """All entries. Updated record by record, like the metadata."""

    __slots__ = ("_by_id", "_types")

    def __init__(self) -> None:
        self._by_id: dict[Uuid, Any] = {}
        self._types: dict[int, _OfType] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, acl_id: Uuid, record: Any) -> None:
        """Add an AccessControlEntryRecord. It replaces an entry with the same id."""
        self.remove(acl_id)
        self._by_id[acl_id] = record
        self._types.setdefault(record.resource_type, _OfType()).add(record)

    def remove(self, acl_id: Uuid) -> None:
        """Remove an entry; allowed if it is missing."""
        record = self._by_id.pop(acl_id, None)
        if record is not None:
            self._types[record.resource_type].remove(record)

    def load(self, records: Mapping[Uuid, Any]) -> None:
        """Hold these entries and no others."""
        self._by_id.clear()
        self._types.clear()
        for acl_id, record in records.items():
            self.put(acl_id, record)

    def concerning(self, resource_type: int, name: str) -> Iterator[Entries]:
        """The entries of each pattern that matches the resource."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        literal = of_type.literal
        if name in literal:
            yield literal[name]
        for length in of_type.lengths:
            if length > len(name):
                break
            entries = of_type.prefixed.get(name[:length])
            if entries is not None:
                yield entries
        if name != WILDCARD and WILDCARD in literal:
            yield literal[WILDCARD]

    def of_type(self, resource_type: int, principals: tuple[str, ...]) -> Iterator[Any]:
        """The records for any resource of the type that name one of the principals."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return
        for patterns in (of_type.literal, of_type.prefixed):
            for entries in patterns.values():
                for principal in principals:
                    yield from entries.get(principal, ())
