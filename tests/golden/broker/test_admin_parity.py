"""Administration through a broker: configurations, topics, quotas, users, ACLs, features, the quorum."""

from __future__ import annotations

import re
from math import nan
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.api import API
from kraft_protocol.wire.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeDelegationTokenRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
    RenewDelegationTokenRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tests.golden.broker.pair import Pair, Side, uuid

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Topic = CreateTopicsRequest.CreatableTopic
Key = CreateTopicsRequest.CreatableTopicConfig
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("a", 2, retention_ms="86400000", cleanup_policy="compact,delete")


def describe(*resources: tuple[int, str], keys: list[str] | None = None, **fields: Any) -> DescribeConfigsRequest:
    made = [DescribeConfigsRequest.DescribeConfigsResource(kind, name, keys) for kind, name in resources]
    return DescribeConfigsRequest(made, **fields)


PATHS = re.compile(r"log\.dirs?|listener|voters|node\.id|process\.roles|broker\.id|^port$")


def without_documentation(answer: Any) -> Any:
    for result in answer["results"]:
        for config in result["configs"]:
            config["documentation"] = None
    return answer


def test_answers_to_describe_configs_match(pair: Pair) -> None:
    for synonyms in (False, True):
        for resource in ((TOPIC, "a"), (BROKER, "1"), (BROKER, ""), (METRICS, "m"), (GROUP, "g")):
            pair.same(describe(resource, include_synonyms=synonyms), label=str(resource))
    pair.same(describe((TOPIC, "a"), keys=["retention.ms", "nonsense", "segment.bytes"]))
    pair.same(describe((TOPIC, "a"), keys=[]))
    pair.same(describe((BROKER, "1"), keys=["log.retention.ms", "log.retention.hours"], include_synonyms=True))
    for resource in (
        (TOPIC, "nope"), (TOPIC, ""), (TOPIC, "bad/name"), (BROKER, "2"), (BROKER, "one"), (BROKER, "-1"),
        (LOGGER, "2"),
        (LOGGER, ""), (METRICS, ""), (GROUP, ""), (0, "x"), (1, "x"), (3, "x"), (99, "x"), (-1, "x"),
    ):  # fmt: skip
        pair.same(describe(resource), label=str(resource))
    pair.differs(
        "names-of-loggers",
        describe((LOGGER, "1")),
        4,
        kafka=lambda a: "kafka.server.KafkaApis" in {config.name for config in a.results[0].configs},
        ours=lambda a: "kraft_node.broker.broker" in {config.name for config in a.results[0].configs},
    )
    pair.same(describe((TOPIC, "a"), (TOPIC, "nope"), (TOPIC, "a")), 4)
    pair.same(DescribeConfigsRequest())
    pair.differs(
        "documentation",
        describe((TOPIC, "a"), keys=["retention.ms"], include_documentation=True),
        (3, 4),
        kafka=lambda a: bool(a.results[0].configs[0].documentation),
        ours=lambda a: a.results[0].configs[0].documentation.startswith("A segment whose newest record is older"),
    )


def alter(*resources: tuple[int, str, list[tuple[str, int, str | None]]], **fields: Any) -> Any:
    change = IncrementalAlterConfigsRequest.AlterableConfig
    made = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, [change(*row) for row in rows])
        for kind, name, rows in resources
    ]
    return IncrementalAlterConfigsRequest(made, **fields)


def replace(kind: int, name: str, *rows: tuple[str, str | None], **fields: Any) -> Any:
    change = AlterConfigsRequest.AlterableConfig
    return AlterConfigsRequest(
        [AlterConfigsRequest.AlterConfigsResource(kind, name, [change(*row) for row in rows])], **fields
    )


SET, DELETE, APPEND, SUBTRACT = range(4)


