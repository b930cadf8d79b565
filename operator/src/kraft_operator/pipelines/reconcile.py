"""One pass over one pipeline: read the resource, write its objects, observe, write the status.

The operator's queue of pipelines calls it. The queue retries a failed pass with growing delays. Every pass starts from
the beginning.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from kraft_operator.api.pipelines import HIDDEN_OPTION, IN_PLAIN, OPTION_IN_PLAIN, KafkaTableSpec, registries
from kraft_operator.api.problems import VERSIONS, problems
from kraft_operator.apply.grants import NotGrantedError
from kraft_operator.apply.kubernetes import InTheWayError
from kraft_operator.apply.objects import difference, marked, same
from kraft_operator.events import Events
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.metrics import Metrics
from kraft_operator.observe.objects import condition_of
from kraft_operator.observe.pages import page
from kraft_operator.pipelines import clusters, executors, grants, status
from kraft_operator.pipelines.kinds import KINDS, Kind
from kraft_operator.pipelines.manifests import HTTP_PORT, Object, Pipeline, claim_name, objects
from kraft_operator.reconcile import Key
from kraft_protocol.client.aio import Address

log = logging.getLogger("kraft_operator.pipelines")

LOOK_S: Final = 10.0
"""Seconds between passes over a running pipeline. The reported lag can be this old."""
MOVING_S: Final = 1.0
"""Seconds between passes while pods start or stop, doubled up to LOOK_S. Watches wake the pipeline earlier."""
REFUSED_S_MAX: Final = 30.0
"""The most seconds between passes over a refused pipeline. Accounts and claims that would allow it are not watched."""
PASS_S: Final = 60.0
"""The timeout of a pass in seconds."""
RESTS_S: Final = 1200.0
"""After this many seconds, everything is read again, independent of the reports of the watches."""
ANSWER_S_MAX: Final = 3.0
OWNED: Final = ("ConfigMap", "NetworkPolicy", "Deployment", "CronJob", "Job")
"""Kinds of objects that are deleted when the specification no longer needs them."""

HTTP_OK: Final = 200
NOT_FOUND: Final = 404
SHARED: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})

Ask = Callable[[str], Any]


def key_of(namespace: str, kind: str, name: str) -> Key:
    """The key of a pipeline in the queue, with a name such as `KafkaTable/orders`."""
    return Key(namespace, f"{kind}/{name}")


async def driver_status(host: str) -> Mapping[str, Any] | None:
    """Request `/status` from a driver. Returns None if it does not answer or the answer is malformed."""
    try:
        answer, body = await asyncio.wait_for(page(Address(host, HTTP_PORT), "/status"), ANSWER_S_MAX)
        found = json.loads(body) if answer == HTTP_OK else None
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        log.info("driver does not answer host=%s error=%s", host, error)
        return None
    return found if isinstance(found, dict) else None


class _RefusedError(Exception):
    """The specification is refused; `verdict` has the reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.verdict = status.Verdict("Degraded", reason, message)


@dataclass(slots=True)
class _Rest:
    """The result of the last whole pass. It is valid until a watch reports a change, at most until `until`."""

    kind: Kind
    pipeline: Pipeline
    resource: Object
    seen: status.PipelineView
    driver: str | None
    """The address of the driver, if one serves."""
    until: float


