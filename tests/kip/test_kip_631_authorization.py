"""KIP-631: the permissions that requests of brokers and controllers need (KIP-801 in the release)."""

from __future__ import annotations

from typing import Any

from kraft_node.security.names import Operation, PatternType, Permission, ResourceType
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
LEASE_MS = 9_000
STRANGER = "client"
"""The host that tests ask from; nodes are on hosts of their own."""


def permit(cluster: Cluster, *rights: tuple[str, Operation]) -> None:
    """Set ACLs on the cluster for (host, operation); hosts without an entry lose all permissions on the cluster."""
    creation = m.CreateAclsRequest.AclCreation
    acls = [
        creation(
            ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:ANONYMOUS", host, operation,
            Permission.ALLOW,
        )
        for host, operation in rights
    ]  # fmt: skip
    answer = cluster.ask("b1", m.CreateAclsRequest(acls))
    assert [row.error_code for row in answer.results] == [0] * len(acls)


def guarded() -> Cluster:
    """Brokers and their controller may send requests to each other; the other host may only describe."""
    cluster = Cluster(1, 2, overrides=SETTINGS)
    nodes = [(name, Operation.CLUSTER_ACTION) for name in cluster.machines]
    permit(cluster, *nodes, (STRANGER, Operation.DESCRIBE))
    return cluster


FOR_NODES_ALONE: list[Any] = [
    m.BrokerRegistrationRequest(broker_id=9, cluster_id="x", incarnation_id=Uuid(b"\1" * 16)),
    m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1),
    m.ControllerRegistrationRequest(controller_id=9, incarnation_id=Uuid(b"\1" * 16)),
    m.AlterPartitionRequest(broker_id=1, broker_epoch=1),
    m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
    m.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1),
    m.VoteRequest(voter_id=3001),
    m.FetchRequest(replica_state=m.FetchRequest.ReplicaState(replica_id=9)),
    m.FetchSnapshotRequest(),
    m.EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=bytes(4)),
]


def test_controllers_demand_cluster_action_of_every_caller() -> None:
    cluster = guarded()
    for request in FOR_NODES_ALONE:
        assert cluster.ask("c1", request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request
    cluster.rest(3 * LEASE_MS)
    assert not any(broker.fenced for broker in cluster.image.brokers.values()), "the nodes' own requests pass"


def test_unregister_broker_demands_alter_of_the_client_that_the_broker_speaks_for() -> None:
    cluster = guarded()
    cluster["b2"].kill()
    cluster.until(lambda: cluster.image.brokers.get(2).fenced)
    refused = cluster.ask("b1", m.UnregisterBrokerRequest(broker_id=2))
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert cluster.image.brokers.get(2) is not None


def test_a_controller_that_starts_again_demands_the_same() -> None:
    cluster = guarded()
    cluster["c1"].kill()
    cluster["c1"].start()
    cluster.until(lambda: cluster["c1"].serving)
    cluster.rest(LEASE_MS)
    answer = cluster.ask("c1", m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not any(broker.fenced for broker in cluster.image.brokers.values())


def test_controllers_are_super_users_for_each_other() -> None:
    """Without a leader no controller knows the ACLs, so only super users can be voters, as in the release."""
    cluster = Cluster(3, 1, overrides={**SETTINGS, "super.users": "User:ANONYMOUS"})
    old = cluster.active.name
    cluster[old].kill()
    cluster.until(lambda: cluster.active.name != old)
    assert cluster.ask("b1", m.DescribeClusterRequest()).error_code == 0
