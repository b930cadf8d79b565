"""Requests of several clients to two servers with an authorizer; a client is a host, since all are User:ANONYMOUS.

Every client connects from its own loopback address, and ACLs name hosts. The servers and the set-up use 127.0.0.1,
which has all permissions.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from kraft_node.security.names import Operation, PatternType, Permission, ResourceType
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire import codec
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import LENGTH_SIZE, encode_request
from kraft_protocol.wire.stored import DefaultPrincipalData
from tests.compat.targets import Target
from tests.golden.broker import batches
from tests.golden.broker.pair import Side

ANONYMOUS = "User:ANONYMOUS"
EVERYTHING = "127.0.0.1"
NOTHING = "127.0.0.2"
SOME = "127.0.0.3"
IMPLIED = "127.0.0.4"
LOOKS = "127.0.0.5"
HOSTS = (EVERYTHING, NOTHING, SOME, IMPLIED, LOOKS)

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
    "log.initial.task.delay.ms": "3600000",
}
"""Before the first ACL, all principals may do everything. After it, whatever no ACL permits is denied."""

_L, _P = PatternType.LITERAL, PatternType.PREFIXED
_ALLOW, _DENY = Permission.ALLOW, Permission.DENY
_NAMED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)

ACLS = (
    *(
        (kind, "*", _L, EVERYTHING, Operation.ALL, _ALLOW)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ),
    (ResourceType.CLUSTER, "kafka-cluster", _L, EVERYTHING, Operation.ALL, _ALLOW),
    (ResourceType.TOPIC, "mine", _L, SOME, Operation.ALL, _ALLOW),
    (ResourceType.TOPIC, "shared-", _P, SOME, Operation.READ, _ALLOW),
    (ResourceType.TOPIC, "shared-", _P, SOME, Operation.ALTER_CONFIGS, _ALLOW),
    (ResourceType.TOPIC, "shared-secret", _L, SOME, Operation.ALL, _DENY),
    (ResourceType.TOPIC, "created-", _P, SOME, Operation.CREATE, _ALLOW),
    (ResourceType.TOPIC, "created-", _P, SOME, Operation.DELETE, _ALLOW),
    (ResourceType.TOPIC, "created-", _P, SOME, Operation.ALTER, _ALLOW),
    (ResourceType.GROUP, "g-", _P, SOME, Operation.READ, _ALLOW),
    (ResourceType.GROUP, "g-", _P, SOME, Operation.DELETE, _ALLOW),
    (ResourceType.GROUP, "g-secret", _P, SOME, Operation.DESCRIBE, _DENY),
    (ResourceType.TRANSACTIONAL_ID, "t-", _P, SOME, Operation.DESCRIBE, _ALLOW),
    (ResourceType.TOPIC, "*", _L, IMPLIED, Operation.WRITE, _ALLOW),
    (ResourceType.TOPIC, "shared-", _P, IMPLIED, Operation.DESCRIBE, _DENY),
    (ResourceType.CLUSTER, "kafka-cluster", _L, IMPLIED, Operation.ALTER, _ALLOW),
    (ResourceType.CLUSTER, "kafka-cluster", _L, IMPLIED, Operation.ALTER_CONFIGS, _ALLOW),
    (ResourceType.CLUSTER, "kafka-cluster", _L, IMPLIED, Operation.DELETE, _ALLOW),
    (ResourceType.CLUSTER, "kafka-cluster", _L, IMPLIED, Operation.CREATE, _ALLOW),
    (ResourceType.TOPIC, "*", _L, LOOKS, Operation.DESCRIBE, _ALLOW),
    (ResourceType.TOPIC, "*", _L, LOOKS, Operation.DESCRIBE_CONFIGS, _ALLOW),
    (ResourceType.GROUP, "*", _L, LOOKS, Operation.DESCRIBE, _ALLOW),
    (ResourceType.CLUSTER, "kafka-cluster", _L, LOOKS, Operation.DESCRIBE, _ALLOW),
    (ResourceType.CLUSTER, "kafka-cluster", _L, LOOKS, Operation.DESCRIBE_CONFIGS, _ALLOW),
)
"""Type, name, pattern, host, operation, permission; the cluster's last but where they are asked for by number."""

TOPICS = ("mine", "shared-a", "shared-secret", "other")
MISSING = ("missing", "shared-missing")
GROUPS = ("g-one", "g-secret", "h")


DELETED_BY_NAME = 5
"""The last version of DeleteTopics that knows topics by name only."""


