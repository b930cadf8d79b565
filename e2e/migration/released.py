"""A running cluster of Apache Kafka 3.9.2 with ZooKeeper in the namespace `kafka`, its content, and its tools."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import yaml

from e2e.kube import CLIENT_IMAGE, Object, fresh_namespace, get, kubectl, until

NAMESPACE = "kafka"
IMAGE = os.environ.get("E2E_RELEASED_KAFKA_IMAGE", "")
"""Apache Kafka 3.9.2 with ZooKeeper (`Dockerfile`); empty without such an image."""
BOOTSTRAP = f"kafka.{NAMESPACE}.svc:9092"
BROKERS = (1, 2, 3)
ENCODER = "a secret of the brokers"
"""password.encoder.secret."""
TOPIC = "orders"
GROUP = "billing"
RECORDS = 3000
COMMITTED = {0: 7, 1: 41, 2: 100}
"""The group's offset by partition."""

COMMIT = """
import sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, group, topic, *offsets = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
places = [TopicPartition(topic, *map(int, one.split("="))) for one in offsets]
print(len(consumer.commit(offsets=places, asynchronous=False)))
"""
REPLICAS = """
import json, sys
from confluent_kafka.admin import AdminClient
found = AdminClient({"bootstrap.servers": sys.argv[1]}).list_topics(timeout=20)
partitions = {f"{t.topic}-{p.id}": [p.replicas, p.isrs] for t in found.topics.values() for p in t.partitions.values()}
print(json.dumps([sorted(found.brokers), partitions]))
"""


