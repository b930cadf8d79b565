"""The audit log: a line for every decision, in Kafka's format, for tools that read Kafka's.

The logger has Kafka's name, `kafka.authorizer.logger`. Denials are logged at INFO, permissions at DEBUG. Decisions that
only compute information (for example a client's possible operations) are logged at TRACE, which is Python's level 5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.security.names import ALLOWED_BY, DENIED_BY, WILDCARD, Operation, PatternType, Permission, ResourceType
from kraft_node.security.names import type_title as title
from kraft_protocol.wire.api import API, ApiKey

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext

log = logging.getLogger("kafka.authorizer.logger")

TRACE: Final = 5


def level_of(*, allowed: bool, log_allowed: bool, log_denied: bool) -> int:
    """The log level of a decision."""
    if allowed:
        return logging.DEBUG if log_allowed else TRACE
    return logging.INFO if log_denied else TRACE


def write(
    level: int,
    ctx: RequestContext,
    host: str,
    operation: Operation,
    resource_type: int,
    name: str,
    count: int,
    rule: str,
    *,
    allowed: bool,
) -> None:
    """Log one decision."""
    log.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s with "
        "resourceRefCount = %d based on rule %s",
        ctx.principal,
        "Allowed" if allowed else "Denied",
        operation.name,
        host,
        title(resource_type),
        name,
        API[ApiKey(ctx.api_key)].request.__name__.removesuffix("Request"),
        count,
        rule,
    )


def rule_among(records: Iterable[Any], host: str, operation: int) -> str | None:
    """The deciding entry in Kafka's format; None if none of `records` applies.

    Kafka checks entries from the longest name to the shortest, then by pattern type, operation, principal and host. The
    first denial decides, else the last permission.
    """
    chosen = None
    for record in sorted(records, key=_kafka_order):
        if record.host not in (WILDCARD, host):
            continue
        if record.permission_type == Permission.DENY and record.operation in DENIED_BY[operation]:
            chosen = record
            break
        if record.permission_type == Permission.ALLOW and record.operation in ALLOWED_BY[operation]:
            chosen = record
    return None if chosen is None else f"MatchingAcl(acl={_kafka_text(chosen)})"


def _kafka_order(record: Any) -> tuple[Any, ...]:
    wildcard = record.resource_name == WILDCARD and record.pattern_type == PatternType.LITERAL
    return (
        wildcard,
        -len(record.resource_name),
        record.pattern_type,
        record.operation,
        record.principal,
        record.host,
        record.permission_type,
    )


def _kafka_text(record: Any) -> str:
    return (
        f"StandardAcl[resourceType={ResourceType(record.resource_type).name}, resourceName={record.resource_name}, "
        f"patternType={PatternType(record.pattern_type).name}, principal={record.principal}, host={record.host}, "
        f"operation={Operation(record.operation).name}, permissionType={Permission(record.permission_type).name}]"
    )
