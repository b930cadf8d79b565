"""The entries that a filter matches; DescribeAcls (29), v1-3, which every node answers from its image."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from kraft_node.metadata.image import MetadataView
from kraft_node.security.names import WILDCARD, Operation, PatternType, Permission, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import DescribeAclsRequest, DescribeAclsResponse

UNKNOWN: Final = 0
ANY: Final = 1
MATCH: Final = 2
"""A pattern type of filters: all patterns that apply to a resource with this name."""
ENTRIES_A_STEP: Final = 1000
RESOURCE_TYPE_MAX: Final = max(ResourceType)
OPERATION_MAX: Final = max(Operation)
PERMISSION_MAX: Final = max(Permission)


class AclFilter(NamedTuple):
    """A filter of entries; None and ANY match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, requested: Any) -> AclFilter:
        """The filter of a DescribeAcls request, or one of DeleteAcls' filters."""
        return cls(
            requested.resource_type_filter,
            requested.resource_name_filter,
            requested.pattern_type_filter,
            requested.principal_filter,
            requested.host_filter,
            requested.operation,
            requested.permission_type,
        )

    def check(self) -> None:
        """Raise INVALID_REQUEST for unknown numbers."""
        if not (ANY <= self.resource_type <= RESOURCE_TYPE_MAX and ANY <= self.pattern_type <= PatternType.PREFIXED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if not (ANY <= self.operation <= OPERATION_MAX and ANY <= self.permission_type <= PERMISSION_MAX):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")

    def fits(self, entry: Any) -> bool:
        """Whether an entry matches all fields of the filter."""
        return (
            self.resource_type in (ANY, entry.resource_type)
            and self._pattern_fits(entry)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission_type in (ANY, entry.permission_type)
        )

    def _pattern_fits(self, entry: Any) -> bool:
        if self.pattern_type not in (ANY, MATCH, entry.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != MATCH:
            return bool(self.resource_name == entry.resource_name)
        if entry.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(entry.resource_name)
        return entry.resource_name in (self.resource_name, WILDCARD)


def describe_acls(request: DescribeAclsRequest, view: MetadataView) -> Generator[None, None, DescribeAclsResponse]:
    """The matching entries by resource, computed in steps.

    Numbers that a later release may know match no entry; invalid numbers raise INVALID_REQUEST.
    """
    wanted = AclFilter.of(request)
    if UNKNOWN in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type):
        wanted.check()
    resources: dict[tuple[int, str, int], list[Any]] = {}
    for number, entry in enumerate(list(view.acls.values()), 1):
        if number % ENTRIES_A_STEP == 0:
            yield
        if not wanted.fits(entry):
            continue
        resource = (entry.resource_type, entry.resource_name, entry.pattern_type)
        resources.setdefault(resource, []).append(
            DescribeAclsResponse.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResponse.DescribeAclsResource(
                resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls
            )
            for (kind, name, pattern), acls in resources.items()
        ],
    )
