"""Clients that record every answer: librdkafka's producers and consumers, and administrators of our own.

Administrators send requests to the controllers directly and once. A broker may retry a request that it forwards, and
then report that the topic which it created already exists.
"""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kraft_node.testing.histories.linearizability import (
    CREATED,
    DELETED,
    DONE,
    EXISTS,
    NEVER,
    UNKNOWN,
    HistoryOperation,
)  # fmt: skip
from kraft_node.testing.histories.logs import Read, RecordOutcome, Sent
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.errors import WireError
from kraft_protocol.wire.frames import decode_response, encode_request
from tests.faults.epochs import ProducerLog, producer_logger

REFUSALS = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Errors of a delivery after which the record is certainly nowhere; all others leave it open."""

TRUNCATED = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}
"""The error that a consumer gets when records that it has read are gone."""

QUIET: dict[str, Any] = {"log_level": 0, "socket.keepalive.enable": True, "reconnect.backoff.max.ms": 500}


class Clients:
    """Threads that run `step` until they are stopped; the first exception of any thread is kept."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def run(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as e:
                self.errors.append(e)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop the threads. Raises their first error; AssertionError for a client that does not end."""
        self.stopping.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"client {thread.name} does not end:\n{_place(thread)}"
        if self.errors:
            raise self.errors[0]


def _place(thread: threading.Thread) -> str:
    """Where a thread is."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-3:])


