"""Stands between the operator and the API server: refuses, throttles, delays, loses answers, and checks deletions.

`Mood` holds the present probabilities; one seed feeds all randomness. Every request of the operator passes here. So
the operator can be killed right after a chosen write, and a pod's deletion is judged by the true state at the same
moment.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import aiohttp
from aiohttp import web

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HOP: Final = frozenset({"accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
AUTO: Final = ("Accept-Encoding", "Content-Type")
"""Headers that aiohttp would add: an API server refuses a GET with a type of content."""
CHUNK: Final = 1 << 16
LEASES: Final = "/apis/coordination.k8s.io/"
"""A lost answer there is only a lost leader."""


@dataclass(frozen=True)
class Mood:
    """Probabilities of faults for a request, and longest delays in seconds."""

    refused: float = 0.0
    """Answered 500 before it takes effect."""
    throttled: float = 0.0
    """Answered 429 before it takes effect."""
    lost: float = 0.0
    """Carried out, and its answer lost."""
    cut: float = 0.0
    """Of an event of a watch: the watch ends behind it."""
    delay_s: float = 0.0
    watch_delay_s: float = 0.0


CALM: Final = Mood()
Judge = Callable[[str, str], Awaitable[None]]
"""Verb and path of a write that is about to be forwarded."""


class Proxy:
    """Runs in its own thread. Use it in `with`; gives its URL."""

    def __init__(self, upstream: str, ca_file: str, rng: Random) -> None:
        self._upstream, self._rng = upstream, rng
        self._tls = ssl.create_default_context(cafile=ca_file)
        self.mood = CALM
        self.judge: Judge | None = None
        self.written: Callable[[], None] = lambda: None
        """Called behind each write, before its answer."""
        self.counts = {"requests": 0, "refused": 0, "throttled": 0, "lost": 0, "cut": 0, "writes": 0}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._port = 0

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(20), "the proxy does not start"
        return f"http://127.0.0.1:{self._port}"

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        no_limit = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with aiohttp.ClientSession(timeout=no_limit, skip_auto_headers=AUTO) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            assert site._server is not None
            self._port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.counts["requests"] += 1
        mood, dice = self.mood, self._rng.random()
        if dice < mood.refused:
            return self._no("refused", 500, "InternalError")
        if dice < mood.refused + mood.throttled:
            return self._no("throttled", 429, "TooManyRequests")
        await asyncio.sleep(self._rng.uniform(0, mood.delay_s))
        try:
            return await self._forward(request)
        except (aiohttp.ClientError, OSError) as error:  # the API server is down
            return web.Response(status=503, text=str(error))

    def _no(self, what: str, status: int, reason: str) -> web.Response:
        self.counts[what] += 1
        body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": "chaos"}
        return web.json_response(body, status=status, headers={"Retry-After": "1"} if status == 429 else {})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        writes = request.method in WRITES
        if writes and self.judge is not None:
            await self.judge(request.method, request.path)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        body, url = await request.read() or None, f"{self._upstream}{request.raw_path}"
        async with self._session.request(request.method, url, headers=headers, data=body, ssl=self._tls) as there:
            kept = {name: value for name, value in there.headers.items() if name.lower() not in HOP}
            if request.query.get("watch") == "true":
                return await self._watch(request, there, kept)
            data = await there.read()
        lost = self._rng.random() < self.mood.lost and not request.path.startswith(LEASES)
        if writes:
            self.counts["writes"] += 1
            self.written()
        if lost:
            self.counts["lost"] += 1
            if request.transport is not None:
                request.transport.abort()
        return web.Response(status=there.status, headers=kept, body=data)

    async def _watch(self, request: web.Request, there: Any, headers: dict[str, str]) -> web.StreamResponse:
        """Pass events on in order, each delayed as the mood demands."""
        answer = web.StreamResponse(status=there.status, headers=headers)
        await answer.prepare(request)
        async for line in there.content:
            await asyncio.sleep(self._rng.uniform(0, self.mood.watch_delay_s))
            await answer.write(line)
            if self._rng.random() < self.mood.cut:
                self.counts["cut"] += 1
                break
        return answer

    async def get(self, path: str, headers: dict[str, str]) -> Any:
        """Ask the API server itself, without faults."""
        async with self._session.get(f"{self._upstream}{path}", headers=headers, ssl=self._tls) as answer:
            return await answer.json()
