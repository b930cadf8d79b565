"""Catalogs of Iceberg tables: the one of a table at a path, and PyIceberg's (REST, Glue, SQL).

A commit through a catalog is one request with requirements, such as the present snapshot, which the catalog checks. So
the guarantees of a table hold with any catalog that keeps its own. Clients of catalogs raise exceptions of many
libraries; `reachable` turns them into exceptions of a run, which waits or stops.

PyIceberg's client of Hive's metastore has no such condition: it takes a lock, never renews it, and then replaces the
metadata, whatever it is. A writer that is paused for longer than the lock lives would undo the commits of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError, OAuthError, RESTError, UnauthorizedError
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from kraft_pipeline.tables.errors import RefusedError
from kraft_pipeline.tables.iceberg.path import PathCatalog
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.stores.storage import Storage

REQUEST_S: Final = 60.0
"""Limit of a request to a REST catalog, which PyIceberg does not limit."""
REFUSALS: Final = (BadRequestError, ForbiddenError, OAuthError, UnauthorizedError)
DRIVERS: Final = frozenset(
    {
        "botocore.exceptions.BotoCoreError",
        "botocore.exceptions.ClientError",
        "sqlalchemy.exc.DBAPIError",
    }
)
"""Base classes of exceptions that clients of Glue and databases raise; these packages may be missing."""
DENIED: Final = frozenset({"AccessDeniedException", "UnrecognizedClientException", "InvalidClientTokenId"})
"""Codes of AWS for missing permissions and wrong credentials."""
OPTIONS: Final = {
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
}
"""Options of a store -> names that PyIceberg has for them."""


def open_catalog(
    storage: Storage, options: Mapping[str, str], store: Mapping[str, str] | None = None
) -> tuple[Catalog, str]:
    """Open the catalog; returns it and the table's name in it. Without `options`, the table is at its path.

    `store`: options of the object store, for metadata that PyIceberg reads and writes. Raises SpecError for options
    that PyIceberg refuses, RefusedError and OSError.
    """
    if not options:
        return PathCatalog(storage), storage.uri
    known = {OPTIONS[name]: value for name, value in (store or {}).items() if name in OPTIONS}
    given = {**known, **options}
    name = given.pop("name", "")
    if name.count(".") < 1:
        raise SpecError(f"spec.table.catalog.name: {name!r} is not of the form namespace.table")
    if given.get("type") == "hive" or ("type" not in given and given.get("uri", "").startswith("thrift")):
        raise SpecError(
            "spec.table.catalog.type: hive has no conditional commit in PyIceberg, so a paused writer could undo later "
            "commits; Hive's metastore can serve Iceberg's REST protocol: use type: rest"
        )
    try:
        with reachable(name):
            catalog = load_catalog("kraft", **given)
    except (ValueError, ImportError) as e:
        raise SpecError(f"spec.table.catalog: {e}") from None
    if isinstance(catalog, RestCatalog):
        for scheme in ("http://", "https://"):  # an adapter that signs requests has a longer prefix, and remains
            catalog._session.mount(scheme, _Limited())
    return catalog, name


class _Limited(HTTPAdapter):
    """Sends requests that end after REQUEST_S seconds without an answer."""

    def send(self, request: PreparedRequest, *given: Any, **more: Any) -> Response:
        return super().send(request, *given, **{**more, "timeout": more.get("timeout") or REQUEST_S})


@contextmanager
def reachable(name: str) -> Iterator[None]:
    """Translate failures of a catalog: RefusedError if it refuses this client, otherwise ConnectionError.

    After ConnectionError the outcome of a commit is unknown. Conflicts and missing tables keep their exceptions.
    """
    try:
        yield
    except REFUSALS as e:
        raise RefusedError(f"catalog of {name}: {_line(e)}") from e
    except RESTError as e:
        raise ConnectionError(f"catalog of {name}: {_line(e)}") from e
    except Exception as e:
        if not _is_of_driver(e):
            raise
        code = getattr(e, "response", {}).get("Error", {}).get("Code") if hasattr(e, "response") else None
        kind = RefusedError if code in DENIED else ConnectionError
        raise kind(f"catalog of {name}: {_line(e)}") from e


def _is_of_driver(error: Exception) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" in DRIVERS for kind in type(error).__mro__)


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
