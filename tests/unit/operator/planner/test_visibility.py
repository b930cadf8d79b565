"""Invisible topics and views of another cluster permit no step that relies on them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from kraft_node.security.names import Operation, PatternType, Permission, ResourceType
from kraft_node.server.monitoring.node_status import node_status
from kraft_operator.observe import kafka
from kraft_operator.observe.kafka import reported_metadata
from kraft_operator.observe.status import StatusReport, parsed
from kraft_operator.observe.status import node_status as asked
from kraft_operator.plan.gates import isr_without
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Metadata, Observed
from kraft_operator.plan.model.situation import situation
from kraft_operator.plan.planner import plan
from kraft_operator.plan.replicas.drain import drained
from kraft_protocol.client.aio import Address, Client, UnreachableError
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import name_of
from tests.kip.cluster import Cluster
from tests.unit.operator.planner.test_topics import Simulated
from tests.unit.operator.world import CLUSTER, World, made, wanted

BROKER = Address("b", 1)
UNSEEN = "2 topics are hidden from the operator; allow its principal Describe and DescribeConfigs on all topics"


class Broker:
    """Answers of a broker whose topics `t` and `u` have one partition each."""

    def __init__(self, **errors: int) -> None:
        """Make a broker; `t`, `u`: errors of their metadata; `t_config`, `u_config`: errors of their configuration."""
        self.errors = errors

    async def request(self, _: Address, request: Any) -> Any:
        return getattr(self, f"_{name_of(request.SCHEMA.api_key)}")(request)

    def _DescribeCluster(self, _: Any) -> Any:  # noqa: N802
        return m.DescribeClusterResponse(cluster_id=CLUSTER)

    def _Metadata(self, _: Any) -> Any:  # noqa: N802
        partition = m.MetadataResponse.MetadataResponsePartition(replica_nodes=[101], isr_nodes=[101])
        topic = m.MetadataResponse.MetadataResponseTopic
        topics = [topic(self.errors.get(name, 0), name, partitions=[partition]) for name in "tu"]
        return m.MetadataResponse(topics=[one for one in topics if one.error_code >= 0])

    def _DescribeConfigs(self, request: Any) -> Any:  # noqa: N802
        result = m.DescribeConfigsResponse.DescribeConfigsResult
        return m.DescribeConfigsResponse(
            results=[
                result(self.errors.get(f"{one.resource_name}_config", 0), "", one.resource_type, one.resource_name)
                for one in request.resources
            ]
        )

    def _ListPartitionReassignments(self, _: Any) -> Any:  # noqa: N802
        return m.ListPartitionReassignmentsResponse()

    def _ApiVersions(self, _: Any) -> Any:  # noqa: N802
        return m.ApiVersionsResponse()


def _reported(broker: Broker, *counts: int | None, monkeypatch: pytest.MonkeyPatch) -> Metadata:
    """`counts`: the number of topics that `/status` reports, before and after; None for a node without `/status`."""
    answers = iter(counts)

    async def status(_: Address) -> StatusReport | None:
        topics = next(answers)
        return None if topics is None else StatusReport((), "", topics)

    monkeypatch.setattr(kafka, "node_status", status)
    return asyncio.run(reported_metadata(cast(Client, broker), BROKER, BROKER))


def test_a_view_that_shows_all_topics_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = _reported(Broker(), 2, 2, monkeypatch=monkeypatch)
    assert (reported.unseen, len(reported.partitions), reported.cluster_id) == ("", 2, CLUSTER)
    assert _reported(Broker(), None, None, monkeypatch=monkeypatch).unseen == "", "a node of before"
    assert _reported(Broker(u_config=3), 2, 1, monkeypatch=monkeypatch).unseen == "", "deleted meanwhile"


def test_topics_missing_from_the_metadata_are_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without the Describe permission does not learn that a topic exists: ISR gates passed."""
    reported = _reported(Broker(u=-1), 3, 3, monkeypatch=monkeypatch)
    assert reported.unseen == UNSEEN


