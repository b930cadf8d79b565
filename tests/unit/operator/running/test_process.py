"""The operator as a process, against an API server that speaks HTTP: Lease, watches, probes, metrics, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import yaml

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.handlers import EXIT_S
from tests.unit.operator.api_server import ApiServer
from tests.unit.operator.sample import ROOT

START_S = 60.0
"""On a busy machine the imports alone take seconds."""
Check = Callable[[], Any]


async def _until(check: Check, within_s: float = START_S) -> Any:
    async with asyncio.timeout(within_s):
        while not (found := check()):
            await asyncio.sleep(0.05)
        return found


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "config"
    document = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u", "namespace": "demo"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def cluster(name: str, **changes: Any) -> dict[str, Any]:
    """The sample as the API server stores it, with the definition's defaults."""
    document = yaml.safe_load((ROOT / "deploy/samples/plaintext.yaml").read_text())
    spec = KRaftClusterSpec.model_validate({**document["spec"], "image": "a:1", **changes})
    metadata = {"name": name, "namespace": "demo"}
    return {"metadata": metadata, "spec": spec.model_dump(by_alias=True, exclude_none=True)}


@contextlib.asynccontextmanager
async def _running(
    folder: Path, url: str, *words: str, **more: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, int]]:
    """The process, and its health and metrics ports."""
    health, metrics = _port(), _port()
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KRAFT_")},
        "KUBECONFIG": str(_kubeconfig(folder, url)),
        "KRAFT_NAMESPACES": "demo",
        "KRAFT_LEASE": "operator",
        "KRAFT_LEASE_SECONDS": "3",
        "KRAFT_HEALTH_PORT": str(health),
        "KRAFT_METRICS_PORT": str(metrics),
        **more,
    }
    command = words or (sys.executable, "-m", "kraft_operator")
    output = (folder / "output").open("wb")
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=output, stderr=output)
    try:
        yield process, health, metrics
    except BaseException:
        print((folder / "output").read_text())
        raise
    finally:
        output.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _answer(port: int, path: str) -> str:
    def ask() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(ask)


def _holder(server: ApiServer) -> str:
    lease = server.objects.get(("Lease", "demo", "operator"), {})
    return str(lease.get("spec", {}).get("holderIdentity", ""))


def _made(server: ApiServer, kind: str) -> list[str]:
    return sorted(name for other, _, name in server.objects if other == kind)


def test_the_operator_takes_the_lease_works_and_returns_it(tmp_path: Path) -> None:
    async def main() -> None:
        server = ApiServer()
        async with server as url, _running(tmp_path, url) as (process, health, metrics):
            await _until(lambda: _holder(server))
            server.put("KRaftCluster", cluster("one"))  # a watch reports it
            await _until(lambda: len(_made(server, "Job")) == 6)
            assert json.loads(await _answer(health, "/healthz"))["operator"]["state"] == "works"
            assert "kraft_operator_leader 1.0" in await _answer(metrics, "/metrics")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), START_S) == 0
            assert _holder(server) == "", "the next one takes it at once"

    asyncio.run(main())


def test_the_operator_exits_with_1_if_it_loses_the_lease(tmp_path: Path) -> None:
    async def main() -> None:
        server = ApiServer()
        async with server as url, _running(tmp_path, url) as (process, _, _):
            await _until(lambda: _holder(server))
            lease = server.objects["Lease", "demo", "operator"]
            server.put("Lease", {**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})
            assert await asyncio.wait_for(process.wait(), START_S) == 1
            assert _holder(server) == "thief"

    asyncio.run(main())


STUBBORN = """
import asyncio, sys
from kraft_operator import leader, main

async def never_ends():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

start = leader.Operator.start

async def start_both(self):
    self.stubborn = asyncio.create_task(never_ends())
    await start(self)

leader.Operator.start = start_both
sys.exit(main.main())
"""
"""An operator with a task that survives its cancellation, as watches of kopf may."""


