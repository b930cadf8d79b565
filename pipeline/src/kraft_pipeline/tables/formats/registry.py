"""A Confluent-compatible schema registry, asked for schemas by id; what it said once holds for ever."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from kraft_pipeline.client.cluster import Patience
from kraft_pipeline.tables.errors import RefusedError

REQUEST_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
SCHEMAS_MAX: Final = 1000
"""Kept by a process: far more than a topic has; the oldest goes first."""
REFERENCES_MAX: Final = 100
"""Of one schema, with all that these refer to."""
ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
UNKNOWN: Final = frozenset({40401, 40402, 40403, 42202})
"""The registry's codes for a subject, a version or a schema that it does not have."""
_KNOWN: Final[dict[tuple[str, int], Registered]] = {}


class UnknownSchemaError(Exception):
    """There is no such schema, or it is none of Avro; the message says which and where."""


class Registered(NamedTuple):
    """A schema, and those that it refers to, each before those that need it, as JSON."""

    schema: str
    references: tuple[str, ...]


class Registry:
    """One registry, which may have several addresses."""

    def __init__(self, urls: str, auth: str = "", *, retry_s: float = 120.0) -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",")]
        self._retry_s = retry_s
        self._headers = {"Accept": ACCEPT}
        if auth:
            self._headers["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
        self._missing: dict[int, str] = {}

    def schema(self, number: int) -> Registered:
        """The schema of an id. Raises UnknownSchemaError; ClientError when nobody answers for `retry_s`."""
        known = _KNOWN.get((self._urls[0], number))
        if known is not None:
            return known
        if number in self._missing:
            raise UnknownSchemaError(self._missing[number])
        try:
            found = self._registered(number)
        except UnknownSchemaError as e:
            self._missing[number] = str(e)
            raise
        if len(_KNOWN) >= SCHEMAS_MAX:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[self._urls[0], number] = found
        return found

    def _registered(self, number: int) -> Registered:
        what = f"schema {number} of {self._urls[0]}"
        answer = self._ask(f"/schemas/ids/{number}", what)
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise UnknownSchemaError(f"{what} is of type {answer['schemaType']}, not AVRO")
        references: dict[tuple[str, int], str] = {}
        try:
            self._refer(answer, references, what)
        except (KeyError, TypeError, ValueError) as e:
            raise UnknownSchemaError(f"{what} has references that are none: {e!r}") from None
        return Registered(answer["schema"], tuple(references.values()))

    def _refer(self, answer: Mapping[str, Any], found: dict[tuple[str, int], str], what: str) -> None:
        for reference in answer.get("references", ()):
            key = (str(reference["subject"]), int(reference["version"]))
            if key not in found:
                if len(found) >= REFERENCES_MAX:
                    raise UnknownSchemaError(f"{what} refers to more than {REFERENCES_MAX} others")
                inner = self._ask(f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}", what)
                self._refer(inner, found, what)
                found[key] = inner["schema"]

    def _ask(self, path: str, what: str) -> dict[str, Any]:
        patience = Patience(f"schema registry: {what}", self._retry_s)
        while True:
            error: Exception = ConnectionError("no address is given")
            for url in self._urls:
                try:
                    return self._answer(url + path, what)
                except (OSError, HTTPException, ValueError) as e:  # HTTPError, too: 5xx and 429
                    error = e
            patience.failed(error)

    def _answer(self, url: str, what: str) -> dict[str, Any]:
        try:
            # The scheme is http or https: the spec is held to that.
            with urlopen(Request(url, headers=self._headers), timeout=REQUEST_S) as answer:  # noqa: S310
                found = json.loads(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as e:
            with e:
                if e.code in {404, 422} and _error_code(e) in UNKNOWN:
                    raise UnknownSchemaError(f"{what} is not there") from None
                if e.code == 404:  # of a proxy, say: it knows nothing of schemas
                    raise ConnectionError("404 and no registry's answer: is the URL right?") from None
                if 400 <= e.code < 500 and e.code not in {408, 429}:
                    raise RefusedError(f"schema registry: {what}: {e.code} {e.reason}") from None
                raise ConnectionError(f"{e.code} {e.reason}") from None
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise ValueError(f"{url} answers something else than a schema")
        return found


def _error_code(answer: HTTPError) -> int:
    """What the registry itself says is wrong; 0 where another server answers."""
    try:
        found = json.loads(answer.read(ANSWER_BYTES_MAX))
    except (OSError, HTTPException, ValueError):
        return 0
    code = found.get("error_code") if isinstance(found, dict) else None
    return code if isinstance(code, int) else 0
