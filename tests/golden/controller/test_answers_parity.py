"""The same requests to our controller and then to Apache Kafka's: the same answers, the same records.

Kafka runs as a process and is asked on its controller listener. Ours runs in memory under the same configuration. Topic
and entry ids are random, so they are replaced by placeholders.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kraft_node.metadata.features import KRAFT_VERSION, SUPPORTED_RANGES, default_level
from kraft_node.metadata.log_batches import decode_batches
from kraft_protocol.errors import KafkaError
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.frames import decode_response, encode_request
from kraft_protocol.wire.messages import (
    AllocateProducerIdsRequest,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from kraft_protocol.wire.stored import FeatureLevelRecord
from tests.compat.targets import CLUSTER_ID, Apache
from tests.unit.controller.harness import Quorum, api_name, uuid

pytestmark = pytest.mark.peer

Topic = CreateTopicsRequest.CreatableTopic
Config = CreateTopicsRequest.CreatableTopicConfig
Manual = CreateTopicsRequest.CreatableReplicaAssignment
Grow = CreatePartitionsRequest.CreatePartitionsTopic
Delete = DeleteTopicsRequest.DeleteTopicState
Alter = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = IncrementalAlterConfigsRequest.AlterableConfig
Whole = AlterConfigsRequest.AlterConfigsResource
Entry = AlterClientQuotasRequest.EntryData
Upsert = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Feature = UpdateFeaturesRequest.FeatureUpdateKey
Move = AlterPartitionReassignmentsRequest


class KafkaController:
    """One connection to a controller listener."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        key = ApiKey[api_name(type(request).__name__)]
        frame = b"".join(bytes(part) for part in encode_request(7, key, version, "parity", request))  # type: ignore[arg-type]
        self._socket.sendall(frame)
        try:
            size = int.from_bytes(self._read(4), "big")
        except ConnectionError:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=30)
            return "closed the connection"
        return decode_response(self._read(size), key, version)[1]

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            got = self._socket.recv(count - len(data))
            if not got:
                raise ConnectionError("the controller closed the connection")
            data += got
        return data


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Quorum, KafkaController, Apache]]:
    settings = {
        "num.partitions": "3",
        "auto.leader.rebalance.enable": "false",
        "unstable.feature.versions.enable": "false",
    }
    target = Apache("apache", tmp_path_factory.mktemp("controller-parity"), settings).start()
    try:
        with closing(KafkaController(target.controller_port)) as kafka:
            levels = {name: default_level(name, 30) for name in SUPPORTED_RANGES if name != KRAFT_VERSION}
            ours = Quorum(
                bootstrap=[FeatureLevelRecord(name=n, feature_level=level) for n, level in levels.items() if level],
                process_roles="broker,controller",
                node_id="1",
                controller_quorum_voters="1@127.0.0.1:9093",
                listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                **{name.replace(".", "_"): value for name, value in settings.items()},
            )
            ours.start(1)
            yield ours, kafka, target
    finally:
        target.stop()


