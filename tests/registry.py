"""A schema registry of the tests' own over HTTP: what Confluent's clients and ours need of one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class RegistryServer:
    """Schemas by id; `away` answers 503, `refuse` 401. `asked` are the paths in order."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.away = False
        self.refuse = False
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

    def add(self, subject: str, schema: Any, **more: Any) -> int:
        """Register a schema; its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        known = {"schema": text, **more}
        if known not in self.schemas:
            self.schemas.append(known)
        number = self.schemas.index(known) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.asked.append(path)
        if self.away or self.refuse:
            return (503, {"message": "away"}) if self.away else (401, {"message": "who are you?"})
        parts = path.partition("?")[0].strip("/").split("/")
        match method, parts:
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case "POST", ["subjects", subject, "versions"] | ["subjects", subject]:
                number = self.add(subject, body["schema"])
                version = self.subjects[subject].index(number) + 1
                return 200, {"id": number, "subject": subject, "version": version, "schema": body["schema"]}
            case "GET", ["subjects", subject, "versions", version] if subject in self.subjects:
                number = self.subjects[subject][int(version) - 1]
                return 200, {"id": number, "subject": subject, "version": int(version), **self.schemas[number - 1]}
        return 404, {"error_code": 40403, "message": "not found"}


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", None)

        def do_POST(self) -> None:
            self._answer("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, method: str, body: Any) -> None:
            status, found = registry.answer(method, self.path, body)
            text = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the class above
            """The tests look at `asked`."""

    return Handler
