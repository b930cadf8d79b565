"""The operator's life from start to stop: it is elected through a Lease and then works on two queues.

kopf's startup, cleanup and probe handlers call it (`handlers`). Watches run in every replica, so the next leader knows
all objects at once. Only the holder of the Lease reads, plans and writes.

A stop lets the current steps end, begins no others, writes the status and releases the Lease. If the Lease is lost, all
work is cancelled at once.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from prometheus_client import start_http_server

from kraft_operator.events import Events
from kraft_operator.kube.access import NoAccessError
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.kube.lease import Lease
from kraft_operator.metrics import Metrics
from kraft_operator.pass_queue import Queue
from kraft_operator.pipelines.reconcile import Pipelines, every
from kraft_operator.reconcile import Key, Reconciler
from kraft_operator.settings import Settings

log = logging.getLogger("kraft_operator")

STOP_S: Final = 20.0
"""Seconds for the current steps to end at a stop. The kubelet kills the process after 30 s."""
STUCK_S: Final = 300.0
"""A pass that takes more seconds is stuck, because passes have a deadline of two minutes."""
LISTED_S: Final = 60.0
"""The least seconds between two lists of all clusters and pipelines."""
CONNECT_S: Final = 2.0
"""Seconds between two login attempts."""


class Operator:
    """The operator on Kubernetes: queues, reconcilers, metrics and the Lease."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.failed = False
        """Whether it has ended because of an error or a lost Lease. The process should then restart."""
        self._queue: Queue | None = None
        self._others: Queue | None = None
        self._reconciler: Reconciler | None = None
        self._pipelines: Pipelines | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._state = "starts"

    # Called by kopf's handlers

    def wake(self, key: Key, after_s: float = 0.0, *, users: bool = True) -> None:
        """Note a change of a cluster and enqueue it. `users` is False if nothing of its users has changed."""
        if self._reconciler is not None:
            self._reconciler.touched(key, users=users)
        if self._queue is not None:
            self._queue.put(key, after_s)

    def wake_pipeline(self, key: Key) -> None:
        """Note a change of a pipeline and enqueue it."""
        if self._pipelines is not None:
            self._pipelines.touched(key)
        if self._others is not None:
            self._others.put(key)

    async def start(self) -> None:
        """Start the operator in the background, and serve `/metrics` if a port is set."""
        if self._settings.metrics_port:
            start_http_server(self._settings.metrics_port, self._settings.host, self.metrics.registry)
        self._queue = Queue(self._pass, time.monotonic, self.metrics.queued.set)
        self._others = Queue(self._pipeline_pass, time.monotonic)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Let the current steps end, and release the Lease."""
        self._stopping.set()
        if self._task is None:
            return
        _, pending = await asyncio.wait({self._task}, timeout=STOP_S + 5)
        for task in pending:
            task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def health(self) -> Mapping[str, Any]:
        """The state and the age of the oldest pass. Raises RuntimeError if a pass is stuck."""
        longest_s = max((one.longest_s() for one in (self._queue, self._others) if one is not None), default=0.0)
        if longest_s > STUCK_S:
            raise RuntimeError(f"a pass takes {longest_s:.0f} s: it never ends")
        return {"state": self._state, "longest_pass_s": round(longest_s, 1)}

    # The work

    async def _run(self) -> None:
        """Work until stopped. An error ends the process."""
        try:
            await self._work()
        except (ApiError, NoAccessError, OSError) as error:
            log.error("operator ends error=%s", error)
            self.failed = True
        finally:
            self._state = "has stopped"
            if not self._stopping.is_set():
                self.failed = True
                signal.raise_signal(signal.SIGTERM)

    async def _work(self) -> None:
        api = await self._connect(Api(count=self._count))
        if api is None:
            return
        async with api:
            if not self._settings.lease:
                await self._lead(api, None)
                return
            # The Lease has its own client: requests of a pass must not delay a renewal.
            async with Api(count=self._count, timeout_s=self._settings.lease_s / 3) as own:
                lease = Lease(
                    own,
                    self._settings.home or api.namespace,
                    self._settings.lease,
                    self._settings.me,
                    self._settings.lease_s,
                    time.monotonic,
                )
                self._state = "waits for the lease"
                try:
                    if await self._unless_stopped(lease.acquire()):
                        await self._lead(api, lease)
                finally:
                    # Even if a stop cancelled the request for the Lease, the API server may have granted it.
                    await lease.release()

    async def _connect(self, api: Api) -> Api | None:
        """Return `api` once its login could be loaded; None if the operator is stopped before."""
        while not self._stopping.is_set():
            try:
                await api.load()
                return api
            except NoAccessError as error:
                log.error("no login to the API server error=%s", error)
                await self._unless_stopped(asyncio.sleep(CONNECT_S))
        return None

    async def _unless_stopped(self, work: Any) -> bool:
        """Run `work` until it ends or the operator is stopped. Returns whether it has ended."""
        task, stopped = asyncio.ensure_future(work), asyncio.create_task(self._stopping.wait())
        done, pending = await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if task in done:
            task.result()
        return task in done

    async def _lead(self, api: Api, lease: Lease | None) -> None:
        assert self._queue is not None
        assert self._others is not None
        settings, events = self._settings, Events(api, self._settings.me)
        self._reconciler = Reconciler(
            api,
            events,
            self.metrics,
            resync_s=settings.resync_s,
            machines=settings.machines,
            node_image=settings.node_image,
        )
        self._pipelines = Pipelines(api, events, self.metrics, image=settings.pipeline_image)
        self._state = "works"
        self.metrics.leader.set(1)
        workers = [asyncio.create_task(self._queue.run()), asyncio.create_task(self._others.run())]
        resync, stopped = asyncio.create_task(self._resync(api)), asyncio.create_task(self._stopping.wait())
        kept = asyncio.create_task(_forever() if lease is None else lease.keep())
        tasks: list[asyncio.Task[Any]] = [*workers, resync, stopped, kept]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is not None:
                    log.error("a part of the operator has failed", exc_info=task.exception())
            if stopped in done:
                await self._end_steps(workers, kept)
        finally:
            self.metrics.leader.set(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._reconciler.close()

    async def _end_steps(self, workers: list[asyncio.Task[None]], kept: asyncio.Task[None]) -> None:
        """Let the current passes end after their step, while the Lease is still held."""
        assert self._queue is not None
        assert self._others is not None
        assert self._reconciler is not None
        log.info("operator stops after the current steps")
        self._reconciler.stop()
        if self._pipelines is not None:
            self._pipelines.stop()
        self._queue.close()
        self._others.close()
        ended: asyncio.Future[Any] = asyncio.gather(*workers, return_exceptions=True)
        await asyncio.wait({ended, kept}, timeout=STOP_S, return_when=asyncio.FIRST_COMPLETED)

    async def _pass(self, key: Key) -> float | None:
        assert self._reconciler is not None, "the queue runs while we lead"
        return await self._reconciler.reconcile(key)

    async def _pipeline_pass(self, key: Key) -> float | None:
        assert self._pipelines is not None, "the queue runs while we lead"
        return await self._pipelines.reconcile(key)

    async def _resync(self, api: Api, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Enqueue clusters and pipelines without events regularly, because a failed watch must not hide them.

        A new leader enqueues at once all objects that it has not listed before, independent of the reports of its
        watches.
        """
        assert self._queue is not None
        assert self._others is not None
        every_s, listed = self._settings.resync_s, set[Key]()
        while True:
            for namespace in self._settings.namespaces or (None,):
                try:
                    for one in await api.list("KRaftCluster", namespace, only_metadata=True):
                        key = Key(one["metadata"]["namespace"], one["metadata"]["name"])
                        self._queue.put(key, every_s if key in listed else 0.0)
                        listed.add(key)
                    for key in await every(api, namespace):
                        self._others.put(key, every_s if key in listed else 0.0)
                        listed.add(key)
                except ApiError as error:
                    log.warning("clusters and pipelines were not listed error=%s", error)
            await pause(max(every_s, LISTED_S))

    def _count(self, verb: str, kind: str, status: int) -> None:
        self.metrics.requests.labels(verb, kind).inc()
        if verb != "GET" and 0 < status < 300:
            self.metrics.writes.labels(verb, kind).inc()
        if status == 0 or status >= 400:
            self.metrics.api_errors.labels(str(status)).inc()


async def _forever() -> None:
    await asyncio.Event().wait()
