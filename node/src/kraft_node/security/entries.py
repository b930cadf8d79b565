"""The access control entries by resource: CreateAcls and DeleteAcls cost as much as the entries that they name.

`controller.state.indexes` maintains it, on standbys too, and reverts uncommitted entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.security.acl_filter import ANY, MATCH, RESOURCE_TYPE_MAX
from kraft_node.security.names import WILDCARD, PatternType
from kraft_protocol.ids import Uuid

if TYPE_CHECKING:
    from kraft_node.security.acl_filter import AclFilter

Resource: TypeAlias = tuple[int, int, str]
"""Type, pattern type and name."""
Rule: TypeAlias = tuple[str, str, int, int]
"""Principal, host, operation and permission."""

NOTHING: Final[dict[Rule, tuple[Uuid, ...]]] = {}


def resource_of(entry: Any) -> Resource:
    """The resource of an AccessControlEntryRecord."""
    return entry.resource_type, entry.pattern_type, entry.resource_name


def rule_of(entry: Any) -> Rule:
    """The rule of an AccessControlEntryRecord, without its resource."""
    return entry.principal, entry.host, entry.operation, entry.permission_type


class EntryIndex:
    """All entries that are committed or appended."""

    __slots__ = ("_by_id", "_by_resource", "_lengths")

    def __init__(self) -> None:
        self._by_id: dict[Uuid, Any] = {}
        self._by_resource: dict[Resource, dict[Rule, tuple[Uuid, ...]]] = {}
        self._lengths: dict[int, dict[int, int]] = {}
        """By type of resource: length of a prefix -> number of resources with such prefixes."""

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, record: Any) -> None:
        """Add an AccessControlEntryRecord; an entry of the same id is replaced."""
        self.remove(record.id)
        self._by_id[record.id] = record
        resource, rule = resource_of(record), rule_of(record)
        rules = self._by_resource.get(resource)
        if rules is None:
            rules = self._by_resource[resource] = {}
            self._count_prefix(resource, 1)
        rules[rule] = (*rules.get(rule, ()), record.id)

    def remove(self, acl_id: Uuid) -> None:
        """Remove an entry; allowed if it is missing."""
        record = self._by_id.pop(acl_id, None)
        if record is None:
            return
        resource, rule = resource_of(record), rule_of(record)
        rules = self._by_resource[resource]
        left = tuple(other for other in rules[rule] if other != acl_id)
        if left:
            rules[rule] = left
            return
        del rules[rule]
        if not rules:
            del self._by_resource[resource]
            self._count_prefix(resource, -1)

    def _count_prefix(self, resource: Resource, change: int) -> None:
        kind, pattern, name = resource
        if pattern != PatternType.PREFIXED:
            return
        lengths = self._lengths.setdefault(kind, {})
        count = lengths.get(len(name), 0) + change
        if count:
            lengths[len(name)] = count
        else:
            del lengths[len(name)]

    def has(self, resource: Resource, rule: Rule) -> bool:
        """Whether the entry exists."""
        return rule in self._by_resource.get(resource, NOTHING)

    def concerning(self, wanted: AclFilter) -> Iterator[Uuid]:
        """The ids of the entries for the resources that a filter with a name matches, with any rules."""
        name = wanted.resource_name
        assert name is not None, "filters without a name mean entries of any resource"
        kinds = range(ANY + 1, RESOURCE_TYPE_MAX + 1) if wanted.resource_type == ANY else (wanted.resource_type,)
        for kind in kinds:
            for resource in self._resources(kind, wanted.pattern_type, name):
                for ids in self._by_resource.get(resource, NOTHING).values():
                    yield from ids

    def _resources(self, kind: int, pattern: int, name: str) -> Iterator[Resource]:
        if pattern in (ANY, MATCH, PatternType.LITERAL):
            yield kind, PatternType.LITERAL, name
        if pattern == MATCH:
            if name != WILDCARD:
                yield kind, PatternType.LITERAL, WILDCARD
            for length in self._lengths.get(kind, ()):
                if length <= len(name):
                    yield kind, PatternType.PREFIXED, name[:length]
        elif pattern in (ANY, PatternType.PREFIXED):
            yield kind, PatternType.PREFIXED, name
