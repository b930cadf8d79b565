"""Clients of others authenticate by each mechanism, on us and on Apache Kafka."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.members import wait_for
from tests.compat.security.secured import PASSWORDS, SCRAM_PASSWORD, SCRAM_USER, Secured, java_client, lone
from tests.compat.tools import SERVER as TOOLS
from tests.peer import require_program

CLIENT = "SASL"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PASSWORD_MECHANISMS = MECHANISMS[:3]
XDIST_GROUP = "sasl"


@pytest.fixture(scope="module")
def server(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = lone(server_name, tmp_path_factory.mktemp("sasl"), MECHANISMS)
    secured.target.start()
    yield secured
    secured.target.stop()


def user_of(mechanism: str) -> tuple[str, str]:
    return ("ann", PASSWORDS["ann"]) if mechanism == "PLAIN" else (SCRAM_USER, SCRAM_PASSWORD)


def confluent(server: Secured, mechanism: str, password: str | None = None, **more: Any) -> dict[str, Any]:
    name, right = user_of(mechanism)
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": right if password is None else password,
        **more,
    }


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_confluent_kafka_produces_and_consumes(server: Secured, mechanism: str) -> None:
    from confluent_kafka import Consumer, Producer

    topic = f"confluent-{mechanism.lower()}"
    producer = Producer(confluent(server, mechanism))
    producer.produce(topic, b"value")
    assert producer.flush(20) == 0
    consumer = Consumer(confluent(server, mechanism, **{"group.id": topic, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.value() == b"value"


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_confluent_kafka_is_refused_with_a_wrong_password(server: Secured, mechanism: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[Any] = []
    admin = AdminClient(confluent(server, mechanism, "wrong", error_cb=errors.append))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(1)
    assert any(error.name() == "_AUTHENTICATION" for error in errors)


def test_confluent_kafka_uses_an_unsecured_token(server: Secured) -> None:
    from confluent_kafka.admin import AdminClient

    settings = {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=dora",
    }
    assert AdminClient(settings).list_topics(timeout=20).brokers


def test_kcat_lists_with_plain(server: Secured) -> None:
    words = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=ann"]
    words.append(f"sasl.password={PASSWORDS['ann']}")
    options = [part for word in words for part in ("-X", word)]
    done = subprocess.run(
        [require_program("kcat"), "-b", server.bootstrap, "-L", *options], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"broker 1 at" in done.stdout


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_kafka_python_produces(server: Secured, mechanism: str) -> None:
    from kafka import KafkaProducer

    name, password = user_of(mechanism)
    producer = KafkaProducer(
        bootstrap_servers=server.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=name,
        sasl_plain_password=password,
    )
    assert producer.send("kafka-python", b"v").get(30).offset >= 0
    producer.close()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_aiokafka_produces(server: Secured, mechanism: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def produce() -> int:
        name, password = user_of(mechanism)
        producer = AIOKafkaProducer(
            bootstrap_servers=server.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=name,
            sasl_plain_password=password,
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("aiokafka", b"v")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce()) >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_javas_tools_list_topics(server: Secured, mechanism: str) -> None:
    options = {"unsecuredLoginStringClaim_sub": "dora"}
    if mechanism != "OAUTHBEARER":
        name, password = user_of(mechanism)
        options = {"username": name, "password": password}
    config = java_client(server.target.folder, mechanism, **options)
    done = TOOLS.run(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server", server.bootstrap, "--command-config", config, "--list",
    )  # fmt: skip
    assert done.code == 0, done.text


def test_javas_kafka_configs_adds_a_scram_user_who_then_gets_in(server: Secured) -> None:
    from confluent_kafka.admin import AdminClient

    config = java_client(server.target.folder, "PLAIN", username="ann", password=PASSWORDS["ann"])
    done = TOOLS.run(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server", server.bootstrap, "--command-config", config, "--alter",
        "--entity-type", "users", "--entity-name", "emil",
        "--add-config", "SCRAM-SHA-256=[iterations=8192,password=planted-emil]",
    )  # fmt: skip
    assert done.code == 0, done.text
    settings = confluent(server, "SCRAM-SHA-256") | {"sasl.username": "emil", "sasl.password": "planted-emil"}
    assert AdminClient(settings).list_topics(timeout=20).brokers


def test_javas_tool_creates_a_delegation_token_that_a_client_uses(server: Secured) -> None:
    config = java_client(server.target.folder, "PLAIN", username="ann", password=PASSWORDS["ann"])

    def tool(*words: str) -> Any:
        return TOOLS.run(
            "org.apache.kafka.tools.DelegationTokenCommand",
            "--bootstrap-server", server.bootstrap, "--command-config", config, *words,
        )  # fmt: skip

    created = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert created.code == 0, created.text
    words = created.out.split()
    at = words.index("User:ann") - 2
    token_id, hmac = words[at], words[at + 1]
    login = java_client(server.target.folder, "SCRAM-SHA-256", username=token_id, password=hmac, tokenauth="true")

    def lists() -> bool:
        words = ("--bootstrap-server", server.bootstrap, "--command-config", login, "--list")
        return TOOLS.run("org.apache.kafka.tools.TopicCommand", *words).code == 0

    wait_for("the broker knows the token", lists, 60)
    described = ("--describe", "--owner-principal", "User:ann")
    assert token_id in tool(*described).out
    for words in (
        ("--renew", "--renew-time-period", "-1"),
        ("--expire", "--expiry-time-period", "-1"),
    ):
        done = tool(*words, "--hmac", hmac)
        assert done.code == 0, done.text
    wait_for("the token is gone", lambda: token_id not in tool(*described).out, 60)
