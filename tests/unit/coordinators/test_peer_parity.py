"""The same random requests to our coordinator and to Apache Kafka 4.3.1: the same answers, and the same silence.

Both assign the same member ids, because ours repeats Kafka's. Both pass leadership on in the same order, because ours
uses the order of Java's HashMap here. Outside the test any member may lead.
"""

from __future__ import annotations

import random
import select
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kraft_node.broker.coordinators.group import membership
from kraft_node.broker.coordinators.group.classic import ClassicGroup
from kraft_node.broker.coordinators.partitioning import java_hash
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import frames
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    CreateTopicsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from tests.compat.targets import Apache
from tests.unit.coordinators.harness import KEYS, Clients, Node, Topics, subscription

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("group-parity")]

SILENCE_S = 0.08
"""How long Kafka is listened to where it should wait; it answers in a few ms what it answers at once."""
ANSWER_S = 60.0


class RemoteCall:
    """A request on its own connection."""

    def __init__(self, port: int, key: ApiKey, version: int, client_id: str, request: Any) -> None:
        self.api_key, self.api_version = key, version
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"".join(bytes(p) for p in frames.encode_request(1, key, version, client_id, request)))
        self._response: Any = None

    @property
    def answered(self) -> bool:
        return self.is_answered_within(SILENCE_S)

    def is_answered_within(self, seconds: float) -> bool:
        return self._response is not None or bool(select.select([self._socket], [], [], seconds)[0])

    @property
    def response(self) -> Any:
        if self._response is None:
            self._socket.settimeout(ANSWER_S)
            size = int.from_bytes(self._read(4), "big")
            _, self._response = frames.decode_response(self._read(size), self.api_key, self.api_version)
            self._socket.close()
        return self._response

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            got = self._socket.recv(count - len(data))
            assert got, "Kafka closed the connection"
            data += got
        return data

    def close(self) -> None:
        self._socket.close()


class Remote(Clients):
    """Apache Kafka as a coordinator."""

    def __init__(self, target: Apache) -> None:
        self.target = target
        self.topics = Topics(t=4, u=4)

    def send(self, request: Any, version: int, client_id: str = "c") -> RemoteCall:
        key = KEYS.get(type(request)) or ApiKey[MORE_KEYS[type(request)]]
        call = RemoteCall(self.target.port, key, version, client_id, request)
        if not call.is_answered_within(SILENCE_S):
            self._wait_until_read()
        return call

    def _wait_until_read(self) -> None:
        """Each request has its own connection. With one network thread and one handler thread, earlier requests are
        queued before anything that comes after this request, however slow the machine is.
        """
        answer = RemoteCall(self.target.port, ApiKey.METADATA, 12, "c", MetadataRequest(topics=[])).response
        assert answer.topics == []

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1_000)

    def prepare(self) -> None:
        """Create the topics and wait for the coordinator."""
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=n, num_partitions=4, replication_factor=1, assignments=[], configs=[]
            )
            for n in ("t", "u")
        ]
        created = self.send(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7).response
        for topic in created.topics:
            self.topics.ids[topic.name] = Uuid(bytes(topic.topic_id))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            wanted = [MetadataRequest.MetadataRequestTopic(name=n) for n in ("t", "u")]
            metadata = self.send(MetadataRequest(topics=wanted), 12).response
            there = all(t.error_code == 0 and all(p.leader_id >= 0 for p in t.partitions) for t in metadata.topics)
            found = self.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).response
            if there and found.coordinators[0].error_code == 0:
                listed = self.send(OffsetDeleteRequest(group_id="g", topics=[]), 0).response
                if listed.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    return
            time.sleep(0.1)
        raise AssertionError("Kafka's coordinator did not come up")


