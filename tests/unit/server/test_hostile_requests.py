"""Requests that name very many things, sent to a whole node: the cost of an event is bounded, and an answer comes.

The cost is counted in calls of Python functions, so the test does not depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.clients import hostile_messages
from kraft_node.base import turns
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster

MANY = 8_000
CALLS_MAX = 22_000
"""In one event: some 10 ms. A row costs three calls or more, so a request that is handled in one go exceeds it."""
FEWER = {"create-topics": 2_000}
"""Rows of requests whose rows cost dozens of calls each."""

NODE = (
    "/kraft_node/broker/",
    "/kraft_node/controller/",
    "/kraft_node/security/",
    "/kraft_node/server/",
    "/kraft_node/partition/",
)

BROKER = tuple(
    name
    for name in hostile_messages.MESSAGES
    if name not in {"produce", "long-software-name", "tagged-fields", "fetch-that-waits"}
)


def rows(kind: Any, *fields: Any) -> list[Any]:
    return [kind(f"t{i}", *fields) for i in range(MANY)]


def list_groups() -> Any:
    return m.ListGroupsRequest(states_filter=[f"s{i}" for i in range(MANY)])


def metadata() -> Any:
    return m.MetadataRequest(topics=rows_of(m.MetadataRequest.MetadataRequestTopic), allow_auto_topic_creation=False)


def rows_of(kind: Any) -> list[Any]:
    return [kind(name=f"t{i}") for i in range(MANY)]


def describe_configs() -> Any:
    kind = m.DescribeConfigsRequest.DescribeConfigsResource
    return m.DescribeConfigsRequest(resources=[kind(2, f"t{i}", ["retention.ms"]) for i in range(MANY)])


def describe_users() -> Any:
    kind = m.DescribeUserScramCredentialsRequest.UserName
    return m.DescribeUserScramCredentialsRequest(users=rows(kind))


def describe_quorum() -> Any:
    kind = m.DescribeQuorumRequest
    partitions = [kind.PartitionData(i) for i in range(MANY)]
    return kind(topics=[kind.TopicData("__cluster_metadata", partitions)])


def update_features() -> Any:
    kind = m.UpdateFeaturesRequest
    return kind(feature_updates=[kind.FeatureUpdateKey(f"f{i}", 1) for i in range(MANY)])


def alter_partition() -> Any:
    kind = m.AlterPartitionRequest
    partitions = [kind.PartitionData(i, 0, new_isr_with_epochs=[kind.BrokerState(1, -1)]) for i in range(MANY)]
    return kind(broker_id=1, broker_epoch=-1, topics=[kind.TopicData(partitions=partitions)])


def assign_directories() -> Any:
    kind = m.AssignReplicasToDirsRequest
    partitions = [kind.PartitionData(i) for i in range(MANY)]
    directory = kind.DirectoryData(topics=[kind.TopicData(partitions=partitions)])
    return kind(broker_id=1, broker_epoch=-1, directories=[directory])


def raft_fetch() -> Any:
    kind = m.FetchRequest
    return kind(max_wait_ms=0, topics=[kind.FetchTopic(partitions=[kind.FetchPartition(i) for i in range(MANY)])])


def vote() -> Any:
    kind = m.VoteRequest
    return kind(topics=[kind.TopicData("__cluster_metadata", [kind.PartitionData(i) for i in range(MANY)])])


def register_broker() -> Any:
    kind = m.BrokerRegistrationRequest
    listeners = [kind.Listener(f"L{i}", "host", 1, 0) for i in range(MANY)]
    return kind(broker_id=9, cluster_id="c", listeners=listeners)


def leave_group() -> Any:
    kind = m.LeaveGroupRequest
    return kind(group_id="g", members=[kind.MemberIdentity(f"m{i}") for i in range(MANY)])


def move_logs() -> Any:
    kind = m.AlterReplicaLogDirsRequest
    topic = kind.AlterReplicaLogDirTopic("t", list(range(MANY)))
    return kind(dirs=[kind.AlterReplicaLogDir("/nowhere", [topic])])


ASKED: dict[str, Callable[[], Any]] = {
    make.__name__: make
    for make in (
        list_groups, metadata, describe_configs, describe_users, describe_quorum, update_features, leave_group,
        move_logs,
    )
}  # fmt: skip
TO_CONTROLLERS: dict[str, Callable[[], Any]] = {
    make.__name__: make
    for make in (
        describe_configs, describe_quorum, update_features, alter_partition, assign_directories, raft_fetch, vote,
        register_broker,
    )
}  # fmt: skip


class Meter:
    """The most functions of the node that one event of the simulation calls."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls = self.most = 0

    def _note(self, frame: Any, event: str, _arg: Any) -> None:
        if event == "call" and any(part in frame.f_code.co_filename for part in NODE):
            self.calls += 1

    def ask(self, request: Any, version: int | None = None, *, controller: bool = False) -> Any:
        world: Any = self.cluster.world
        real = world.step

        def step(end_ms: float) -> bool:
            self.calls = 0
            sys.setprofile(self._note)
            try:
                return bool(real(end_ms))
            finally:
                sys.setprofile(None)
                self.most = max(self.most, self.calls)

        world.step = step
        try:
            return self.cluster.ask("k1", request, version, controller=controller)
        finally:
            del world.step


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "STEPS_A_TURN", 1)  # time stands still in an event; on a real clock a turn ends after 2 ms
        yield Cluster(combined=1)


def of_bench(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Any]:
    """Version and request of a bench input, in the size of this test."""
    monkeypatch.setattr(hostile_messages, "MANY", MANY)
    monkeypatch.setattr(hostile_messages, "ADMIN", FEWER.get(name, MANY))
    asked = hostile_messages.MESSAGES[name]()
    return asked.version, asked.message


@pytest.mark.parametrize("name", BROKER)
def test_a_hostile_request_of_the_bench_costs_little_an_event(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, request = of_bench(name, monkeypatch)
    meter = Meter(cluster)
    assert meter.ask(request, version) is not None
    assert meter.most < CALLS_MAX


@pytest.mark.parametrize("name", ASKED)
def test_a_hostile_request_costs_little_an_event(cluster: Cluster, name: str) -> None:
    meter = Meter(cluster)
    assert meter.ask(ASKED[name]()) is not None
    assert meter.most < CALLS_MAX


@pytest.mark.parametrize("name", TO_CONTROLLERS)
def test_a_hostile_request_to_a_controller_costs_little_an_event(cluster: Cluster, name: str) -> None:
    meter = Meter(cluster)
    request = TO_CONTROLLERS[name]()
    if hasattr(request, "broker_epoch"):
        request.broker_epoch = cluster.image.brokers.get(1).epoch
    assert meter.ask(request, controller=True) is not None
    assert meter.most < CALLS_MAX


@pytest.mark.parametrize("name", ["create-topics", "alter-configs", "scram", "delete-topics", "reassign"])
def test_a_hostile_change_sent_to_a_controller_costs_little_an_event(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, request = of_bench(name, monkeypatch)
    meter = Meter(cluster)
    assert meter.ask(request, version, controller=True) is not None
    assert meter.most < CALLS_MAX
