"""Delegation tokens: Create- (38), Renew- (39) and ExpireDelegationToken (40) (KIP-48, KIP-900).

Brokers answer Describe.

A token is a record without its HMAC. Clients name a token by its HMAC, so the controller finds it among the HMACs of
the tokens that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kraft_node.base.request import RequestContext
from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState
from kraft_node.metadata.features import DELEGATION_TOKENS_SUPPORTED
from kraft_node.security.tokens import REQUESTER_KNOWN, hmac_of, may_use, secret_of
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import random_uuid, uuid_text
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kraft_protocol.wire.stored import DelegationTokenRecord, RemoveDelegationTokenRecord

USER: Final = "User"
SWEPT_AT_ONCE: Final = 1000
"""Maximum of expired tokens that are removed in one batch."""
PERIOD_KEY: Final = "delegation.token.expiry.check.interval.ms"

Planner = Callable[[RequestContext, Any], Plan]


class DelegationTokens:
    """Answers the requests about tokens, and removes expired ones."""

    __slots__ = ("_cluster", "_expiry_ms", "_ids", "_lifetime_ms", "_secret", "period_ms")

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster
        config = cluster.static
        self._secret = secret_of(config)
        self._lifetime_ms = config.int("delegation.token.max.lifetime.ms")
        self._expiry_ms = config.int("delegation.token.expiry.time.ms")
        self.period_ms = config.int("delegation.token.expiry.check.interval.ms") if self._secret else 0
        """Between two sweeps; 0: none."""
        self._ids: dict[bytes, str] = {}
        # By HMAC, of all tokens that were looked at; some may exist no more.

    def planners(self) -> Mapping[ApiKey, Planner]:
        """The planner of each API."""
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self.create,
            ApiKey.RENEW_DELEGATION_TOKEN: self.renew,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self.expire,
        }

    def _refusal(self) -> ErrorCode | None:
        if self._secret is None:
            return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        if self._cluster.level < DELEGATION_TOKENS_SUPPORTED:
            return ErrorCode.UNSUPPORTED_VERSION
        return None

    def create(self, ctx: RequestContext, request: CreateDelegationTokenRequest) -> Plan:
        """Plan a token of the requester, or of the owner that the request names."""
        requester = str(ctx.principal)
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        response = CreateDelegationTokenResponse()
        response.principal_type, _, response.principal_name = owner.partition(":")
        if ctx.api_version >= REQUESTER_KNOWN:
            kind, _, name = requester.partition(":")
            response.token_requester_principal_type, response.token_requester_principal_name = kind, name
        refusal = self._refusal()
        if refusal is None and any(renewer.principal_type != USER for renewer in request.renewers):
            refusal = ErrorCode.INVALID_PRINCIPAL_TYPE
        if refusal is not None:
            response.error_code = refusal
            return Plan(response)
        assert self._secret is not None
        now_ms = self._cluster.clock.wall_ms()
        lifetime_ms = self._lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        token_id = uuid_text(random_uuid(self._cluster.rng))
        record = DelegationTokenRecord(
            owner=owner,
            requester=requester,
            renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
            issue_timestamp=now_ms,
            max_timestamp=now_ms + lifetime_ms,
            expiration_timestamp=now_ms + min(lifetime_ms, self._expiry_ms),
            token_id=token_id,
        )
        response.issue_timestamp_ms = now_ms
        response.expiry_timestamp_ms = record.expiration_timestamp
        response.max_timestamp_ms = record.max_timestamp
        response.token_id = token_id
        response.hmac = hmac_of(self._secret, token_id)
        return Plan(response, [record])

    def renew(self, ctx: RequestContext, request: RenewDelegationTokenRequest) -> Plan:
        """Plan another expiry, at most the token's end. The period is the default period unless it is positive."""
        response = RenewDelegationTokenResponse()
        record, refusal = self._found(bytes(request.hmac))
        now_ms = self._cluster.clock.wall_ms()
        if record is not None:
            if _is_expired(record, now_ms):
                refusal = ErrorCode.DELEGATION_TOKEN_EXPIRED
            elif not may_use(record, ctx.principal):
                refusal = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        if refusal is not None:
            response.error_code = refusal
            return Plan(response)
        period_ms = min(request.renew_period_ms, self._expiry_ms) if request.renew_period_ms > 0 else self._expiry_ms
        response.expiry_timestamp_ms = min(record.max_timestamp, now_ms + period_ms)
        return Plan(response, [_expiring(record, response.expiry_timestamp_ms)])

    def expire(self, ctx: RequestContext, request: ExpireDelegationTokenRequest) -> Plan:
        """Plan an expiry; with a negative period the token is removed at once."""
        response = ExpireDelegationTokenResponse()
        record, refusal = self._found(bytes(request.hmac))
        now_ms = self._cluster.clock.wall_ms()
        period_ms = request.expiry_time_period_ms
        if record is not None:
            if not may_use(record, ctx.principal):
                refusal = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            elif period_ms >= 0 and _is_expired(record, now_ms):
                refusal = ErrorCode.DELEGATION_TOKEN_EXPIRED
        if refusal is not None:
            response.error_code = refusal
            return Plan(response)
        if period_ms < 0:
            response.expiry_timestamp_ms = now_ms
            return Plan(response, [RemoveDelegationTokenRecord(token_id=record.token_id)])
        response.expiry_timestamp_ms = min(record.max_timestamp, now_ms + period_ms)
        return Plan(response, [_expiring(record, response.expiry_timestamp_ms)])

    def sweep(self) -> Plan:
        """Plan the removal of expired tokens."""
        now_ms = self._cluster.clock.wall_ms()
        expired = [token_id for token_id, record in self._cluster.view.tokens.items() if _is_expired(record, now_ms)]
        return Plan(None, [RemoveDelegationTokenRecord(token_id=one) for one in expired[:SWEPT_AT_ONCE]])

    def _found(self, hmac: bytes) -> tuple[Any, ErrorCode | None]:
        """The token's record, or the error that refuses the request."""
        refusal = self._refusal()
        if refusal is not None:
            return None, refusal
        tokens = self._cluster.view.tokens
        token_id = self._ids.get(hmac)
        if token_id is None:
            assert self._secret is not None
            known = {one: its_hmac for its_hmac, one in self._ids.items()}
            self._ids = {known.get(one) or hmac_of(self._secret, one): one for one, _ in tokens.items()}
            token_id = self._ids.get(hmac, "")
        record = tokens.get(token_id)
        return record, ErrorCode.DELEGATION_TOKEN_NOT_FOUND if record is None else None


def refuse_description(ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """DescribeDelegationToken on the controller listener: only brokers describe tokens."""
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _is_expired(record: Any, now_ms: int) -> bool:
    return bool(record.max_timestamp < now_ms or record.expiration_timestamp < now_ms)


def _expiring(record: Any, expiry_ms: int) -> DelegationTokenRecord:
    """The record with another expiry."""
    return DelegationTokenRecord(
        owner=record.owner,
        requester=record.requester,
        renewers=list(record.renewers),
        issue_timestamp=record.issue_timestamp,
        max_timestamp=record.max_timestamp,
        expiration_timestamp=expiry_ms,
        token_id=record.token_id,
    )
