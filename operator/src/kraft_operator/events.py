"""Events on the resource: what `kubectl describe` shows. A step that could not be told is done nevertheless."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.plan import steps as do
from kraft_operator.report.status import said
from kraft_operator.specs.cluster import MANAGER

log = logging.getLogger("kraft_operator.events")

MESSAGE_CHARS_MAX: Final = 1000
"""The API server takes 1024."""
REASON_CHARS_MAX: Final = 128
NAME_CHARS_MAX: Final = 230
"""Of the resource in the event's name, which has 253 characters at most."""


class Events:
    """Posts them."""

    def __init__(self, api: Api, reporter: str) -> None:
        self._api = api
        self._reporter = reporter

    async def step(self, resource: dict[str, Any], step: do.Step) -> None:
        """A step that was taken."""
        await self.tell(resource, "Normal", type(step).__name__, said(step))

    async def tell(self, resource: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """`kind` is Normal or Warning."""
        metadata = resource["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = metadata["name"][:NAME_CHARS_MAX].rstrip("-.")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
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
            "message": message[:MESSAGE_CHARS_MAX],
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": self._reporter,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.create(event)
        except ApiError as error:
            log.info("an event could not be told: %s", error)
