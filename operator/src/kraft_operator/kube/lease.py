"""Leader election among the operator's replicas, through a Lease (coordination.k8s.io).

The leader renews the Lease three times within its duration. Another replica takes it over after it has itself seen the
Lease unchanged for the whole duration, so clocks of machines are never compared. A leader that cannot renew in time
gives up before others may take over, and its process ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from kraft_operator.kube.client import Api, ApiError, Object

log = logging.getLogger("kraft_operator.lease")

RENEWALS: Final = 3
"""The number of renewals in the duration of a Lease."""


class Lease:
    """One Lease and our knowledge of it."""

    def __init__(
        self, api: Api, namespace: str, name: str, holder: str, duration_s: float, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._namespace, self._name, self._holder = namespace, name, holder
        self._duration_s = duration_s
        self._clock = clock
        self._seen: tuple[str, float] = ("", clock())
        self._renewed_at = float("-inf")
        self._asked = False
        """Whether a request of ours may have taken the lease without our knowing."""
        self._mine: Object | None = None
        """The Lease as we wrote it last: a renewal is one request, which fails if another client has written since."""

    @property
    def period_s(self) -> float:
        """Seconds between two renewals."""
        return self._duration_s / RENEWALS

    def held(self) -> bool:
        """Whether no other replica can hold the Lease yet, counted from before the last renewal request."""
        return self._left_s() > 0

    def _left_s(self) -> float:
        """How long we may still work."""
        return self._renewed_at + self._duration_s - self.period_s / 2 - self._clock()

    async def acquire(self) -> None:
        """Wait until this replica holds the Lease."""
        while not await self._try():
            await asyncio.sleep(min(self.period_s, 3.0))
        log.info("lease is held lease=%s/%s holder=%s", self._namespace, self._name, self._holder)

    async def keep(self) -> None:
        """Renew the Lease until that fails for too long. Returns before another replica may hold it."""
        pause_s = self.period_s
        while True:
            await asyncio.sleep(min(pause_s, max(0.0, self._left_s())))
            left_s = self._left_s()
            if left_s <= 0:
                log.error("lease was not renewed in time, the operator stops lease=%s/%s", self._namespace, self._name)
                return
            pause_s = self.period_s if await self._try(left_s) else self.period_s / 10

    async def release(self) -> None:
        """Release the Lease, so that another replica can take it at once."""
        if not self.held() and not self._asked:
            return
        self._renewed_at, self._asked = float("-inf"), False
        try:
            lease = await self._api.get("Lease", self._namespace, self._name)
            if lease is not None and lease.get("spec", {}).get("holderIdentity") == self._holder:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._api.replace(lease)
        except ApiError as error:
            log.info("lease was not released error=%s", error)

    async def _try(self, within_s: float = float("inf")) -> bool:
        asked_at = self._clock()
        try:
            async with asyncio.timeout(min(self.period_s, within_s)):
                done = await self._write()
            self._asked = False
        except (ApiError, TimeoutError) as error:
            self._mine = None
            log.info("lease was not taken error=%s", str(error) or "no answer in time")
            return False
        if done:
            self._renewed_at = asked_at
        return done

    async def _write(self) -> bool:
        lease = self._mine or await self._api.get("Lease", self._namespace, self._name)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": max(1, round(self._duration_s)),
            "renewTime": now,
        }
        if lease is None:
            self._asked = True
            metadata = {"name": self._name, "namespace": self._namespace}
            body: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            await self._api.create({**body, "spec": {**spec, "acquireTime": now, "leaseTransitions": 0}})
            return True
        there = lease.get("spec", {})
        ours = there.get("holderIdentity") == self._holder
        if not ours and there.get("holderIdentity") and not self._expired(lease):
            return False
        if not ours:
            spec |= {"acquireTime": now, "leaseTransitions": there.get("leaseTransitions", 0) + 1}
        self._asked = True
        self._mine = await self._api.replace({**lease, "spec": {**there, **spec}})
        return True

    def _expired(self, lease: Object) -> bool:
        """Whether this replica has seen the Lease unchanged for its whole duration."""
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self._clock())
        return self._clock() - self._seen[1] > float(
            lease.get("spec", {}).get("leaseDurationSeconds", self._duration_s)
        )
