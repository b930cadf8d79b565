"""Client of a Confluent-compatible schema registry: schemas by id, cached, because an id never changes its schema."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

from kraft_pipeline.tables.errors import RefusedError
from kraft_pipeline.tables.formats.credentials import Credentials, tls_of
from kraft_pipeline.tables.formats.valuespec import Access, ValueSpec
from kraft_protocol.client.cluster import RetryBudget
from kraft_protocol.client.redirects import opened, origin

REQUEST_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
SCHEMAS_MAX: Final = 1000
"""Schemas that a process caches; the oldest is evicted first."""
REFERENCES_MAX: Final = 100
"""Maximum references of one schema, including indirect references."""
ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
UNKNOWN: Final = frozenset({40401, 40402, 40403, 42202})
"""The registry's error codes for an unknown subject, version or schema."""
FORMS: Final = {"PROTOBUF": "?format=serialized"}
"""Form of the request for a schema: protobuf as a descriptor if the registry supports it, else as the text of a
file."""
_KNOWN: Final[dict[tuple[str, int, str], Registered]] = {}
LAG_S: Final = 5.0
"""How long requests for an id are repeated. A producer registers a schema before it writes values, so a registry
without the schema is probably a replica that lags behind."""
LAG_PAUSE_S: Final = 0.5
LAGS_MAX: Final = 6
"""Ids for which a process waits within LAGS_S, so that values with arbitrary bytes do not stop it."""
LAGS_S: Final = 600.0
_AWAITED: Final[dict[tuple[str, int, str], float]] = {}
"""When the process began to wait for an id, in seconds of the monotonic clock."""


class UnknownSchemaError(Exception):
    """The schema does not exist or is of another type; the message names the schema and the registry."""


class AbsentSchemaError(UnknownSchemaError):
    """No address has the schema, at least not yet."""


