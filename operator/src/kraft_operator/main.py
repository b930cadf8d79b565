"""The operator as a process: `python -m kraft_operator`, everything from its environment.

    KRAFT_NAMESPACES       which it looks after, by commas; empty for all
    KRAFT_LEASE            name of the Lease by which replicas agree who works; empty: alone
    KRAFT_LEASE_SECONDS    after which another replica takes over
    KRAFT_RESYNC_SECONDS   between two looks at a cluster of which no event has told anything
    KRAFT_NODE_IMAGE       of clusters that name no image
    KRAFT_PIPELINE_IMAGE   of pipelines whose driver names no image
    KRAFT_READS_MACHINES   whether Node objects may be read (racks)
    KRAFT_HTTP_PORT        of /metrics, /livez and /readyz
    KRAFT_LOG_LEVEL, KRAFT_LOG_JSON
    POD_NAME, POD_NAMESPACE

SIGTERM stops it: the pass at hand is broken off where it is, which is as good as any other place, and the Lease is
given back. It ends with 0 then, with 1 when the Lease is lost or something fails that a new process may do better.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_operator.events import Events
from kraft_operator.handlers import watch
from kraft_operator.http import TEXT, Answer, serve
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.kube.config import access
from kraft_operator.kube.lease import Lease
from kraft_operator.metrics import CONTENT_TYPE, Metrics
from kraft_operator.pipelines.reconcile import Pipelines, every
from kraft_operator.queue import Queue
from kraft_operator.reconcile import Key, Reconciler

log = logging.getLogger("kraft_operator")

STUCK_S: Final = 60.0
"""Without a turn of the loop: the process is of no use to anybody."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment, understood."""

    namespaces: tuple[str, ...]
    lease: str
    lease_s: float
    resync_s: float
    machines: bool
    node_image: str
    pipeline_image: str
    http_port: int
    level: str
    as_json: bool
    me: str
    home: str | None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Settings:
        """Raises ValueError that names the variable."""
        return cls(
            namespaces=tuple(name for word in env.get("KRAFT_NAMESPACES", "").split(",") if (name := word.strip())),
            lease=env.get("KRAFT_LEASE", ""),
            lease_s=_number(env, "KRAFT_LEASE_SECONDS", 15.0),
            resync_s=_number(env, "KRAFT_RESYNC_SECONDS", 30.0),
            machines=env.get("KRAFT_READS_MACHINES", "false").lower() == "true",
            node_image=env.get("KRAFT_NODE_IMAGE", ""),
            pipeline_image=env.get("KRAFT_PIPELINE_IMAGE", ""),
            http_port=int(_number(env, "KRAFT_HTTP_PORT", 8080)),
            level=_level(env.get("KRAFT_LOG_LEVEL") or "INFO"),
            as_json=env.get("KRAFT_LOG_JSON", "false").lower() == "true",
            me=f"{env.get('POD_NAME') or socket.gethostname()}-{os.getpid()}",
            home=env.get("POD_NAMESPACE") or None,
        )


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if value < 0:
        raise ValueError(f"{name} is no number of 0 or more: {text!r}")
    return value


def _level(name: str) -> str:
    if name.upper() not in logging.getLevelNamesMapping():
        raise ValueError(f"KRAFT_LOG_LEVEL is no level, such as INFO: {name!r}")
    return name.upper()


