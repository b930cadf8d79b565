"""Events on the resource, which `kubectl describe` shows. A failed event does not stop a step.

Events aggregate like the events of Kubernetes' own controllers. A repeated event increases the count of the first
event. If more than ten events within ten minutes differ in their message only, they are combined into one event with
the latest message.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.plan.model import steps as do
from kraft_operator.report.status import step_texts
from kraft_operator.specs.cluster import MANAGER

log = logging.getLogger("kraft_operator.events")

MESSAGE_CHARS_MAX: Final = 1000
"""The most characters of a message. The API server accepts 1024."""
REASON_CHARS_MAX: Final = 128
NAME_CHARS_MAX: Final = 230
"""The most characters of the resource's name in the event's name, which has 253 characters at most."""
SIMILAR_MAX: Final = 10
SIMILAR_S: Final = 600.0
SAME_S: Final = 3000.0
"""After this many seconds, a repeated event is posted as a new event. The API server deletes events after an hour."""
KNOWN_MAX: Final = 4096
COMBINED: Final = "(combined from similar events): "
NOT_FOUND: Final = 404

Kind = tuple[str, str, str]
"""Uid of the object, type and reason."""


@dataclass(slots=True)
class _Emitted:
    """An event that was posted."""

    name: str
    at: float
    count: int = 1


@dataclass(slots=True)
class _Similar:
    """Events of one kind: when they were posted, and the posted event of each message."""

    times: deque[float] = field(default_factory=deque)
    by_message: OrderedDict[str, _Emitted] = field(default_factory=OrderedDict)


class Events:
    """Posts and aggregates events."""

    def __init__(self, api: Api, reporter: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._reporter = reporter
        self._clock = clock
        self._known: OrderedDict[Kind, _Similar] = OrderedDict()

    async def steps(self, resource: dict[str, Any], steps: Sequence[do.Step]) -> None:
        """Post steps of one kind. Steps that differ in their node only share one event."""
        for text in step_texts(steps):
            await self.emit(resource, "Normal", type(steps[0]).__name__, text)

    async def emit(
        self, resource: dict[str, Any], kind: str, reason: str, message: str, *, combine: bool = True
    ) -> None:
        """Post an event on a resource; `kind` is Normal or Warning. Events about lost data must not be combined."""
        metadata = resource["metadata"]
        key, now = (metadata.get("uid", metadata["name"]), kind, reason), self._clock()
        similar = self._known.setdefault(key, _Similar())
        self._known.move_to_end(key)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        while similar.times and now - similar.times[0] > SIMILAR_S:
            similar.times.popleft()
        text, known = message[:MESSAGE_CHARS_MAX], similar.by_message.get(message)
        if known is None:
            similar.times.append(now)
            if combine and len(similar.times) > SIMILAR_MAX:
                message, text = COMBINED, f"{COMBINED}{message}"[:MESSAGE_CHARS_MAX]
                known = similar.by_message.get(message)
        try:
            if known is None or now - known.at > SAME_S or not await self._again(metadata, known, text):
                similar.by_message[message] = await self._new(resource, kind, reason, text)
        except ApiError as error:
            log.info("event was not posted error=%s", error)
        while len(similar.by_message) > SIMILAR_MAX + 1:
            similar.by_message.popitem(last=False)

    async def _again(self, metadata: dict[str, Any], known: _Emitted, message: str) -> bool:
        """Increase the count of an event. Returns False if the event no longer exists."""
        patch = {"count": known.count + 1, "lastTimestamp": _now(), "message": message}
        try:
            await self._api.patch("Event", metadata["namespace"], known.name, patch)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        known.count += 1
        known.at = self._clock()
        return True

    async def _new(self, resource: dict[str, Any], kind: str, reason: str, message: str) -> _Emitted:
        metadata, now = resource["metadata"], _now()
        name = f"{metadata['name'][:NAME_CHARS_MAX].rstrip('-.')}.{uuid.uuid4().hex[:16]}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": resource.get("kind", "KRaftCluster"),
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata.get("uid", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "type": kind,
            "reason": reason[:REASON_CHARS_MAX],
            "message": message,
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": self._reporter,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._api.create(event)
        return _Emitted(name, self._clock())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
