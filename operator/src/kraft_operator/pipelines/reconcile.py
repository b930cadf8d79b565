"""One pass over one pipeline: read the resource, make what it asks for, look, tell.

Who calls it: the operator's queue of pipelines. A pass that fails is tried again, ever later; each begins anew.
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

import aiohttp
from pydantic import ValidationError

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.pipelines import IN_PLAIN, KafkaTableSpec
from kraft_operator.api.problems import VERSIONS, problems
from kraft_operator.apply.kubernetes import InTheWayError
from kraft_operator.apply.objects import difference, marked, same
from kraft_operator.events import Events
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.metrics import Metrics
from kraft_operator.observe.objects import condition_of
from kraft_operator.pipelines import executors, grants, told
from kraft_operator.pipelines.kinds import KINDS, Kind
from kraft_operator.pipelines.manifests import HTTP_PORT, Object, Pipeline, claim_name, objects
from kraft_operator.reconcile import Key

log = logging.getLogger("kraft_operator.pipelines")

LOOK_S: Final = 10.0
"""Between two looks at what runs: how old its lag may be."""
MOVING_S: Final = 1.0
"""While something starts or stops; doubled up to LOOK_S. Watches wake the pipeline before that."""
REFUSED_S_MAX: Final = 30.0
"""Between two looks at one that is refused: accounts and claims that would allow it are not watched."""
PASS_S: Final = 60.0
"""A pass that takes longer is given up."""
RESTS_S: Final = 1200.0
"""Everything is read anew after this, whatever watches tell."""
ANSWER_S_MAX: Final = 3.0
ANSWER_BYTES_MAX: Final = 64 * 1024
OWNED: Final = ("ConfigMap", "NetworkPolicy", "Deployment", "CronJob", "Job")
"""Kinds of objects that go when the specification asks for others."""

NOT_FOUND: Final = 404
SHARED: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})

Ask = Callable[[str], Any]


def key_of(namespace: str, kind: str, name: str) -> Key:
    """As the queue has it: `KafkaTable/orders`."""
    return Key(namespace, f"{kind}/{name}")


async def ask_driver(host: str) -> Mapping[str, Any] | None:
    """What a driver tells, None when it does not answer as it should."""
    try:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S_MAX)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{host}:{HTTP_PORT}/status") as answer,
        ):
            found = json.loads(await answer.content.read(ANSWER_BYTES_MAX))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        log.info("the driver at %s: %s", host, error)
        return None
    return found if isinstance(found, dict) else None


class _RefusedError(Exception):
    """What is asked for cannot be made."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.verdict = told.Verdict("Degraded", reason, message)


@dataclass(slots=True)
class _Rest:
    """What the last whole pass left. Its objects are good until a watch tells of a change."""

    kind: Kind
    pipeline: Pipeline
    resource: Object
    seen: told.Seen
    driver: str | None
    """The address of the driver that answers."""
    until: float


