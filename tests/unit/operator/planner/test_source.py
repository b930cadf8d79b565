"""The brokers that topics and users are read from: the next one if one is silent, and the proof of completeness."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kraft_node.server.monitoring.node_status import node_status
from kraft_operator.observe import source as observing
from kraft_operator.observe.source import MetadataSource
from kraft_operator.observe.status import StatusReport, parsed
from kraft_operator.protocol import VERSIONS
from kraft_protocol.client.aio import Address, UnreachableError
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.codec import decode, encode
from tests.kip.cluster import Cluster

BROKER = Address("b1", 1)


class Nodes:
    """Requests to the nodes of a simulated cluster: an address has the name of its node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def request(self, address: Address, request: Any) -> Any:
        key = ApiKey(request.SCHEMA.api_key)
        answers: list[Any] = []
        self.cluster.client(address.host).request(key, VERSIONS[key], request, answers.append)
        self.cluster.until(lambda: bool(answers))
        return decode(type(answers[0]), bytes(encode(answers[0], VERSIONS[key])), VERSIONS[key])

    async def status(self, address: Address) -> StatusReport:
        return parsed(json.loads(node_status(self.cluster.node(address.host))))


async def read(address: Address) -> str:
    if address.host.startswith("silent"):
        raise UnreachableError(f"{address}: no answer")
    return address.host


def first(*hosts: str, before: int | None = None) -> tuple[int, str]:
    client: Any = None
    brokers = {number: Address(host, 1) for number, host in enumerate(hosts)}
    return asyncio.run(MetadataSource(client, brokers, first=before).first(read))


def test_if_a_broker_is_silent_the_next_one_is_asked() -> None:
    """A ready broker that the operator cannot reach failed all work on topics and users."""
    assert first("a", "b") == (0, "a")
    assert first("silent", "b") == (1, "b")
    assert first("a", "b", before=1) == (1, "b")
    assert first("a", "b", before=7) == (0, "a")


def test_a_look_tries_a_few_brokers() -> None:
    with pytest.raises(UnreachableError, match="silent-2:1"):
        first("silent-0", "silent-1", "silent-2", "d")
    with pytest.raises(UnreachableError, match="no broker is ready"):
        first()


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster(3, 2)
    found.rest(2_000)
    return found


def complete(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, **more: Any) -> bool:
    nodes: Any = Nodes(cluster)
    monkeypatch.setattr(observing, "node_status", nodes.status)

    async def rest(seconds: float) -> None:
        cluster.rest(round(seconds * 1000))

    monkeypatch.setattr(observing.asyncio, "sleep", rest)
    controllers = [Address(name, 1) for name in ("c1", "c2", "c3")]
    options: dict[str, Any] = {"controllers": controllers, "statuses": {1: BROKER}, "cluster_id": cluster.cluster_id}
    return asyncio.run(MetadataSource(nodes, {1: BROKER}, **{**options, **more}).is_complete(1))


def test_a_broker_that_follows_is_complete(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(cluster, monkeypatch)


@pytest.mark.parametrize("unknown", [{"controllers": ()}, {"statuses": {}}, {"cluster_id": "another"}])
def test_an_answer_is_not_complete_if_a_fact_is_unknown(
    unknown: dict[str, Any], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not complete(cluster, monkeypatch, **unknown)


def test_a_broker_that_lags_is_not_complete(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("c1", "c2", "c3"):
        cluster.network.cut("b1", name)
    before = cluster.node("b1").raft.image.offset
    topic = m.CreateTopicsRequest.CreatableTopic("t", num_partitions=1, replication_factor=1)
    assert cluster.ask("b2", m.CreateTopicsRequest([topic], 5_000)).topics[0].error_code == 0
    assert cluster.node("b1").raft.image.topics.by_name("t") is None, "a look at b1 would not find it"
    assert cluster.node("b1").raft.image.offset == before
    assert not complete(cluster, monkeypatch)
    cluster.network.heal()
    cluster.rest(10_000)
    assert complete(cluster, monkeypatch)
    assert cluster.node("b1").raft.image.topics.by_name("t") is not None


def test_a_leader_that_no_majority_follows_proves_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not know yet that another controller leads, and that the other's log is longer."""
    leader = cluster.active.name
    for name in {"c1", "c2", "c3", "b2"} - {leader}:
        cluster.network.cut(leader, name)
    asked = [Address(leader, 1)]
    found = [complete(cluster, monkeypatch, controllers=asked) for _ in range(2) if cluster.rest(3_100) is None]
    assert found == [False, False]