ALTERED: tuple[tuple[int, str, list[tuple[str, int, str | None]]], ...] = (
    (TOPIC, "a", [("retention.ms", SET, "1000")]),
    (TOPIC, "a", [("retention.ms", SET, "soon")]),
    (TOPIC, "a", [("retention.ms", SET, None)]),
    (TOPIC, "a", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
    (TOPIC, "a", [("no.such.key", SET, "1")]),
    (TOPIC, "a", [("cleanup.policy", SUBTRACT, "compact")]),
    (TOPIC, "a", [("cleanup.policy", APPEND, "compact"), ("segment.ms", DELETE, None)]),
    (TOPIC, "a", [("retention.ms", APPEND, "1")]),
    (TOPIC, "a", [("retention.ms", 9, "1")]),
    (TOPIC, "a", []),
    (TOPIC, "nope", [("retention.ms", SET, "1")]),
    (TOPIC, "", [("retention.ms", SET, "1")]),
    (BROKER, "1", [("log.cleaner.threads", SET, "2")]),
    (BROKER, "", [("log.cleaner.threads", SET, "2")]),
    (BROKER, "1", [("log.cleaner.threads", SET, "many")]),
    (BROKER, "1", [("num.partitions", SET, "2")]),
    (BROKER, "1", [("broker.id", SET, "2")]),
    (BROKER, "", [("advertised.listeners", SET, "x")]),
    (BROKER, "1", [("no.such.key", SET, "1")]),
    (BROKER, "1", [("log.cleaner.threads", DELETE, None)]),
    (BROKER, "2", [("log.cleaner.threads", SET, "2")]),
    (BROKER, "one", [("log.cleaner.threads", SET, "2")]),
    (LOGGER, "1", [("nonsense.logger", SET, "INFO")]),
    (LOGGER, "2", [("root", SET, "INFO")]),
    (LOGGER, "", [("root", SET, "INFO")]),
    *((LOGGER, "1", [("root", SET, level)]) for level in ("LOUD", "info", "")),
    *((LOGGER, "1", [("root", operation, "INFO")]) for operation in (DELETE, APPEND, SUBTRACT, 9)),
    (METRICS, "m", [("interval.ms", SET, "1000")]),
    (METRICS, "m", [("interval.ms", SET, "1")]),
    (METRICS, "m", [("interval.ms", SET, "-1")]),
    (METRICS, "m", [("interval.ms", SET, "2147483648")]),
    (METRICS, "m", [("metrics", APPEND, "a")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")]),
    *(
        (GROUP, "g", [("share.auto.offset.reset", SET, value)])
        for value in ("x", "none", "Latest", "", *(f"by_duration{tail}" for tail in ("", ":", ":1", ":-PT1S")))
    ),
    (99, "x", [("a", SET, "1")]),
)
"""Resources, and the changes that are requested."""


def test_answers_to_alter_configs_match(pair: Pair) -> None:
    for kind, name, rows in ALTERED:
        pair.same(alter((kind, name, rows), validate_only=True), label=f"{kind} {name} {rows}")
        pair.same(alter((kind, name, rows)), 1, label=f"{kind} {name} {rows}")
    pair.same(alter((TOPIC, "a", [("retention.ms", SET, "5")]), (TOPIC, "a", [("segment.ms", SET, "5")])))
    pair.same(IncrementalAlterConfigsRequest())
    wholes: tuple[list[tuple[str, str | None]], ...] = (
        [("retention.ms", "7")],
        [("retention.ms", None)],
        [("nope", "1")],
        [("a", "1"), ("a", "2")],
        [],
    )
    for whole in wholes:
        pair.same(replace(TOPIC, "a", *whole, validate_only=True), label=str(whole))
    pair.same(replace(TOPIC, "a", ("retention.ms", "7")), 2)
    pair.same(replace(TOPIC, "nope", ("retention.ms", "7")))
    pair.same(replace(LOGGER, "1", ("root", "INFO")))
    pair.same(AlterConfigsRequest())
    pair.same(describe((TOPIC, "a"), include_synonyms=True), 4, label="afterwards", settles=True)
    pair.same(describe((GROUP, "g"), (METRICS, "m"), include_synonyms=True), 4, label="afterwards", settles=True)
    pair.same(ListConfigResourcesRequest(), settles=True)
    for types in ([METRICS], [GROUP], [TOPIC], [BROKER], [LOGGER], [99], [0], [METRICS, GROUP, METRICS]):
        mask = (lambda answer: answer) if TOPIC not in types else only_a
        pair.same(ListConfigResourcesRequest(types), 1, mask=mask)


def test_bounds_of_dynamic_changes_of_a_broker_match(pair: Pair) -> None:
    cases: tuple[tuple[int, str, list[tuple[str, int, str | None]]], ...] = (
        (BROKER, "1", [("num.io.threads", SET, "3")]),
        (BROKER, "1", [("num.io.threads", SET, "4")]),
        (BROKER, "1", [("num.io.threads", SET, "16")]),
        (BROKER, "1", [("num.io.threads", SET, "17")]),
        (BROKER, "1", [("background.threads", SET, "4")]),
        (BROKER, "1", [("background.threads", SET, "5")]),
        (BROKER, "1", [("background.threads", SET, "20")]),
        (BROKER, "1", [("background.threads", SET, "21")]),
        (BROKER, "1", [("num.replica.fetchers", SET, "2")]),
        (BROKER, "1", [("num.replica.fetchers", SET, "3")]),
        (BROKER, "1", [("num.recovery.threads.per.data.dir", SET, "4")]),
        (BROKER, "1", [("num.recovery.threads.per.data.dir", SET, "5")]),
        (BROKER, "1", [("log.cleaner.threads", SET, "3")]),
        (BROKER, "1", [("log.cleaner.io.buffer.size", SET, "-1")]),
        (BROKER, "1", [("log.cleaner.io.buffer.size", SET, "0")]),
        (BROKER, "1", [("log.cleaner.backoff.ms", SET, "-1")]),
        (BROKER, "1", [("log.cleaner.backoff.ms", SET, "0")]),
        (BROKER, "1", [("producer.id.expiration.ms", SET, "0")]),
        (BROKER, "1", [("producer.id.expiration.ms", SET, "1")]),
        (BROKER, "1", [("num.network.threads", SET, "1")]),
        (BROKER, "1", [("num.network.threads", SET, "7")]),
        (BROKER, "1", [("remote.log.manager.copier.thread.pool.size", SET, "4")]),
        (BROKER, "1", [("remote.log.manager.expiration.thread.pool.size", SET, "21")]),
        (BROKER, "1", [("remote.log.manager.follower.thread.pool.size", SET, "5")]),
        (BROKER, "1", [("remote.log.reader.threads", SET, "21")]),
        (BROKER, "1", [("max.connections", SET, "0")]),
        (BROKER, "1", [("max.connection.creation.rate", SET, "0")]),
        (BROKER, "1", [("log.local.retention.ms", SET, "-1")]),
        (BROKER, "1", [("log.local.retention.ms", SET, "604800001")]),
        (BROKER, "", [("log.retention.ms", SET, "7"), ("log.local.retention.ms", SET, "8")]),
        (BROKER, "", [("log.retention.bytes", SET, "7"), ("log.local.retention.bytes", SET, "8")]),
        (BROKER, "", [("log.retention.bytes", SET, "7"), ("log.local.retention.bytes", SET, "-1")]),
        (BROKER, "", [("num.io.threads", SET, "100")]),
        (BROKER, "", [("log.cleaner.threads", SET, "5")]),
    )
    for kind, name, rows in cases:
        pair.same(alter((kind, name, rows), validate_only=True), 1, label=f"{kind} {name} {rows}")
        # keep it, because there are eligible leader replicas
        least = [("min.insync.replicas", "1")] if not name else []
        whole = least + [(key, value) for key, _, value in rows]
        pair.same(replace(kind, name, *whole, validate_only=True), 1, label=f"{kind} {name} {whole}")
    for key in ("log.roll.ms", "follower.replication.throttled.rate", "listener.name.plaintext.max.connections"):
        for operation in (APPEND, SUBTRACT):
            pair.same(alter((BROKER, "1", [(key, operation, "1")]), validate_only=True), 1, label=f"{key} {operation}")
    for key, operation, value in (
        ("log.cleaner.threads", SET, "0"),
        ("log.cleaner.dedupe.buffer.size", SET, "0"),
        ("log.cleaner.dedupe.buffer.size", SET, "1"),
        ("log.cleaner.dedupe.buffer.size", SET, "1048575"),
        ("log.cleaner.dedupe.buffer.size", SET, "1048576"),
        ("log.cleaner.dedupe.buffer.size", SET, "1048577"),
        ("log.cleaner.dedupe.buffer.size", SET, "134217728"),
        ("cordoned.log.dirs", APPEND, "/elsewhere"),
        ("cordoned.log.dirs", SUBTRACT, "/elsewhere"),
        ("listeners", APPEND, "nothing"),
    ):
        request = alter((BROKER, "1", [(key, operation, value)]), validate_only=True)
        pair.same(request, 1, label=f"{key} {operation} {value}", mask=without_messages)


@pytest.mark.parametrize("name", ["+1", " 1", "01", "1_0", "\u0661", "1.0", "-0", "2147483648", "9" * 20])
def test_ids_of_nodes_are_parsed_like_by_java(pair: Pair, name: str) -> None:
    pair.same(describe((BROKER, name), keys=["num.partitions"]), 4)
    pair.same(alter((BROKER, name, [("log.cleaner.threads", SET, "2")]), validate_only=True), 1)
    pair.same(replace(BROKER, name, ("log.cleaner.threads", "2"), validate_only=True), 2)


def without_messages(answer: Any) -> Any:
    for response in answer["responses"]:
        response["error_message"] = None
    return answer


def only_a(answer: Any) -> Any:
    return {**answer, "config_resources": [r for r in answer["config_resources"] if r["resource_name"] == "a"]}


def test_answers_about_topics_match(pair: Pair) -> None:
    def creates(*topics: Topic, **fields: Any) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, **fields)

    for version in range(2, 8):
        pair.same(creates(Topic(name=f"t{version}", num_partitions=1, replication_factor=1)), version)
        pair.same(creates(Topic(name=f"t{version}", num_partitions=1, replication_factor=1)), version)
    pair.same(creates(Topic(name="t.dry", num_partitions=-1, replication_factor=-1), validate_only=True))
    for name, partitions, factor in (
        ("bad/name", 1, 1),
        ("", 1, 1),
        ("t", 0, 1),
        ("t", 1, 3),
        ("t", 1, 0),
        ("..", 1, 1),
    ):
        pair.same(creates(Topic(name=name, num_partitions=partitions, replication_factor=factor)), label=name)
    pair.same(creates(Topic(name="__cluster_metadata", num_partitions=1, replication_factor=1)))
    for key, value in (("retention.ms", "soon"), ("nope", "1"), ("cleanup.policy", None)):
        topic = Topic(name="t", num_partitions=1, replication_factor=1, configs=[Key(key, value)])
        pair.same(creates(topic, validate_only=True), label=key)
    pair.same(creates(*[Topic(name="twice", num_partitions=n, replication_factor=1) for n in (1, 2)]))
    pair.same(creates())
    topic = Topic(name="t.full", num_partitions=2, replication_factor=1, configs=[Key("retention.ms", "5000")])
    pair.same(creates(topic, validate_only=True), (5, 6, 7))

    grow = CreatePartitionsRequest.CreatePartitionsTopic
    for name, count in (("t2", 3), ("t2", 3), ("t2", 1), ("t2", 0), ("t2", -1), ("nope", 2), ("", 2)):
        pair.same(CreatePartitionsRequest([grow(name, count, None)], 5000, True), label=f"{name} {count}")
    pair.same(CreatePartitionsRequest([grow("t2", 2, None)], 5000, False), 3)
    pair.same(CreatePartitionsRequest([grow("t2", 9, None), grow("t2", 8, None)], 5000, True))

    state = DeleteTopicsRequest.DeleteTopicState
    for version in range(1, 6):
        pair.same(DeleteTopicsRequest(topic_names=[f"t{version + 1}", "nope"], timeout_ms=5000), version)
    pair.same(DeleteTopicsRequest(topics=[state(None, uuid(3)), state("nope", ZERO_UUID)], timeout_ms=5000), 6)
    pair.same(DeleteTopicsRequest(topics=[state(None, ZERO_UUID)]), 6)
    pair.same(DeleteTopicsRequest(topics=[state("t7", ZERO_UUID), state("t7", ZERO_UUID)]), 6)
    pair.same(lambda side: DeleteTopicsRequest(topics=[state("a", side.ids["a"])]), 6)
    pair.same(DeleteTopicsRequest(topics=[state("t7", ZERO_UUID)], timeout_ms=5000), 6)
    late = DeleteTopicsRequest(topic_names=["nope"], timeout_ms=0)
    pair.differs(
        "no-time", late, range(1, 6),
        kafka=lambda a: a.responses[0].error_code == 7, ours=lambda a: a.responses[0].error_code == 3,
    )  # fmt: skip


def test_names_as_long_as_names_can_be_are_answered(pair: Pair) -> None:
    """Error messages that quote the names are cut. If Kafka's do not fit, it sends UNKNOWN_SERVER_ERROR without one."""
    name = "x" * 32_767
    topic, alter = Topic(name=name, num_partitions=1, replication_factor=1), IncrementalAlterConfigsRequest
    key = Topic(name="t", num_partitions=1, replication_factor=1, configs=[Key(name, "1")])
    feature = UpdateFeaturesRequest.FeatureUpdateKey(name, 1, upgrade_type=1)
    quota = AlterClientQuotasRequest
    for asked in (
        CreateTopicsRequest(topics=[topic]),
        CreateTopicsRequest(topics=[key]),
        ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartitions(name, [0])]),
        alter([alter.AlterConfigsResource(TOPIC, name, [alter.AlterableConfig("a", SET, "1")])]),
        alter([alter.AlterConfigsResource(METRICS, "m", [alter.AlterableConfig(name, SET, "1")])]),
        describe((TOPIC, name), (BROKER, name)),
        quota([quota.EntryData([quota.EntityData("user", "u")], [quota.OpData(name, 1.0, False)])]),
        DescribeUserScramCredentialsRequest([DescribeUserScramCredentialsRequest.UserName(name)]),
        DescribeGroupsRequest([name]),
        DescribeProducersRequest([DescribeProducersRequest.TopicRequest(name, [0])]),
        UpdateFeaturesRequest(feature_updates=[feature]),
    ):
        version = API[asked.SCHEMA.api_key].max_version
        pair.check(type(asked).__name__, lambda side: isinstance(side.ask(asked, version), str))  # noqa: B023
        assert not isinstance(pair.ours.ask(asked, version), str)


