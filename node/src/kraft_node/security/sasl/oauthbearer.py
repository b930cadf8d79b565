"""OAUTHBEARER (RFC 7628): the exchange, and tokens without signatures for development."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from kraft_node.security.sasl.exchange import USER, InvalidCredentials, SaslIdentity, SaslRefused, ServerExchange
from kraft_protocol.sasl.oauthbearer import parse_first, read_segment, seconds_of

INVALID_TOKEN: Final = "invalid_token"  # noqa: S105
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
_KVSEP: Final = b"\x01"


class Bearer(NamedTuple):
    """The content of a valid token."""

    name: str
    """The name of the principal."""
    expires_ms: int


class TokenRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The token is not valid; `reason` is for the log of this node and has no part of the token."""

    def __init__(self, reason: str, *, status: str = INVALID_TOKEN, scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class TokenValidator(Protocol):
    """Judges tokens."""

    @property
    def is_slow(self) -> bool:
        """Whether `validate` computes for milliseconds."""

    def validate(self, token: str) -> Bearer:
        """The content of a valid token. Raises TokenRefused."""


class OauthBearer:
    """The mechanism of a listener."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator

    def exchange(self) -> ServerExchange:
        """An exchange of one message, or of two if the token is not valid."""
        return _OauthExchange(self._validator)


class _OauthExchange:
    __slots__ = ("_failure", "_validator", "identity")

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._failure = ""
        self.identity: SaslIdentity | None = None

    @property
    def is_slow(self) -> bool:
        return self._validator.is_slow

    def respond(self, token: bytes) -> bytes:
        if token == _KVSEP and self._failure:
            raise SaslRefused(self._failure)
        self._failure = ""
        try:
            message = parse_first(token)
        except ValueError as error:
            text = "Invalid OAUTHBEARER client first message" if isinstance(error, UnicodeError) else str(error)
            raise InvalidCredentials(text) from None
        try:
            bearer = self._validator.validate(message.token)
        except TokenRefused as refusal:
            parts = {"status": refusal.status, "scope": refusal.scope}
            self._failure = json.dumps({key: value for key, value in parts.items() if value}, separators=(",", ":"))
            return self._failure.encode()
        if message.authzid not in ("", bearer.name):
            raise SaslRefused(
                f"Authentication failed: Client requested an authorization id ({message.authzid}) that is different "
                f"from the token's principal name ({bearer.name})"
            )
        self.identity = SaslIdentity(USER + bearer.name, bearer.expires_ms)
        return b""


class UnsecuredTokens:
    """Accepts tokens without signatures, as Kafka's default does. For development only."""

    is_slow = False

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """`options`: of the JAAS entry. Raises ValueError."""
        self._now_ms = now_ms
        self._principal_claim = options.get("unsecuredValidatorPrincipalClaimName", "sub")
        self._scope_claim = options.get("unsecuredValidatorScopeClaimName", "scope")
        self._required = options.get("unsecuredValidatorRequiredScope", "").split()
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
        if not skew.isdecimal():
            raise ValueError(f"unsecuredValidatorAllowableClockSkewMs must be milliseconds, not {skew!r}")
        self._skew_ms = int(skew)

    def validate(self, token: str) -> Bearer:
        """See `TokenValidator`."""
        try:
            header, payload, signature = token.split(".")
            algorithm, claims = read_segment(header).get("alg"), read_segment(payload)
        except ValueError:
            raise TokenRefused("not an unsecured JWT") from None
        if algorithm != "none" or signature:
            raise TokenRefused("not an unsecured JWT: alg must be none, without a signature")
        name = claims.get(self._principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenRefused(f"claim {self._principal_claim} is missing")
        try:
            expires, issued = seconds_of(claims, "exp"), seconds_of(claims, "iat")
        except ValueError as error:
            raise TokenRefused(f"claim {error}") from None
        now_s, skew_s = self._now_ms() / 1000, self._skew_ms / 1000
        if expires is None or now_s - skew_s >= expires:
            raise TokenRefused("claim exp is missing or in the past")
        if issued is not None and issued > now_s + skew_s:
            raise TokenRefused("claim iat is not a time in the past")
        missing = set(self._required) - scopes_of(claims.get(self._scope_claim))
        if missing:
            raise TokenRefused("scope is missing", status=INSUFFICIENT_SCOPE, scope=" ".join(self._required))
        return Bearer(name, int(expires * 1000))


def scopes_of(claim: object) -> set[str]:
    """The scopes of a claim: a text with spaces, or a list."""
    if isinstance(claim, str):
        return set(claim.split())
    if not isinstance(claim, list):
        return set()
    return {one.strip() for one in claim if isinstance(one, str) and one.strip()}
