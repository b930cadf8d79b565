"""Shared parts of tests of whole passes: the sample in an API server in memory, and its operator."""

from __future__ import annotations

import itertools
import time
from typing import Any

import yaml

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.events import Events
from kraft_operator.metrics import Metrics
from kraft_operator.reconcile import Key
from tests.unit.operator.fake_kubernetes import FakeApi, Watching
from tests.unit.operator.sample import ROOT

KEY = Key("demo", "sample")


def new_resource() -> dict[str, Any]:
    """The resource as the API server stores it, with the definition's defaults."""
    document = yaml.safe_load((ROOT / "deploy/samples/plaintext.yaml").read_text())
    spec = KRaftClusterSpec.model_validate({**document["spec"], "podDisruptionBudget": {"enabled": True}})
    document["spec"] = spec.model_dump(by_alias=True, exclude_none=True)
    document["metadata"] |= {"name": "sample", "namespace": "demo", "uid": "u", "generation": 1, "resourceVersion": "0"}
    return dict(document)


def new_api() -> FakeApi:
    api = FakeApi()
    api.objects["KRaftCluster", *KEY] = new_resource()
    return api


def new_operator(api: Any) -> Watching:
    """An operator with a clock that advances at each reading: a view of the last write's millisecond is not trusted."""
    looks = itertools.count()
    return Watching(api, Events(api, "test"), Metrics(), clock=lambda: time.monotonic() + next(looks) / 500)


def condition(api: FakeApi, kind: str) -> dict[str, Any]:
    found = api.objects["KRaftCluster", *KEY]["status"]["conditions"]
    return next(dict(one) for one in found if one["type"] == kind)


def pods_of(api: FakeApi) -> list[str]:
    return [name for kind, _, name in sorted(api.objects) if kind == "Pod"]


SIX = ["sample-1", "sample-101", "sample-102", "sample-103", "sample-2", "sample-3"]


async def settle(api: FakeApi, operator: Watching, passes: int = 40) -> None:
    for _ in range(passes):
        if pods_of(api) == SIX and all("status" in one for (kind, *_), one in api.objects.items() if kind == "Pod"):
            return
        await operator.reconcile(KEY)
        api.work()
    raise AssertionError(f"only {pods_of(api)}: {api.objects['KRaftCluster', *KEY].get('status')}")
