"""Delegation tokens (KIP-48): their HMAC, which is the password of a login, and which principals may renew them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kraft_node.base.config.view import ConfigView

REQUESTER_KNOWN: Final = 3
"""The first version of CreateDelegationToken and DescribeDelegationToken whose answers name the requester."""


def secret_of(config: ConfigView) -> bytes | None:
    """The secret of all nodes; None if tokens are disabled."""
    password = config.password("delegation.token.secret.key")
    return password.value.encode() if password is not None and password.value else None


def hmac_of(secret: bytes, token_id: str) -> bytes:
    """The HMAC of a token. Records do not have it: each node computes it by the secret."""
    import hmac  # noqa: PLC0415  (brings OpenSSL, which nodes without tokens do without)

    return hmac.digest(secret, token_id.encode(), "sha512")


def may_use(record: Any, principal: str) -> bool:
    """Whether the principal owns the token, has requested it, or may renew it."""
    return principal in (record.owner, record.requester) or principal in record.renewers
