"""DescribeAcls (29), versions 1-3: refused with SECURITY_DISABLED, as Kafka does without an authorizer.

The controller handles, and refuses, CreateAcls and DeleteAcls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext


def describe_acls(ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Always refuses."""
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
