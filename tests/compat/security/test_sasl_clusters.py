"""Clusters whose nodes authenticate to each other: ours, and ours with Apache Kafka's, both ways round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.members import Members
from tests.compat.security.secured import PASSWORDS, STANDARD_AUTHORIZER, listener_properties
from tests.compat.targets import free_ports

CLIENT = "SASL between nodes"
OURS, THEIRS = "kraftcluster", "apache"


def secured_members(folder: Path, controllers: tuple[str, ...], brokers: tuple[str, ...], mechanism: str) -> Members:
    """Brokers use `mechanism`, controllers PLAIN. Clients in the clear are super users, so that tests may ask."""
    members = Members(folder, controllers, brokers)
    scram = mechanism.startswith("SCRAM")
    for node_id, node in members.nodes.items():
        values = node.overrides
        values |= {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "sasl.mechanism.controller.protocol": "PLAIN",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:broker;User:ANONYMOUS",
            "offsets.topic.replication.factor": "2",
            **listener_properties("SASL", [mechanism, "PLAIN"] if mechanism != "PLAIN" else ["PLAIN"]),
            **listener_properties("CONTROLLER", ["PLAIN"]),
        }
        if scram:
            key = f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config"
            values[key] = (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="broker" password="{PASSWORDS["broker"]}";'
            )
            node.format_options = ("--add-scram", f"{mechanism}=[name=broker,password={PASSWORDS['broker']}]")
        if node_id in members.broker_ids:
            (port,) = free_ports(1)
            values["listeners"] += f",SASL://127.0.0.1:{port}"
            values["advertised.listeners"] += f",SASL://127.0.0.1:{port}"
            values["inter.broker.listener.name"] = "SASL"
    return members


CASES = {
    "ours-plain": ((OURS,), (OURS, OURS), "PLAIN"),
    "ours-scram": ((OURS,), (OURS, OURS), "SCRAM-SHA-512"),
    "ours-oauthbearer": ((OURS,), (OURS, OURS), "OAUTHBEARER"),
    "our-controller-both-brokers": ((OURS,), (THEIRS, OURS), "SCRAM-SHA-256"),
    "their-controller-both-brokers": ((THEIRS,), (OURS, THEIRS), "SCRAM-SHA-256"),
}


EVERYDAY = {"ours-scram", "our-controller-both-brokers"}


@pytest.fixture(
    params=[
        pytest.param(case, id=name, marks=() if name in EVERYDAY else pytest.mark.slow) for name, case in CASES.items()
    ]
)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Members]:
    members = secured_members(tmp_path, *request.param)
    try:
        yield members.start()
    finally:
        members.stop()


def test_records_are_replicated_between_nodes_that_authenticate(cluster: Members) -> None:
    from confluent_kafka import Consumer, Producer

    cluster.create("t", partitions=2, replicas=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(20):
        producer.produce("t", str(number).encode(), partition=number % 2)
    assert producer.flush(60) == 0, cluster.tails()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found = set()
    for _ in range(200):
        message = consumer.poll(1)
        if message is not None and not message.error():
            found.add(message.value())
        if len(found) == 20:
            break
    consumer.close()
    assert len(found) == 20, cluster.tails()
