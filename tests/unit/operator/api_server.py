"""An API server over HTTP, as far as the operator and kopf use one: discovery, verbs with preconditions, watches.

It keeps objects in memory and counts requests. Fault model: any request may be refused before it takes effect
(`refuse`); watches may get 410 (`forget`). Not modelled: admission, authorization, pages of lists, ownership of fields
(an apply is a merge). Nothing acts on objects: a test, or the benchmark, plays kubelet and controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import uuid
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from aiohttp import web

from kraft_operator.kube.client import PLURALS
from tests.unit.operator.fake_kubernetes import merged

Object = dict[str, Any]
KINDS = {where: kind for kind, where in PLURALS.items()}
"""By group and version, and plural."""
NAMED = KINDS | {
    ("api/v1", "namespaces"): "Namespace",
    ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"): "CustomResourceDefinition",
}
"""With those that kopf only wants to know of."""
PATH = re.compile(r"/(api/v1|apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(?:/(status))?$")
WORD = re.compile(r"([\w./-]+)(?:=([^,]*)| in \(([^)]*)\))")
EVENTS_MAX = 100_000
BOOKMARK_S = 30.0


class Where(NamedTuple):
    """The object or list that a request is about."""

    kind: str
    namespace: str
    name: str
    part: str


class Event(NamedTuple):
    """A change that watches show."""

    version: int
    type: str
    kind: str
    object: Object


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.status, self.reason = status, reason


class ApiServer:
    """Use it in `async with`: gives its URL."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        """By verb (lists and watches by these words) and kind."""
        self.watches: list[dict[str, str]] = []
        """The parameters of each watch that has begun, with `kind`."""
        self.refuse: Callable[[str, Where], int | None] = lambda *_: None
        self.spoilt: set[str] = set()
        """Kinds whose watches report an error that no client can continue after, at their next event or bookmark."""
        self._version = 1
        self._oldest = 1
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._changed = asyncio.Event()

    async def __aenter__(self) -> str:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def forget(self) -> None:
        """End the watches; those that continue at an earlier version get 410."""
        self._version += 1
        self._oldest = self._version
        self._events.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    # What tests and the benchmark do to objects

    def put(self, kind: str, body: Object) -> Object:
        """Create or change an object of any owner."""
        metadata = body["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        before = self.objects.get(key)
        self._version += 1
        changed = before is None or before.get("spec") != body.get("spec")
        generation = (0 if before is None else before["metadata"].get("generation", 0)) + changed
        kept = (
            before["metadata"]
            if before is not None
            else {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}
        )
        fixed = {"uid": kept["uid"], "creationTimestamp": kept["creationTimestamp"], "generation": generation}
        group, _ = PLURALS[kind]
        version = group.removeprefix("apis/").removeprefix("api/")
        made = {**body, "kind": kind, "apiVersion": version}
        made["metadata"] = {**metadata, **fixed, "resourceVersion": str(self._version)}
        if before is None or _shown(before) != _shown(made):
            self.objects[key] = made
            self._show("ADDED" if before is None else "MODIFIED", kind, made)
        return self.objects[key]

    def remove(self, kind: str, namespace: str, name: str) -> None:
        gone = self.objects.pop((kind, namespace, name))
        self._version += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
        self._show("DELETED", kind, gone)

    def _show(self, type_: str, kind: str, one: Object) -> None:
        self._events.append(Event(self._version, type_, kind, one))
        self._changed.set()
        self._changed = asyncio.Event()

    # Requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        found = PATH.match(request.path)
        if found is None or (found[1], found[3]) not in KINDS:
            return self._discovery(request.path)
        where = Where(KINDS[found[1], found[3]], found[2] or "", found[4] or "", found[5] or "")
        watches = request.query.get("watch") == "true"
        verb = "watch" if watches else "list" if request.method == "GET" and not where.name else request.method.lower()
        self.requests[verb, where.kind] += 1
        status = self.refuse(verb, where)
        if status is not None:
            return _status(status, "Refused", "by the test")
        try:
            if watches:
                answer = web.StreamResponse()
                with contextlib.suppress(ConnectionResetError):  # the watcher has disconnected
                    await self._watch(request, where, answer)
                return answer
            body = json.loads(await request.read() or b"{}")
            return web.json_response(self._verb(verb, where, body, request))
        except _RefusedError as error:
            return _status(error.status, error.reason, str(error))

    def _verb(self, verb: str, where: Where, body: Object, request: web.Request) -> Object:
        key = (where.kind, where.namespace, where.name)
        there = self.objects.get(key)
        if verb == "list":
            return self._list(where, request)
        if verb == "post":
            key = (where.kind, where.namespace, body["metadata"]["name"])
            if key in self.objects:
                raise _RefusedError(409, "AlreadyExists")
            return self.put(where.kind, body)
        if verb == "patch" and "apply-patch" in request.content_type and there is None:
            return body if request.query.get("dryRun") else self.put(where.kind, body)
        if there is None:
            raise _RefusedError(404, "NotFound")
        if verb == "get":
            return there
        wanted = {**body.get("metadata", {}), **body.get("preconditions", {})}
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) not in (None, there["metadata"][name]):
                raise _RefusedError(409, "Conflict", f"{name} is {there['metadata'][name]}")
        if verb == "delete":
            self.remove(*key)
            return {"kind": "Status", "status": "Success"}
        if where.part:
            body = {"status": body.get("status")}
        elif where.kind.startswith(("KRaft", "Kafka")):
            body = {name: value for name, value in body.items() if name != "status"}
        made = body if verb == "put" else merged(there, body)
        return made if request.query.get("dryRun") else self.put(where.kind, made)

    def _list(self, where: Where, request: web.Request) -> Object:
        found = [
            one
            for (kind, namespace, _), one in self.objects.items()
            if kind == where.kind
            and where.namespace in ("", namespace)
            and _selected(one, request.query.get("labelSelector", ""))
        ]
        if "PartialObjectMetadata" in request.headers.get("Accept", ""):
            # As the real server: null for an empty list.
            found = [{"metadata": one["metadata"]} for one in found] or None  # type: ignore[assignment]
        return {"items": found, "metadata": {"resourceVersion": str(self._version)}}

    async def _watch(self, request: web.Request, where: Where, answer: web.StreamResponse) -> None:
        if not request.query.get("timeoutSeconds", "1").isdecimal():
            raise _RefusedError(400, "BadRequest", "timeoutSeconds: a whole number is wanted")
        self.watches.append({"kind": where.kind, **request.query})
        await answer.prepare(request)
        since = int(request.query.get("resourceVersion", "0") or 0)
        end = asyncio.get_running_loop().time() + float(request.query.get("timeoutSeconds", "300"))

        async def say(type_: str, one: Object) -> None:
            await answer.write(json.dumps({"type": type_, "object": one}).encode() + b"\n")

        began_at = self._oldest
        while (left_s := end - asyncio.get_running_loop().time()) > 0 and began_at == self._oldest:
            if since < self._oldest - 1:
                await say("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
                return
            changed = self._changed
            if where.kind in self.spoilt:
                await say("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "spoilt"})
                return
            newer = list(itertools.takewhile(lambda one: one.version > since, reversed(self._events)))  # noqa: B023
            for event in reversed(newer):
                since = event.version
                mine = where.namespace in ("", event.object["metadata"].get("namespace", ""))
                if (
                    event.kind == where.kind
                    and mine
                    and _selected(event.object, request.query.get("labelSelector", ""))
                ):
                    await say(event.type, event.object)
            try:
                async with asyncio.timeout(min(BOOKMARK_S, left_s)):
                    await changed.wait()
            except TimeoutError:
                await say("BOOKMARK", {"kind": where.kind, "metadata": {"resourceVersion": str(self._version)}})
                since = self._version

    def _discovery(self, path: str) -> web.Response:
        groups = sorted({where for where, _ in NAMED if where.startswith("apis/")})
        if path == "/api":
            return web.json_response({"versions": ["v1"]})
        if path == "/apis":
            found = []
            for one in groups:
                _, name, version = one.split("/")
                served = {"groupVersion": f"{name}/{version}", "version": version}
                found.append({"name": name, "versions": [served], "preferredVersion": served})
            return web.json_response({"groups": found})
        resources = [
            {
                "name": plural,
                "kind": kind,
                "namespaced": kind not in {"Node", "Namespace", "CustomResourceDefinition"},
                "singularName": kind.lower(),
                "verbs": ["get", "list", "watch", "create", "patch", "delete"],
            }
            for (where, plural), kind in NAMED.items()
            if f"/{where}" == path
        ]
        return web.json_response({"resources": resources}) if resources else _status(404, "NotFound", path)


def _shown(one: Object) -> Object:
    """The whole object without version and generation."""
    return {**one, "metadata": {**one["metadata"], "resourceVersion": "", "generation": 0}}


def _status(status: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    return web.json_response(body, status=status)


def _selected(one: Object, selector: str) -> bool:
    labels = one["metadata"].get("labels", {})
    return all(
        labels.get(key) in ([value] if not several else several.split(","))
        for key, value, several in WORD.findall(selector)
    )
