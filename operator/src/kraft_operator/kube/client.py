"""Requests to the API server through the `kubernetes` package, with plain dictionaries.

The package provides the session: login, TLS, proxies, the pace of retries. Its models are not used, because they cost
memory and time. Every verb here takes and returns dictionaries (docs/decisions/0014).

Throttled requests (429) and failures of a restarting server (5xx, broken connections) are retried a few times, if a
repetition is harmless. All other failures reach the caller as `ApiError`.

A login may end at any time: a token expires, a certificate is rotated, the cluster gets another CA. Then the API server
answers 401, or TLS fails. The login is loaded again, and the request is sent once more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.utils.retry import Backoff, on_retry_after_error

from kraft_operator.kube.access import Access, NoAccessError, access
from kraft_operator.specs.cluster import MANAGER

log = logging.getLogger("kraft_operator.kube")

TRIES_MAX: Final = 5
PAUSE_S: float = 0.2
"""Before the second try, and doubled before each further one: all pauses together take 3 s. A failed pass is
repeated."""
PAUSE_S_MAX: Final = 10.0
"""The limit also applies if the API server requests a longer pause: the pass begins anew before that."""
TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 5.0
"""A lost packet at the start of a connection must not cost as much as a long list may."""
RENEWAL_S: Final = 10.0
"""Between two loads of the login: a login that is refused must not run an exec plugin in a loop."""
AT_ONCE_MAX: Final = 16
"""Requests in flight: a restart of the operator must not be a storm."""
PAGE: Final = 500
AGAIN: Final = frozenset({429, 500, 502, 503, 504})
UNAUTHORIZED: Final = 401
LASTING: Final = frozenset({400, 403, 422})
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

Object = dict[str, Any]
PLURALS: Final = {
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "Event": ("api/v1", "events"),
    "Node": ("api/v1", "nodes"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Job": ("apis/batch/v1", "jobs"),
    "CronJob": ("apis/batch/v1", "cronjobs"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Ingress": ("apis/networking.k8s.io/v1", "ingresses"),
    "Route": ("apis/route.openshift.io/v1", "routes"),
    "Certificate": ("apis/cert-manager.io/v1", "certificates"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "KRaftCluster": ("apis/kraftcluster.io/v1alpha1", "kraftclusters"),
    "KRaftUser": ("apis/kraftcluster.io/v1alpha1", "kraftusers"),
    "KRaftTopic": ("apis/kraftcluster.io/v1alpha1", "krafttopics"),
    "KafkaTable": ("apis/kraftcluster.io/v1alpha1", "kafkatables"),
    "KafkaMetadataArchive": ("apis/kraftcluster.io/v1alpha1", "kafkametadataarchives"),
    "KafkaScrub": ("apis/kraftcluster.io/v1alpha1", "kafkascrubs"),
}


class ApiError(Exception):
    """The API server refused a request, or did not answer (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason

    @property
    def lasting(self) -> bool:
        """Whether a retry cannot help until the request, a quota or a right changes."""
        return self.status in LASTING


def path(kind: str, namespace: str | None, name: str | None = None, part: str | None = None) -> str:
    """The path of a collection, an object or a subresource; `namespace` None for all, or for kinds without
    namespace.
    """
    group, plural = PLURALS[kind]
    words = [group, *(("namespaces", namespace) if namespace is not None else ()), plural, name, part]
    return "/" + "/".join(word for word in words if word)


@dataclass(slots=True)
class _Session:
    """A client of the package, and how many requests use it."""

    client: Any
    users: int = 0
    replaced: bool = False


class Api:
    """One connection pool. Use it in `async with`."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Access]] = access,
        count: Callable[[str, str, int], None] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Make a client; `load` returns the login, now and when it has ended; `count` gets verb, kind and status of
        answers.
        """
        self._login = load
        self._count = count or _uncounted
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_S))
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._session: _Session | None = None
        self._renewing = asyncio.Lock()
        self._renewed_at = float("-inf")
        self.namespace = "default"
        """The namespace of the login."""

    async def load(self) -> None:
        """Load the login, unless it is loaded. Raises NoAccessError."""
        if self._session is None:
            self._session = await self._connected()

    async def __aenter__(self) -> Api:
        """Log in. Raises NoAccessError."""
        await self.load()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.client.close()
            self._session = None

    async def _connected(self) -> _Session:
        found = await self._login()
        self.namespace = found.namespace
        found.configuration.connection_pool_maxsize = AT_ONCE_MAX
        found.configuration.client_session_kwargs = {"middlewares": (_sent_once,)}
        client = ApiClient(found.configuration)
        client.user_agent = MANAGER
        return _Session(client)

    async def _renew(self, old: _Session) -> bool:
        """Load the login again, unless that was done a moment ago. Returns whether it differs from `old`."""
        async with self._renewing:
            now = asyncio.get_running_loop().time()
            if self._session is old and now - self._renewed_at >= RENEWAL_S:
                self._renewed_at = now
                try:
                    self._session = await self._connected()
                except NoAccessError as error:
                    log.warning("login was not renewed error=%s", error)
                    return False
                old.replaced = True
                if not old.users:
                    await old.client.close()
                log.info("login is renewed")
            return self._session is not old

    # Verbs

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """Read an object. Returns None if it does not exist. Raises ApiError."""
        try:
            return await self._request("GET", kind, path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, kind: str, namespace: str | None, selector: str = "", *, only_metadata: bool = False
    ) -> list[Object]:
        """List objects of a kind by label. The answer is current, not from a cache of the API server."""
        found: list[Object] = []
        params = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {})}
        accept = METADATA if only_metadata else JSON
        while True:
            page = await self._request("GET", kind, path(kind, namespace), params=params, accept=accept)
            found += page["items"] or ()  # null for no metadata at all
            token = page["metadata"].get("continue")
            if not token:
                return found
            params["continue"] = token

    async def create(self, body: Object) -> Object:
        """Create an object. Raises ApiError 409 if it exists. Not retried without an answer: it may exist by now."""
        kind, namespace = body["kind"], body["metadata"].get("namespace")
        return await self._request(
            "POST", kind, path(kind, namespace), body=body, params={"fieldManager": MANAGER}, repeat=False
        )

    async def apply(self, body: Object, *, rehearse: bool = False) -> Object:
        """Apply on the server: removes fields that we owned and no longer set; fields of other owners stay.

        `rehearse`: only find out whether the API server would accept it.
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
        """Replace an object. Raises ApiError 409 if it has changed since it was read."""
        kind, metadata = body["kind"], body["metadata"]
        return await self._request("PUT", kind, path(kind, metadata["namespace"], metadata["name"]), body=body)

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str | None = None, version: str | None = None
    ) -> None:
        """Delete an object; allowed if it is missing. An object with another uid is left alone.

        With `version`, deletes only the observed version and never repeats the request. Raises ApiError 409 if the
        object has changed since, and ApiError for all other failures.
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

    # Shared parts

    async def _request(
        self,
        verb: str,
        kind: str,
        where: str,
        *,
        body: Object | None = None,
        params: Mapping[str, str] | None = None,
        content: str = "",
        accept: str = JSON,
        repeat: bool = True,
    ) -> Object:
        headers = {"Content-Type": content or (MERGE if verb == "PATCH" else JSON), "Accept": accept}

        async def once() -> Object:
            return await self._send(verb, kind, where, params, headers, body)

        def again(error: Exception) -> bool:
            """A throttled request was not served; any other request may have been carried out nevertheless."""
            throttled = isinstance(error, ApiError) and error.status == 429 and verb != "DELETE"
            return isinstance(error, _PassingError) and (repeat or throttled)

        async def pause(seconds: float) -> None:
            await asyncio.sleep(min(seconds, PAUSE_S_MAX))

        # Jitter, so that replicas do not reconnect together.
        backoff = Backoff(steps=TRIES_MAX, duration=PAUSE_S, factor=2.0, jitter=1.0)
        answer: Object = await on_retry_after_error(backoff, again, once, pause)
        return answer

    async def _send(
        self,
        verb: str,
        kind: str,
        where: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: Object | None,
    ) -> Object:
        """Send with the login, loaded again if it has ended. A request refused for that reason was not carried out."""
        session = self._session
        assert session is not None, "used outside of its `async with`"
        try:
            return await self._once(session, verb, kind, where, params, headers, body)
        except (ApiError, _LoginError) as error:
            ended = isinstance(error, _LoginError) or error.status == UNAUTHORIZED
            if not ended or not await self._renew(session):
                raise error.api_error if isinstance(error, _LoginError) else error from None
        renewed = self._session
        assert renewed is not None
        try:
            return await self._once(renewed, verb, kind, where, params, headers, body)
        except _LoginError as error:
            raise error.api_error from None

    async def _once(
        self,
        session: _Session,
        verb: str,
        kind: str,
        where: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: Object | None,
    ) -> Object:
        session.users += 1
        try:
            async with self._slots:
                client = session.client
                query = list((params or {}).items())
                request = await client.param_serialize(
                    verb, where, {}, query, dict(headers), body, auth_settings=["BearerToken"]
                )
                answer = await client.call_api(*request, _request_timeout=self._timeout)
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count(verb, kind, 0)
            api_error = _PassingError(0, type(error).__name__, f"{verb} {where}: {error}")
            raise (_LoginError(api_error) if _of_tls(error) else api_error) from error
        finally:
            session.users -= 1
            if session.replaced and not session.users:
                await session.client.close()
        self._count(verb, kind, answer.status)
        if answer.status < 300:
            return dict(json.loads(text))
        raise _failure(answer.status, dict(answer.headers), text, f"{verb} {where}")


class _PassingError(ApiError):
    """A failure that may pass. The package reads from `headers` how long the API server wants no requests."""

    def __init__(self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, reason, message)
        self.headers = dict(headers or {})


class _LoginError(Exception):
    """TLS failed: our certificate or the CA of the API server may have been replaced."""

    def __init__(self, api_error: ApiError) -> None:
        super().__init__(str(api_error))
        self.api_error = api_error


async def _sent_once(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """aiohttp repeats a DELETE if its connection breaks; only this module may decide to repeat."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error) or type(error).__name__) from error


def _of_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        error = error.__cause__
    return error is not None


def _uncounted(*_: object) -> None:
    pass


def _failure(status: int, headers: Mapping[str, str], text: bytes, what: str) -> ApiError:
    try:
        document = json.loads(text)
        reason, message = document.get("reason", ""), f"{what}: {document.get('message', '')}"
    except (ValueError, AttributeError):
        reason, message = "", f"{what}: {text[:200].decode('utf-8', 'replace')}"
    return _PassingError(status, reason, message, headers) if status in AGAIN else ApiError(status, reason, message)