class Written:
    """The records that a controller has appended since a moment, with placeholders that two clusters can share."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}
        self.lines: list[str] = []

    def take(self, records: list[Any]) -> None:
        for record in records:
            if type(record).__name__ == "TopicRecord":
                self.names[record.topic_id] = record.name
        self.lines += [line for line in map(self._line, records) if line]

    def _line(self, record: Any) -> str:
        kind = type(record).__name__
        if kind in {"NoOpRecord", "ProducerIdsRecord"}:
            return ""
        fields = {}
        for field in record._fields:
            value = getattr(record, field)
            if field == "topic_id":
                value = self.names.get(value, "unknown")
            elif field == "directories":
                value = None if value is None else len(value)
            elif field == "entity":
                value = sorted((part.entity_type, str(part.entity_name)) for part in value)
            elif isinstance(value, memoryview):
                value = bytes(value)
            if field != "unknown_tags":
                fields[field] = value
        return f"{kind} {fields}"


def topics(*asked: Topic, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(asked), **fields)


def manual(*assignments: tuple[int, list[int]]) -> list[Any]:
    return [Manual(partition_index=number, broker_ids=replicas) for number, replicas in assignments]


def alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return Alter(resource_type=kind, resource_name=name, configs=configs)


def alters(*resources: Any, **fields: Any) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), **fields)


def quota(entity: dict[str, str | None], *ops: tuple[str, float | None]) -> Any:
    parts = [AlterClientQuotasRequest.EntityData(entity_type=k, entity_name=v) for k, v in entity.items()]
    made = [AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops]
    return Entry(entity=parts, ops=made)


def quotas(*entries: Any) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries))


def moves(topic: str, number: int, replicas: list[int] | None, **fields: Any) -> Any:
    part = Move.ReassignablePartition(partition_index=number, replicas=replicas)
    return Move(topics=[Move.ReassignableTopic(name=topic, partitions=[part])], **fields)


def grows(*asked: tuple[str, int, list[list[int]] | None], **fields: Any) -> CreatePartitionsRequest:
    made = [
        Grow(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=a) for a in assignments],
        )
        for name, count, assignments in asked
    ]
    return CreatePartitionsRequest(topics=made, timeout_ms=60_000, **fields)


def features(*updates: tuple[str, int, int], **fields: Any) -> UpdateFeaturesRequest:
    made = [Feature(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    return UpdateFeaturesRequest(feature_updates=made, **fields)


def elects(kind: int, asked: dict[str, list[int]] | None) -> ElectLeadersRequest:
    made = (
        None
        if asked is None
        else [ElectLeadersRequest.TopicPartitions(topic=name, partitions=numbers) for name, numbers in asked.items()]
    )
    return ElectLeadersRequest(election_type=kind, topic_partitions=made)


def upsert(name: str, mechanism: int = 1, iterations: int = 4096) -> Any:
    return Upsert(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"x" * 32)


def scram(*upsertions: Any, deletions: list[tuple[str, int]] | None = None) -> AlterUserScramCredentialsRequest:
    gone = [
        AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)
        for name, mechanism in deletions or []
    ]
    return AlterUserScramCredentialsRequest(upsertions=list(upsertions), deletions=gone)


def whole(kind: int, name: str, configs: dict[str, str | None]) -> AlterConfigsRequest:
    made = [AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    return AlterConfigsRequest(resources=[Whole(resource_type=kind, resource_name=name, configs=made)])


STORY: list[tuple[Any, tuple[int, ...]]] = [
    (topics(Topic(name="plain", num_partitions=2, replication_factor=1)), (7,)),
    (topics(Topic(name="plain", num_partitions=2, replication_factor=1)), (2, 5, 7)),
    (topics(Topic(name="defaults", num_partitions=-1, replication_factor=-1)), (7,)),
    (topics(Topic(name="dry", num_partitions=1, replication_factor=1), validate_only=True), (4, 6)),
    (
        topics(
            Topic(
                name="configured",
                num_partitions=1,
                replication_factor=1,
                configs=[Config(name="retention.ms", value="1000"), Config(name="cleanup.policy", value="compact")],
            )
        ),
        (7,),
    ),
    (topics(Topic(name="a.b", num_partitions=1, replication_factor=1)), (7,)),
    (topics(Topic(name="a_b", num_partitions=1, replication_factor=1)), (7,)),
    *[
        (topics(Topic(name=name, num_partitions=1, replication_factor=1)), (7,))
        for name in ("", ".", "..", "a/b", "ü", "x" * 250, "__cluster_metadata")
    ],
    *[
        (topics(Topic(name="wrong", num_partitions=partitions, replication_factor=factor)), (7,))
        for partitions, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 3), (1, 32767))
    ],
    *[
        (topics(Topic(name="wrong", num_partitions=-1, replication_factor=-1, assignments=assignments)), (7,))
        for assignments in (
            manual((0, [])),
            manual((0, [9])),
            manual((0, [1, 1])),
            manual((0, [1]), (2, [1])),
            manual((1, [1])),
        )
    ],
    (topics(Topic(name="wrong", num_partitions=1, replication_factor=-1, assignments=manual((0, [1])))), (7,)),
    (topics(Topic(name="wrong", num_partitions=-1, replication_factor=1, assignments=manual((0, [1])))), (7,)),
    (
        topics(Topic(name="by-hand", num_partitions=-1, replication_factor=-1, assignments=manual((0, [1]), (1, [1])))),
        (7,),
    ),
    *[
        (topics(Topic(name="wrong", num_partitions=1, replication_factor=1, configs=[Config(name=n, value=v)])), (7,))
        for n, v in (
            ("retention.ms", "soon"),
            ("retention.ms", None),
            ("no.such.key", "1"),
            ("cleanup.policy", "burn"),
            ("min.insync.replicas", "0"),
            ("segment.bytes", "1"),
            ("max.compaction.lag.ms", "0"),
            ("compression.type", "brotli"),
        )
    ],
    (
        topics(
            Topic(name="twice", num_partitions=1, replication_factor=1),
            Topic(name="good", num_partitions=1, replication_factor=1),
            Topic(name="twice", num_partitions=2, replication_factor=1),
        ),
        (7,),
    ),
    (topics(Topic(name="many", num_partitions=10_001, replication_factor=1)), (7,)),
    (topics(Topic(name="many", num_partitions=10_000, replication_factor=1)), (7,)),
    (grows(("plain", 3, None)), (3,)),
    (grows(("plain", 4, [[1]])), (3,)),
    (grows(("plain", 5, None), validate_only=True), (3,)),
    (grows(("plain", 4, None), ("nope", 2, None), ("defaults", 1, None)), (0, 3)),
    (grows(("plain", 6, [[1]]), ("defaults", 4, [[9]]), ("by-hand", 3, [[1, 1]])), (3,)),
    (grows(("good", 2, None), ("good", 3, None)), (3,)),
    (alters(alter(2, "plain", ("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"))), (1,)),
    (alters(alter(2, "plain", ("cleanup.policy", 3, "delete"), ("retention.ms", 1, None))), (0, 1)),
    (alters(alter(2, "plain", ("retention.ms", 2, "5"))), (1,)),
    (alters(alter(2, "plain", ("retention.ms", 0, "soon"))), (1,)),
    (alters(alter(2, "plain", ("no.such.key", 0, "1"))), (1,)),
    (alters(alter(2, "plain", ("retention.bytes", 0, "7")), validate_only=True), (1,)),
    (alters(alter(2, "nope", ("retention.ms", 0, "5")), alter(2, "plain", ("segment.ms", 0, "9"))), (1,)),
    (alters(alter(2, "", ("retention.ms", 0, "5"))), (1,)),
    (alters(alter(2, "plain", ("segment.ms", 0, "1")), alter(2, "plain", ("segment.ms", 0, "2"))), (1,)),
    (alters(alter(4, "", ("log.cleaner.threads", 0, "2")), alter(4, "1", ("log.cleaner.threads", 0, "2"))), (1,)),
    (alters(alter(4, "7", ("log.cleaner.threads", 0, "2"))), (1,)),
    (alters(alter(4, "one", ("log.cleaner.threads", 0, "2"))), (1,)),
    (alters(alter(4, "-1", ("log.cleaner.threads", 0, "2"))), (1,)),
    (alters(alter(16, "metrics", ("interval.ms", 0, "1000"), ("metrics", 0, "a,b"))), (1,)),
    (alters(alter(16, "metrics", ("interval.ms", 0, "1"))), (1,)),
    (alters(alter(16, "metrics", ("match", 0, "client_id"))), (1,)),
    (alters(alter(16, "metrics", ("nope", 0, "1"))), (1,)),
    (alters(alter(16, "", ("interval.ms", 0, "1000"))), (1,)),
    (alters(alter(32, "group", ("consumer.session.timeout.ms", 0, "50000"))), (1,)),
    (alters(alter(32, "group", ("consumer.session.timeout.ms", 0, "1"))), (1,)),
    (alters(alter(32, "group", ("nope", 0, "1"))), (1,)),
    (alters(alter(32, "", ("consumer.session.timeout.ms", 0, "50000"))), (1,)),
    (alters(alter(99, "x", ("a", 0, "1"))), (1,)),
    (whole(2, "plain", {"segment.ms": "11"}), (2,)),
    (whole(2, "plain", {"segment.ms": "never"}), (2,)),
    (whole(2, "nope", {"segment.ms": "11"}), (0, 2)),
    (whole(4, "1", {"log.cleaner.threads": "3"}), (2,)),
    (quotas(quota({"user": "alice"}, ("producer_byte_rate", 1000.0), ("request_percentage", 1.5))), (1,)),
    (quotas(quota({"user": "alice"}, ("producer_byte_rate", None))), (0, 1)),
    (quotas(quota({"user": None, "client-id": None}, ("consumer_byte_rate", 10.0))), (1,)),
    (quotas(quota({"ip": "10.0.0.1"}, ("connection_creation_rate", 5.0))), (1,)),
    *[
        (quotas(quota(entity, (key, value))), (1,))
        for entity, key, value in (
            ({"group": "g"}, "producer_byte_rate", 1.0),
            ({"user": ""}, "producer_byte_rate", 1.0),
            ({"user": "a", "ip": "1.2.3.4"}, "producer_byte_rate", 1.0),
            ({"ip": "1.2.3.400"}, "connection_creation_rate", 1.0),
            ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0),
            ({"user": "a"}, "nope", 1.0),
            ({"user": "a"}, "producer_byte_rate", 0.0),
            ({"user": "a"}, "producer_byte_rate", -5.0),
            ({"user": "a"}, "producer_byte_rate", 1.5),
            ({"user": "a"}, "producer_byte_rate", 1e19),
            ({"ip": "1.2.3.4"}, "connection_creation_rate", 1e10),
        )
    ],
    (scram(upsert("alice"), upsert("bob", 2)), (0,)),
    (scram(upsert("few", 1, 1), upsert("many", 1, 20_000), upsert("", 1), upsert("odd", 9)), (0,)),
    (scram(upsert("carol"), upsert("carol", 2)), (0,)),
    (scram(deletions=[("alice", 1), ("nobody", 1)]), (0,)),
    (elects(0, {"plain": [0, 9], "nope": [0]}), (0, 1, 2)),
    (elects(1, {"plain": [0]}), (2,)),
    (elects(0, None), (2,)),
    (elects(7, None), (2,)),
    (moves("plain", 0, None), (0, 1)),
    (moves("plain", 0, []), (1,)),
    (moves("plain", 0, [9]), (1,)),
    (moves("plain", 0, [1, 1]), (1,)),
    (moves("plain", 77, [1]), (1,)),
    (moves("nope", 0, [1]), (1,)),
    (moves("plain", 0, [1]), (1,)),
    (ListPartitionReassignmentsRequest(), (0,)),
    (features(("metadata.version", 29, 1)), (1, 2)),
    (features(("metadata.version", 29, 2)), (1, 2)),
    (features(("metadata.version", 29, 3)), (2,)),
    (features(("metadata.version", 99, 1)), (2,)),
    (features(("metadata.version", 30, 1)), (1, 2)),
    (features(("no.such.feature", 1, 1)), (2,)),
    (features(("group.version", 1, 9)), (2,)),
    (features(("group.version", -1, 2)), (2,)),
    (features(("group.version", 7, 1)), (2,)),
    (features(("transaction.version", 1, 1), validate_only=True), (2,)),
    (UnregisterBrokerRequest(broker_id=9), (0,)),
    (AllocateProducerIdsRequest(broker_id=1, broker_epoch=999_999), (0,)),
    (CreateAclsRequest(), (3,)),
    (DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), (3,)),
    (DeleteTopicsRequest(topic_names=["by-hand", "nope"], timeout_ms=60_000), (1, 5)),
    (DeleteTopicsRequest(topics=[Delete(name="a.b"), Delete(name="nope")], timeout_ms=60_000), (6,)),
    (DeleteTopicsRequest(topics=[Delete(name="plain"), Delete(name="plain")], timeout_ms=60_000), (6,)),
    (DeleteTopicsRequest(topics=[Delete(name=None, topic_id=uuid(77))], timeout_ms=60_000), (6,)),
    (DeleteTopicsRequest(topics=[Delete(name=None, topic_id=ZERO_UUID)], timeout_ms=60_000), (6,)),
    (DeleteTopicsRequest(topics=[Delete(name="plain", topic_id=uuid(77))], timeout_ms=60_000), (6,)),
]


def canonical(value: Any, name: str = "") -> Any:
    """A response as plain data, without random values and without an order that clients cannot rely on."""
    fields = getattr(value, "_fields", None)
    if fields is None:
        if isinstance(value, list):
            return sorted((canonical(item) for item in value), key=repr)
        if name == "topic_id":
            return "an id" if value != ZERO_UUID else "none"
        return int(value) if isinstance(value, int) else value
    return {
        field: canonical(getattr(value, field), field)
        for field in fields
        if field not in {"throttle_time_ms", "unknown_tags"}
    }


def ours_asked(quorum: Quorum, request: Any, version: int) -> Any:
    answer = quorum.ask(request, version)
    if answer.error is not None:
        response: Any = error_response(request, version, answer.error.code, answer.error.message)
    else:
        response = answer.response
    # As the client would read it: fields that the version lacks are missing.
    return codec.decode(type(response), codec.encode(response, version), version)


def apart(theirs: Any, mine: Any, where: str = "") -> Iterator[str]:
    """The places where two canonical answers differ."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for name in theirs:
            yield from apart(theirs[name], mine.get(name), f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(mine, list):
        for item in theirs:
            if item not in mine:
                yield f"  only Kafka {where}: {item}"
        for item in mine:
            if item not in theirs:
                yield f"  only ours  {where}: {item}"
    elif theirs != mine:
        yield f"  {where}: Kafka {theirs!r}, ours {mine!r}"


def log_of(target: Apache) -> list[Any]:
    """Every record of Kafka's metadata log."""
    segment = target.data / "__cluster_metadata-0" / "00000000000000000000.log"
    return [record for batch in decode_batches(segment.read_bytes()) for _, record in batch.records]


def test_requests_get_the_same_answers_and_records(both: tuple[Quorum, KafkaController, Apache]) -> None:
    ours, kafka, target = both
    kafka_before, ours_before = len(log_of(target)), ours.log.next_offset
    assert CLUSTER_ID
    differences: list[str] = []
    for request, versions in STORY:
        for version in versions:
            theirs = canonical(kafka.ask(request, version))
            try:
                mine = canonical(ours_asked(ours, request, version))
            except KafkaError as e:
                mine = str(e)
            if mine != theirs:
                differences.append(f"{request!r} v{version}\n" + "\n".join(apart(theirs, mine)))
    assert not differences, "\n".join([f"{len(differences)} difference(s)", *differences])

    theirs_written, ours_written = Written(), Written()
    theirs_written.take(log_of(target)[kafka_before:])
    ours_written.take(ours.written(since=ours_before))
    # Kafka processes the configs of a resource, and the users of a request, in the order of a hash map.
    assert sorted(ours_written.lines) == sorted(theirs_written.lines)
    assert len(ours_written.lines) > 40, "the story has written something to compare"
    in_order = ("TopicRecord", "RemoveTopicRecord")
    assert [line for line in ours_written.lines if line.startswith(in_order)] == [
        line for line in theirs_written.lines if line.startswith(in_order)
    ]
