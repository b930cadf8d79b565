"""A schema registry for tests over HTTP, as far as Confluent's clients and ours need one."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from unittest import mock

from kraft_pipeline.tables.formats import registry

KEPT = ("schemaType", "references")


class RegistryServer:
    """Schemas by id; `away` answers 503, `refuse` 401. `asked` are the paths in order.

    With `tokens` it also issues tokens (POST /token, client credentials), each valid for that many requests, and
    accepts nothing else. With `tls`, its certificate and key, it speaks TLS. With `authority` it requires clients'
    certificates.
    """

    def __init__(self, *, tokens: int = 0, tls: Path | None = None, authority: Path | None = None) -> None:
        self.tokens, self.given = tokens, list[str]()
        self.secret = "id:secret"
        self._left = 0
        self.headers: list[dict[str, str]] = []
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.redirects = list[str]()
        """Origins to which it redirects the next requests."""
        self.away = False
        self.refuse = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            if authority is not None:
                context.load_verify_locations(authority)
                context.verify_mode = ssl.CERT_REQUIRED
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def serving(self, *, lag_s: float = 0.0) -> Iterator[Self]:
        """`lag_s`: how long clients wait for unknown ids."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            with mock.patch.object(registry, "LAG_S", lag_s):
                yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def add(self, subject: str, schema: Any, **more: Any) -> int:
        """Register a schema; returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        known = {"schema": text, **more}
        if known not in self.schemas:
            self.schemas.append(known)
        number = self.schemas.index(known) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def token(self, authorization: str, form: bytes) -> tuple[int, Any]:
        """A new token (RFC 6749, section 4.4)."""
        wanted = "Basic " + base64.b64encode(self.secret.encode()).decode()
        if authorization != wanted or b"grant_type=client_credentials" not in form:
            return 401, {"error": "invalid_client"}
        self.given.append(f"token-{len(self.given)}")
        self._left = self.tokens
        return 200, {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": 3600}

    def allowed(self, headers: dict[str, str]) -> bool:
        """Whether the request is authorized."""
        self.headers.append(headers)
        if not self.tokens:
            return True
        self._left -= 1
        return bool(self.given) and self._left >= 0 and headers.get("Authorization") == f"Bearer {self.given[-1]}"

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.asked.append(path)
        if self.away or self.refuse:
            return (503, {"message": "away"}) if self.away else (401, {"message": "who are you?"})
        parts = path.partition("?")[0].strip("/").split("/")
        match method, parts:
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case "POST", ["subjects", subject, "versions"] | ["subjects", subject]:
                number = self.add(subject, body["schema"], **{name: body[name] for name in KEPT if body.get(name)})
                version = self.subjects[subject].index(number) + 1
                return 200, {"id": number, "subject": subject, "version": version, **self.schemas[number - 1]}
            case "GET", ["subjects", subject, "versions", version] if subject in self.subjects:
                number = self.subjects[subject][int(version) - 1]
                return 200, {"id": number, "subject": subject, "version": int(version), **self.schemas[number - 1]}
        return 404, {"error_code": 40403, "message": "not found"}


def _handler(server: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if server.redirects:
                self._answer("POST", None)
            elif self.path == "/token":
                self._send(*server.token(self.headers.get("Authorization", ""), body))
            else:
                self._answer("POST", json.loads(body))

        def _answer(self, method: str, body: Any) -> None:
            if server.redirects:
                self.send_response(302)
                self.send_header("Location", server.redirects.pop() + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif not server.allowed(dict(self.headers)):
                self._send(401, {"error_code": 401, "message": "Unauthorized"})
            else:
                self._send(*server.answer(method, self.path, body))

        def _send(self, status: int, found: Any) -> None:
            text = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the class above
            """Logs nothing: tests read `asked`."""

    return Handler