class ReleasedKafka:
    """The cluster; its brokers have the ids 1 to 3."""

    def start(self) -> None:
        """Make it, and wait until its brokers answer."""
        fresh_namespace(NAMESPACE)
        kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump_all(self._documents("")), check=True)
        for broker in BROKERS:
            until(f"broker {broker} is ready", lambda broker=broker: self._uid(broker))
        until("all brokers are known", lambda: self.replicas(BOOTSTRAP)[0] == [*BROKERS])

    def delete(self) -> None:
        """Kill the brokers, which would wait for ZooKeeper at their end, and delete the namespace."""
        kubectl("delete", "statefulset", "kafka", "-n", NAMESPACE, "--cascade=orphan", check=True)
        kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--grace-period=0", "--force", check=True)
        kubectl("delete", "namespace", NAMESPACE, "--timeout=150s", check=True)

    def _documents(self, more: str) -> list[Object]:
        text = Path(__file__).with_name("kafka.yaml").read_text()
        text = text.replace("image: KAFKA", f"image: {IMAGE}").replace("image: CLIENT", f"image: {CLIENT_IMAGE}")
        documents: list[Object] = list(yaml.safe_load_all(text))
        properties = documents[0]["data"]["server.properties"].replace("ENCODER", ENCODER)
        documents[0]["data"]["server.properties"] = properties + more
        return documents

    def configure(self, more: str) -> None:
        """Give the brokers their properties with some more, and restart them one by one."""
        kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=self._documents(more)[0], check=True)
        for broker in BROKERS:
            before = self._uid(broker)
            kubectl("delete", "pod", f"kafka-{broker}", "-n", NAMESPACE, "--timeout=120s", check=True)
            until(
                f"broker {broker} is ready again",
                lambda broker=broker, before=before: self._uid(broker) not in {"", before},
            )
            until("all replicas are in sync", self.in_sync)

    def _uid(self, broker: int) -> str:
        """The uid of the broker's pod if it is ready; empty otherwise."""
        pod = get("pod", f"kafka-{broker}", namespace=NAMESPACE)
        conditions = [] if pod is None else pod["status"].get("conditions", ())
        is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return str(pod["metadata"]["uid"]) if is_ready else ""

    # Tools

    def _exec(self, container: str, *words: str, stdin: str = "", check: bool = True) -> str:
        where = ("exec", "-i", "tools", "-n", NAMESPACE, "-c", container, "--")
        return kubectl(*where, *words, stdin=stdin, check=check).stdout

    def _kafka(self, main_class: str, *args: str) -> str:
        """The output of one of Apache Kafka's tools."""
        java = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
        return self._exec("kafka", *java, main_class, *args)

    def _configs(self, bootstrap: str, *args: str) -> str:
        return self._kafka("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *args)

    def _python(self, program: str, *args: str) -> str:
        """The output of a program with librdkafka; empty if it fails."""
        return self._exec("client", "/opt/client/bin/python", "-c", program, *args, check=False)

    # Content

    def fill(self) -> None:
        """Make a topic with records, configurations, committed offsets, quotas and a user."""
        configs = ("--config", "retention.ms=-1", "--config", "max.message.bytes=1234567")
        self.topic(TOPIC, "--partitions", "3", "--replication-factor", "3", *configs)
        self.write(TOPIC, RECORDS)
        offsets = [f"{partition}={offset}" for partition, offset in COMMITTED.items()]
        until("offsets are committed", lambda: self._python(COMMIT, BOOTSTRAP, GROUP, TOPIC, *offsets))
        alice = ("--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config")
        self._configs(BOOTSTRAP, *alice, "SCRAM-SHA-256=[password=wonderland]")
        self._configs(BOOTSTRAP, *alice, "consumer_byte_rate=2048000")

    def encrypt(self) -> None:
        """Set a password of a broker, which ZooKeeper has encrypted."""
        password = "listener.name.controller.ssl.keystore.password=geheim"
        broker = ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", password)
        self._configs(BOOTSTRAP, *broker)

    def topic(self, name: str, *args: str) -> None:
        """Make a topic."""
        tool = "org.apache.kafka.tools.TopicCommand"
        self._kafka(tool, "--bootstrap-server", BOOTSTRAP, "--create", "--topic", name, *args)

    def write(self, topic: str, count: int) -> None:
        """Write the numbers below `count` to all partitions, with acks=all."""
        options = ("-X", "acks=all", "-X", "sticky.partitioning.linger.ms=0")
        words = ("kcat", "-P", "-b", BOOTSTRAP, "-t", topic, *options)
        self._exec("client", *words, stdin="\n".join(map(str, range(count))))

    def read(self, bootstrap: str, topic: str) -> Counter[int]:
        """How often each number is in a topic."""
        text = self._exec("client", "kcat", "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q")
        return Counter(map(int, text.split()))

    def described(self, bootstrap: str) -> dict[str, list[str]]:
        """The group's offsets, the topic's configurations, and users with quotas, as Apache Kafka's tools show them."""
        group = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap)
        shown = {
            "group": self._kafka(*group, "--describe", "--group", GROUP),
            "topic": self._configs(bootstrap, "--describe", "--entity-type", "topics", "--entity-name", TOPIC),
            "users": self._configs(bootstrap, "--describe", "--entity-type", "users"),
        }
        found = {name: sorted(" ".join(line.split()) for line in text.splitlines()) for name, text in shown.items()}
        return {name: [line for line in lines if line] for name, lines in found.items()}

    def replicas(self, bootstrap: str) -> tuple[list[int], dict[str, tuple[list[int], list[int]]]]:
        """The brokers, and replicas and in-sync replicas by partition; nothing while no broker answers."""
        brokers, partitions = json.loads(self._python(REPLICAS, bootstrap) or "[[], {}]")
        return brokers, partitions

    def in_sync(self) -> bool:
        """Whether all brokers are there, and all replicas in sync."""
        brokers, partitions = self.replicas(BOOTSTRAP)
        full = all(len(in_sync) == len(replicas) for replicas, in_sync in partitions.values())
        return {*BROKERS} <= {*brokers} and bool(partitions) and full

    def _elsewhere(self) -> list[str]:
        """Topics with a replica on a broker of another cluster."""
        _, partitions = self.replicas(BOOTSTRAP)
        return sorted({name.rpartition("-")[0] for name, (all_, _) in partitions.items() if not {*all_} <= {*BROKERS}})

    def move_back(self) -> None:
        """Move all replicas to these brokers, by Apache Kafka's tool."""
        tool = ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", BOOTSTRAP)
        topics = {"version": 1, "topics": [{"topic": name} for name in self._elsewhere()]}
        self._file("/tmp/topics.json", json.dumps(topics))
        brokers = ("--broker-list", ",".join(map(str, BROKERS)))
        plan = self._kafka(*tool, "--generate", "--topics-to-move-json-file", "/tmp/topics.json", *brokers)
        self._file("/tmp/plan.json", plan.strip().splitlines()[-1])
        self._kafka(*tool, "--execute", "--reassignment-json-file", "/tmp/plan.json")
        until("all replicas are back", lambda: not self._elsewhere() and self.in_sync())

    def _file(self, path: str, text: str) -> None:
        self._exec("kafka", "sh", "-c", f"cat >{path}", stdin=text)
