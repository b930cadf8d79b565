"""An Iceberg REST catalog for tests over HTTP: the API of its OpenAPI document as far as PyIceberg asks for it.

PyIceberg's SQL catalog keeps the tables, and checks the requirements of commits.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

from tests.peer import QUICK_JVM, missing
from tools import peers

Answer = tuple[int, Any]
TOKENS, TOKEN = "/oidc/tokens", "granted"
CODES = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


class CatalogServer:
    """`asked` are the requests in order. `commits`: called instead of the next commits, with the commit itself."""

    def __init__(self, path: Path) -> None:
        self.sql = SqlCatalog("server", uri=f"sqlite:///{path}/rest.db?check_same_thread=false")
        self.asked: list[str] = []
        self.commits: list[Callable[[Callable[[], Answer]], Answer]] = []
        self.refuse = 0
        """Status of all answers; 0 for real answers."""
        self.credential = ""
        """`id:secret` that clients exchange for a token (OAuth); "" for a catalog that is open to all."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator[Self]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
            self.sql.close()

    def token(self, form: str) -> Answer:
        """The answer to a request for a token."""
        given = {name: found[0] for name, found in parse_qs(form).items()}
        self.asked.append(f"token {given.get('scope')}")
        if f"{given.get('client_id')}:{given.get('client_secret')}" != self.credential:
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600}

    def answer(self, method: str, path: str, body: Any) -> Answer:
        self.asked.append(f"{method} {path}")
        if self.refuse:
            return self.refuse, failure(self.refuse, "Refused")
        parts = path.partition("?")[0].removeprefix("/v1/").split("/")
        if method == "POST" and len(parts) == 4 and self.commits:
            return self.commits.pop(0)(lambda: self._safely(method, parts, body))
        return self._safely(method, parts, body)

    def _safely(self, method: str, parts: list[str], body: Any) -> Answer:
        try:
            with self._lock:
                return self._answer(method, parts, body)
        except tuple(CODES) as e:
            return CODES[type(e)], failure(CODES[type(e)], type(e).__name__, str(e))

    def _answer(self, method: str, parts: list[str], body: Any) -> Answer:
        match method, parts:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                self.sql.create_namespace(tuple(body["namespace"]))
                return 200, {"namespace": body["namespace"], "properties": {}}
            case "POST", ["namespaces", space, "tables"]:
                schema, spec = (
                    Schema.model_validate(body["schema"]),
                    PartitionSpec.model_validate(body["partition-spec"]),
                )
                name = f"{space}.{body['name']}"
                table = self.sql.create_table(name, schema, body["location"], spec, properties=body["properties"])
                return 200, _described(table)
            case "GET", ["namespaces", space, "tables", name]:
                return 200, _described(self.sql.load_table(f"{space}.{name}"))
            case "POST", ["namespaces", space, "tables", name]:
                request = CommitTableRequest.model_validate(body)
                self.sql.commit_table(self.sql.load_table(f"{space}.{name}"), request.requirements, request.updates)
                return 200, _described(self.sql.load_table(f"{space}.{name}"))
            case "DELETE", ["namespaces", space, "tables", name]:
                self.sql.drop_table(f"{space}.{name}")
                return 204, None
        return 404, failure(404, "NotFound", "/".join(parts))


@contextmanager
def apache_catalog(folder: Path) -> Iterator[str]:
    """The URL of a REST catalog with Apache Iceberg's own handlers (tests/java/IcebergRestServer.java)."""
    if not peers.lakehouse_installed():
        missing("Iceberg's jar", "`python tools/peers.py lakehouse` installs it (needs Maven)")
    jars = [*(peers.lakehouse() / "lib").glob("iceberg-*.jar")]
    jars += (peers.lakehouse() / "python/pyspark/jars").glob("slf4j-api-*.jar")
    source = peers.ROOT / "tests/java/IcebergRestServer.java"
    command = ["java", *QUICK_JVM[:2], "-cp", ":".join(map(str, jars)), str(source), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def failure(code: int, kind: str, message: str = "") -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"message": message, "type": kind, "code": code}}


def _described(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json(exclude_none=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _handler(server: CatalogServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def do_DELETE(self) -> None:
            self._answer("DELETE")

        def _answer(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            if self.path == TOKENS:
                status, found = server.token(body)
            elif server.credential and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, found = 401, failure(401, "NotAuthorizedException")
            else:
                status, found = server.answer(method, self.path, json.loads(body) if body else None)
            if not status:  # the connection breaks
                self.close_connection = True
                return
            text = b"" if found is None else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the class above
            """Logs nothing: tests read `asked`."""

    return Handler