class Producing:
    """One idempotent producer with acks=all that sends some records a second to every partition."""

    def __init__(self, clients: Clients, name: str, bootstrap: str, topic: str, partitions: int, rate: float) -> None:
        self.sent: list[Sent] = []
        self.logs: dict[str, ProducerLog] = {}
        """By producer."""
        self._clients = clients
        self._name = name
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / rate
        self._rng = random.Random(name)
        self._sequence: dict[int, int] = defaultdict(int)
        self._open: dict[str, Sent] = {}
        self._lock = threading.Lock()
        clients.run(name, self._work)

    def _work(self) -> None:
        life = 0
        while not self._clients.stopping.is_set():
            # A fatal error ends a producer (KIP-360 leaves some); the history calls the next producer by another name.
            self._live(f"{self._name}.{life}")
            life += 1

    def _live(self, name: str) -> None:
        fatal = threading.Event()

        def on_error(error: KafkaError) -> None:
            if error.fatal():
                fatal.set()

        log = self.logs[name] = ProducerLog()
        producer = Producer(
            {
                **QUIET,
                "log_level": 7,
                "debug": "eos,msg",
                "bootstrap.servers": self._bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
                "request.timeout.ms": 5_000,
                "retry.backoff.max.ms": 300,
                "error_cb": on_error,
            },
            logger=producer_logger(log),
        )
        while not self._clients.stopping.is_set() and not fatal.is_set():
            partition = self._rng.randrange(self._partitions)
            sequence = self._sequence[partition]
            self._sequence[partition] += 1
            value = f"{name}/{partition}/{sequence}/" + "x" * self._rng.randrange(100)
            with self._lock:
                self._open[value] = Sent(name, (self._topic, partition), sequence, value, RecordOutcome.UNKNOWN)
            try:
                producer.produce(self._topic, value.encode(), partition=partition, on_delivery=self._delivered)
            except BufferError:
                with self._lock:
                    del self._open[value]
            producer.poll(self._pause_s)
        producer.flush(60)
        with self._lock:
            self.sent += self._open.values()
            self._open.clear()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        with self._lock:
            record = self._open.pop(value)
            if error is None:
                # The broker acknowledges a retry that it already knows without the record's offset.
                given = message.offset()
                outcome, offset = RecordOutcome.ACKNOWLEDGED, -1 if given is None else given
            else:
                outcome, offset = (RecordOutcome.REFUSED if error.code() in REFUSALS else RecordOutcome.UNKNOWN), -1
            self.sent.append(Sent(record.producer, record.partition, record.sequence, record.value, outcome, offset))

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged records."""
        with self._lock:
            return sum(1 for record in self.sent if record.outcome is RecordOutcome.ACKNOWLEDGED)


class Consuming:
    """One consumer that reads every partition from the start and follows new records."""

    def __init__(self, clients: Clients, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        self.records: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._clients = clients
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._consumer = Consumer(_consumer_settings(bootstrap, name))
        clients.run(name, self._work)

    def _work(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, p, 0) for p in range(self._partitions)])
        while not self._clients.stopping.is_set():
            self._take(self._consumer.consume(500, 0.2))
        self._consumer.close()

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                self.records[message.partition() or 0].append(
                    (message.offset() or 0, (message.value() or b"").decode())
                )
            elif error.code() in TRUNCATED:
                raise AssertionError(f"{self._name}: {error}")

    @property
    def reads(self) -> list[Read]:
        return [Read(self._name, (self._topic, p), tuple(records)) for p, records in self.records.items()]


def _consumer_settings(bootstrap: str, name: str) -> dict[str, Any]:
    return {
        **QUIET,
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "group.id": name,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.error.backoff.ms": 100,
    }


def read_all(
    bootstrap: str, topic: str, partitions: int, timeout_s: float
) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """Read every log from start to end. Raises AssertionError if the ends are not reached in time."""
    consumer = Consumer(_consumer_settings(bootstrap, "judge"))
    found: dict[tuple[str, int], list[tuple[int, str]]] = {(topic, p): [] for p in range(partitions)}
    deadline = time.monotonic() + timeout_s
    ends: dict[int, int] = {}
    while len(ends) < partitions:
        assert time.monotonic() < deadline, f"end offsets of {topic}: {ends}"
        try:
            p = len(ends)
            ends[p] = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=5)[1]
        except KafkaException:
            time.sleep(0.2)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    left = {p for p, end in ends.items() if end > 0}
    while left:
        assert time.monotonic() < deadline, f"{topic}: partitions {sorted(left)} not read to {ends}"
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                p, offset = message.partition() or 0, message.offset() or 0
                found[topic, p].append((offset, (message.value() or b"").decode()))
                if offset + 1 >= ends[p]:
                    left.discard(p)
        positions = {t.partition: t.offset for t in consumer.position([TopicPartition(topic, p) for p in left])}
        left -= {p for p, offset in positions.items() if offset >= ends[p]}
    consumer.close()
    return found


class Administering:
    """One administrator of a few topics that asks the controllers directly, once for each change."""

    def __init__(self, clients: Clients, name: str, ports: list[int], topics: list[str], pause_s: float) -> None:
        self.history: list[HistoryOperation] = []
        self.unexpected: Counter[str] = Counter()
        """Answers that leave the outcome open, for people to look at."""
        self._clients = clients
        self._name = name
        self._ports = ports
        self._topics = topics
        self._pause_s = pause_s
        self._rng = random.Random(name)
        self._at = 0
        self._found = False
        clients.run(name, self._work)

    def _work(self) -> None:
        while not self._clients.stopping.is_set():
            self._once()
            time.sleep(self._rng.uniform(0.5, 1.5) * self._pause_s)

    def _once(self) -> None:
        if not self._found and not self._find():
            return
        topic = self._rng.choice(self._topics)
        action = self._rng.choice(("create", "create", "delete", "set", "grow"))
        choices = {"create": 1, "grow": self._rng.randint(2, 9), "set": str(self._rng.randrange(1, 10**6))}
        argument = choices.get(action)
        called = time.monotonic()
        code = self._ask(action, topic, argument)
        # A controller that resigns while it waits for the commit answers NOT_CONTROLLER; its successor may still
        # commit.
        self._found = code not in (None, ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION)
        if code in _NO_EFFECT:
            return
        returned, result = NEVER, None
        if code is not None and code in _RESULTS:
            returned, result = time.monotonic(), _RESULTS[code] or _DONE[action]
        elif code is not None:
            self.unexpected[f"{action}: {code.name}"] += 1
        self.history.append(HistoryOperation(self._name, topic, called, returned, action, argument, result))

    def _find(self) -> bool:
        """Move to the next controller; returns whether it reports that it is active."""
        self._at += 1
        topic = messages.DescribeQuorumRequest.TopicData(
            "__cluster_metadata", [messages.DescribeQuorumRequest.PartitionData(0)]
        )
        try:
            answer = ask(self._port, ApiKey.DESCRIBE_QUORUM, 1, messages.DescribeQuorumRequest([topic]))
        except (NotSent, OSError, WireError):
            return False
        self._found = answer.error_code == 0 and bool(answer.topics) and answer.topics[0].partitions[0].error_code == 0
        return self._found

    @property
    def _port(self) -> int:
        return self._ports[self._at % len(self._ports)]

    def _ask(self, action: str, topic: str, argument: Any) -> ErrorCode | None:
        """The error code of the answer; None if no answer came."""
        try:
            answer = ask(self._port, *_request(action, topic, argument))
        except NotSent:
            return ErrorCode.NETWORK_EXCEPTION
        except (OSError, WireError):
            return None
        return _code(action, answer)


class NotSent(Exception):  # noqa: N818
    """The server certainly did not receive the request."""


_NO_EFFECT = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NETWORK_EXCEPTION}
"""Nothing was done: a topic of that name was found and gone a moment later (another may be there by now), or the
request was not sent."""
_RESULTS: dict[ErrorCode, Any] = {
    ErrorCode.NONE: None,
    ErrorCode.TOPIC_ALREADY_EXISTS: EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UNKNOWN,
    ErrorCode.INVALID_PARTITIONS: EXISTS,
}
_DONE = {"create": CREATED, "delete": DELETED, "set": DONE, "grow": DONE}
TIMEOUT_S = 8.0


def _request(action: str, topic: str, argument: Any) -> tuple[ApiKey, int, Any]:
    """Api, version and request."""
    if action == "create":
        create = messages.CreateTopicsRequest
        wanted = create.CreatableTopic(name=topic, num_partitions=argument, replication_factor=2)
        return ApiKey.CREATE_TOPICS, 7, create(topics=[wanted], timeout_ms=5000)
    if action == "delete":
        delete = messages.DeleteTopicsRequest
        return ApiKey.DELETE_TOPICS, 6, delete(topics=[delete.DeleteTopicState(name=topic)], timeout_ms=5000)
    if action == "grow":
        grow = messages.CreatePartitionsRequest
        more = grow.CreatePartitionsTopic(name=topic, count=argument, assignments=None)
        return ApiKey.CREATE_PARTITIONS, 3, grow(topics=[more], timeout_ms=5000)
    alter = messages.IncrementalAlterConfigsRequest
    config = alter.AlterableConfig(name="retention.ms", config_operation=0, value=argument)
    resource = alter.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    return ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter(resources=[resource])


def _code(action: str, answer: Any) -> ErrorCode:
    if action == "create":
        return ErrorCode(answer.topics[0].error_code)
    if action == "delete":
        return ErrorCode(answer.responses[0].error_code)
    if action == "grow":
        return ErrorCode(answer.results[0].error_code)
    return ErrorCode(answer.responses[0].error_code)


def ask(port: int, api: ApiKey, version: int, request: Any) -> Any:
    """Send one request on its own connection. Raises NotSent, OSError (also if no answer comes), WireError."""
    frame = b"".join(encode_request(1, api, version, "faults", request))  # type: ignore[arg-type] # no file slices
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    except OSError as e:
        raise NotSent from e
    with closing(connection):
        connection.sendall(frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            got = connection.recv(65536)
            if not got:
                raise ConnectionResetError("closed without an answer")
            answer += got
    return decode_response(answer[4:], api, version)[1]