class Client(Side):
    """A side that receives requests from changing addresses, on either of its ports."""

    def __init__(self, name: str, target: Target, port: int) -> None:
        super().__init__(name, target)
        self.host = EVERYTHING
        self._port = port

    def come_from(self, host: str) -> None:
        """Connect from that address from now on."""
        self.close()
        self.host = host

    def send(self, data: bytes) -> None:
        if self._socket is None:
            to = ("127.0.0.1", self._port)
            self._socket = socket.create_connection(to, timeout=self.timeout_s, source_address=(self.host, 0))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            self._socket.sendall(data)


def create_acls(acls: tuple[Any, ...]) -> m.CreateAclsRequest:
    """A request that creates entries like those of `ACLS`."""
    creation = m.CreateAclsRequest.AclCreation
    return m.CreateAclsRequest(
        creations=[
            creation(kind, name, pattern, ANONYMOUS, host, operation, permission)
            for kind, name, pattern, host, operation, permission in acls
        ]
    )


def enveloped(topic: str, who: str = ANONYMOUS, host: str = EVERYTHING) -> m.EnvelopeRequest:
    """A CreatePartitions that is only validated, in an envelope from a broker for a client."""
    cp = m.CreatePartitionsRequest
    request = cp([cp.CreatePartitionsTopic(topic, 2)], 10_000, True)
    parts = encode_request(5, ApiKey.CREATE_PARTITIONS, 3, "app", request)
    data = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]  # no files in there
    kind, _, name = who.partition(":")
    principal = b"\x00\x00" + codec.encode(DefaultPrincipalData(kind, name, False), 0)
    return m.EnvelopeRequest(data[LENGTH_SIZE:], principal, socket.inet_aton(host))


def of_topics(ids: dict[str, Uuid]) -> Iterator[Any]:
    """Requests about topics, by name and, where a version can, by id. They change nothing but the log's end."""
    p = m.ProduceRequest
    for names in (TOPICS, (*TOPICS, *MISSING), ("mine",), ("other",)):
        batch = batches.batch()
        for by_id in (False, True):
            rows = [
                p.TopicProduceData("" if by_id else name, ids.get(name, ZERO_UUID) if by_id else ZERO_UUID,
                                   [p.PartitionProduceData(0, batch)])
                for name in names if not by_id or name in ids
            ]  # fmt: skip
            yield p(None, -1, 5000, rows), (13,) if by_id else (3, 7, 12)
        f = m.FetchRequest
        for by_id in (False, True):
            wanted = [
                f.FetchTopic("" if by_id else name, ids.get(name, ZERO_UUID) if by_id else ZERO_UUID,
                             [f.FetchPartition(0, fetch_offset=0, partition_max_bytes=10)])
                for name in names if not by_id or name in ids
            ]  # fmt: skip
            for follower in (-1, 5):
                state = f.ReplicaState(follower, -1)
                yield (
                    f(
                        None,
                        -1 if by_id else follower,
                        state if by_id else f.ReplicaState(),
                        0,
                        0,
                        1000,
                        0,
                        0,
                        -1,
                        wanted,
                        [],
                    ),
                    (15, 17) if by_id else (4, 8, 12),
                )
        lo = m.ListOffsetsRequest
        yield lo(-1, 0, [lo.ListOffsetsTopic(n, [lo.ListOffsetsPartition(0, -1, -2)]) for n in names]), None
        dr = m.DeleteRecordsRequest
        yield dr([dr.DeleteRecordsTopic(n, [dr.DeleteRecordsPartition(0, 0)]) for n in names], 5000), None
        ofe = m.OffsetForLeaderEpochRequest
        epochs = [ofe.OffsetForLeaderTopic(n, [ofe.OffsetForLeaderPartition(0, -1, 0)]) for n in names]
        yield ofe(-1, epochs), None
        dp = m.DescribeProducersRequest
        yield dp([dp.TopicRequest(n, [0]) for n in names]), None
        md = m.MetadataRequest
        asked = [md.MetadataRequestTopic(ZERO_UUID, n) for n in names]
        yield md(asked, False, True, True), None
        yield md(asked, False, False, True), None
        yield md(asked, False), None
        yield md([md.MetadataRequestTopic(ids[n], None) for n in names if n in ids], False, False, True), (12, 13)
        dt = m.DescribeTopicPartitionsRequest
        yield dt([dt.TopicRequest(n) for n in names], 100), None
        dc = m.DescribeConfigsRequest
        yield dc([dc.DescribeConfigsResource(2, n, ["retention.ms"]) for n in names]), None
    yield m.MetadataRequest(None, False, True, True), None
    yield m.MetadataRequest(None, False, False, True), None
    yield m.MetadataRequest([], False), None
    yield m.DescribeTopicPartitionsRequest([], 100), None


