"""Authentication of a client of a schema registry: TLS certificates, a password, a token, or OAuth."""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request

from kraft_pipeline.tables.errors import RefusedError
from kraft_pipeline.tables.formats.valuespec import Access, OAuth
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_protocol.client.redirects import opened
from kraft_protocol.sasl.oauthbearer import seconds_of

REQUEST_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1 << 20
EARLY_S: Final = 30.0
"""Seconds before a token's end at which it is renewed, or half its lifetime if this is shorter."""
LASTS_S: Final = 300.0
"""Lifetime of a token in seconds if the answer does not give it."""


def tls_of(access: Access) -> ssl.SSLContext:
    """The TLS context of connections. Raises SpecError for invalid certificates."""
    try:
        context = ssl.create_default_context(cadata=access.ca or None)
        if access.certificate:
            _with_certificate(context, access)
    except (ssl.SSLError, ValueError) as e:
        raise SpecError(f"spec.value.registry.tls: {e}") from None
    return context


def _with_certificate(context: ssl.SSLContext, access: Access) -> None:
    """Load the client's certificate through a temporary file, because ssl does not load it from memory."""
    handle, path = tempfile.mkstemp(suffix=".pem")  # readable by this user only
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{access.certificate}\n{access.key}")
        context.load_cert_chain(path)
    finally:
        os.unlink(path)


class Credentials:
    """The headers of requests to one registry."""

    def __init__(self, auth: str, access: Access, context: ssl.SSLContext | None) -> None:
        """`auth`: user:password, or ""."""
        self._context, self._oauth = context, access.oauth
        self._fixed: dict[str, str] = {}
        self._token, self._until = "", 0.0
        if auth:
            self._fixed["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
        elif access.token:
            self._fixed["Authorization"] = f"Bearer {access.token}"
        if access.oauth is not None:
            named = {"target-sr-cluster": access.oauth.cluster, "Confluent-Identity-Pool-Id": access.oauth.pool}
            self._fixed |= {name: value for name, value in named.items() if value}

    def headers(self) -> Mapping[str, str]:
        """Headers of a request. Raises RefusedError, and OSError if the token endpoint is unreachable."""
        if self._oauth is None:
            return self._fixed
        if time.monotonic() >= self._until:
            self._token, lasts = _token(self._oauth, self._context)
            self._until = time.monotonic() + max(lasts - EARLY_S, lasts / 2)
        return {**self._fixed, "Authorization": f"Bearer {self._token}"}

    def renew(self) -> bool:
        """Discard the token, so the next request gets a new token. Returns False without a token to renew."""
        fresh = self._oauth is None or not self._token
        self._token, self._until = "", 0.0
        return not fresh


def _token(given: OAuth, context: ssl.SSLContext | None) -> tuple[str, float]:
    """Request a token. Returns it and its lifetime in seconds. Raises RefusedError and OSError."""
    form = {"grant_type": "client_credentials", **({"scope": given.scope} if given.scope else {})}
    client = f"{quote(given.client_id, safe='')}:{quote(given.secret, safe='')}"
    headers = {
        "Authorization": "Basic " + base64.b64encode(client.encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    request = Request(given.token_url, urlencode(form).encode(), headers)  # noqa: S310 - http or https, by the spec
    what = f"tokens of {given.token_url}"
    try:
        with opened(request, timeout_s=REQUEST_S, context=context) as answer:
            found = json.loads(answer.read(ANSWER_BYTES_MAX))
    except HTTPError as e:
        with e:
            if 400 <= e.code < 500 and e.code not in {408, 429}:
                raise RefusedError(f"{what}: {e.code} {e.reason}") from None
            raise ConnectionError(f"{what}: {e.code} {e.reason}") from None
    except (HTTPException, ValueError) as e:
        raise ConnectionError(f"{what}: {e}") from None
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str) or not token.isprintable():
        raise ConnectionError(f"{what}: the answer has no access_token")
    try:
        lasts = seconds_of(found, "expires_in")
    except ValueError:
        lasts = None
    return token, lasts if lasts is not None and lasts > 0 else LASTS_S
