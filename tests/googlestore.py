"""Google's object store for one test: a process with the part of its XML API that obstore and deltalake use.

It honors `x-goog-if-generation-match`, which the emulators in registries do not. Source: cloud.google.com/storage/docs,
"XML API reference" and "Request preconditions".
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tools import peers


class Blob(NamedTuple):
    data: bytes
    generation: int
    time: str

    @property
    def tag(self) -> str:
        return f'"{self.generation}"'


@contextmanager
def google_store() -> Iterator[dict[str, str]]:
    """A running store that has every bucket; yields the value of `table.storageOptions`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.googlestore"], stdout=subprocess.PIPE, text=True, cwd=peers.ROOT
    )
    assert process.stdout is not None
    try:
        key = {"gcs_base_url": f"http://127.0.0.1:{int(process.stdout.readline())}", "disable_oauth": True}
        key |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        yield {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key), "ALLOW_HTTP": "true"}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    blobs: dict[str, Blob] = {}
    generations = count(1_700_000_000_000_001)
    lock = threading.Lock()

    def do_PUT(self) -> None:
        name, data = self._name(), self.rfile.read(int(self.headers.get("Content-Length") or 0))
        wanted = self.headers.get("x-goog-if-generation-match")
        with self.lock:
            there = self.blobs.get(name)
            if wanted is not None and int(wanted) != (0 if there is None else there.generation):
                self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            blob = self.blobs[name] = Blob(data, next(self.generations), formatdate(usegmt=True))
        self._send(200, b"", **_headers(blob))

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list({name: values[0] for name, values in query.items()})
            return
        blob = self.blobs.get(self._name())
        if blob is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        parts = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if parts is None:
            self._send(200, blob.data, **_headers(blob))
            return
        first, size = int(parts[1]), len(blob.data)
        last = min(int(parts[2] or size), size - 1)
        found = {**_headers(blob), "Content-Range": f"bytes {first}-{last}/{size}"}
        self._send(206, blob.data[first : last + 1], **found)

    do_HEAD = do_GET  # noqa: N815

    def do_DELETE(self) -> None:
        with self.lock:
            gone = self.blobs.pop(self._name(), None)
        self._send(404 if gone is None else 204, b"")

    def _list(self, query: dict[str, str]) -> None:
        bucket = self._name().rstrip("/") + "/"
        prefix, after, cut = query.get("prefix", ""), query.get("start-after", ""), query.get("delimiter", "")
        files, folders = [], set()
        for key, blob in sorted(self.blobs.items()):
            name = key.removeprefix(bucket)
            if key.startswith(bucket + prefix) and name > after:
                inner = name.removeprefix(prefix)
                if cut and cut in inner:
                    folders.add(prefix + inner.partition(cut)[0] + cut)
                else:
                    files.append((name, blob))
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(blob.data)}</Size><ETag>{escape(blob.tag)}</ETag>"
            f"<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, blob in files
        )
        contents += "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders)
        self._send(200, f"<ListBucketResult>{contents}</ListBucketResult>".encode())

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _send(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the class above
        """Logs nothing."""


def _headers(blob: Blob) -> dict[str, str]:
    return {"ETag": blob.tag, "Last_Modified": blob.time, "x_goog_generation": str(blob.generation)}


def main() -> None:
    """Serve a store; print its port first."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