def test_the_operator_ends_soon_if_a_watch_cannot_go_on_and_kopf_does_not_end(tmp_path: Path) -> None:
    """Seen under chaos: aiohttp raised what kopf does not expect, and the process took ten minutes to end. Meanwhile it
    saw no event."""

    async def main() -> None:
        server = ApiServer()
        async with server as url, _running(tmp_path, url, sys.executable, "-c", STUBBORN) as (process, _, _):
            await _until(lambda: _holder(server))
            server.spoilt.add("KRaftCluster")
            server.put("KRaftCluster", cluster("one"))  # wakes the watch
            assert await asyncio.wait_for(process.wait(), EXIT_S + START_S) != 0
            assert _holder(server) == "", "the next one takes it at once"

    asyncio.run(main())


def test_a_waiting_operator_is_alive_and_writes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        server = ApiServer()
        server.put("KRaftCluster", cluster("one"))
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 600}
        server.put("Lease", {"metadata": {"name": "operator", "namespace": "demo"}, "spec": spec})
        async with server as url, _running(tmp_path, url) as (process, health, _):
            await _until(lambda: server.requests["get", "Lease"] > 2)
            await _until(lambda: any(one["kind"] == "KRaftCluster" for one in server.watches))
            assert json.loads(await _answer(health, "/healthz"))["operator"]["state"] == "waits for the lease"
            assert _made(server, "Event") == _made(server, "ConfigMap") == []
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), START_S) == 0
            assert _holder(server) == "other"

    asyncio.run(main())


def test_watches_filter_on_the_server_and_list_again_after_410(tmp_path: Path) -> None:
    async def main() -> None:
        server = ApiServer()
        async with server as url, _running(tmp_path, url) as (_, _, _):
            await _until(lambda: {"Pod", "Job", "Service", "KRaftCluster"} <= {one["kind"] for one in server.watches})
            for one in server.watches:
                ours = one["kind"].startswith(("KRaft", "Kafka"))
                assert ours or "app.kubernetes.io/name in (" in one["labelSelector"]
                assert int(one["resourceVersion"]) > 0
                assert one["allowWatchBookmarks"] == "true"
            lists = server.requests["list", "Service"]
            server.put("Service", {"metadata": {"name": "other", "namespace": "demo"}})  # the versions advance
            server.forget()
            await _until(lambda: server.requests["list", "Service"] > lists)
            server.put("KRaftCluster", cluster("one"))
            await _until(lambda: len(_made(server, "Job")) == 6)

    asyncio.run(main())


def test_the_operator_survives_an_api_server_that_refuses_for_a_while(tmp_path: Path) -> None:
    async def main() -> None:
        server = ApiServer()
        server.refuse = lambda verb, where: 503 if where.kind != "Lease" else None
        async with server as url, _running(tmp_path, url) as (process, _, _):
            await _until(lambda: _holder(server))
            server.put("KRaftCluster", cluster("one"))
            await asyncio.sleep(2)
            server.refuse = lambda *_: None
            await _until(lambda: len(_made(server, "Job")) == 6)
            assert process.returncode is None

    asyncio.run(main())


def test_kopf_runs_the_operator_for_development(tmp_path: Path) -> None:
    async def main() -> None:
        server = ApiServer()
        server.put("KRaftCluster", cluster("one"))
        kopf = [sys.executable, "-m", "kopf", "run", "-m", "kraft_operator.app", "-n", "demo", "--standalone"]
        port = _port()
        liveness = f"--liveness=http://127.0.0.1:{port}/healthz"
        async with server as url, _running(tmp_path, url, *kopf, liveness, KRAFT_LEASE="") as (process, _, _):
            await _until(lambda: len(_made(server, "Job")) == 6)
            assert json.loads(await _answer(port, "/healthz"))["operator"]["state"] == "works"
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), START_S) == 0

    asyncio.run(main())
