"""Access control entries: CreateAcls (30), DeleteAcls (31) and DescribeAcls (29), v1-3 (KIP-290, KIP-801).

The controller stores the entries. Brokers and controllers enforce the entries in their images. Without a configured
authorizer the answer is SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from kraft_node.controller.migration import check_znode_name
from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState, check_operation_size
from kraft_node.security.acl_filter import (
    ANY,
    ENTRIES_A_STEP,
    OPERATION_MAX,
    PERMISSION_MAX,
    RESOURCE_TYPE_MAX,
    AclFilter,
    describe_acls,
)
from kraft_node.security.entries import Resource, Rule, resource_of, rule_of
from kraft_node.security.names import CLUSTER_NAME, PatternType, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid, random_uuid
from kraft_protocol.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kraft_protocol.wire.stored import AccessControlEntryRecord, RemoveAccessControlEntryRecord

DELETIONS_MAX: Final = 10_000


class Acls:
    """Creates, deletes and describes access control entries."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster

    def check_enabled(self, message: str = "No Authorizer is configured.") -> None:
        """Raise SECURITY_DISABLED with `message` unless an authorizer is configured."""
        if not self._cluster.static.string("authorizer.class.name"):
            raise KafkaError(ErrorCode.SECURITY_DISABLED, message)

    def create(self, request: CreateAclsRequest) -> Plan:
        """Plan records for the entries that do not exist yet. Each invalid entry gets its own error."""
        self.check_enabled()
        existing = self._cluster.entries
        added: set[tuple[Resource, Rule]] = set()
        response = CreateAclsResponse()
        records: list[Any] = []
        for creation in request.creations:
            result = CreateAclsResponse.AclCreationResult()
            response.results.append(result)
            try:
                _check_new(creation)
                check_znode_name(self._cluster, creation.resource_name)
            except KafkaError as e:
                result.error_code = e.code
                result.error_message = e.message
                continue
            record = AccessControlEntryRecord(
                id=random_uuid(self._cluster.rng),
                resource_type=creation.resource_type,
                resource_name=creation.resource_name,
                pattern_type=creation.resource_pattern_type,
                principal=creation.principal,
                host=creation.host,
                operation=creation.operation,
                permission_type=creation.permission_type,
            )
            resource, rule = resource_of(record), rule_of(record)
            if (resource, rule) not in added and not existing.has(resource, rule):
                added.add((resource, rule))
                records.append(record)
        check_operation_size(records)
        return Plan(response, records)

    def find(self, request: DeleteAclsRequest) -> Generator[None, None, list[list[Uuid]]]:
        """The ids of the entries that each filter means, found in steps: filters without a name look at all entries."""
        self.check_enabled()
        found: list[list[Uuid]] = []
        looked_at = 0
        for requested in request.filters:
            wanted = AclFilter.of(requested)
            ids: list[Uuid] = []
            found.append(ids)
            named = wanted.resource_name is not None
            candidates = list(self._cluster.entries.concerning(wanted) if named else self._cluster.view.acls)
            for acl_id in candidates:
                entry = self._cluster.view.acls.get(acl_id)
                if entry is not None and wanted.fits(entry):
                    ids.append(acl_id)
                looked_at += 1
                if looked_at % ENTRIES_A_STEP == 0:
                    yield
        return found

    def delete(self, request: DeleteAclsRequest, found: list[list[Uuid]]) -> Plan:
        """Delete the entries that `find` has found, as far as they still exist."""
        self.check_enabled()
        acls = self._cluster.view.acls
        response = DeleteAclsResponse()
        doomed: dict[Any, Any] = {}
        for requested, ids in zip(request.filters, found, strict=True):
            result = DeleteAclsResponse.DeleteAclsFilterResult(error_message=None)
            response.filter_results.append(result)
            try:
                AclFilter.of(requested).check()
                entries = [(acl_id, entry) for acl_id in ids if (entry := acls.get(acl_id)) is not None]
                if len(doomed) + len(entries) > DELETIONS_MAX:
                    message = f"Cannot remove more than {DELETIONS_MAX} acls in a single delete operation."
                    raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            except KafkaError as e:
                result.error_code = e.code
                result.error_message = e.message
                continue
            for acl_id, entry in entries:
                doomed[acl_id] = RemoveAccessControlEntryRecord(id=acl_id)
                result.matching_acls.append(
                    DeleteAclsResponse.DeleteAclsMatchingAcl(
                        error_message=None,
                        resource_type=entry.resource_type,
                        resource_name=entry.resource_name,
                        pattern_type=entry.pattern_type,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission_type,
                    )
                )
        return Plan(response, list(doomed.values()))

    def describe(self, request: DescribeAclsRequest) -> Generator[None, None, DescribeAclsResponse]:
        """The committed entries that the request's filter matches, computed in steps."""
        self.check_enabled("No Authorizer is configured on the broker")
        return describe_acls(request, self._cluster.view.base)


def _check_new(creation: CreateAclsRequest.AclCreation) -> None:
    why: str | None = None
    if not ANY < creation.resource_type <= RESOURCE_TYPE_MAX:
        why = f"Invalid resourceType {creation.resource_type}"
    elif creation.resource_pattern_type not in tuple(PatternType):
        why = f"Invalid patternType {creation.resource_pattern_type}"
    elif not ANY < creation.operation <= OPERATION_MAX:
        why = f"Invalid operation {creation.operation}"
    elif not ANY < creation.permission_type <= PERMISSION_MAX:
        why = f"Invalid permissionType {creation.permission_type}"
    elif creation.resource_type == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        why = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not creation.resource_name:
        why = "Resource name should not be empty"
    elif ":" not in creation.principal:
        why = (
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
