"""Volumes that are removed, as objects of Kubernetes and as requests to a broker."""

from __future__ import annotations

import asyncio
from typing import Any

from kraft_operator.apply.kafka import _request
from kraft_operator.apply.kubernetes import Hands
from kraft_operator.observe import objects
from kraft_operator.observe.cluster import ListedObjects
from kraft_operator.observe.kafka import reported_disks
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.record import Node, Record
from kraft_operator.report.preview import preview
from kraft_operator.specs import pods, storage
from kraft_operator.specs.properties import volume_of
from kraft_protocol.client.aio import Address
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import name_of
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import new_resource
from tests.unit.operator.sample import CLUSTER_ID, sample

NODE = Node(101, "brokers", False, True, formatted=True, volumes=("data", "more"))
ASPECTS = {"roles": "broker", "voters": "1"}


def _pools(*volumes: str) -> list[dict[str, Any]]:
    found = sample().spec.model_dump(by_alias=True, exclude_none=True)["nodePools"]
    found[1]["storage"]["volumes"] = [{"name": name, "size": "1Gi"} for name in volumes]
    return list(found)


def test_a_pod_mounts_the_volumes_that_it_keeps_to_empty() -> None:
    cluster = sample(nodePools=_pools("data"))
    pool = cluster.spec.node_pools[1]
    bare = pods.pod(cluster, pool, NODE, ASPECTS, {})
    kept = pods.pod(cluster, pool, NODE, {**ASPECTS, "keeps": "more"}, {})
    assert objects.pod(bare).volumes == {"data"}
    assert objects.pod(kept).volumes == {"data", "more"}
    paths = [one["mountPath"] for one in kept["spec"]["containers"][0]["volumeMounts"]]
    assert "/var/lib/kraft/more" in paths
    text = pods.config_map(cluster, pool, NODE, {**ASPECTS, "keeps": "more"})["data"]["server.properties"]
    assert "log.dirs=/var/lib/kraft/data/log,/var/lib/kraft/more/log\n" in text, "the first one stays the first"
    assert pods.config_name(kept["spec"]) != pods.config_name(bare["spec"])
    assert volume_of("/var/lib/kraft/more/log") == "more"


def test_claims_carry_their_marks_and_only_named_ones_are_deleted() -> None:
    cluster = sample(nodePools=_pools("data", "more"))
    api, record = FakeApi(), Record(CLUSTER_ID, (NODE,))

    async def do_it(step: do.Step) -> None:
        found = await api.list("PersistentVolumeClaim", cluster.namespace)
        await Hands(api, cluster, record, ListedObjects(claims=found)).carry_out(step)  # type: ignore[arg-type]

    async def main() -> None:
        for claim in storage.claims(cluster, cluster.spec.node_pools[1], NODE):
            await api.create(claim)
        await do_it(do.MarkVolume(101, 0, ("more",), "Empty"))
        claims = await api.list("PersistentVolumeClaim", cluster.namespace)
        assert objects.volumes(cluster, claims)[101, 0].marks == {"more": "Empty"}
        await do_it(do.MarkVolume(101, 0, ("more",), ""))
        claims = await api.list("PersistentVolumeClaim", cluster.namespace)
        assert objects.volumes(cluster, claims)[101, 0].marks == {}
        await do_it(do.DeleteVolume(101, 0, ("more",)))
        claims = await api.list("PersistentVolumeClaim", cluster.namespace)
        assert [one["metadata"]["name"] for one in claims] == ["data-sample-101-0"]

    asyncio.run(main())


def test_requests_match_kafkas() -> None:
    resource, config = (
        m.IncrementalAlterConfigsRequest.AlterConfigsResource,
        m.IncrementalAlterConfigsRequest.AlterableConfig,
    )
    cordon = config("cordoned.log.dirs", 0, "/b,/c")
    assert _request(do.Cordon(101, ("/b", "/c")), None, {}) == m.IncrementalAlterConfigsRequest(
        [resource(4, "101", [cordon])]
    )
    uncordon = config("cordoned.log.dirs", 1, None)
    assert _request(do.Cordon(101, ()), None, {}) == m.IncrementalAlterConfigsRequest([resource(4, "101", [uncordon])])
    directory, topic = (
        m.AlterReplicaLogDirsRequest.AlterReplicaLogDir,
        m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic,
    )
    moves = do.MoveLogs(101, {("t", 0): "/a", ("t", 2): "/a", ("u", 1): "/c"})
    assert _request(moves, None, {}) == m.AlterReplicaLogDirsRequest(
        [directory("/a", [topic("t", [0, 2])]), directory("/c", [topic("u", [1])])]
    )


class _Broker:
    """Answers DescribeConfigs and DescribeLogDirs, and records the order of requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, _: Address, request: Any) -> Any:
        self.asked.append(name_of(request.SCHEMA.api_key))
        if isinstance(request, m.DescribeConfigsRequest):
            config = m.DescribeConfigsResponse.DescribeConfigsResourceResult("cordoned.log.dirs", "/b")
            return m.DescribeConfigsResponse(
                results=[m.DescribeConfigsResponse.DescribeConfigsResult(configs=[config])]
            )
        partition = m.DescribeLogDirsResponse.DescribeLogDirsPartition
        rows = [partition(0, 7, 0, False), partition(1, 3, 9, True)]
        topic = m.DescribeLogDirsResponse.DescribeLogDirsTopic("t", rows)
        result = m.DescribeLogDirsResponse.DescribeLogDirsResult
        return m.DescribeLogDirsResponse(results=[result(0, "/a", [topic], usable_bytes=5), result(56, "/b")])


def test_cordons_are_read_before_the_contents_of_directories() -> None:
    broker = _Broker()
    found = asyncio.run(reported_disks(broker, 101, Address("x", 1), str.upper))  # type: ignore[arg-type]
    assert broker.asked == ["DescribeConfigs", "DescribeLogDirs"]
    assert found.cordoned == {"/b"}
    assert found.directories["/A"].replicas == {("t", 0): 7}
    assert found.directories["/A"].coming == {("t", 1)}
    assert (found.directories["/A"].usable, found.directories["/B"].error) == (5, 56)


def test_a_preview_names_the_volumes_that_are_emptied() -> None:
    resource = new_resource()
    nodes = [{"id": 101, "pool": "brokers", "roles": ["broker"], "formatted": True, "volumes": ["data", "more"]}]
    resource["status"] = {"clusterId": CLUSTER_ID, "nodes": nodes, "voters": [1]}
    lines = preview(resource, [], image="x").lines
    assert "volume more of node 101 is emptied, then removed; its claim is kept" in lines