def of_groups(ids: dict[str, Uuid]) -> Iterator[Any]:
    """Requests about groups; their only change is committed offsets."""
    oc, of = m.OffsetCommitRequest, m.OffsetFetchRequest
    names = (*TOPICS, "missing")
    for group in GROUPS:
        rows = [oc.OffsetCommitRequestTopic(n, ZERO_UUID, [oc.OffsetCommitRequestPartition(0, 3)]) for n in names]
        yield oc(group, -1, "", None, -1, rows), range(2, 10)
        rows = [oc.OffsetCommitRequestTopic("", i, [oc.OffsetCommitRequestPartition(0, 3)]) for i in ids.values()]
        yield oc(group, -1, "", None, -1, rows), (10,)
        yield of(group, [of.OffsetFetchRequestTopic(n, [0]) for n in names]), range(1, 8)
        yield of(group, None), range(2, 8)
        od = m.OffsetDeleteRequest
        yield od(group, [od.OffsetDeleteRequestTopic(n, [od.OffsetDeleteRequestPartition(9)]) for n in names]), None
        jg = m.JoinGroupRequest
        yield jg(group, 6000, 6000, "nobody", None, "consumer", [jg.JoinGroupRequestProtocol("range", b"")]), None
        yield m.SyncGroupRequest(group, 1, "nobody", None, "consumer", "range"), None
        yield m.SyncGroupRequest(group, 1, "nobody"), None
        yield m.HeartbeatRequest(group, 1, "nobody"), None
        yield m.ConsumerGroupHeartbeatRequest(group, "nobody", 1), None
        yield m.ConsumerGroupHeartbeatRequest(group, "nobody", 1, subscribed_topic_names=list(names)), None
        for name in names:
            yield m.ConsumerGroupHeartbeatRequest(group, "nobody", 1, subscribed_topic_names=[name]), None
        yield m.LeaveGroupRequest(group, "nobody"), None
        yield m.LeaveGroupRequest(group, "", [m.LeaveGroupRequest.MemberIdentity("nobody")]), None
        yield m.FindCoordinatorRequest(group, 0), range(4)
    for topics in (None, [of.OffsetFetchRequestTopics(n, ZERO_UUID, [0]) for n in names]):
        yield of("", groups=[of.OffsetFetchRequestGroup(group, None, -1, topics) for group in GROUPS]), (8, 9)
    topics = [of.OffsetFetchRequestTopics("", i, [0]) for i in ids.values()]
    yield of("", groups=[of.OffsetFetchRequestGroup(group, None, -1, topics) for group in GROUPS]), (10,)
    yield of("", groups=[of.OffsetFetchRequestGroup(group, None, -1, None) for group in GROUPS]), (10,)
    yield m.FindCoordinatorRequest("", 0, list(GROUPS)), range(4, 7)
    yield m.ConsumerGroupDescribeRequest(list(GROUPS), True), None
    yield m.ConsumerGroupDescribeRequest(list(GROUPS)), None
    yield m.DescribeGroupsRequest(list(GROUPS), True), None
    yield m.DescribeGroupsRequest(list(GROUPS)), None
    yield m.ListGroupsRequest(), None
    yield m.DeleteGroupsRequest(["nothing", "g-nothing", "g-secret-nothing", "nothing"]), None
    dc = m.DescribeConfigsRequest
    keys = ["consumer.session.timeout.ms"]
    yield dc([dc.DescribeConfigsResource(32, group, keys) for group in GROUPS]), None


