"""Create-, Renew-, Expire- and DescribeDelegationToken (38-41) (KIP-48): which clients may request them.

The controller answers the first three, the metadata of the broker the last.

A token represents the principal that requested it. So an unauthenticated client cannot have one, and a client that has
logged in with a token cannot either: a stolen token would never end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.request import ANONYMOUS, TokenPrincipal
from kraft_node.security.names import Operation, ResourceType
from kraft_node.security.tokens import REQUESTER_KNOWN, hmac_of, may_use, secret_of
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.broker.forward import Forwarder
    from kraft_node.metadata.image import MetadataView
    from kraft_node.security.authorizer import Authorizer

USER: Final = "User"
_NOT_ALLOWED: Final = "Delegation token requests are not allowed on unauthenticated connections"


class DelegationTokensHandler:
    """The handlers of a broker."""

    def __init__(
        self, config: ConfigView, image: MetadataView, forward: Forwarder, authorizer: Authorizer | None
    ) -> None:
        self._secret = secret_of(config)
        self._image = image
        self._forward = forward
        self._authorizer = authorizer

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handler of each API."""
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self.create,
            ApiKey.RENEW_DELEGATION_TOKEN: self.change,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self.change,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self.describe,
        }

    def create(self, ctx: RequestContext, request: Any) -> Any:
        """CreateDelegationToken."""
        requester = str(ctx.principal)
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        if not _is_authenticated(ctx):
            code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif owner != requester and not self._may(ctx, Operation.CREATE_TOKENS, ResourceType.USER, owner):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif any(renewer.principal_type != USER for renewer in request.renewers):
            code = ErrorCode.INVALID_PRINCIPAL_TYPE
        else:
            return self._forward(ctx, request)
        response = CreateDelegationTokenResponse(
            error_code=code, issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1
        )
        response.principal_type, _, response.principal_name = owner.partition(":")
        if ctx.api_version >= REQUESTER_KNOWN:
            kind, _, name = requester.partition(":")
            response.token_requester_principal_type, response.token_requester_principal_name = kind, name
        return response

    def change(self, ctx: RequestContext, request: Any) -> Any:
        """RenewDelegationToken and ExpireDelegationToken."""
        if _is_authenticated(ctx):
            return self._forward(ctx, request)
        is_renewal = ctx.api_key == ApiKey.RENEW_DELEGATION_TOKEN
        answer = RenewDelegationTokenResponse if is_renewal else ExpireDelegationTokenResponse
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)

    def describe(self, ctx: RequestContext, request: Any) -> Any:
        """DescribeDelegationToken, from the metadata of this broker."""
        if not _is_authenticated(ctx):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _NOT_ALLOWED)
        if self._secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        response = DescribeDelegationTokenResponse()
        owners = request.owners
        named = None if owners is None else [f"{one.principal_type}:{one.principal_name}" for one in owners]
        if named == []:
            return response
        for token_id, record in self._image.tokens.items():
            if named is not None and not any(may_use(record, owner) for owner in named):
                continue
            if may_use(record, ctx.principal) or self._may_see(ctx, token_id, record.owner):
                response.tokens.append(_described(record, hmac_of(self._secret, token_id), ctx.api_version))
        return response

    def _may_see(self, ctx: RequestContext, token_id: str, owner: str) -> bool:
        return self._may(ctx, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id) or self._may(
            ctx, Operation.DESCRIBE_TOKENS, ResourceType.USER, owner
        )

    def _may(self, ctx: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._authorizer is None or self._authorizer.allows(ctx, operation, kind, name)


def _is_authenticated(ctx: RequestContext) -> bool:
    """Whether the client has authenticated itself, and not by a token: only then may it ask about tokens."""
    if isinstance(ctx.principal, TokenPrincipal):
        return False
    protocol = ctx.connection.server.security.protocol
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and ctx.principal == ANONYMOUS)


def _described(record: Any, hmac: bytes, version: int) -> DescribeDelegationTokenResponse.DescribedDelegationToken:
    token = DescribeDelegationTokenResponse.DescribedDelegationToken(
        issue_timestamp=record.issue_timestamp,
        expiry_timestamp=record.expiration_timestamp,
        max_timestamp=record.max_timestamp,
        token_id=record.token_id,
        hmac=hmac,
    )
    token.principal_type, _, token.principal_name = record.owner.partition(":")
    if version >= REQUESTER_KNOWN:
        kind, _, name = record.requester.partition(":")
        token.token_requester_principal_type, token.token_requester_principal_name = kind, name
    renewer_of = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
    token.renewers = [renewer_of(*renewer.split(":", 1)) for renewer in record.renewers]
    return token