class Pipelines:
    """All pipelines of this operator.

    A pipeline with nothing to be made rests: a pass asks its driver only, without a request to the API server.
    """

    def __init__(
        self,
        api: Api,
        events: Events,
        metrics: Metrics,
        *,
        image: str = "",
        ask: Ask = ask_driver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`image` is that of drivers which name none."""
        self._api = api
        self._events = events
        self._metrics = metrics
        self._image = image
        self._ask = ask
        self._clock = clock
        self._rests: dict[Key, _Rest] = {}
        self._changes: Counter[Key] = Counter()
        self._waits_s: dict[Key, float] = {}
        self._stopping = False

    def stop(self) -> None:
        """Begin no more passes that write."""
        self._stopping = True

    def touched(self, key: Key) -> None:
        """Something of this pipeline has changed: its objects have to be read anew."""
        self._changes[key] += 1
        self._rests.pop(key, None)

    async def reconcile(self, key: Key) -> float | None:
        """One pass; seconds until the next one, None when the resource is gone."""
        try:
            async with asyncio.timeout(PASS_S):
                after_s = await self._glance(key)
                return after_s if after_s is not None else await self._pass(key)
        except TimeoutError:
            raise ApiError(0, "TooLate", f"a pass takes longer than {PASS_S:g} s, and is begun anew") from None

    async def _glance(self, key: Key) -> float | None:
        """A pass over a pipeline that rests; None if a whole one is due."""
        rest = self._rests.get(key)
        if rest is None or rest.until < self._clock() or self._stopping:
            return None
        if rest.driver is not None:
            rest.seen = replace(rest.seen, driver=await self._ask(rest.driver))
        after = told.status(rest.pipeline, rest.seen, rest.resource, _now())
        if not difference(rest.resource.get("status", {}), after):
            self._metrics.pipeline(key.namespace, rest.kind.name, rest.pipeline.name, after)
            return LOOK_S
        try:
            after_s = await self._tell(key, rest.kind, rest.resource, after)
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
            await self._tell(key, kind, resource, told.refused(refused.verdict, resource, _now()))
            return self._backed_off(key, REFUSED_S_MAX)
        try:
            seen, driver = await self._make(one)
        except ApiError as error:
            if not error.lasting:
                raise
            verdict = told.Verdict("Degraded", "StepRefused", str(error))
            await self._tell(key, kind, resource, told.refused(verdict, resource, _now()))
            return self._backed_off(key, REFUSED_S_MAX)
        after_s = await self._tell(key, kind, resource, told.status(one, seen, resource, _now()))
        if after_s == LOOK_S and self._changes[key] == changes:
            until = self._clock() + RESTS_S * (1 + random.random() / 10)  # noqa: S311  (not all at once)
            self._rests[key] = _Rest(kind, one, resource, seen, driver, until)
        return after_s

    def _backed_off(self, key: Key, most_s: float) -> float:
        """Twice as long each time."""
        self._waits_s[key] = min(self._waits_s.get(key, MOVING_S / 2) * 2, most_s)
        return self._waits_s[key]

    async def _pipeline(self, kind: Kind, resource: Object) -> Pipeline:
        """Raises _RefusedError, for which nothing is made and nothing taken away."""
        metadata = resource["metadata"]
        try:
            spec = kind.spec.model_validate(resource["spec"], extra="ignore")
        except ValidationError as error:
            raise _RefusedError("NotUnderstood", "; ".join(problems(error)) + VERSIONS) from None
        registry = spec.value.registry if isinstance(spec, KafkaTableSpec) else None
        if registry is not None and registry.password is not None:  # of a resource from before the rule
            raise _RefusedError("PlainPassword", f"spec.value.registry.password: {IN_PLAIN}")
        image = spec.driver.image or self._image
        if not image:
            raise _RefusedError("NoImage", "neither driver.image nor the operator names an image")
        servers = await self._servers(metadata["namespace"], spec.cluster_ref)
        try:
            await grants.check(self._api, metadata["namespace"], spec)
        except grants.NotGrantedError as error:
            raise _RefusedError(error.reason, str(error)) from None
        one = Pipeline(kind, metadata["name"], metadata["namespace"], metadata["uid"], spec, image, servers)
        if executors.wanted(spec):
            await self._shared(one)
        return one

    async def _shared(self, one: Pipeline) -> None:
        """Raises _RefusedError for a claim that executors on other machines cannot have."""
        for name in (claim_name(one, volume) for volume in one.spec.driver.volumes):
            claim = await self._api.get("PersistentVolumeClaim", one.namespace, name)
            if claim is not None and not SHARED & set(claim["spec"]["accessModes"]):
                text = f"executors mount the claim {name}, too, on any machine: it has to be ReadWriteMany"
                raise _RefusedError("ClaimNotShared", text)

    async def _servers(self, namespace: str, cluster_name: str | None) -> dict[str, str]:
        """What `clusterRef` comes to. Raises _RefusedError."""
        if cluster_name is None:
            return {}
        cluster = await self._api.get("KRaftCluster", namespace, cluster_name)
        if cluster is None:
            raise _RefusedError("ClusterNotFound", f"there is no KRaftCluster {cluster_name} in {namespace}")
        listeners = KRaftClusterSpec.model_validate(cluster["spec"], extra="ignore").listeners
        port = next(one.port for one in listeners if one.type == "Internal")
        return {"bootstrapServers": f"{cluster_name}-bootstrap.{namespace}.svc:{port}"}

    async def _make(self, one: Pipeline) -> tuple[told.Seen, str | None]:
        """Write what differs, take away what is no longer asked for, look at what runs; its driver's address."""
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
                    await self._api.delete(kind, one.namespace, each["metadata"]["name"], each["metadata"]["uid"])
        pods = [pod for pod in there["Pod"] if not executors.is_executor(pod)]
        crew = await self._at_work([pod for pod in there["Pod"] if executors.is_executor(pod)])
        host = None
        if workload["kind"] == "Deployment":
            host = next((pod["status"]["podIP"] for pod in pods if _serves(pod)), None)
        driver = await self._ask(host) if host is not None else None
        return told.Seen(made[workload["kind"]], pods, there["Job"], crew, driver), host

    async def _at_work(self, crew: Sequence[Object]) -> list[Object]:
        """Those executors that have not ended; the others go. Spark takes its own away, but a driver that was killed
        leaves them to its pod, which has another one by then."""
        ended = [pod for pod in crew if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}]
        for pod in ended:
            metadata = pod["metadata"]
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
        return await self._api.apply(wanted)

    async def _tell(self, key: Key, kind: Kind, resource: Object, after: Object) -> float:
        """Write the status where it differs, also into `resource`; an event for what has become wrong."""
        namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        degraded, was = condition_of({"status": after}, "Degraded"), condition_of(resource, "Degraded")
        if degraded["status"] == "True" and (was.get("status"), was.get("reason")) != ("True", degraded["reason"]):
            log.info("%s/%s/%s: %s: %s", namespace, kind.name, name, degraded["reason"], degraded["message"])
            await self._events.tell(resource, "Warning", degraded["reason"], degraded["message"])
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
    """All pipelines of a namespace, or of all; none of a kind that the API server does not know."""
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
