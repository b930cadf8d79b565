"""Clients that we did not write: each produces the numbers below `Access.Count`, and reads them again.

A tour returns the numbers of distinct and of all records read. It raises `RefusedError` if the client does not get in.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraft_protocol.sasl.oauthbearer import OAUTHBEARER
from tests.compat.security.all_ways import Access
from tests.compat.tools import ToolServer
from tests.peer import require_program

TIMEOUT_S = 60


class RefusedError(Exception):
    """The client did not get in, with its own words."""


Tour = Callable[[Access, str], tuple[int, int]]


def _numbers(access: Access) -> Any:
    """The values to produce, with the pauses between them."""
    for number in range(access.Count):
        yield str(number).encode()
        time.sleep(access.PauseMs / 1000)


def _librdkafka(access: Access) -> dict[str, Any]:
    values: dict[str, Any] = {"bootstrap.servers": access.Bootstrap, "security.protocol": access.protocol}
    if access.TLS:
        values["ssl.ca.location"] = access.CA
    if access.Certificate:
        values |= {"ssl.certificate.location": access.Certificate, "ssl.key.location": access.Key}
    if access.Mechanism == OAUTHBEARER:
        values["sasl.mechanism"] = access.Mechanism
    elif access.Mechanism:
        values |= {
            "sasl.mechanism": access.Mechanism,
            "sasl.username": access.Username,
            "sasl.password": access.Password,
        }
    return values


def confluent_kafka(access: Access, topic: str) -> tuple[int, int]:
    from confluent_kafka import Consumer, Producer

    errors: list[Any] = []
    common = {**_librdkafka(access), "error_cb": errors.append}
    if access.Mechanism == OAUTHBEARER:
        common["oauth_cb"] = lambda _: (access.Token, time.time() + 3_600)
    producer = Producer({**common, "enable.idempotence": True, "message.timeout.ms": TIMEOUT_S * 1000})
    failures: list[Any] = []
    for value in _numbers(access):
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.poll(0)
        if any(error.name() == "_AUTHENTICATION" for error in errors):
            producer.purge()
            raise RefusedError(str(errors))
    deadline = time.monotonic() + TIMEOUT_S
    while producer.flush(0.2) and time.monotonic() < deadline:
        if any(error.name() == "_AUTHENTICATION" for error in errors):
            producer.purge()
            raise RefusedError(str(errors))
    assert failures == []
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    while len(set(values)) < access.Count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return len(set(values)), len(values)


def kcat(access: Access, topic: str) -> tuple[int, int]:
    values = _librdkafka(access)
    if access.Mechanism == OAUTHBEARER:
        values |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=dora"}
    options = [word for key, value in values.items() for word in ("-X", f"{key}={value}")]
    command = [require_program("kcat"), *options, "-t", topic]
    writer = subprocess.Popen(
        [*command, "-P"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert writer.stdin is not None
    try:
        for value in _numbers(access):
            writer.stdin.write(value + b"\n")
            writer.stdin.flush()
        _, errors = writer.communicate(timeout=TIMEOUT_S if access.Password != "wrong" else 5)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        writer.kill()
        _, errors = writer.communicate()
    if writer.returncode or b"Authentication failed" in errors:
        raise RefusedError(errors.decode())
    done = subprocess.run(
        [*command, "-C", "-e", "-q", "-o", "beginning"], capture_output=True, check=True, timeout=TIMEOUT_S
    )
    return len(set(done.stdout.split())), len(done.stdout.split())


def kafka_python(access: Access, topic: str) -> tuple[int, int]:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError  # type: ignore[import-untyped]
    from kafka.net.sasl.oauth import AbstractTokenProvider  # type: ignore[import-untyped]

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return access.Token

    common: dict[str, Any] = {"bootstrap_servers": access.Bootstrap, "security_protocol": access.protocol}
    if access.TLS:
        common["ssl_cafile"] = access.CA
    if access.Certificate:
        common |= {"ssl_certfile": access.Certificate, "ssl_keyfile": access.Key}
    if access.Mechanism:
        common |= {
            "sasl_mechanism": access.Mechanism,
            "sasl_plain_username": access.Username,
            "sasl_plain_password": access.Password,
            "sasl_oauth_token_provider": Provider() if access.Mechanism == OAUTHBEARER else None,
        }
    try:
        producer = KafkaProducer(**common)
    except KafkaError as error:
        raise RefusedError(repr(error)) from None
    for value in _numbers(access):
        producer.send(topic, value).get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **common)
    values: list[bytes] = []
    for record in consumer:
        values.append(record.value)
        if len(set(values)) == access.Count:
            break
    consumer.close()
    return len(set(values)), len(values)


def aiokafka(access: Access, topic: str) -> tuple[int, int]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]
    from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError  # type: ignore[import-untyped]

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return access.Token

    common: dict[str, Any] = {"bootstrap_servers": access.Bootstrap, "security_protocol": access.protocol}
    if access.TLS:
        common["ssl_context"] = ssl.create_default_context(cafile=access.CA)
    if access.Certificate:
        common["ssl_context"].load_cert_chain(access.Certificate, access.Key)
    if access.Mechanism:
        common |= {
            "sasl_mechanism": access.Mechanism,
            "sasl_plain_username": access.Username,
            "sasl_plain_password": access.Password,
            "sasl_oauth_token_provider": Provider() if access.Mechanism == OAUTHBEARER else None,
        }

    async def run() -> tuple[int, int]:
        producer = AIOKafkaProducer(enable_idempotence=True, **common)
        try:
            await producer.start()
            for number in range(access.Count):
                await producer.send_and_wait(topic, str(number).encode())
                await asyncio.sleep(access.PauseMs / 1000)
        except (AuthenticationFailedError, KafkaConnectionError) as error:
            raise RefusedError(repr(error)) from None
        finally:
            await producer.stop()
        values: list[bytes] = []
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **common) as consumer:
            while len(set(values)) < access.Count:
                values.append((await consumer.getone()).value)
        return len(set(values)), len(values)

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def java(access: Access, topic: str) -> tuple[int, int]:
    """Java's producer by its performance tool, Java's consumer by the console."""
    folder = Path(access.TokenFile or access.CA or "/tmp").parent
    config = folder / f"{topic}.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in access.java().items()))
    urls = Path(access.TokenFile).as_uri() if access.TokenFile else ""
    server = ToolServer(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}")
    try:
        rate = str(1000 // access.PauseMs) if access.PauseMs else "-1"
        made = server.run(
            "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", access.Bootstrap, "--topic", topic,
            "--num-records", str(access.Count), "--throughput", rate, "--record-size", "10",
            "--command-config", str(config), "--command-property", "max.block.ms=10000",
        )  # fmt: skip
        if made.code or "Exception" in made.text:
            raise RefusedError(made.text)
        read = server.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", access.Bootstrap,
            "--command-config", str(config), "--topic", topic, "--from-beginning", "--property", "print.offset=true",
            "--property", "print.value=false",
            "--max-messages", str(access.Count), "--timeout-ms", "20000",
        )  # fmt: skip
        offsets = re.findall(r"^Offset:(\d+)$", read.out, re.MULTILINE)
        return len(set(offsets)), len(offsets)
    finally:
        server.close()


def program(*command: str, folder: Path) -> Tour:
    """The tour of a program in another language."""

    def tour(access: Access, topic: str) -> tuple[int, int]:
        done = subprocess.run(
            [*command, access.Bootstrap, topic], cwd=folder, env={**os.environ, "SECURITY": access.to_json()},
            capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RefusedError(done.stdout + done.stderr)
        words = done.stdout.split()
        return int(words[1]), int(words[3])

    return tour