def test_answers_about_reassignments_and_elections_match(pair: Pair) -> None:
    moved = AlterPartitionReassignmentsRequest
    for replicas in ([1], None, [], [9], [1, 1]):
        part = moved.ReassignablePartition(partition_index=0, replicas=replicas)
        pair.same(moved(topics=[moved.ReassignableTopic(name="a", partitions=[part])]), label=str(replicas))
    part = moved.ReassignablePartition(partition_index=7, replicas=[1])
    pair.same(moved(topics=[moved.ReassignableTopic(name="a", partitions=[part])]))
    pair.same(moved(topics=[]))
    pair.same(ListPartitionReassignmentsRequest())
    listed = ListPartitionReassignmentsRequest
    pair.same(listed(topics=[listed.ListPartitionReassignmentsTopics("a", [0, 7])]))
    elect = ElectLeadersRequest.TopicPartitions
    for kind in (0, 1, 2):
        for asked in ([elect("a", [0, 7]), elect("nope", [0])], [], None):
            pair.same(ElectLeadersRequest(election_type=kind, topic_partitions=asked), label=str(kind))


def test_answers_about_quotas_match(pair: Pair) -> None:
    entity, op = AlterClientQuotasRequest.EntityData, AlterClientQuotasRequest.OpData
    for kind, name, key, value in (
        ("user", "alice", "producer_byte_rate", 1000.0),
        ("user", None, "consumer_byte_rate", 1e9),
        ("client-id", "c", "request_percentage", 10.5),
        ("ip", "1.2.3.4", "connection_creation_rate", 5.0),
        ("nonsense", "x", "producer_byte_rate", 5.0),
        ("user", "alice", "nonsense", 5.0),
        ("user", "", "producer_byte_rate", 5.0),
        ("user", "alice", "producer_byte_rate", -5.0),
    ):
        entry = AlterClientQuotasRequest.EntryData([entity(kind, name)], [op(key, value, False)])
        pair.same(AlterClientQuotasRequest([entry]), label=f"{kind} {name} {key}")
    for names in ([("user", "q")], [("user", None)], [("user", "p"), ("user", "q")], []):
        entries = [
            AlterClientQuotasRequest.EntryData([entity(*name) for name in names], [op(key, value, False)])
            for key, value in (("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0), ("nonsense", 3.0))
        ]
        pair.same(AlterClientQuotasRequest(entries, True), label=f"{names} three times")
        entries[0].ops = [op("producer_byte_rate", value, False) for value in (1.0, 2.0)]
        pair.same(AlterClientQuotasRequest(entries[:1], True), label=f"{names} with one key twice")
    entry = AlterClientQuotasRequest.EntryData([entity("ip", "nonsense")], [op("connection_creation_rate", 5.0, False)])
    pair.differs(
        "host-names", AlterClientQuotasRequest([entry], True),
        kafka=lambda a: a.entries[0].error_code == 42, ours=lambda a: a.entries[0].error_code == 0,
    )  # fmt: skip
    component = DescribeClientQuotasRequest.ComponentData
    for strict in (False, True):
        pair.same(DescribeClientQuotasRequest([], strict), settles=True)
        for match in (component("user", 0, "alice"), component("user", 1, None), component("user", 2, None),
                      component("client-id", 2, None), component("ip", 2, None), component("nonsense", 2, None),
                      component("user", 9, None), component("", 0, "x"), component("user", 0, None),
                      component("user", 1, "alice")):  # fmt: skip
            pair.same(DescribeClientQuotasRequest([match], strict), label=f"strict {strict}")
        pair.same(DescribeClientQuotasRequest([component("user", 2, None), component("user", 0, "alice")], strict))
        pair.same(DescribeClientQuotasRequest([component("user", 2, None), component("ip", 2, None)], strict))
        pair.same(DescribeClientQuotasRequest([component("user", 2, None), component("client-id", 2, None)], strict))
    limits = (("user", "alice", "producer_byte_rate"), ("user", None, "consumer_byte_rate"),
              ("client-id", "c", "request_percentage"), ("ip", "1.2.3.4", "connection_creation_rate"))  # fmt: skip
    for kind, name, key in limits:  # they would apply to the other tests
        entry = AlterClientQuotasRequest.EntryData([entity(kind, name)], [op(key, 0.0, True)])
        pair.same(AlterClientQuotasRequest([entry]), 1)
    for key, value in (("producer_byte_rate", float(2**63 - 1)), ("producer_byte_rate", 9.3e18), ("nonsense", 1.0)):
        entry = AlterClientQuotasRequest.EntryData([entity("user", "dry")], [op(key, value, False)])
        pair.same(AlterClientQuotasRequest([entry], True), label=f"{key} {value}")
    entry = AlterClientQuotasRequest.EntryData([entity("user", "dry")], [op("request_percentage", nan, False)])
    pair.differs(
        "no-number", AlterClientQuotasRequest([entry], True),
        kafka=lambda a: a.entries[0].error_code == 0, ours=lambda a: a.entries[0].error_code == 42,
    )  # fmt: skip


def test_answers_about_scram_users_match(pair: Pair) -> None:
    upsert = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    for least in (4096, 1):
        credentials = [upsert("open", 1, 4096, b"salt", b""), upsert("open", 2, least, b"salt", b"x")]
        pair.same(AlterUserScramCredentialsRequest([], credentials[:1]))
        pair.same(AlterUserScramCredentialsRequest([], credentials))
    users = [upsert("alice", 1, 4096, b"salt", b"x" * 32), upsert("bob", 2, 8192, b"salt", b"x" * 64)]
    pair.same(AlterUserScramCredentialsRequest([], users))
    gone = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    pair.same(AlterUserScramCredentialsRequest([gone("nobody", 1), gone("alice", 2), gone("", 1)], []))
    user = DescribeUserScramCredentialsRequest.UserName
    pair.same(DescribeUserScramCredentialsRequest(None), settles=True)
    pair.same(DescribeUserScramCredentialsRequest([]))
    pair.same(DescribeUserScramCredentialsRequest([user("alice"), user("nobody"), user("")]))
    pair.same(DescribeUserScramCredentialsRequest([user("alice"), user("alice"), user("bob")]))


def test_answers_about_acls_and_tokens_match(pair: Pair) -> None:
    pair.same(DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    pair.same(DescribeAclsRequest(99, None, 1, None, None, 1, 1))
    pair.same(CreateAclsRequest([CreateAclsRequest.AclCreation(2, "a", 3, "User:alice", "*", 3, 3)]))
    pair.same(CreateAclsRequest())
    pair.same(DeleteAclsRequest([DeleteAclsRequest.DeleteAclsFilter(2, "a", 3, None, None, 3, 3)]))
    pair.same(DeleteAclsRequest())
    pair.same(CreateDelegationTokenRequest(max_lifetime_ms=1000))
    pair.same(RenewDelegationTokenRequest(b"x", 1000))
    pair.same(ExpireDelegationTokenRequest(b"x", 1000))
    pair.same(DescribeDelegationTokenRequest(owners=None))


def test_answers_about_features_and_the_quorum_match(pair: Pair) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey
    for name, level, kind in (
        ("metadata.version", 30, 1), ("metadata.version", 99, 1), ("metadata.version", 25, 1), ("nonsense", 1, 1),
        ("group.version", 1, 1), ("group.version", 9, 1), ("", 1, 1), ("transaction.version", 1, 2),
        ("nonsense", 0, 2), ("nonsense", 0, 1), ("share.version", 0, 2), ("nonsense", 0, 9), ("nonsense", -1, 2),
    ):  # fmt: skip
        asked = UpdateFeaturesRequest(feature_updates=[update(name, level, upgrade_type=kind)], validate_only=True)
        pair.same(asked, label=f"{name} {level}")
    pair.same(UpdateFeaturesRequest())
    pair.same(UpdateFeaturesRequest(feature_updates=[update("kraft.version", 0, upgrade_type=1)]))
    upgrade = update("kraft.version", 1, upgrade_type=1)
    pair.same(UpdateFeaturesRequest(feature_updates=[upgrade], validate_only=True))
    pair.same(UnregisterBrokerRequest(9))

    def quorum(topic: str, *indexes: int) -> DescribeQuorumRequest:
        rows = [DescribeQuorumRequest.PartitionData(index) for index in indexes]
        return DescribeQuorumRequest([DescribeQuorumRequest.TopicData(topic, rows)])

    def without_offsets(answer: Any) -> Any:
        if isinstance(answer, str):
            return answer
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                row["leader_epoch"] = row["leader_epoch"] > 0
                row["high_watermark"] = row["high_watermark"] > 0
                for replica in [*row["current_voters"], *row["observers"]]:
                    replica["log_end_offset"] = replica["log_end_offset"] > 0
                    replica["replica_directory_id"] = None
        return answer

    pair.same(quorum("__cluster_metadata", 0), mask=without_offsets)
    pair.same(quorum("__cluster_metadata", 1), mask=without_offsets)
    pair.same(quorum("a", 0), mask=without_offsets)
    pair.same(DescribeQuorumRequest())


def test_answers_about_transactions_match(pair: Pair) -> None:
    pair.same(ListTransactionsRequest())
    pair.same(ListTransactionsRequest(["Ongoing", "Nonsense"], [1], 100))
    pair.same(ListTransactionsRequest(transactional_id_pattern="a.*"), 2)
    pair.same(ListTransactionsRequest(transactional_id_pattern="["), 2)
    pair.same(ListTransactionsRequest(transactional_id_pattern="x" * 1000), 2)
    pair.differs(
        "long-pattern",
        ListTransactionsRequest(transactional_id_pattern="x" * 1001),
        2,
        kafka=lambda a: a.error_code == 0,
        ours=lambda a: a.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION,
    )
    pair.same(DescribeTransactionsRequest([]))