class Operator:
    """Everything together, from waiting for the Lease to its end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self._working = False
        self._waiting = False
        self._turned = time.monotonic()

    async def run(self) -> int:
        """Until a signal, or until the Lease is lost; the exit code."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        routes = {"/metrics": self._metrics_text, "/livez": self._livez, "/readyz": self._readyz}
        server = await serve(routes, self._settings.http_port)
        work = asyncio.create_task(self._work())
        turns = asyncio.create_task(self._turns())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return 0 if stop.is_set() else await work
        finally:
            for task in (work, turns, stopped):
                task.cancel()
            await asyncio.gather(work, turns, stopped, return_exceptions=True)
            server.close()

    async def _work(self) -> int:
        where = access()
        async with Api(where, self._count) as api:
            lease = None
            if self._settings.lease:
                home = self._settings.home or where.namespace
                lease = Lease(
                    api, home, self._settings.lease, self._settings.me, self._settings.lease_s, time.monotonic
                )
                self._waiting = True
                await lease.acquire()
            self.metrics.leader.set(1)
            self._working = True
            try:
                return await self._lead(api, lease)
            finally:
                self._working = False
                self.metrics.leader.set(0)
                if lease is not None:
                    await lease.release()

    async def _lead(self, api: Api, lease: Lease | None) -> int:
        events = Events(api, self._settings.me)
        reconciler = Reconciler(
            api,
            events,
            self.metrics,
            resync_s=self._settings.resync_s,
            machines=self._settings.machines,
            node_image=self._settings.node_image,
        )
        pipelines = Pipelines(api, events, self.metrics, image=self._settings.pipeline_image)
        queue = Queue(reconciler.reconcile, time.monotonic, self.metrics.queued.set)
        others = Queue(pipelines.reconcile, time.monotonic)
        tasks = [
            asyncio.create_task(queue.run()),
            asyncio.create_task(others.run()),
            asyncio.create_task(watch(queue.put, others.put, self._settings.namespaces)),
            asyncio.create_task(self._resync(api, queue, others)),
        ]
        if lease is not None:
            tasks.append(asyncio.create_task(lease.keep()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is not None:
                    log.error("a part has failed", exc_info=task.exception())
            return 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            reconciler.close()

    async def _resync(self, api: Api, queue: Queue, others: Queue) -> None:
        """Clusters and pipelines of which no event came, ever: a watch that failed must not hide them."""
        while True:
            for namespace in self._settings.namespaces or (None,):
                try:
                    for one in await api.list("KRaftCluster", namespace):
                        queue.put(Key(one["metadata"]["namespace"], one["metadata"]["name"]), self._settings.resync_s)
                    for key in await every(api, namespace):
                        others.put(key, self._settings.resync_s)
                except ApiError as error:
                    log.warning("clusters and pipelines were not listed: %s", error)
            await asyncio.sleep(self._settings.resync_s)

    # What is told over HTTP

    def _count(self, verb: str, kind: str, status: int) -> None:
        if verb != "GET" and 0 < status < 300:
            self.metrics.writes.labels(verb, kind).inc()
        if status == 0 or status >= 400:
            self.metrics.api_errors.labels(str(status)).inc()

    async def _turns(self) -> None:
        while True:
            self._turned = time.monotonic()
            await asyncio.sleep(1)

    def _livez(self) -> Answer:
        late_s = time.monotonic() - self._turned
        return (200, TEXT, b"ok\n") if late_s < STUCK_S else (503, TEXT, f"the loop is {late_s:.0f} s late\n".encode())

    def _readyz(self) -> Answer:
        """A replica that waits for the Lease is as ready as one can be."""
        if self._working or self._waiting:
            return 200, TEXT, b"works\n" if self._working else b"waits for the lease\n"
        return 503, TEXT, b"the API server has not been reached yet\n"

    def _metrics_text(self) -> Answer:
        return 200, CONTENT_TYPE, self.metrics.text()


class _Lines(logging.Formatter):
    """As the node's: time, level, logger, message."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        seconds = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        name = record.name.removeprefix("kraft_operator.")
        text = f"{seconds}.{int(record.msecs):03d}Z {record.levelname:<5} {name} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _Json(_Lines):
    """An object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name.removeprefix("kraft_operator."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def main() -> int:
    """The process."""
    try:
        settings = Settings.of(os.environ)
    except ValueError as error:
        print(f"kraft-operator: {error}", file=sys.stderr)  # noqa: T201
        return 2
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Json() if settings.as_json else _Lines())
    logging.basicConfig(level=settings.level, handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    gc.freeze()
    return asyncio.run(Operator(settings).run())
