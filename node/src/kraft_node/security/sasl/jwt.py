"""Whether a signed token (JWT, RFC 7519) is valid: signature by the issuer's keys, times, issuer, audience.

The rules are those of Kafka's BrokerJwtValidator: `alg` must not be none, `exp`, `iat` and the subject must exist,
`exp` and `nbf` count with a skew, the issuer must be equal, and one audience must match. A token with an audience is
refused if no audience is expected.

joserfc (extra `oauth`) checks signatures. Its import costs some megabytes, so it happens with the first JWT listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kraft_node.security.sasl.jwks import Keys
from kraft_node.security.sasl.oauthbearer import Bearer, TokenRefused, scopes_of
from kraft_protocol.sasl.oauthbearer import seconds_of

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""Signatures with public keys: a secret that the broker shares with the issuer would let the broker make tokens."""

TOKEN_CHARACTERS_MAX: Final = 64 * 1024


class JwtRules(NamedTuple):
    """What a token must have."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class JwtValidator:
    """Checks tokens by the keys in `keys`. Raises ValueError if joserfc is missing."""

    is_slow = False
    """A signature takes less than 0.2 ms."""

    def __init__(self, rules: JwtRules, keys: Keys, now_ms: Callable[[], int]) -> None:
        try:
            import joserfc  # noqa: F401, PLC0415
        except ImportError:
            raise ValueError("signed tokens need the package joserfc: install kraftcluster[oauth]") from None
        self._rules, self._keys, self._now_ms = rules, keys, now_ms

    def validate(self, token: str) -> Bearer:
        """See `TokenValidator`."""
        claims = self._verified(token)
        rules, now_s = self._rules, self._now_ms() / 1000
        expires, issued, begins = (_time(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or issued is None:
            raise TokenRefused("claim exp or iat is missing")
        if now_s - rules.skew_s >= expires:
            raise TokenRefused("claim exp is in the past")
        if begins is not None and now_s + rules.skew_s < begins:
            raise TokenRefused("claim nbf is in the future")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise TokenRefused("claim iss is not sasl.oauthbearer.expected.issuer")
        self._check_audience(claims.get("aud"))
        subject = claims.get(rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"claim {rules.subject_claim} is missing")
        scopes_of(claims.get(rules.scope_claim))
        return Bearer(subject.strip(), int(expires * 1000))

    def _check_audience(self, claim: Any) -> None:
        if claim is None:
            audiences: Any = []
        else:
            audiences = [claim] if isinstance(claim, str) else claim
        if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
            raise TokenRefused("claim aud is malformed")
        if self._rules.audiences:
            if not set(audiences).intersection(self._rules.audiences):
                raise TokenRefused("claim aud has no audience of sasl.oauthbearer.expected.audience")
        elif audiences:
            raise TokenRefused("claim aud exists, but sasl.oauthbearer.expected.audience is not set")

    def _verified(self, token: str) -> Mapping[str, Any]:
        """The claims of a token with a valid signature."""
        from joserfc import jws, jwt  # noqa: PLC0415
        from joserfc.errors import JoseError  # noqa: PLC0415

        if len(token) > TOKEN_CHARACTERS_MAX or token.count(".") != 2:
            raise TokenRefused("not a signed JWT of three parts")
        try:
            header = jws.extract_compact(token.encode()).headers()
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in ALGORITHMS:
                raise TokenRefused(f"algorithm {str(algorithm)[:20]!r} is not accepted")
            key = self._keys.find(kid if isinstance(kid, str) else None)
            if key is None:
                raise TokenRefused(f"no key for kid {str(kid)[:64]!r}")
            return jwt.decode(token, key, algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(f"signature or form is invalid ({type(error).__name__})") from None


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    try:
        return seconds_of(claims, name)
    except ValueError as error:
        raise TokenRefused(f"claim {error}") from None