def of_the_cluster(ids: dict[str, Uuid]) -> Iterator[Any]:
    """Requests that read the cluster's state for any principal."""
    yield m.DescribeClusterRequest(True), None
    yield m.DescribeClusterRequest(False), None
    yield m.DescribeLogDirsRequest([]), None
    yield m.DescribeClientQuotasRequest(), None
    yield m.DescribeUserScramCredentialsRequest(), None
    yield m.ListConfigResourcesRequest([2, 4]), None
    yield m.ListTransactionsRequest(), None
    yield m.DescribeAclsRequest(2, "mine", PatternType.LITERAL, None, None, 1, 1), None
    yield m.DescribeAclsRequest(2, "shared-secret", 2, None, None, 1, 1), None
    yield m.DescribeAclsRequest(4, None, 1, None, SOME, 1, 1), None
    dq = m.DescribeQuorumRequest
    yield m.InitProducerIdRequest(None, 1000), None
    yield dq([dq.TopicData("nothing", [dq.PartitionData(0)])]), None
    dc = m.DescribeConfigsRequest
    kinds = ((4, "1"), (4, ""), (8, "1"), (16, "metrics"), (2, "other"))
    keys = ["log.retention.ms", "retention.ms", "kafka.nothing", "interval.ms"]
    yield dc([dc.DescribeConfigsResource(kind, name, keys) for kind, name in kinds]), None
    yield m.DescribeConfigsRequest([dc.DescribeConfigsResource(3, "x", None)]), None
    ard = m.AlterReplicaLogDirsRequest
    yield ard([ard.AlterReplicaLogDir("/nowhere", [ard.AlterReplicaLogDirTopic("mine", [0])])]), None
    yield m.DescribeTransactionsRequest(["t-one", "other"]), None
    yield m.UnregisterBrokerRequest(77), None
    uf = m.UpdateFeaturesRequest
    yield uf(1000, [uf.FeatureUpdateKey("nothing", 1, upgrade_type=1)], True), (1, 2)
    lpr = m.ListPartitionReassignmentsRequest
    yield lpr(1000, None), None
    el = m.ElectLeadersRequest
    yield el(0, [el.TopicPartitions("mine", [0]), el.TopicPartitions("other", [0])], 1000), None
    apr = m.AlterPartitionReassignmentsRequest
    moved = [apr.ReassignableTopic("missing", [apr.ReassignablePartition(0, [1])])]
    yield apr(1000, topics=moved), None
    acq = m.AlterClientQuotasRequest
    entry = acq.EntryData([acq.EntityData("user", "u")], [acq.OpData("producer_byte_rate", 1.0, False)])
    yield acq([entry], True), None
    aus = m.AlterUserScramCredentialsRequest
    yield aus([aus.ScramCredentialDeletion("nobody", 1)]), None
    yield m.DeleteAclsRequest([m.DeleteAclsRequest.DeleteAclsFilter(2, "nothing", 3, None, None, 1, 1)]), None
    yield m.RemoveRaftVoterRequest(None, 77, Uuid(b"\1" * 16)), None
    ac, iac = m.AlterConfigsRequest, m.IncrementalAlterConfigsRequest
    resources = ((2, "mine"), (2, "other"), (2, "shared-a"), (2, "missing"), (4, "1"), (16, "metrics"), (32, "g-one"))
    yield ac([ac.AlterConfigsResource(kind, name, []) for kind, name in resources], True), None
    change = iac.AlterableConfig
    yield (
        iac(
            [
                *(iac.AlterConfigsResource(kind, name, []) for kind, name in resources),
                iac.AlterConfigsResource(8, "1", [change("kafka.authorizer.logger", 1, None)]),
            ],
            True,
        ),
        None,
    )
    yield iac([iac.AlterConfigsResource(8, "1", [change("kafka.authorizer.logger", 0, "INFO")])], True), None


