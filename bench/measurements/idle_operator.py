"""The cost of idle clusters and pipelines.

`python -m bench.measurements.idle_operator --clusters 100 --pipelines 20 --seconds 300`

The operator runs as its own process against an API server that speaks HTTP and counts requests. Nodes are servers on
addresses of 127.77.0.0/16 that answer Kafka's protocol and `/status`. Kubelet, controllers and scheduler are a loop.
Once every cluster is Ready, requests, CPU and resident memory of the operator are measured for some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from kraft_operator.api.cluster import CONTROLLER_PORT, KRaftClusterSpec
from kraft_operator.protocol import VERSIONS
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import API
from kraft_protocol.wire.codec import decode
from kraft_protocol.wire.frames import decode_request_header, encode_response
from tests.unit.operator.api_server import ApiServer
from tests.unit.operator.sample import ROOT, SPECS

Object = dict[str, Any]
PORT, METRICS = 39092, 39404
DRIVER = 9404
NET = "127.77"
TICK_S = 0.5


class Cluster:
    """The responses of one cluster's nodes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"c{number}"
        self.id = ""
        self.nodes: dict[int, str] = {}
        """The address of each running node, by node id."""
        self.config: dict[str, str] = {}
        self.level = 1

    def answer(self, request: Any) -> Any:
        """The response to a request."""
        now = int(time.time() * 1000)
        match request:
            case m.ApiVersionsRequest():
                served = [m.ApiVersionsResponse.ApiVersion(key, version, version) for key, version in VERSIONS.items()]
                supported = [m.ApiVersionsResponse.SupportedFeatureKey("metadata.version", 1, 29)]
                finalized = [m.ApiVersionsResponse.FinalizedFeatureKey("metadata.version", 29, 1)]
                return m.ApiVersionsResponse(0, served, 0, supported, 1, finalized)
            case m.DescribeQuorumRequest():
                state = m.DescribeQuorumResponse.ReplicaState
                voters = [state(i, ZERO_UUID, 9, now, now) for i in self.nodes if i < 100]
                observers = [state(i, ZERO_UUID, 9, now, now) for i in self.nodes if i > 100]
                part = m.DescribeQuorumResponse.PartitionData(0, 0, None, 1, 1, 9, voters, observers)
                return m.DescribeQuorumResponse(
                    topics=[m.DescribeQuorumResponse.TopicData("__cluster_metadata", [part])]
                )
            case m.DescribeClusterRequest():
                broker = m.DescribeClusterResponse.DescribeClusterBroker
                brokers = [broker(i, host, PORT) for i, host in self.nodes.items() if i > 100]
                return m.DescribeClusterResponse(0, 0, None, request.endpoint_type, self.id, 1, brokers)
            case m.MetadataRequest():
                return m.MetadataResponse(cluster_id=self.id, controller_id=1)
            case m.DescribeConfigsRequest():
                config = m.DescribeConfigsResponse.DescribeConfigsResourceResult
                configs = [config(k, v, config_source=3, config_type=2) for k, v in self.config.items()]
                result = m.DescribeConfigsResponse.DescribeConfigsResult(0, None, 4, "", configs)
                return m.DescribeConfigsResponse(results=[result])
            case m.IncrementalAlterConfigsRequest():
                for one in request.resources:
                    self.config |= {c.name: c.value or "" for c in one.configs if not c.config_operation}
                altered = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(0, None, 4, "")
                return m.IncrementalAlterConfigsResponse(responses=[altered])
            case m.ListPartitionReassignmentsRequest():
                return m.ListPartitionReassignmentsResponse()
        raise AssertionError(type(request).__name__)


