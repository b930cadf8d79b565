"""confluent-kafka (librdkafka), kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.compat.targets import Target

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def _drain(consumer: Any, count: int, timeout_s: float = 30) -> list[Any]:
    got: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(got) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            got.append(message)
    return got


class TestConfluent:
    """librdkafka 2.x through confluent-kafka."""

    CLIENT = "confluent-kafka"

    @pytest.mark.parametrize("codec", CODECS)
    def test_idempotent_producer(self, cluster: Target, name: str, codec: str) -> None:
        from confluent_kafka import Consumer, Producer

        settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "compression.type": codec}
        producer = Producer(settings)
        failed: list[Any] = []

        def report(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        for i in range(2000):
            producer.produce(
                name, str(i), key=str(i), headers={"n": str(i)}, callback=lambda e, _: e and failed.append(e)
            )
        assert producer.flush(30) == 0
        assert failed == []
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
            }
        )
        consumer.subscribe([name])
        got = _drain(consumer, 2000)
        consumer.close()
        assert [m.value().decode() for m in got] == [str(i) for i in range(2000)]
        assert [m.offset() for m in got] == list(range(2000))
        assert got[7].headers() == [("n", b"7")]

    def test_admin(self, cluster: Target, name: str) -> None:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "1000000"})])[name].result(30)
        described = admin.describe_configs([ConfigResource("topic", name)])
        (entries,) = [f.result(30) for f in described.values()]
        assert entries["retention.ms"].value == "1000000"
        assert entries["retention.ms"].source == 1
        admin.create_partitions([NewPartitions(name, 4)])[name].result(30)
        leaders: list[int] = []
        deadline = time.monotonic() + 60
        while leaders != [1, 1, 1, 1]:  # brokers learn of it after the controller has answered
            assert time.monotonic() < deadline, leaders
            (topic,) = [f.result(30) for f in admin.describe_topics(_names([name])).values()]
            leaders = [p.leader.id for p in topic.partitions if p.leader is not None]
        offsets = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest()})
        assert [f.result(30).offset for f in offsets.values()] == [0]
        cluster_info = admin.describe_cluster().result(30)
        assert [n.id for n in cluster_info.nodes] == [1]
        admin.delete_topics([name])[name].result(30)
        deadline = time.monotonic() + 60
        while name in admin.list_topics(timeout=30).topics:
            assert time.monotonic() < deadline, name
            time.sleep(0.1)

    def test_two_members_share_a_group(self, cluster: Target, name: str) -> None:
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(name, 4, 1)])[name].result(30)
        for strategy in ("range", "cooperative-sticky"):
            settings = {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"{name}-{strategy}",
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": strategy,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            }
            members = [Consumer(settings), Consumer(settings)]
            for member in members:
                member.subscribe([name])
            deadline = time.monotonic() + 90
            while time.monotonic() < deadline and sorted(len(m.assignment()) for m in members) != [2, 2]:
                for member in members:
                    member.poll(0.1)
            assert sorted(len(m.assignment()) for m in members) == [2, 2], strategy
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            for partition in range(4):
                producer.produce(name, strategy, partition=partition)
            producer.flush(30)
            for member in members:
                member.close()

    def test_static_members_keep_their_partitions(self, cluster: Target, name: str) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": name, "group.instance.id": "one"}
        assignments = []
        for _ in range(2):
            member = Consumer(settings)
            member.subscribe([name])
            deadline = time.monotonic() + 90
            while time.monotonic() < deadline and not member.assignment():
                member.poll(0.1)
            assignments.append(sorted((p.topic, p.partition) for p in member.assignment()))
            member.close()
        assert assignments == [[(name, 0), (name, 1)]] * 2

    @pytest.mark.parametrize("version", ["0.10.0", "0.10.2", "0.11.0"])
    def test_old_versions_by_agreement(self, cluster: Target, name: str, version: str) -> None:
        from confluent_kafka import Consumer, Producer

        old = {
            "bootstrap.servers": cluster.bootstrap,
            "api.version.request": False,
            "broker.version.fallback": version,
            "log_level": 0,
        }
        producer = Producer({**old, "message.timeout.ms": 10_000})
        reported: list[Any] = []
        producer.produce(name, "old", callback=lambda e, m: reported.append(e or m.offset()))
        assert producer.flush(15) == 0
        assert reported == [0]
        consumer = Consumer({**old, "group.id": name, "auto.offset.reset": "earliest"})
        consumer.subscribe([name])
        assert [m.value() for m in _drain(consumer, 1)] == [b"old"]
        consumer.close()

    def test_admin_of_groups_users_and_records(self, cluster: Target, name: str) -> None:
        import confluent_kafka.admin as a
        from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

        admin = a.AdminClient({"bootstrap.servers": cluster.bootstrap})
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for i in range(5):
            producer.produce(name, str(i), partition=0)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
        consumer.close()
        assert name in {g.group_id for g in admin.list_consumer_groups().result(30).valid}
        described = admin.describe_consumer_groups([name])[name].result(30)
        assert (described.state.name, described.members) == ("EMPTY", [])
        committed = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 2)])
        admin.alter_consumer_group_offsets([committed])[name].result(30)
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
        assert [p.offset for p in asked[name].result(30).topic_partitions] == [2]
        deleted = admin.delete_records([TopicPartition(name, 0, 3)])
        assert [f.result(30).low_watermark for f in deleted.values()] == [3]
        admin.delete_consumer_groups([name])[name].result(30)
        info = a.ScramCredentialInfo(a.ScramMechanism.SCRAM_SHA_256, 4096)
        admin.alter_user_scram_credentials([a.UserScramCredentialUpsertion(name, info, b"not-a-secret")])[name].result(
            30
        )
        (user,) = [f.result(30) for f in admin.describe_user_scram_credentials([name]).values()]
        assert [c.iterations for c in user.scram_credential_infos] == [4096]
        resource = a.ConfigResource("topic", name)
        resource.add_incremental_config(
            a.ConfigEntry("retention.ms", "60000", incremental_operation=a.AlterConfigOpType.SET)
        )
        admin.incremental_alter_configs([resource])[resource].result(30)


def _names(names: list[str]) -> Any:
    from confluent_kafka import TopicCollection

    return TopicCollection(names)


class TestKafkaPython:
    """The pure-Python client."""

    CLIENT = "kafka-python"

    @pytest.mark.parametrize("codec", CODECS)
    def test_produce_and_consume_in_a_group(self, cluster: Target, name: str, codec: str) -> None:
        from kafka import KafkaConsumer, KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap, compression_type=None if codec == "none" else codec, acks="all"
        )
        sent = [producer.send(name, str(i).encode(), key=b"k") for i in range(300)]
        producer.flush()
        assert [f.get(30).offset for f in sent] == list(range(300))
        producer.close()
        consumer = KafkaConsumer(
            name,
            bootstrap_servers=cluster.bootstrap,
            group_id=name,
            auto_offset_reset="earliest",
            consumer_timeout_ms=20000,
        )
        got = []
        for message in consumer:
            got.append(int(message.value))
            if len(got) == 300:
                break
        consumer.commit()
        assert consumer.position(next(iter(consumer.assignment()))) == 300
        consumer.close()
        assert got == list(range(300))


class TestAiokafka:
    """The asyncio client."""

    CLIENT = "aiokafka"

    @pytest.mark.parametrize("codec", CODECS)
    def test_idempotent_producer_and_group(self, cluster: Target, name: str, codec: str) -> None:
        got = asyncio.run(self._round(cluster, name, codec))
        assert got == list(range(200))

    def test_admin(self, cluster: Target, name: str) -> None:
        asyncio.run(self._administrate(cluster, name))

    async def _administrate(self, cluster: Target, name: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        try:
            made = await admin.create_topics([NewTopic(name, 2, 1)])
            assert [error[1] for error in made.topic_errors] == [0]
            await admin.create_partitions({name: NewPartitions(3)})
            deadline = time.monotonic() + 60
            while len((await admin.describe_topics([name]))[0]["partitions"]) != 3:
                assert time.monotonic() < deadline
            assert name in await admin.list_topics()
            assert [b["node_id"] for b in (await admin.describe_cluster())["brokers"]] == [1]
            assert isinstance(await admin.list_consumer_groups(), list)
            gone = await admin.delete_topics([name])
            assert [error[1] for error in gone.topic_error_codes] == [0]
        finally:
            await admin.close()

    async def _round(self, cluster: Target, name: str, codec: str) -> list[int]:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
        )
        await producer.start()
        for i in range(200):
            await producer.send(name, str(i).encode())
        await producer.stop()
        consumer = AIOKafkaConsumer(
            name, bootstrap_servers=cluster.bootstrap, group_id=name, auto_offset_reset="earliest"
        )
        await consumer.start()
        got: list[int] = []
        try:
            while len(got) < 200:
                message = await asyncio.wait_for(consumer.getone(), 30)
                got.append(int(message.value))
        finally:
            await consumer.stop()
        return got
