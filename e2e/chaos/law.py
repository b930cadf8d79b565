"""Laws that the operator must never break, checked right before a request reaches the API server.

- A ready controller is deleted only if a majority of voters without it is ready.
- A ready broker is deleted only if two other brokers are ready: the sample's min.insync.replicas.
- A volume is deleted only after a request for its node's replacement.

Faults that the chaos itself caused within GRACE_S are excused, because the operator cannot look and act at the same
moment.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final

from e2e.chaos.proxy import Proxy
from e2e.kube import NAMESPACE

GRACE_S: Final = 6.0
"""The time that the operator's fence permits, and a moment for the report of the kubelet."""
BROKERS_MIN: Final = 2
PATH: Final = re.compile(r"/api/v1/namespaces/[^/]+/(pods|persistentvolumeclaims)/([^/]+)$")
NODE: Final = "kraftcluster.io/node"


class Law:
    """The laws of one cluster."""

    def __init__(self, proxy: Proxy, name: str, token: str) -> None:
        self._proxy, self._name = proxy, name
        self._headers = {"Authorization": f"Bearer {token}"}
        self.broken: list[str] = []
        self.judged = 0
        self.struck_at = float("-inf")
        """When the chaos last harmed a node."""
        self.given_up: set[int] = set()
        """Nodes with a requested replacement."""

    async def judge(self, verb: str, path: str) -> None:
        """Called before each write of the operator."""
        found = PATH.match(path)
        if verb != "DELETE" or found is None:
            return
        if found[1] == "persistentvolumeclaims":
            node = re.search(r"-(\d+)-\d+$", found[2])
            if node is None or int(node[1]) not in self.given_up:
                self.broken.append(f"volume {found[2]} is deleted without a request")
            return
        selector = f"app.kubernetes.io/instance={self._name},app.kubernetes.io/name=kraftcluster"
        listed = await self._proxy.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}", self._headers)
        self._deletes(found[2], listed.get("items", []))

    def _deletes(self, name: str, pods: list[dict[str, Any]]) -> None:
        ready = {int(one["metadata"]["labels"][NODE]): one["metadata"]["name"] for one in pods if _ready(one)}
        self.judged += 1
        stopped = next((number for number, pod in ready.items() if pod == name), None)
        if stopped is None or time.monotonic() - self.struck_at < GRACE_S:
            return
        controller = stopped < 100
        left = [number for number in ready if (number < 100) == controller and number != stopped]
        if len(left) < BROKERS_MIN:
            self.broken.append(f"{name} is stopped, and of its kind only {left} are ready")


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    up = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return up and "deletionTimestamp" not in pod["metadata"]
