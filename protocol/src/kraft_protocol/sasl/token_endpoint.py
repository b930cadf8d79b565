"""A client's tokens for OAUTHBEARER: from an endpoint (RFC 6749 credentials, RFC 7523 assertions), or from a file."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kraft_protocol.client.redirects import opened
from kraft_protocol.sasl.client import Exchange, SaslError
from kraft_protocol.sasl.oauthbearer import (
    OAUTHBEARER,
    OauthExchange,
    OAuthToken,
    expiry_of,
    read_segment,
    seconds_of,
    write_first,
)

ANSWER_BYTES_MAX: Final = 1 << 20
DOCUMENT_BYTES_MAX: Final = 4 << 20
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class OauthCredentials:
    """Tokens from `fetch`, which may wait. A token is used until it has spent `window` of its time."""

    mechanism = OAUTHBEARER

    def __init__(
        self,
        fetch: Callable[[], OAuthToken],
        now_s: Callable[[], float],
        *,
        extensions: Mapping[str, str] | None = None,
        is_slow: bool = True,
        window: float = 0.8,
    ) -> None:
        self.is_slow = is_slow
        self._fetch, self._now_s, self._window = fetch, now_s, window
        self._extensions = dict(extensions or {})
        self._lock = threading.Lock()
        self._token: OAuthToken | None = None
        self._renew_s = 0.0

    @property
    def user(self) -> str:
        """The subject of the present token."""
        try:
            return str(read_segment(self.token().split(".")[1]).get("sub", ""))
        except (ValueError, IndexError):
            return ""

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002
        """An exchange with the present token; fetches a new one first if its time has come."""
        return OauthExchange(write_first(self.token(), self._extensions))

    def token(self) -> str:
        """A token that is valid now. Raises SaslError, OSError."""
        with self._lock:
            now = self._now_s()
            if self._token is None or now >= self._renew_s:
                try:
                    self._token = self._fetch()
                except (OSError, SaslError):
                    if self._token is None or now >= self._token.expires_s:
                        raise
                    self._renew_s = min(now + 10, self._token.expires_s)
                else:
                    self._renew_s = now + (self._token.expires_s - now) * self._window
            return self._token.value


def fetch(
    url: str,
    form: Mapping[str, str],
    *,
    basic: tuple[str, str] | None = None,
    timeout_s: float = 10.0,
    context: Any = None,
) -> OAuthToken:
    """Post a form to a token endpoint and return its token. Raises SaslError, OSError.

    `basic`: client id and secret for the Authorization header. `context`: of TLS.
    """
    if not url.startswith(("http://", "https://")):
        raise SaslError(f"OAUTHBEARER: {url}: the token endpoint must be an http or https URL")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if basic is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(basic).encode()).decode()
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers)  # noqa: S310
    try:
        with opened(request, timeout_s=timeout_s, context=context) as answer:
            body = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            reason = _reason(error.read(ANSWER_BYTES_MAX))
        raise SaslError(f"OAUTHBEARER: {url} answers {error.code}{reason}") from None
    return read_answer(url, body)


def read_answer(url: str, body: bytes) -> OAuthToken:
    """The token in the answer of the endpoint at `url`. Raises SaslError."""
    try:
        answer = json.loads(body)
        token = answer["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SaslError(f"OAUTHBEARER: the answer of {url} has no access_token") from None
    if not isinstance(token, str) or not token:
        raise SaslError(f"OAUTHBEARER: the answer of {url} has no access_token")
    if token.count(".") == 2:
        return OAuthToken(token, expiry_of(token))
    try:
        lifetime_s = seconds_of(answer, "expires_in")
    except ValueError as error:
        raise SaslError(f"OAUTHBEARER: the answer of {url}: {error}") from None
    if lifetime_s is not None:
        return OAuthToken(token, time.time() + lifetime_s)
    raise SaslError(
        f"OAUTHBEARER: {url} answers without expires_in, and its token is not a JWT, so the expiry is unknown"
    )


def _reason(body: bytes) -> str:
    """The error code of RFC 6749, which has no secrets, as `: code`."""
    try:
        code = json.loads(body).get("error", "")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return f": {code}" if isinstance(code, str) and len(code) < 100 else ""


def from_file(path: str) -> OAuthToken:
    """The token in a file, which others renew. Raises SaslError, OSError."""
    token = Path(path).read_text(encoding="ascii", errors="replace").strip()
    return OAuthToken(token, expiry_of(token))


def assertion(
    algorithm: str, private_key: bytes, passphrase: str | None, claims: Mapping[str, Any], lifetime: tuple[int, int]
) -> str:
    """A signed assertion about the client; `lifetime`: seconds before and after now. Needs the extra `oauth`."""
    try:
        from joserfc import jwk, jwt  # noqa: PLC0415
    except ImportError:
        raise SaslError("OAUTHBEARER: assertions need the package joserfc: install kraftcluster[oauth]") from None
    kind: Callable[..., Any] = jwk.RSAKey.import_key if algorithm == "RS256" else jwk.ECKey.import_key
    try:
        key = kind(private_key, password=passphrase)
    except (ValueError, TypeError) as error:
        raise SaslError(f"OAUTHBEARER: the private key cannot be read: {type(error).__name__}") from None
    now = int(time.time())
    before, after = lifetime
    return jwt.encode(
        {"alg": algorithm, "typ": "JWT"}, {"iat": now, "nbf": now - before, "exp": now + after, **claims}, key
    )


def read_document(url: str, timeout_s: float = 10.0) -> bytes:
    """The document at an http, https or file URL. Raises OSError, ValueError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return Path(urllib.parse.unquote(parts.path)).read_bytes()
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{url}: the URL must begin with http, https or file")
    with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310
        body: bytes = answer.read(DOCUMENT_BYTES_MAX)
        return body
