"""Azure's blob storage for one test: Azurite, Microsoft's emulator, a child process with all data in memory.

Azurite ignores `startFrom`, by which Azure's list of blobs begins at a name. deltalake relies on it, so a proxy leaves
out the names before it.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.peer import missing
from tools import peers

START_S = 120.0
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's account and key, which are the same everywhere."""
VERSION = "2021-08-06"


@contextmanager
def azure_store(folder: Path, container: str) -> Iterator[dict[str, str]]:
    """A running store with a container; yields the value of `table.storageOptions`."""
    if not peers.azurite_installed():
        missing("Azurite", "`python tools/peers.py azurite` installs it (needs npm)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["node", str(peers.azurite()), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    log = folder / "azurite.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--inMemoryPersistence", "--skipApiVersionCheck"], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        _create(port, container, process, log)
        with _proxy(port) as front:
            yield {
                "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": KEY,
                "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{front}/{ACCOUNT}",
            }
    finally:
        process.kill()
        process.wait()


def _create(port: int, container: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Create the container once the emulator accepts requests."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("PUT", f"/{ACCOUNT}/{container}?restype=container", headers=_signed(container))
            answer = connection.getresponse()
        except ConnectionError:
            time.sleep(0.05)
            continue
        reported = answer.read()
        connection.close()
        assert answer.status == 201, reported
        return
    raise AssertionError(f"Azurite has not started: {log.read_text()}")


@contextmanager
def _proxy(port: int) -> Iterator[int]:
    """A process of its own, because deltalake keeps the interpreter's lock while it waits for answers."""
    command = [sys.executable, "-m", "tests.azurite", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=peers.ROOT)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _handler(port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            found = answer.read()
            first = parse_qs(urlsplit(self.path).query).get("startFrom")
            if first and answer.status == 200:
                found = _from(found, first[0])
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"transfer-encoding", "content-length", "connection", "keep-alive"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(found)))
            self.end_headers()
            self.wfile.write(found)
            connection.close()

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the class above
            """Logs nothing."""

    return Handler


def _from(listed: bytes, first: str) -> bytes:
    """A list of blobs without those before a name."""

    def kept(blob: re.Match[bytes]) -> bytes:
        return blob[0] if blob[1].decode() >= first else b""

    return re.sub(rb"<Blob><Name>(.*?)</Name>.*?</Blob>", kept, listed, flags=re.DOTALL)


def _signed(container: str) -> dict[str, str]:
    """The headers of the request, signed by the account's key ("Shared Key" of Azure's REST API)."""
    when = email.utils.formatdate(usegmt=True)
    resource = f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"x-ms-date:{when}\nx-ms-version:{VERSION}\n{resource}"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    authorization = f"SharedKey {ACCOUNT}:{signature}"
    return {"x-ms-date": when, "x-ms-version": VERSION, "Authorization": authorization, "Content-Length": "0"}


def main() -> None:
    """Serve the proxy before the emulator at a port; print the proxy's own port first."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(int(sys.argv[1])))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