class Nodes:
    """The servers of all nodes and drivers."""

    def __init__(self, clusters: list[Cluster]) -> None:
        self._clusters = clusters
        self._servers: list[asyncio.Server] = []

    async def start(self, cluster: Cluster, node: int) -> str:
        """Serve Kafka's protocol and `/status` for a node, unless it is served already. Returns its address."""
        host = f"{NET}.{cluster.number}.{node}"
        if node not in cluster.nodes:
            for port in (CONTROLLER_PORT if node < 100 else PORT, METRICS):
                kind = self._status if port == METRICS else self._kafka
                serve = lambda r, w, kind=kind: kind(cluster, r, w)  # noqa: E731
                self._servers.append(await asyncio.start_server(serve, host, port))
            cluster.nodes[node] = host
        return host

    async def driver(self, number: int) -> str:
        """Serve the status of a table's driver. Returns its address."""
        host = f"{NET}.{200 + number // 200}.{number % 200 + 1}"
        body = {"name": f"t{number}", "rows": 5, "deadLetters": 0, "lag": 0}
        serve = lambda r, w: self._http(body, r, w)  # noqa: E731
        self._servers.append(await asyncio.start_server(serve, host, DRIVER))
        return host

    async def _status(self, _: Cluster, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._http({"voters": [1, 2, 3], "configRevision": "", "topics": 0}, reader, writer)

    async def _http(self, body: Object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = json.dumps(body).encode()
        kind = "Content-Type: application/json\r\nConnection: close"
        writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()
        writer.close()

    async def _kafka(self, cluster: Cluster, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
                head = decode_request_header(memoryview(data))
                cls = API[head.api_key].request
                answer = cluster.answer(decode(cls, data[head.body_offset :], head.api_version))
                parts = encode_response(head.correlation_id, head.api_key, head.api_version, answer)
                writer.write(b"".join(parts))  # type: ignore[arg-type]  # answers hold no slices of files
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


class World:
    """The parts of kubelet, scheduler and controllers that idle clusters need."""

    def __init__(self, server: ApiServer, clusters: int, pipelines: int) -> None:
        self.server = server
        self.clusters = [Cluster(number) for number in range(clusters)]
        self.nodes = Nodes(self.clusters)
        self._pipelines = pipelines

    def declare(self) -> None:
        """Create the resources."""
        sample = yaml.safe_load((ROOT / "deploy/samples/plaintext.yaml").read_text())["spec"]
        listeners = [{"name": "plain", "port": PORT}]
        spec = {**sample, "image": "a:1", "listeners": listeners, "metrics": {"port": METRICS}}
        made = KRaftClusterSpec.model_validate(spec).model_dump(by_alias=True, exclude_none=True)
        for one in self.clusters:
            self.server.put("KRaftCluster", {"metadata": {"name": one.name, "namespace": "demo"}, "spec": made})
        for number in range(self._pipelines):
            name = {"name": f"t{number}", "namespace": "demo"}
            self.server.put("KafkaTable", {"metadata": name, "spec": copy.copy(SPECS["KafkaTable"])})
        account = {"metadata": {"name": "kraft-pipeline", "namespace": "demo"}}
        self.server.put("ServiceAccount", {**account, "secrets": [{"name": name} for name in ("registry", "a")]})
        self.server.put(
            "KRaftCluster", {"metadata": {"name": "sample", "namespace": "demo"}, "spec": {**made, "paused": True}}
        )

    async def work(self) -> None:
        """Do the work of kubelet, scheduler and controllers every `TICK_S` seconds, until the task is cancelled."""
        while True:
            for (kind, _, name), one in list(self.server.objects.items()):
                if kind == "PersistentVolumeClaim" and "status" not in one:
                    self.server.put(kind, {**one, "status": {"phase": "Bound"}})
                elif kind == "Job" and "status" not in one:
                    done = {"conditions": [{"type": "Complete", "status": "True"}]}
                    self.server.put(kind, {**one, "status": done})
                elif kind == "Pod" and "status" not in one:
                    await self._run(one)
                elif kind == "Deployment" and ("Pod", "demo", f"{name}-0") not in self.server.objects:
                    await self._deploy(name, one)
            await asyncio.sleep(TICK_S)

    async def _run(self, pod: Object) -> None:
        labels = pod["metadata"]["labels"]
        cluster = self.clusters[int(labels["app.kubernetes.io/instance"][1:])]
        record = self.server.objects["ConfigMap", "demo", f"{cluster.name}-record"]
        cluster.id = json.loads(record["data"]["record"])["clusterId"]
        self.server.put(
            "Pod", {**pod, "status": _ready(await self.nodes.start(cluster, int(labels["kraftcluster.io/node"])))}
        )

    async def _deploy(self, name: str, one: Object) -> None:
        template = one["spec"]["template"]
        number = int(one["metadata"]["labels"]["app.kubernetes.io/instance"][1:])
        metadata = {**template["metadata"], "name": f"{name}-0", "namespace": "demo"}
        status = _ready(await self.nodes.driver(number))
        self.server.put("Pod", {"metadata": metadata, "spec": template["spec"], "status": status})

    def ready(self) -> int:
        """The number of clusters and tables that are Ready with nothing left to do."""
        return sum((status.get("Ready"), status.get("Progressing")) == ("True", "False") for status in self._statuses())

    def late(self) -> Object:
        """The conditions of a resource that is not ready."""
        return next((status for status in self._statuses() if status.get("Ready") != "True"), {})

    def _statuses(self) -> list[Object]:
        kinds = {"KRaftCluster", "KafkaTable"}
        found = [one for (kind, *_), one in self.server.objects.items() if kind in kinds]
        return [
            {c["type"]: c["status"] for c in one.get("status", {}).get("conditions", ())}
            | {"why": one.get("status", {}).get("conditions")}
            for one in found
        ]


def _ready(host: str) -> Object:
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "ContainersReady", "Ready")]
    containers = [{"state": {"running": {}}, "restartCount": 0}]
    return {"phase": "Running", "podIP": host, "conditions": conditions, "containerStatuses": containers}


def _used(pid: int) -> tuple[float, float]:
    """Resident MiB and CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages, ticks = int(fields[21]), int(fields[11]) + int(fields[12])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, ticks / os.sysconf("SC_CLK_TCK")


async def measure(clusters: int, pipelines: int, seconds: float, settle_s: float) -> int:
    """Run the operator and print its cost. Returns 1 if something is not ready after `settle_s` seconds, else 0."""
    server = ApiServer()
    world = World(server, clusters, pipelines)
    world.declare()
    async with server as url:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "config"
            config.write_text(
                yaml.safe_dump(
                    {
                        "current-context": "it",
                        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u", "namespace": "demo"}}],
                        "clusters": [{"name": "c", "cluster": {"server": url}}],
                        "users": [{"name": "u", "user": {"token": "t"}}],
                    }
                )
            )
            ports = {"KRAFT_HEALTH_PORT": "39481", "KRAFT_METRICS_PORT": "39480"}
            more = {
                "KRAFT_LEASE": "operator",
                "KRAFT_NAMESPACES": "demo",
                "KRAFT_LOG_LEVEL": "WARNING",
                "KRAFT_PIPELINE_IMAGE": "p:1",
                **ports,
            }
            work = asyncio.create_task(world.work())
            env = {**os.environ, "KUBECONFIG": str(config), **more}
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", "kraft_operator", env=env)
            try:
                return await _measured(server, world, process.pid, clusters + pipelines, seconds, settle_s)
            finally:
                work.cancel()
                process.terminate()
                print(f"exit code {await process.wait()}")


async def _measured(server: ApiServer, world: World, pid: int, wanted: int, seconds: float, settle_s: float) -> int:
    began = time.monotonic()
    while world.ready() < wanted:
        if time.monotonic() - began > settle_s:
            print(f"only {world.ready()} of {wanted} are ready after {settle_s:g} s; {world.late()}")
            return 1
        await asyncio.sleep(1)
    print(
        f"{wanted} ready after {time.monotonic() - began:.0f} s, {sum(server.requests.values())} requests", flush=True
    )
    await asyncio.sleep(30)
    before, (_, cpu) = Counter(server.requests), _used(pid)
    await asyncio.sleep(seconds)
    memory, cpu_after = _used(pid)
    spent = server.requests - before
    rate = sum(spent.values()) / seconds
    print(
        f"{rate:.2f} requests/s, {memory:.0f} MiB, {(cpu_after - cpu) / seconds:.1%} of a processor, in {seconds:g} s"
    )
    for (verb, kind), count in spent.most_common(12):
        print(f"  {verb} {kind}: {count}")
    return 0


def main() -> int:
    """Measure with the sizes of the arguments. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.idle_operator", description=__doc__)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--pipelines", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--settle", type=float, default=600)
    args = parser.parse_args()
    return asyncio.run(measure(args.clusters, args.pipelines, args.seconds, args.settle))


if __name__ == "__main__":
    sys.exit(main())