MORE_KEYS = {CreateTopicsRequest: "CREATE_TOPICS", MetadataRequest: "METADATA"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    settings = {
        "group.min.session.timeout.ms": "10",
        "offsets.topic.num.partitions": "1",
        "num.network.threads": "1",
        "num.io.threads": "1",
        "group.coordinator.threads": "1",
        "group.max.size": "5",
        "offset.metadata.max.bytes": "10",
    }
    target = Apache("apache", tmp_path_factory.mktemp("apache"), settings)
    target.start()
    remote = Remote(target)
    remote.prepare()
    yield remote
    target.kill()


def java_order(group: ClassicGroup) -> list[Any]:
    """The members in the order of a java.util.HashMap of up to 12 entries."""

    def bucket(member: Any) -> int:
        h = java_hash(member.member_id) & 0xFFFFFFFF
        return (h ^ (h >> 16)) & 15

    return sorted(group.members.values(), key=bucket)


class Both:
    """Sends every request to both and compares."""

    def __init__(self, kafka: Remote, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka = kafka
        topics = Topics(t=4, u=4)
        topics.ids |= kafka.topics.ids
        self.ours = Node(topics=topics, max_size=5, offset_metadata_max_bytes=10)
        self.group = group
        self.pending: list[tuple[str, Any, Any]] = []
        self.ids: list[str] = []
        self.known_ids: dict[str, str] = {}
        self.trace: list[str] = []
        monkeypatch.setattr(ClassicGroup, "succession", java_order)
        monkeypatch.setattr(membership, "_random_uuid_text", lambda _rng: self.ids.pop(0))

    def do(self, what: str, *args: Any, **options: Any) -> Any:
        """Call a client's method on both; returns the answer, or None if both let it wait."""
        line = f"{what}{args}{options}"
        self.trace.append(line)
        theirs = getattr(self.kafka, what)(*args, **options)
        if what == "join":
            self._learn_id(theirs, args[1] if len(args) > 1 else "", options.get("instance"))
        ours = getattr(self.ours, what)(*args, **options)
        self.ours.time.advance()
        if what == "sync":  # Kafka never answers a request that a later one of the same member replaces
            for _, replaced, _ in [p for p in self.pending if p[0].startswith(f"sync('{args[0]}'")]:
                replaced.close()
            self.pending = [p for p in self.pending if not p[0].startswith(f"sync('{args[0]}'")]
        self.pending.append((line, theirs, ours))
        answered = ours.answered
        self.settle()
        return ours.response if answered else None

    def _learn_id(self, theirs: RemoteCall, member: str, instance: str | None) -> None:
        """Make ours choose Kafka's member id, which is in the answer or in the group's description."""
        instance = None if member else instance
        chosen = ""
        deadline = time.monotonic() + ANSWER_S
        while not chosen and time.monotonic() < deadline:
            if theirs.answered:
                chosen = theirs.response.member_id
                break
            if instance is None:
                if member:
                    break  # a member with an id gets no new one
                continue  # Kafka answers at once with the id, however long that takes
            members = self.kafka.described(self.group, 5).members
            chosen = next((m.member_id for m in members if m.group_instance_id == instance), "")
            if chosen == self.known_ids.get(instance):
                chosen = ""
        if instance is not None:
            assert chosen or theirs.answered, self.story(f"Kafka does not show the member id of {instance}")
            self.known_ids[instance] = chosen
        self.ids[:] = [chosen[-36:] or str(uuid.uuid4())]

    def settle(self) -> None:
        """Compare the answers since the last comparison."""
        self.ours.time.advance()
        still = []
        for line, theirs, ours in self.pending:
            if not ours.answered:
                still.append((line, theirs, ours))
                continue
            a, b = plain(theirs.response), plain(ours.response)
            if a != b:
                pytest.fail(self.story(f"{line}\nKafka: {a}\nours:  {b}"), pytrace=False)
        for line, theirs, _ in reversed(still):
            if theirs.is_answered_within(SILENCE_S if theirs is still[-1][1] else 0):
                pytest.fail(self.story(f"{line}\nKafka answers: {theirs.response}\nours waits"), pytrace=False)
        self.pending = still

    def story(self, end: str) -> str:
        return "\n".join([*self.trace, end])

    def close(self) -> None:
        for _, theirs, _ in self.pending:
            theirs.close()


def plain(value: Any) -> Any:
    """A response as comparable data, arrays of structs in a fixed order; error texts differ by design."""
    if isinstance(value, list):
        items = [plain(v) for v in value]
        return sorted(items, key=repr)
    if hasattr(value, "__slots__") and not isinstance(value, bytes | str | int):
        names = type(value).__slots__
        skip = {"unknown_tags", "error_message", "client_host", "throttle_time_ms"}
        return {n: plain(getattr(value, n)) for n in names if n not in skip}
    return value


class Actor:
    """A client of the random scenario, with its latest knowledge, which may be stale."""

    def __init__(self, number: int) -> None:
        self.instance = f"inst-{number}" if number >= 3 else None
        self.member = ""
        self.generation = -1
        self.waiting: Any = None

    def heard(self, response: Any) -> None:
        self.waiting = None
        self.member, self.generation = "", -1
        if response.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member, self.generation = response.member_id, response.generation_id


NO_TIMEOUT_MS = 600_000
"""Nothing times out in here: time is not the same on both sides."""


class Scenario:
    """Five clients, two of them static, that send sensible and senseless requests in random order."""

    def __init__(self, both: Both, seed: int) -> None:
        self.both = both
        self.rng = random.Random(seed)
        self.actors = [Actor(i) for i in range(5)]

    def run(self, steps: int) -> None:
        odd = [self.odd_sync, self.commit, self.commit, self.fetch, self.leave, self.heartbeat, self.admin]
        actions = [self.join] * 3 + [self.sync] * 3 + odd + [self.work] * 4
        for _ in range(steps):
            self.rng.choice(actions)(self.rng.choice(self.actors))
            self.listen()

    def listen(self) -> None:
        for actor in self.actors:
            if actor.waiting is not None and actor.waiting.answered:
                actor.heard(actor.waiting.response)

    def join(self, actor: Actor) -> None:
        if actor.waiting is not None:
            return
        topics = self.rng.choice([("t",), ("t", "u")])
        options = {"session": NO_TIMEOUT_MS, "rebalance": NO_TIMEOUT_MS, "version": self.rng.choice([5, 7, 8, 9])}
        protocols = {"range": subscription(*topics)}
        group = self.both.group
        response = self.both.do("join", group, actor.member, instance=actor.instance, protocols=protocols, **options)
        if response is None:
            actor.waiting = self.both.pending[-1][2]
        else:
            actor.heard(response)

    def sync(self, actor: Actor) -> None:
        known = [a.member for a in self.actors if a.member]
        assignments = {m: f"{actor.generation}-{m}".encode() for m in known} if self.rng.random() < 0.7 else {}
        self.both.do(
            "sync",
            actor.member,
            actor.generation,
            assignments,
            group=self.both.group,
            instance=actor.instance,
            version=self.rng.choice([3, 5]) if actor.instance else self.rng.choice([0, 2, 3, 5]),
        )

    def odd_sync(self, actor: Actor) -> None:
        request = SyncGroupRequest(
            group_id=self.both.group,
            generation_id=actor.generation,
            member_id=actor.member,
            group_instance_id=actor.instance,
            protocol_type=self.rng.choice(["consumer", "connect", None]),
            protocol_name=self.rng.choice(["range", "sticky", None]),
        )
        self.both.do("send", request, 5)

    def commit(self, actor: Actor) -> None:
        metadata = self.rng.choice([None, "note", "much too long"])
        if not any(a.member for a in self.actors):
            metadata = None  # this commit leaves a group in Kafka's memory that its read-only requests do not see
        where = self.rng.choice([("t", 0), ("t", 3), ("u", 1), ("u", 7), ("nowhere", 0)])
        self.both.do(
            "commit",
            {where: self.rng.randrange(100)},
            self.both.group,
            self.rng.choice([actor.member, actor.member, "", "stranger"]),
            self.rng.choice([actor.generation, actor.generation, -1, 99]),
            metadata=metadata,
            version=self.rng.choice([7, 8, 9, 10]),
            instance=self.rng.choice([actor.instance, None]),
        )

    def fetch(self, _actor: Actor) -> None:
        wanted = self.rng.choice([None, {"t": [0, 1, 3]}, {"u": [1], "nowhere": [0]}])
        version = self.rng.choice([8, 9, 10])
        self.both.do("fetch", self.both.group, wanted, stable=self.rng.random() < 0.5, version=version)

    def leave(self, actor: Actor) -> None:
        if self.rng.random() < 0.5:
            return
        identity = self.rng.choice([(actor.member, actor.instance), ("", actor.instance), ("stranger", None)])
        self.both.do("leave", identity, group=self.both.group, version=self.rng.choice([3, 5]))

    def heartbeat(self, actor: Actor) -> None:
        generation = self.rng.choice([actor.generation, actor.generation, 77])
        instance = self.rng.choice([actor.instance, None])
        self.both.do("heartbeat_call", actor.member, generation, self.both.group, instance)

    def admin(self, _actor: Actor) -> None:
        group, what = self.both.group, self.rng.randrange(4)
        if what == 0:
            self.both.do("describe_call", group, self.rng.choice([4, 5, 6]))
        elif what == 1:
            self.both.do("delete_call", group)
        elif what == 2:
            self.both.do("offset_delete_call", group, self.rng.choice(["t", "u", "nowhere"]), self.rng.randrange(6))
        else:
            kind, session = self.rng.choice(["connect", ""]), self.rng.choice([1, NO_TIMEOUT_MS])
            self.both.do("join", group, kind=kind, session=session)

    def work(self, _actor: Actor) -> None:
        """All members take the next sensible step, so that the group progresses."""
        for _ in range(2):
            for actor in self.actors:
                if actor.generation < 0:
                    self.join(actor)
                    self.listen()
        for actor in self.actors:
            if actor.waiting is None and actor.generation >= 0:
                self.sync(actor)
                self.listen()


@pytest.mark.parametrize("seed", range(10))
def test_random_requests_get_kafkas_answers(kafka: Remote, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(kafka, f"random-{seed}", monkeypatch)
    try:
        Scenario(both, seed).run(40)
    finally:
        both.close()