@pytest.mark.parametrize(
    ("errors", "named"), [({"u": 29}, " u"), ({"u_config": 29}, " u"), ({"u": 5}, " u (LEADER_NOT_AVAILABLE)")]
)
def test_topics_with_an_error_in_the_metadata_are_unseen(
    errors: dict[str, int], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were missing from the partitions, so their ISR was not checked."""
    reported = _reported(Broker(**errors), 2, 2, monkeypatch=monkeypatch)
    assert named in reported.unseen
    assert {one.topic for one in reported.partitions} == {"t"}


def test_topics_created_or_deleted_during_the_look_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _reported(Broker(), 1, 2, monkeypatch=monkeypatch).unseen == ""
    with pytest.raises(UnreachableError, match="come and go"):
        _reported(Broker(), 3, 4, monkeypatch=monkeypatch)
    with pytest.raises(UnreachableError, match="come and go"):
        _reported(Broker(), 1, 1, monkeypatch=monkeypatch)


# What relies on them


def _blind(world: World) -> Observed:
    view = world.observe()
    assert view.metadata.value is not None
    hidden = replace(view.metadata.value, partitions=(), unseen=UNSEEN)
    return replace(view, metadata=replace(view.metadata, value=hidden))


def test_a_broker_is_not_restarted_while_partitions_are_unseen() -> None:
    world = made()
    asked = plan(world.record, wanted(rolls={101: "now"}), _blind(world), CLUSTER)
    assert asked.disruptive is None
    assert [one.reason for one in asked.blocked] == ["PartitionsUnseen"]
    assert "2 topics are hidden" in asked.blocked[0].message
    assert "Describe" in asked.blocked[0].message


def test_a_broker_that_leaves_is_not_drained_while_partitions_are_unseen() -> None:
    """A scale-down deleted the volumes of live replicas."""
    world = made()
    world.wanted = wanted(brokers=2)
    for _ in range(5):
        done = plan(world.record, world.wanted, _blind(world), CLUSTER)
        assert not any(isinstance(step, do.Stop | do.DeleteVolume | do.Unregister) for step in done.steps), done.steps
        for step in done.steps:
            world.apply(step)
        world.tick()
    assert "PartitionsUnseen" in {one.reason for one in done.blocked}
    s = situation(world.record, world.wanted, _blind(world))
    assert s is not None
    assert not any(drained(s, node) for node in world.record.nodes if node.broker)
    assert isr_without(s, (101,)) is not None


def test_views_of_another_cluster_are_not_trusted() -> None:
    """A process of another cluster had the pod's address: the operator would have trusted its leader and ISRs."""
    world = made()
    view = world.observe()
    assert view.quorum.value is not None
    assert view.metadata.value is not None
    for other in (
        replace(view, metadata=replace(view.metadata, value=replace(view.metadata.value, cluster_id="other"))),
        replace(view, quorum=replace(view.quorum, value=replace(view.quorum.value, cluster_id="other"))),
    ):
        asked = plan(world.record, wanted(rolls={2: "now", 101: "now"}), other, CLUSTER)
        assert asked.disruptive is None
        assert asked.blocked[0].reason == "AnotherCluster"
        assert "other" in asked.blocked[0].message


# A broker with an authorizer, and topics that the operator may not describe


def test_a_real_broker_hides_a_topic_but_counts_it_in_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"allow.everyone.if.no.acl.found": "true", "config.revision": "r7"}
    settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    cluster = Cluster(1, 2, overrides=settings)
    cluster.create("seen", [1])
    cluster.create("secret", [1])
    cluster.rest(1_000)

    async def status(_: Address) -> StatusReport:
        return parsed(json.loads(node_status(cluster.node("b1"))))

    monkeypatch.setattr(kafka, "node_status", status)

    def reported() -> Metadata:
        return asyncio.run(reported_metadata(cast(Client, Simulated(cluster)), BROKER, BROKER))

    assert (reported().unseen, len(reported().partitions)) == ("", 2)
    names = (ResourceType.TOPIC, "secret", PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.DESCRIBE)
    cluster.ask("b1", m.CreateAclsRequest([m.CreateAclsRequest.AclCreation(*names, Permission.DENY)]))
    cluster.rest(1_000)
    assert "1 topics are hidden" in reported().unseen
    assert {one.topic for one in reported().partitions} == {"seen"}
    assert reported().cluster_id == cluster.cluster_id
    answer = asyncio.run(status(BROKER))
    assert (answer.revision, answer.topics, answer.voters) == ("r7", 2, (3001,))


def test_the_status_of_a_node_is_read_over_http() -> None:
    async def main() -> None:
        answers = iter(
            [
                b'HTTP/1.1 200 OK\r\n\r\n{"voters": [1, 2], "configRevision": "r", "topics": 3}',
                b"HTTP/1.1 404 Not Found\r\n\r\nthere are others\n",
                b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
                b"HTTP/1.1 200 OK\r\n\r\n{}",
            ]
        )

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(next(answers))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        where = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        assert await asked(where) == StatusReport((1, 2), "r", 3)
        assert await asked(where) is None
        for _ in range(2):
            with pytest.raises(UnreachableError, match="/status"):
                await asked(where)
        server.close()

    asyncio.run(main())
