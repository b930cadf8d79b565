"""An API server in memory, with the parts of kubelet, scheduler and job controller that the operator can see.

Fault model: any request may be refused (409, 429 after all retries, 500) before or after it has taken effect. The
operator may die between any two of its writes. Watches report a change before the next pass (`Watching`). Not modelled
are admission and Kafka: nodes never answer, so quorum and metadata stay unknown, and only steps that need neither run.
"""

from __future__ import annotations

import copy
import itertools
import marshal
from collections.abc import Callable
from typing import Any

from kraft_operator.apply.objects import within
from kraft_operator.kube.client import ApiError
from kraft_operator.reconcile import Key, Reconciler

Object = dict[str, Any]
Fault = Callable[[str, str, str], ApiError | None]
"""Verb, kind and name of a write -> the refusal that comes after it was done, or None."""


class Crash(BaseException):
    """The operator dies here."""


class FakeApi:
    """The methods of `kube.client.Api`."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.reads = 0
        self.before: Fault = lambda *_: None
        self.after: Fault = lambda *_: None
        self._versions = itertools.count(1)

    # Reads

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        self.reads += 1
        found = self.objects.get((kind, namespace or "", name))
        return _copied(found) if found is not None else None

    async def list(
        self, kind: str, namespace: str | None, selector: str = "", *, only_metadata: bool = False
    ) -> list[Object]:
        self.reads += 1
        wanted = dict(word.split("=", 1) for word in selector.split(",") if word)
        return [
            _copied(one)
            for (other, where, _), one in sorted(self.objects.items())
            if other == kind
            and namespace in (None, where)
            and wanted.items() <= one["metadata"].get("labels", {}).items()
        ]

    # Writes

    async def create(self, body: Object) -> Object:
        key = self._begin("create", body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", str(key))
        made = copy.deepcopy(body)
        made["metadata"]["uid"] = f"uid-{next(self._versions)}"
        return self._end("create", key, made)

    async def apply(self, body: Object, *, rehearse: bool = False) -> Object:
        key = self._begin(
            "rehearse" if rehearse else "apply", body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]
        )
        there = self.objects.get(key)
        if rehearse:
            return copy.deepcopy(body)
        made = merged(there, body) if there is not None else copy.deepcopy(body)
        made["metadata"].setdefault("uid", f"uid-{next(self._versions)}")
        if body["kind"] == "Service" and body["spec"].get("type") == "NodePort":
            for port in made["spec"]["ports"]:
                port.setdefault("nodePort", 30000 + next(self._versions))
        assert within(body, made)
        return self._end("apply", key, made)

    async def patch(self, kind: str, namespace: str, name: str, body: Object, part: str | None = None) -> Object:
        key = self._begin("patch", kind, namespace, name)
        there = self.objects.get(key)
        if there is None:
            raise ApiError(404, "NotFound", str(key))
        version = body["metadata"].get("resourceVersion") if "metadata" in body else None
        if version is not None and version != there["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", str(key))
        assert part in (None, "status")
        return self._end("patch", key, merged(there, body))

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str | None = None, version: str | None = None
    ) -> None:
        key = self._begin("delete", kind, namespace, name)
        there = self.objects.get(key)
        if there is not None and version not in (None, there["metadata"].get("resourceVersion")):
            raise ApiError(409, "Conflict", str(key))
        if there is not None and uid in (None, there["metadata"]["uid"]):
            if kind == "Pod":
                there["metadata"].setdefault("deletionTimestamp", "now")
            else:
                del self.objects[key]
        self._refuse(self.after, "delete", key)

    def _begin(self, verb: str, kind: str, namespace: str, name: str) -> tuple[str, str, str]:
        key = (kind, namespace, name)
        self._refuse(self.before, verb, key)
        return key

    def _end(self, verb: str, key: tuple[str, str, str], made: Object) -> Object:
        if made != self.objects.get(key):
            made["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[key] = made
        self._refuse(self.after, verb, key)
        return _copied(made)

    def _refuse(self, fault: Fault, verb: str, key: tuple[str, str, str]) -> None:
        if fault is self.after:
            self.writes.append((verb, key[0], key[2]))
        error = fault(verb, key[0], key[2])
        if error is not None:
            raise error

    # The rest of Kubernetes

    def work(self) -> None:
        """Bind volumes, complete jobs, start and end pods, as far as their dependencies exist."""
        for (kind, namespace, name), one in list(self.objects.items()):
            if kind == "Job" and "status" not in one:
                self._needs(one["spec"]["template"]["spec"], namespace)
                one["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
            elif kind == "Pod" and "deletionTimestamp" in one["metadata"]:
                del self.objects[kind, namespace, name]
            elif kind == "Pod" and "status" not in one:
                self._needs(one["spec"], namespace)
                one["status"] = {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
                    "containerStatuses": [{"state": {"running": {}}, "restartCount": 0}],
                }

    def _needs(self, spec: Object, namespace: str) -> None:
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", namespace, volume["configMap"]["name"]) in self.objects
            if "secret" in volume:
                assert ("Secret", namespace, volume["secret"]["secretName"]) in self.objects
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", namespace, claim) in self.objects, claim


OWN = {"KRaftCluster", "KRaftTopic", "KRaftUser", "KafkaTable", "KafkaMetadataArchive", "KafkaScrub"}
WATCHED = OWN | {
    "Pod",
    "PersistentVolumeClaim",
    "Service",
    "ConfigMap",
    "Job",
    "CronJob",
    "Deployment",
    "NetworkPolicy",
}


def watched(objects: dict[tuple[str, str, str], Object]) -> bytes:
    """The objects that watches show, without our own statuses."""
    shown = [
        (where, {**one, "status": None} if where[0] in OWN else one)
        for where, one in sorted(objects.items())
        if where[0] in WATCHED
    ]
    return marshal.dumps(shown, 0)  # later versions tell objects that are shared from others: equal ones would differ


class Watching(Reconciler):
    """Reports changes like watches: before a pass, if anything differs from the state before the previous pass."""

    def __init__(self, api: Any, *rest: Any, **named: Any) -> None:
        super().__init__(api, *rest, **named)
        self._objects: dict[tuple[str, str, str], Object] = api.objects
        self._before: bytes = b""

    async def reconcile(self, key: Key) -> float | None:
        now = watched(self._objects)
        if now != self._before:
            self._before = now
            self.touched(key)
        return await super().reconcile(key)


def _copied(one: Object) -> Object:
    """A copy as through JSON, much faster than `copy.deepcopy`."""
    return dict(marshal.loads(marshal.dumps(one)))


def merged(there: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(there) if isinstance(there, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
