"""A secured node whose sessions and tokens are shorter than a test, and issuers of such tokens."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kraft_protocol.sasl.oauthbearer import OAUTHBEARER
from tests.compat.security.all_ways import AllWays, Signer, Way
from tests.compat.security.secured import jaas

TOKEN_S = 6
TOKENS = Way("SASL_SSL", OAUTHBEARER)


@contextmanager
def short_sessions(folder: Path) -> Iterator[tuple[AllWays, dict[str, Any]]]:
    """A node, and the fields of a specification that reads it with tokens of a file, which is renewed meanwhile."""
    node = AllWays("kraftcluster", folder / "secured")
    node.target.start()
    ended = threading.Event()
    try:
        access = node.access(TOKENS)
        token = Path(access.TokenFile)
        properties = folder / "client.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in access.java().items()))

        def renew() -> None:
            while not ended.wait(TOKEN_S / 4):
                draft = token.with_suffix(".draft")
                draft.write_text(node.signer.token(TOKEN_S))
                draft.replace(token)

        token.write_text(node.signer.token(TOKEN_S))
        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            yield (
                node,
                {"bootstrapServers": access.Bootstrap, "security": {"propertiesFile": str(properties)}},
            )
        finally:
            ended.set()
            renewing.join()
    finally:
        node.target.kill()


class TokenEndpoint:
    """An OAuth token endpoint on loopback: client credentials for signed tokens of `lifetime_s`."""

    def __init__(self, signer: Signer, lifetime_s: float) -> None:
        endpoint = self
        self.issued = 0
        self.is_refusing = False

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if endpoint.is_refusing:
                    self._answer(401, {"error": "invalid_client"})
                    return
                endpoint.issued += 1
                token = signer.token(lifetime_s)
                self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": lifetime_s})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def properties(self, node: AllWays) -> dict[str, str]:
        """Client properties for the node's listener with TLS."""
        found = node.access(TOKENS).java()
        found["sasl.oauthbearer.token.endpoint.url"] = self.url
        found["sasl.jaas.config"] = jaas(OAUTHBEARER, clientId="reader", clientSecret="planted-client-secret")
        return found

    def __enter__(self) -> TokenEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