def changes(version: int, host: str) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Requests that change topics, once for each version of CreateTopics and host, with different topic names."""
    end = f"{version}-{host[-1]}"
    names = (f"created-{end}", f"other-{end}")
    ct, cp, dt = m.CreateTopicsRequest, m.CreatePartitionsRequest, m.DeleteTopicsRequest
    yield ct([ct.CreatableTopic(n, 1, 1) for n in (*names, "twice", "twice", "__cluster_metadata")], 10_000), (version,)
    yield cp([cp.CreatePartitionsTopic(n, 2) for n in (*names, "mine-not", "twice", "twice")], 10_000, True), (3,)
    every = (*names, "missing", "created-missing", "twice", "twice")
    if version > DELETED_BY_NAME:
        yield dt([dt.DeleteTopicState(n) for n in every], [], 10_000), (6,)
    else:
        yield dt([], list(every), 10_000), (version,)


def of_acls() -> Iterator[Any]:
    """Entries created, found and deleted, valid and odd. They do not change the permissions of the hosts."""
    creation, deletion = m.CreateAclsRequest.AclCreation, m.DeleteAclsRequest.DeleteAclsFilter
    good = (2, "acl-story", 3, "User:x", "*", 3, 3)
    rows = [
        good,
        good,
        (2, "acl-story", 4, "User:x", "10.0.0.1", 3, 2),
        (3, "acl-story", 3, "User:y", "*", 3, 3),
        (4, "kafka-cluster", 3, "User:x", "10.0.0.1", 12, 3),
        (4, "another", 3, "User:x", "*", 12, 3),
        (2, "", 3, "User:x", "*", 3, 3),
        (9, "acl-story", 3, "User:x", "*", 3, 3),
        (2, "acl-story", 9, "User:x", "*", 3, 3),
        (2, "acl-story", 3, "x", "*", 3, 3),
        (2, "acl-story", 3, "", "*", 3, 3),
        (2, "acl-story", 3, "User:", "*", 3, 3),
        (2, "acl-story", 3, "User:x", "", 3, 3),
        (2, "acl-story", 3, "User:x", "*", 99, 3),
        (2, "acl-story", 3, "User:x", "*", 12, 3),
        (2, "acl-story", 3, "User:x", "*", 3, 9),
        (6, "token", 3, "User:x", "*", 8, 3),
        (7, "User:z", 3, "User:x", "*", 13, 3),
    ]
    for row in rows:
        yield m.CreateAclsRequest([creation(*row)])
    yield m.CreateAclsRequest([creation(*row) for row in rows[:7]])
    yield m.CreateAclsRequest([])
    filters = [
        (2, "acl-story", 3, None, None, 1, 1),
        (2, "acl-story", 4, None, None, 1, 1),
        (2, "acl-story", 2, None, None, 1, 1),
        (2, "acl-story-more", 2, "User:x", None, 1, 1),
        (1, "acl-story", 1, "User:x", None, 1, 1),
        (1, None, 1, "User:y", None, 1, 1),
        (2, None, 1, "User:x", "10.0.0.1", 3, 2),
        (2, "", 3, "User:x", None, 1, 1),
        (9, None, 1, "User:x", None, 1, 1),
        (2, None, 9, "User:x", None, 1, 1),
        (2, None, 1, "User:x", None, 99, 1),
        (2, None, 1, "User:x", None, 1, 9),
    ]
    for row in filters:
        yield m.DescribeAclsRequest(*row)
    for row in filters[8:]:
        yield m.DeleteAclsRequest([deletion(*row)])
    yield m.DeleteAclsRequest([deletion(*row) for row in filters[:7]])
    yield m.DeleteAclsRequest([deletion(*row) for row in filters[:3]])
    yield m.DeleteAclsRequest([deletion(1, None, 1, "User:x", None, 1, 1), deletion(1, None, 1, "User:", None, 1, 1)])
    yield m.DeleteAclsRequest([])


ODD_ENTRIES = (
    (0, "acl-story", 3, "User:x", "*", 3, 3),
    (1, "acl-story", 3, "User:x", "*", 3, 3),
    (2, "acl-story", 0, "User:x", "*", 3, 3),
    (2, "acl-story", 1, "User:x", "*", 3, 3),
    (2, "acl-story", 2, "User:x", "*", 3, 3),
    (2, "acl-story", 3, "User:x", "*", 0, 3),
    (2, "acl-story", 3, "User:x", "*", 1, 3),
    (2, "acl-story", 3, "User:x", "*", 3, 0),
    (2, "acl-story", 3, "User:x", "*", 3, 1),
)
"""With kinds that stand for none, or for any: Kafka closes the connection or says UNKNOWN_SERVER_ERROR."""

ODD_FILTERS = (
    (0, None, 1, "User:x", None, 1, 1),
    (2, None, 0, "User:x", None, 1, 1),
    (2, None, 1, "User:x", None, 0, 1),
    (2, None, 1, "User:x", None, 1, 0),
)
"""With kinds that stand for none: Kafka closes the connection."""


def of_controllers() -> Iterator[Any]:
    """Requests that brokers and controllers send to each other, sent by any client to a controller's listener."""
    yield m.BrokerRegistrationRequest(77, "nothing", Uuid(b"\2" * 16))
    yield m.BrokerHeartbeatRequest(77, 1)
    yield m.ControllerRegistrationRequest(77, Uuid(b"\2" * 16))
    yield m.AlterPartitionRequest(77, 1)
    yield m.AllocateProducerIdsRequest(77, 1)
    yield m.AssignReplicasToDirsRequest(77, 1)
    yield m.VoteRequest(None, 1)
    yield m.BeginQuorumEpochRequest(None, 1)
    yield m.EndQuorumEpochRequest(None)
    yield m.FetchRequest(None, 77)
    yield m.FetchRequest(None, -1, m.FetchRequest.ReplicaState(77, 1))
    yield m.FetchSnapshotRequest()
    yield m.UpdateRaftVoterRequest(None, 1, 77, Uuid(b"\2" * 16))
    yield m.EnvelopeRequest(b"", b"", bytes(4))
    yield m.DescribeQuorumRequest()
    yield m.AddRaftVoterRequest(None, 1000, 77, Uuid(b"\2" * 16))
    yield m.RemoveRaftVoterRequest(None, 77, Uuid(b"\2" * 16))
    yield m.DescribeClusterRequest(True, 2)
    yield m.ListPartitionReassignmentsRequest(1000, None)
    yield m.DescribeAclsRequest(2, "mine", 3, None, None, 1, 1)
