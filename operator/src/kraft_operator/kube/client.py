"""Requests to the API server. Throttled ones (429) and servers that come back (5xx, connections that broke) are tried
again a few times where that can do no harm; all else is the caller's, as `ApiError`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

import aiohttp

from kraft_operator.kube.config import Access
from kraft_operator.specs.cluster import MANAGER

TRIES_MAX: Final = 5
PAUSE_S: Final = 0.2
"""Before the second try; doubled for each further one. All five take 3 s: a pass that fails is tried again anyway."""
PAUSE_S_MAX: Final = 10.0
TIMEOUT_S: Final = 30.0
AT_ONCE_MAX: Final = 16
"""Requests in flight: a restart of the operator must not be a storm."""
PAGE: Final = 500
AGAIN: Final = frozenset({429, 500, 502, 503, 504})
LASTING: Final = frozenset({400, 403, 422})
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"

Object = dict[str, Any]
PLURALS: Final = {
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "Event": ("api/v1", "events"),
    "Node": ("api/v1", "nodes"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Job": ("apis/batch/v1", "jobs"),
    "CronJob": ("apis/batch/v1", "cronjobs"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "KRaftCluster": ("apis/kraftcluster.io/v1alpha1", "kraftclusters"),
    "KRaftTopic": ("apis/kraftcluster.io/v1alpha1", "krafttopics"),
    "KafkaTable": ("apis/kraftcluster.io/v1alpha1", "kafkatables"),
    "KafkaMetadataArchive": ("apis/kraftcluster.io/v1alpha1", "kafkametadataarchives"),
    "KafkaScrub": ("apis/kraftcluster.io/v1alpha1", "kafkascrubs"),
}


class ApiError(Exception):
    """The API server's no, or its silence (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason

    @property
    def lasting(self) -> bool:
        """Whether it stays so until somebody changes something: what was asked for, a quota, a right."""
        return self.status in LASTING


def path(kind: str, namespace: str | None, name: str | None = None, part: str | None = None) -> str:
    """Of a collection, an object or a subresource; `namespace` None for all, or for kinds that have none."""
    group, plural = PLURALS[kind]
    words = [group, *(("namespaces", namespace) if namespace is not None else ()), plural, name, part]
    return "/" + "/".join(word for word in words if word)


class Api:
    """A session. Use it in `async with`."""

    def __init__(self, access: Access, count: Callable[[str, str, int], None] | None = None) -> None:
        """`count` is told verb, kind and status of every answer."""
        self._access = access
        self._count = count or _uncounted
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        connector = aiohttp.TCPConnector(ssl=self._access.tls, limit=AT_ONCE_MAX)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Verbs

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """None when there is none."""
        try:
            return await self._request("GET", kind, path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[Object]:
        """All of a kind, by label. What it says is current, not from a cache of the API server."""
        found: list[Object] = []
        params = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {})}
        while True:
            page = await self._request("GET", kind, path(kind, namespace), params=params)
            found += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return found
            params["continue"] = token

    async def create(self, body: Object) -> Object:
        """Raises ApiError 409 when it is there already. Not tried again after a silence: it may have been made."""
        kind, namespace = body["kind"], body["metadata"].get("namespace")
        return await self._request(
            "POST", kind, path(kind, namespace), body=body, params={"fieldManager": MANAGER}, repeat=False
        )

    async def apply(self, body: Object, *, rehearse: bool = False) -> Object:
        """Server-side: what we no longer name of what we owned goes away; what others own stays.

        `rehearse`: only find out whether the API server would take it.
        """
        kind, metadata = body["kind"], body["metadata"]
        params = {"fieldManager": MANAGER, "force": "true", **({"dryRun": "All"} if rehearse else {})}
        where = path(kind, metadata.get("namespace"), metadata["name"])
        return await self._request("PATCH", kind, where, body=body, params=params, content=APPLY)

    async def patch(self, kind: str, namespace: str, name: str, body: Object, part: str | None = None) -> Object:
        """A merge patch. With `metadata.resourceVersion` in it: raises ApiError 409 for an object that has changed."""
        params = {"fieldManager": MANAGER}
        return await self._request("PATCH", kind, path(kind, namespace, name, part), body=body, params=params)

    async def replace(self, body: Object) -> Object:
        """Raises ApiError 409 when it is another by now."""
        kind, metadata = body["kind"], body["metadata"]
        return await self._request("PUT", kind, path(kind, metadata["namespace"], metadata["name"]), body=body)

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str | None = None, version: str | None = None
    ) -> None:
        """Also fine when it is gone; one of another uid is left alone.

        With `version` only the object as it was seen is deleted, and the request is not repeated: it raises ApiError
        409 for one that has changed since, and whatever else went wrong.
        """
        body: Object = {"propagationPolicy": "Background"}
        known = {"uid": uid, "resourceVersion": version}
        if preconditions := {key: value for key, value in known.items() if value is not None}:
            body["preconditions"] = preconditions
        try:
            await self._request("DELETE", kind, path(kind, namespace, name), body=body, repeat=version is None)
        except ApiError as error:
            if error.status != 404 and (error.status != 409 or version is not None):
                raise

    # What they have in common

    async def _request(
        self,
        verb: str,
        kind: str,
        where: str,
        *,
        body: Object | None = None,
        params: Mapping[str, str] | None = None,
        content: str = "",
        repeat: bool = True,
    ) -> Object:
        content = content or (MERGE if verb == "PATCH" else "application/json")
        pause_s = PAUSE_S
        for tries_left in range(TRIES_MAX - 1, -1, -1):
            wait_s = pause_s * (1 + random.random())  # noqa: S311  (so that replicas do not come back as one)
            try:
                return await self._once(verb, kind, where, body, params, content)
            except _AgainError as again:
                # Whoever is throttled was not served; whatever else went wrong may have been done nevertheless.
                if not tries_left or not (repeat or (again.error.status == 429 and verb != "DELETE")):
                    raise again.error from None
                wait_s = max(wait_s, again.after_s)
            await asyncio.sleep(min(wait_s, PAUSE_S_MAX))
            pause_s *= 2
        raise AssertionError

    async def _once(
        self, verb: str, kind: str, where: str, body: Object | None, params: Mapping[str, str] | None, content: str
    ) -> Object:
        assert self._session is not None, "used outside of its `async with`"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content, "Accept": "application/json", **self._access.headers()}
        try:
            async with (
                self._slots,
                self._session.request(
                    verb, self._access.server + where, data=data, params=params, headers=headers
                ) as answer,
            ):
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count(verb, kind, 0)
            raise _AgainError(ApiError(0, type(error).__name__, f"{verb} {where}: {error}")) from error
        self._count(verb, kind, answer.status)
        if answer.status < 300:
            return dict(json.loads(text))
        failure = _failure(answer.status, text, f"{verb} {where}")
        if answer.status in AGAIN:
            after = answer.headers.get("Retry-After", "")
            raise _AgainError(failure, float(after) if after.isdigit() else 0.0)
        raise failure


class _AgainError(Exception):
    """May be better next time."""

    def __init__(self, error: ApiError, after_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


def _uncounted(*_: object) -> None:
    pass


def _failure(status: int, text: bytes, what: str) -> ApiError:
    try:
        document = json.loads(text)
        return ApiError(status, document.get("reason", ""), f"{what}: {document.get('message', '')}")
    except ValueError:
        return ApiError(status, "", f"{what}: {text[:200].decode('utf-8', 'replace')}")
