"""HTTP requests whose credentials never leave the origin of their URL.

The standard library repeats all headers of a request at the address of a redirect, also at another host, or without
TLS.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
HARMLESS: Final = frozenset({"accept", "user-agent"})
"""Headers that other origins may see, in lower case."""


class _Redirects(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and origin(newurl) != origin(req.full_url):
            found.headers = {name: value for name, value in found.headers.items() if name.lower() in HARMLESS}
        return found


def opened(request: Request, *, timeout_s: float, context: ssl.SSLContext | None = None) -> Any:
    """Send a request and return its response, a context manager. Follows redirects; others see HARMLESS headers only.

    `context`: of TLS. Raises URLError and HTTPError, which are OSErrors.
    """
    handlers = [_Redirects()] if context is None else [_Redirects(), HTTPSHandler(context=context)]
    return build_opener(*handlers).open(request, timeout=timeout_s)


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL. Raises ValueError for a malformed port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
