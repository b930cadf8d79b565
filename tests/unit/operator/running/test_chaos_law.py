"""The laws of the end-to-end chaos find real faults, and excuse recent faults of the chaos itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from e2e.chaos.law import Law

PODS = "/api/v1/namespaces/kraft-operator/pods"
CLAIMS = "/api/v1/namespaces/kraft-operator/persistentvolumeclaims"


class _Server:
    """Lists pods, some of them ready."""

    def __init__(self, ready: list[int]) -> None:
        self._ready = ready

    async def get(self, _path: str, _headers: dict[str, str]) -> Any:
        def pod(number: int) -> Any:
            labels = {"kraftcluster.io/node": str(number)}
            state = {"type": "Ready", "status": str(number in self._ready)}
            return {"metadata": {"name": f"c-{number}", "labels": labels}, "status": {"conditions": [state]}}

        return {"items": [pod(number) for number in (1, 2, 3, 101, 102, 103)]}


def _judged(ready: list[int], path: str, *, struck: bool = False, asked: int = 0) -> list[str]:
    law = Law(_Server(ready), "c", "t")  # type: ignore[arg-type]
    law.given_up = {asked}
    if struck:
        law.struck_at = time.monotonic()
    asyncio.run(law.judge("DELETE", path))
    return law.broken


@pytest.mark.parametrize("number", [3, 103])
def test_a_node_that_the_quorum_or_isrs_need_must_not_be_stopped(number: int) -> None:
    assert not _judged([1, 2, 3, 101, 102, 103], f"{PODS}/c-{number}")
    fewer = [2, 3, 102, 103]
    assert len(_judged(fewer, f"{PODS}/c-{number}")) == 1
    assert not _judged(fewer, f"{PODS}/c-{number}", struck=True), "nobody can look and act at one moment"


def test_a_stopped_node_may_be_recreated() -> None:
    assert not _judged([2, 102], f"{PODS}/c-1")


def test_a_volume_is_deleted_only_by_a_replacement() -> None:
    assert len(_judged([], f"{CLAIMS}/data-c-101-0")) == 1
    assert not _judged([], f"{CLAIMS}/data-c-101-0", asked=101)