class Pipelines:
    """All pipelines of this operator.

    A pipeline without pending changes rests: its passes only query the driver and send no request to the API server.
    """

    def __init__(
        self,
        api: Api,
        events: Events,
        metrics: Metrics,
        *,
        image: str = "",
        query_driver: Ask = driver_status,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`image` is the default image of drivers. `clock` returns monotonic seconds."""
        self._api = api
        self._events = events
        self._metrics = metrics
        self._image = image
        self._query = query_driver
        self._clock = clock
        self._rests: dict[Key, _Rest] = {}
        self._changes: Counter[Key] = Counter()
        self._waits_s: dict[Key, float] = {}
        self._stopping = False

    def stop(self) -> None:
        """Begin no more writes of objects: current passes end after their present write."""
        self._stopping = True

    def _begin(self) -> None:
        """Permit a write of an object. Raises ApiError if the operator stops: the next leader may already work."""
        if self._stopping:
            raise ApiError(0, "Stops", "the operator stops: the next one continues")

    def touched(self, key: Key) -> None:
        """Note a change of a pipeline's objects: the next pass reads them again."""
        self._changes[key] += 1
        self._rests.pop(key, None)

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass. Returns the seconds until the next pass, or None if the resource is gone. Raises ApiError."""
        if self._stopping:
            return LOOK_S
        try:
            async with asyncio.timeout(PASS_S):
                after_s = await self._glance(key)
                return after_s if after_s is not None else await self._pass(key)
        except TimeoutError:
            raise ApiError(0, "TooLate", f"a pass takes longer than {PASS_S:g} s, and starts again") from None

    async def _glance(self, key: Key) -> float | None:
        """A short pass over a resting pipeline; None if a whole pass is due."""
        rest = self._rests.get(key)
        if rest is None or rest.until < self._clock():
            return None
        if rest.driver is not None:
            rest.seen = replace(rest.seen, driver=await self._query(rest.driver))
        after = status.status(rest.pipeline, rest.seen, rest.resource, _now())
        if not difference(rest.resource.get("status", {}), after):
            self._metrics.pipeline(key.namespace, rest.kind.name, rest.pipeline.name, after)
            return LOOK_S
        try:
            after_s = await self._report(key, rest.kind, rest.resource, after)
        except ApiError as error:
            self._rests.pop(key, None)
            if error.status != NOT_FOUND:
                raise
            return None
        if after_s != LOOK_S:
            self._rests.pop(key, None)
        return after_s

    async def _pass(self, key: Key) -> float | None:
        kind_name, _, name = key.name.partition("/")
        kind, changes = KINDS[kind_name], self._changes[key]
        self._rests.pop(key, None)
        resource = await self._api.get(kind.name, key.namespace, name)
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            self._metrics.forget_pipeline(key.namespace, kind.name, name)
            del self._changes[key]
            self._waits_s.pop(key, None)
            return None
        resource.setdefault("kind", kind.name)
        try:
            one = await self._pipeline(kind, resource)
        except _RefusedError as refused:
            await self._report(key, kind, resource, status.refused(refused.verdict, resource, _now()))
            return self._backed_off(key, REFUSED_S_MAX)
        try:
            seen, driver = await self._make(one)
        except ApiError as error:
            if not error.lasting:
                raise
            verdict = status.Verdict("Degraded", "StepRefused", str(error))
            await self._report(key, kind, resource, status.refused(verdict, resource, _now()))
            return self._backed_off(key, REFUSED_S_MAX)
        after_s = await self._report(key, kind, resource, status.status(one, seen, resource, _now()))
        if after_s == LOOK_S and self._changes[key] == changes:
            until = self._clock() + RESTS_S * (1 + random.random() / 10)  # noqa: S311  (not all at once)
            self._rests[key] = _Rest(kind, one, resource, seen, driver, until)
        return after_s

    def _backed_off(self, key: Key, most_s: float) -> float:
        """The delay until the next pass in seconds, doubled each time, at most `most_s`."""
        self._waits_s[key] = min(self._waits_s.get(key, MOVING_S / 2) * 2, most_s)
        return self._waits_s[key]

    async def _pipeline(self, kind: Kind, resource: Object) -> Pipeline:
        """Read and check a resource. Raises _RefusedError; then no object is created or deleted."""
        metadata = resource["metadata"]
        try:
            spec = kind.spec.model_validate(resource["spec"], extra="ignore")
        except ValidationError as error:
            raise _RefusedError("NotUnderstood", "; ".join(problems(error)) + VERSIONS) from None
        for section, registry in registries(spec).items():
            if registry.password is not None:  # an old resource, from before the rule existed
                raise _RefusedError("PlainPassword", f"spec.{section}.registry.password: {IN_PLAIN}")
        for option in spec.kafka if isinstance(spec, KafkaTableSpec) else ():
            if HIDDEN_OPTION.search(option):
                raise _RefusedError("PlainPassword", f"spec.kafka.{option}: {OPTION_IN_PLAIN}")
        image = spec.driver.image or self._image
        if not image:
            raise _RefusedError("NoImage", "neither driver.image nor the operator's settings name an image")
        try:
            resolved = await clusters.resolved(self._api, metadata["namespace"], spec)
            await grants.check(self._api, metadata["namespace"], spec)
        except (clusters.UnreachableClusterError, NotGrantedError) as error:
            raise _RefusedError(error.reason, str(error)) from None
        one = Pipeline(kind, metadata["name"], metadata["namespace"], metadata["uid"], spec, image, resolved)
        if executors.wanted(spec):
            await self._check_shared_claims(one)
        return one

    async def _check_shared_claims(self, one: Pipeline) -> None:
        """Check the claims of a driver with executors. Raises _RefusedError if other machines cannot mount one."""
        for name in (claim_name(one, volume) for volume in one.spec.driver.volumes):
            claim = await self._api.get("PersistentVolumeClaim", one.namespace, name)
            if claim is not None and not SHARED & set(claim["spec"]["accessModes"]):
                text = f"executors on any machine mount the claim {name}, too: it must be ReadWriteMany"
                raise _RefusedError("ClaimNotShared", text)

    async def _make(self, one: Pipeline) -> tuple[status.PipelineView, str | None]:
        """Write objects that differ, delete unwanted objects, and observe. Also returns the driver's address or
        None."""
        selector = ",".join(f"{key}={value}" for key, value in one.selector.items())
        kinds = (*OWNED, "Pod")
        lists = await asyncio.gather(*(self._api.list(kind, one.namespace, selector) for kind in kinds))
        there = dict(zip(kinds, lists, strict=True))
        wanted = [marked(each) for each in objects(one)]
        made = {each["kind"]: await self._ensure(each, there) for each in wanted}
        workload = wanted[-1]
        names = {(each["kind"], each["metadata"]["name"]) for each in wanted}
        for kind in OWNED:
            for each in there[kind]:
                mine = [owner["uid"] for owner in each["metadata"].get("ownerReferences", ())] == [one.uid]
                if mine and (kind, each["metadata"]["name"]) not in names:
                    self._begin()
                    await self._api.delete(kind, one.namespace, each["metadata"]["name"], each["metadata"]["uid"])
        pods = [pod for pod in there["Pod"] if not executors.is_executor(pod)]
        crew = await self._at_work([pod for pod in there["Pod"] if executors.is_executor(pod)])
        host = None
        if workload["kind"] == "Deployment":
            host = next((pod["status"]["podIP"] for pod in pods if _serves(pod)), None)
        driver = await self._query(host) if host is not None else None
        return status.PipelineView(made[workload["kind"]], pods, there["Job"], crew, driver), host

    async def _at_work(self, crew: Sequence[Object]) -> list[Object]:
        """Return the executors that have not ended, and delete the others.

        Spark deletes executors itself. After the driver was killed, its pod still owns the old executors, but the new
        driver in the pod does not know them.
        """
        ended = [pod for pod in crew if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}]
        for pod in ended:
            metadata = pod["metadata"]
            self._begin()
            await self._api.delete("Pod", metadata["namespace"], metadata["name"], metadata["uid"])
        return [pod for pod in crew if pod not in ended]

    async def _ensure(self, wanted: Object, there: Mapping[str, Sequence[Object]]) -> Object:
        kind, metadata = wanted["kind"], wanted["metadata"]
        found = next((each for each in there.get(kind, ()) if each["metadata"]["name"] == metadata["name"]), None)
        if kind == "PersistentVolumeClaim":
            found = await self._api.get(kind, metadata["namespace"], metadata["name"])
            if found is not None:
                return found  # a claim's specification cannot change
        elif same(wanted, found):
            assert found is not None
            return found
        elif found is None and await self._api.get(kind, metadata["namespace"], metadata["name"]) is not None:
            raise InTheWayError(kind, metadata["name"])
        self._begin()
        return await self._api.apply(wanted)

    async def _report(self, key: Key, kind: Kind, resource: Object, after: Object) -> float:
        """Write the status if it differs, also into `resource`, and an event for a new problem.

        Returns the seconds until the next pass.
        """
        namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        degraded, former = condition_of({"status": after}, "Degraded"), condition_of(resource, "Degraded")
        if degraded["status"] == "True" and (former.get("status"), former.get("reason")) != (
            "True",
            degraded["reason"],
        ):
            text = "pipeline is degraded resource=%s/%s/%s reason=%s message=%s"
            log.info(text, namespace, kind.name, name, degraded["reason"], degraded["message"])
            await self._events.emit(resource, "Warning", degraded["reason"], degraded["message"])
        change = difference(resource.get("status", {}), after)
        if change:
            await self._api.patch(kind.name, namespace, name, {"status": change}, "status")
            resource["status"] = after
        self._metrics.pipeline(namespace, kind.name, name, after)
        if condition_of({"status": after}, "Progressing")["status"] == "True":
            return self._backed_off(key, LOOK_S)
        if degraded["status"] != "True":
            self._waits_s.pop(key, None)
        return LOOK_S


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _serves(pod: Object) -> bool:
    return (
        "deletionTimestamp" not in pod["metadata"]
        and bool(pod.get("status", {}).get("podIP"))
        and condition_of(pod, "Ready").get("status") == "True"
    )


async def every(api: Api, namespace: str | None) -> list[Key]:
    """List the keys of all pipelines of a namespace, or of all namespaces. Skips kinds without a definition."""
    found = []
    for kind in KINDS:
        try:
            listed = await api.list(kind, namespace, only_metadata=True)
        except ApiError as error:
            if error.status != 404:
                raise
            continue
        found += [key_of(one["metadata"]["namespace"], kind, one["metadata"]["name"]) for one in listed]
    return found