class Registered(NamedTuple):
    """A schema and its references as texts; a reference comes before the schemas that need it."""

    schema: str
    references: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Names of the `references`: paths of imports, or URIs."""


class Registry:
    """A registry, which may have several addresses."""

    def __init__(self, urls: str, auth: str = "", *, retry_s: float = 120.0, access: Access | None = None) -> None:
        """`urls`: addresses separated by commas; `auth`: user:password or "". Raises SpecError for bad certificates."""
        self._urls = [url.strip().rstrip("/") for url in urls.split(",")]
        self._retry_s, access = retry_s, access or Access()
        self._context = tls_of(access) if any(url.startswith("https://") for url in self._urls) else None
        self._credentials = Credentials(auth, access, self._context)
        self._missing: dict[int, str] = {}

    @classmethod
    def of(cls, spec: ValueSpec, *, retry_s: float) -> Registry:
        """The registry in a specification."""
        return cls(spec.registry, spec.registry_auth, retry_s=retry_s, access=spec.access)

    def schema(self, number: int, kind: str = "AVRO") -> Registered:
        """The schema of an id.

        Raises UnknownSchemaError if all addresses answer, also after LAG_S, that it does not exist. Raises ClientError
        if no address has it and an address does not answer for `retry_s`.
        """
        known = _KNOWN.get((self._urls[0], number, kind))
        if known is not None:
            return known
        if number in self._missing:
            raise UnknownSchemaError(self._missing[number])
        try:
            found = self._awaited(number, kind)
        except UnknownSchemaError as e:
            self._missing[number] = str(e)
            raise
        if len(_KNOWN) >= SCHEMAS_MAX:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[self._urls[0], number, kind] = found
        return found

    def _awaited(self, number: int, kind: str) -> Registered:
        """As `_registered`, repeated for LAG_S while no address has the schema."""
        end = 0.0
        while True:
            try:
                return self._registered(number, kind)
            except AbsentSchemaError:
                now = time.monotonic()
                end = end or _end_of_wait((self._urls[0], number, kind), now)
                if now >= end:
                    raise
                time.sleep(LAG_PAUSE_S)

    def _registered(self, number: int, kind: str) -> Registered:
        what, form = f"schema {number} of {self._urls[0]}", FORMS.get(kind, "")
        answer = self._ask(f"/schemas/ids/{number}{form}", what)
        if answer.get("schemaType", "AVRO") != kind:
            raise UnknownSchemaError(f"{what} is of type {answer.get('schemaType', 'AVRO')}, not {kind}")
        references: dict[tuple[str, int], tuple[str, str]] = {}
        try:
            self._refer(answer, references, what, form, ())
        except (KeyError, TypeError, ValueError) as e:
            raise UnknownSchemaError(f"{what} has invalid references: {e!r}") from None
        names, texts = zip(*references.values(), strict=True) if references else ((), ())
        return Registered(answer["schema"], tuple(texts), tuple(names))

    def _refer(
        self,
        answer: Mapping[str, Any],
        found: dict[tuple[str, int], tuple[str, str]],
        what: str,
        form: str,
        within: tuple[tuple[str, int], ...],
    ) -> None:
        """Add the references of an answer to `found`; `within`: the references that lead to it."""
        for reference in answer.get("references") or ():
            key = (str(reference["subject"]), int(reference["version"]))
            if key in within:
                raise UnknownSchemaError(f"{what} refers to itself by {key[0]}, version {key[1]}")
            if key not in found:
                if len(found) + len(within) >= REFERENCES_MAX:
                    raise UnknownSchemaError(f"{what} refers to more than {REFERENCES_MAX} others")
                inner = self._ask(f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}{form}", what)
                self._refer(inner, found, what, form, (*within, key))
                found[key] = str(reference["name"]), inner["schema"]

    def _ask(self, path: str, what: str) -> dict[str, Any]:
        """The answer of the first address that has the requested object. A replica may lag behind the others."""
        budget = RetryBudget(f"schema registry: {what}", self._retry_s)
        while True:
            error: Exception | None = None
            unknown: UnknownSchemaError = AbsentSchemaError(f"{what}: no address is given")
            for url in self._urls:
                try:
                    return self._answer(url + path, what)
                except UnknownSchemaError as e:
                    unknown = e
                except (OSError, HTTPException, ValueError) as e:  # HTTPError, too: 5xx and 429
                    error = e
            if error is None:
                raise unknown
            budget.failed(error)

    def _answer(self, url: str, what: str) -> dict[str, Any]:
        try:
            headers = {"Accept": ACCEPT, **self._credentials.headers()}
            request = Request(url, headers=headers)  # noqa: S310 - http or https, by the spec
            with opened(request, timeout_s=REQUEST_S, context=self._context) as answer:
                found = json.loads(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as e:
            with e:
                if e.code in {404, 422} and _error_code(e) in UNKNOWN:
                    raise AbsentSchemaError(f"{what} does not exist") from None
                if e.code == 404:  # for example from a proxy, which does not know schemas
                    raise ConnectionError("404 and no registry's answer: is the URL right?") from None
                if e.code == 401 and self._credentials.renew():
                    raise ConnectionError("401: the token has ended") from None
                if 400 <= e.code < 500 and e.code not in {408, 429}:
                    there = f" at {e.url}, where it was redirected" if origin(e.url) != origin(url) else ""
                    raise RefusedError(f"schema registry: {what}: {e.code} {e.reason}{there}") from None
                raise ConnectionError(f"{e.code} {e.reason}") from None
        except URLError as e:
            if isinstance(e.reason, ssl.SSLCertVerificationError):
                raise RefusedError(f"schema registry: {url}: {e.reason.verify_message}") from None
            raise
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise ValueError(f"{url} does not answer with a schema")
        return found


def _end_of_wait(key: tuple[str, int, str], now: float) -> float:
    """Until when to repeat requests for a schema; `now` if this process has waited for it before, or too often."""
    for old in [one for one, begun in _AWAITED.items() if begun < now - LAGS_S]:
        del _AWAITED[old]
    if key in _AWAITED or len(_AWAITED) >= LAGS_MAX:
        return now
    _AWAITED[key] = now
    return now + LAG_S


def _error_code(answer: HTTPError) -> int:
    """The registry's error code; 0 if the answer is not a registry's."""
    try:
        found = json.loads(answer.read(ANSWER_BYTES_MAX))
    except (OSError, HTTPException, ValueError):
        return 0
    code = found.get("error_code") if isinstance(found, dict) else None
    return code if isinstance(code, int) else 0
