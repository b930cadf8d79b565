"""The mechanism OAUTHBEARER: from the keys `sasl.oauthbearer.*` and a JAAS entry to credentials.

Kept apart from `properties` because it brings HTTP and paths, which only nodes and clients with this mechanism need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from kraft_protocol.sasl import token_endpoint
from kraft_protocol.sasl.client import Credentials, Read, SaslError
from kraft_protocol.sasl.oauthbearer import OAuthToken, unsecured_token


def oauth_credentials(options: Mapping[str, str], read: Read, now_s: Callable[[], float]) -> Credentials:
    """The credentials by the options of a JAAS entry and the keys `sasl.oauthbearer.*`. Raises SaslError."""
    extensions = {
        key.partition("_")[2]: value
        for key, value in options.items()
        if key.startswith(("extension_", "unsecuredLoginExtension_"))
    }
    window = float(read("sasl.login.refresh.window.factor") or 0.8)
    url = read("sasl.oauthbearer.token.endpoint.url")
    if url is None:
        claims = _unsecured_claims(options)

        def make() -> OAuthToken:
            now = now_s()  # truncated below: a server with a coarser clock refuses a token of its future
            expires = now + claims["lifetime"]
            return OAuthToken(unsecured_token({**claims["claims"], "iat": int(now), "exp": expires}), expires)

        return token_endpoint.OauthCredentials(make, now_s, extensions=extensions, is_slow=False, window=window)
    return token_endpoint.OauthCredentials(_fetcher(url, options, read), now_s, extensions=extensions, window=window)


def _unsecured_claims(options: Mapping[str, str]) -> dict[str, Any]:
    """The claims of a token for development, from the options `unsecuredLogin…`. Raises SaslError."""
    claims: dict[str, Any] = {}
    principal = options.get("unsecuredLoginPrincipalClaimName", "sub")
    try:
        for key, value in options.items():
            kind, _, name = key.partition("_")
            if kind == "unsecuredLoginStringClaim":
                claims[name] = value
            elif kind == "unsecuredLoginNumberClaim":
                claims[name] = float(value)
            elif kind == "unsecuredLoginListClaim" and value:
                claims[name] = value[1:].split(value[0])
        lifetime = float(options.get("unsecuredLoginLifetimeSeconds", "3600"))
    except ValueError as error:
        raise SaslError("OAUTHBEARER: a number among the options unsecuredLogin… is malformed") from error
    if not isinstance(claims.get(principal), str):
        raise SaslError(
            "OAUTHBEARER: set sasl.oauthbearer.token.endpoint.url, or for development the option "
            f"unsecuredLoginStringClaim_{principal}"
        )
    return {"claims": claims, "lifetime": lifetime}


def _fetcher(url: str, options: Mapping[str, str], read: Read) -> Callable[[], OAuthToken]:
    if url.startswith("file:"):
        path = url.removeprefix("file://").removeprefix("file:")
        return lambda: token_endpoint.from_file(path)
    context = _context(options)
    quote = (read("sasl.oauthbearer.header.urlencode") or "false").lower() == "true"
    scope = read("sasl.oauthbearer.scope") or options.get("scope")
    form = {"scope": scope} if scope else {}
    timeout_s = int(read("sasl.login.read.timeout.ms") or 10_000) / 1000
    key_file = read("sasl.oauthbearer.assertion.private.key.file")
    assertion_file = read("sasl.oauthbearer.assertion.file")
    client_id = read("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId")
    secret = read("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret")
    if key_file or assertion_file:

        def by_assertion() -> OAuthToken:
            text = (
                Path(assertion_file).read_text(encoding="ascii").strip()
                if assertion_file
                else _signed(read, key_file or "")
            )
            grant = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": text}
            return token_endpoint.fetch(url, {**grant, **form}, timeout_s=timeout_s, context=context)

        return by_assertion
    if not client_id or not secret:
        raise SaslError(
            "OAUTHBEARER: sasl.oauthbearer.client.credentials.client.id and .client.secret are not set, nor the "
            "options clientId and clientSecret"
        )
    basic = (quote_plus(client_id), quote_plus(secret)) if quote else (client_id, secret)
    return lambda: token_endpoint.fetch(
        url, {"grant_type": "client_credentials", **form}, basic=basic, timeout_s=timeout_s, context=context
    )


def _context(options: Mapping[str, str]) -> Any:
    """TLS to the token endpoint by the `ssl.*` options of the JAAS entry, as in Kafka; None: the platform's trust."""
    texts = {key: value for key, value in options.items() if key.startswith("ssl.")}
    if not texts:
        return None
    from kraft_protocol.tls.contexts import client_context  # noqa: PLC0415  (several MiB)
    from kraft_protocol.tls.settings import SslSettings  # noqa: PLC0415

    try:
        return client_context(SslSettings.parse(texts))
    except ValueError as error:
        raise SaslError(f"OAUTHBEARER: option {error}") from None


def _signed(read: Read, key_file: str) -> str:
    claims = {
        "aud": read("sasl.oauthbearer.assertion.claim.aud"),
        "iss": read("sasl.oauthbearer.assertion.claim.iss"),
        "sub": read("sasl.oauthbearer.assertion.claim.sub"),
    }
    given = {name: value for name, value in claims.items() if value is not None}
    if (read("sasl.oauthbearer.assertion.claim.jti.include") or "false").lower() == "true":
        import uuid  # noqa: PLC0415

        given["jti"] = str(uuid.uuid4())
    return token_endpoint.assertion(
        read("sasl.oauthbearer.assertion.algorithm") or "RS256",
        Path(key_file).read_bytes(),
        read("sasl.oauthbearer.assertion.private.key.passphrase"),
        given,
        (
            int(read("sasl.oauthbearer.assertion.claim.nbf.seconds") or 60),
            int(read("sasl.oauthbearer.assertion.claim.exp.seconds") or 300),
        ),
    )
