"""DescribeUserScramCredentials (50), version 0: which SCRAM mechanisms users have, never the secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kraft_node.base.errors import ErrorCode, fitting
from kraft_node.wire.messages import DescribeUserScramCredentialsResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker


def describe_user_scram_credentials(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """All users when none is named, else those named, each once."""
    infos: dict[str, list[Any]] = {}
    for (mechanism, user), record in sorted(broker.image.scram.items()):
        infos.setdefault(user, []).append(Response.CredentialInfo(mechanism, record.iterations))
    if not request.users:
        return Response(results=[_result(user, infos[user]) for user in sorted(infos)])
    results = []
    for user, times in Counter(user.name for user in request.users).items():
        if times > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            results.append(_failed(user, ErrorCode.DUPLICATE_RESOURCE, text))
        elif user not in infos:
            text = f"Attempt to describe a user credential that does not exist: {user}"
            results.append(_failed(user, ErrorCode.RESOURCE_NOT_FOUND, text))
        else:
            results.append(_result(user, infos[user]))
    return Response(results=results)


def _result(user: str, infos: list[Any]) -> Any:
    return Response.DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=infos)


def _failed(user: str, code: ErrorCode, text: str) -> Any:
    return Response.DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=fitting(text))
