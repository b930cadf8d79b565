"""Apache Kafka and our node side by side: one request to both, answers compared as plain data.

What is random or belongs to one server (ids, ports, paths, times) is replaced by a placeholder, so that equal answers
are equal data. A test asks through `Pair.same`, which notes every difference. Where our node differs on purpose,
`Pair.differs` asserts the difference under the anchor of its row in docs/differences.md.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from kraft_protocol.ids import ZERO_UUID, Uuid, uuid_text
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.classes import Message
from kraft_protocol.wire.errors import EncodeError
from kraft_protocol.wire.frames import decode_response, encode_request
from kraft_protocol.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
)
from tests.compat.targets import Target

CLOSED = "closed the connection"
SILENT = "has not answered"
MASKED = frozenset({"throttle_time_ms", "unknown_tags", "total_bytes", "usable_bytes", "finalized_features_epoch"})
"""Fields that are not compared: loads and sizes of disks, and the metadata log's offsets."""
START_S = 20
UNKNOWN_MEMBER_ID = 25
LATEST = -1
SETTLES_IN = 60
"""Times that a question is asked again, 50 ms apart, before its answer counts."""
NOW_MS = 15 * 60 * 1000
"""A time this near to the clock is 'now'."""
DAY_MS = 24 * 3600 * 1000
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
FIELDS_OF_TIME = re.compile(r"timestamp|_time_ms$|_time$")

Asked = Message | Callable[["Side"], Any]


def uuid(number: int) -> Uuid:
    """An id that no topic has."""
    return Uuid(number.to_bytes(16, "big"))


class Side:
    """One of the two servers: a connection, and the meanings of its random names."""

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self.ids: dict[str, Uuid] = {}
        self.memory: dict[str, Any] = {}
        """What a story remembers of the answers: session ids, member ids."""
        self._topics: dict[bytes, str] = {}
        self._producers: dict[int, str] = {}
        self._socket: socket.socket | None = None
        self.timeout_s = 20.0

    def __repr__(self) -> str:
        return self.name

    # the connection

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, data: bytes) -> None:
        """Send raw bytes over the open connection or a new one."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.target.port), timeout=self.timeout_s)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # the next read reports it
            self._socket.sendall(data)

    def receive(self) -> bytes | str:
        """Receive one frame without its length, or CLOSED or SILENT; after these two the next request connects anew."""
        try:
            return self._read(int.from_bytes(self._read(4), "big"))
        except TimeoutError:
            self.close()
            return SILENT
        except ConnectionError:
            self.close()
            return CLOSED

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < count:
            got = self._socket.recv(count - len(data))
            if not got:
                raise ConnectionError(f"{self.name} closed the connection")
            data += got
        return data

    def ask(self, request: Message, version: int, client_id: str | None = "parity") -> Any:
        """The decoded response, or CLOSED or SILENT."""
        key = ApiKey(request.SCHEMA.api_key)
        self.send(frame(request, version, client_id))
        answer = self.receive()
        return answer if isinstance(answer, str) else decode_response(answer, key, version)[1]

    def exchange(self, data: bytes, wait_s: float = 20.0) -> str:
        """Send raw bytes; returns the frame in hexadecimal digits, CLOSED or SILENT."""
        self.send(data)
        assert self._socket is not None
        self._socket.settimeout(wait_s)
        answer = self.receive()
        if self._socket is not None:
            self._socket.settimeout(self.timeout_s)
        return answer if isinstance(answer, str) else answer.hex()

    def is_open(self) -> bool:
        """Whether the connection still answers; the server has then handled all earlier requests without answers."""
        return not isinstance(self.ask(ApiVersionsRequest(), 0), str)

    # meanings

    def learn_topic(self, name: str, topic_id: Uuid) -> None:
        self.ids[name] = topic_id
        self._topics[bytes(topic_id)] = name

    def plain(self, value: Any, field: str = "", *, ordered: bool = False) -> Any:
        """A response as plain data with placeholders that both servers share; lists are sorted unless `ordered`."""
        fields = getattr(value, "_fields", None)
        if fields is not None:
            return {f: self.plain(getattr(value, f), f, ordered=ordered) for f in fields if f not in MASKED}
        if isinstance(value, list):
            items = [self.plain(item, field, ordered=ordered) for item in value]
            return items if ordered else sorted(items, key=repr)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, memoryview):
            return value.hex()
        if isinstance(value, bytes):
            return self._id(value) if len(value) == 16 and field.endswith("id") else value.hex()
        return self._number(int(value), field) if isinstance(value, int) else value

    def _id(self, value: bytes) -> str:
        return "none" if value == ZERO_UUID else f"id of {self._topics.get(bytes(value), 'nothing known')}"

    def text(self, value: str) -> str:
        """Replace this server's names in a text."""
        for topic_id, name in self._topics.items():
            value = value.replace(uuid_text(Uuid(topic_id)), f"<id of {name}>")
        value = value.replace(str(self.target.data), "<data>").replace(str(self.target.folder), "<folder>")
        # Ports stand behind the colon of an address. The same number elsewhere is a value, such as 15000 ms.
        value = re.sub(rf"(?<=:){self.target.port}\b", "<port>", value)
        value = re.sub(rf"(?<=:){self.target.controller_port}\b", "<cport>", value)
        value = re.sub(r"-?\b\d{19}\b", "<beyond all times>", re.sub(r"\b1[678]\d{11}\b", _about_now, value))
        return UUID.sub("<uuid>", value)

    def _number(self, value: int, field: str) -> Any:
        if field == "port":
            return {self.target.port: "the port", self.target.controller_port: "the controller port"}.get(value, value)
        if field in {"session_id", "broker_epoch"} and value > 0:
            return "set"
        if field == "producer_id" and value >= 0:
            return self._producers.setdefault(value, f"producer {len(self._producers)}")
        return self._moment(value) if FIELDS_OF_TIME.search(field) else value

    @staticmethod
    def _moment(value: int) -> int | str:
        return "now" if abs(value - time.time() * 1000) < NOW_MS else value


def _about_now(found: re.Match[str]) -> str:
    """A time as words, in days from now."""
    return f"<now{round((int(found[0]) - time.time() * 1000) / DAY_MS):+}d>"


def frame(request: Message, version: int, client_id: str | None = "parity", correlation_id: int = 7) -> bytes:
    """A request with its length in front."""
    key = ApiKey(request.SCHEMA.api_key)
    return b"".join(bytes(p) for p in encode_request(correlation_id, key, version, client_id, request))  # type: ignore[arg-type]


class Pair:
    """Both servers, and the differences noted so far."""

    def __init__(self, kafka: Side, ours: Side) -> None:
        self.kafka = kafka
        self.ours = ours
        self.differences: list[str] = []
        self.asked = 0
        self.deviations: set[str] = set()
        """Anchors of docs/differences.md that were seen to be true."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.ours

    def same(
        self,
        asked: Asked,
        versions: range | tuple[int, ...] | int | None = None,
        *,
        label: str = "",
        mask: Callable[[Any], Any] | None = None,
        ordered: bool = False,
        client_id: str | None = "parity",
        settles: bool = False,
    ) -> tuple[Any, Any]:
        """Ask both in each of `versions` (default: all that fit); returns the last answers, Kafka's first.

        `mask` changes plain answers before they are compared. `settles`: repeat the request until the broker has
        applied an earlier change.
        """
        answers: tuple[Any, Any] = (None, None)
        before = self.asked
        found: dict[str, list[int]] = {}
        for version in self._versions(asked, versions):
            answers, plain = self._ask(asked, version, mask, ordered, client_id)
            for _ in range(SETTLES_IN if settles else 0):
                if plain[0] == plain[1]:
                    break
                time.sleep(0.05)
                answers, plain = self._ask(asked, version, mask, ordered, client_id)
            if plain[0] != plain[1]:
                found.setdefault("\n".join(apart(*plain)), []).append(version)
        assert self.asked > before, f"no version can say {asked}"
        for text, where in found.items():
            self.differences.append(f"{label} {brief(self._request(asked, self.kafka))} v{where}\n{text}".strip())
        return answers

    def differs(
        self,
        anchor: str,
        asked: Asked,
        versions: range | tuple[int, ...] | int | None = None,
        *,
        kafka: Callable[[Any], bool],
        ours: Callable[[Any], bool],
    ) -> tuple[Any, Any]:
        """Assert a deviation of docs/differences.md: Kafka's answer equals `kafka`, ours equals `ours`."""
        answers: tuple[Any, Any] = (None, None)
        for version in self._versions(asked, versions):
            answers, _ = self._ask(asked, version, None, False, "parity")
            for side, answer, holds in ((self.kafka, answers[0], kafka), (self.ours, answers[1], ours)):
                if not holds(answer):
                    self.differences.append(f"{anchor} v{version}: {side} answers otherwise: {answer!r:.600}")
        self.deviations.add(anchor)
        return answers

    def check(self, label: str, get: Callable[[Side], Any]) -> None:
        """Compare any two values."""
        self.asked += 1
        found = get(self.kafka), get(self.ours)
        if found[0] != found[1]:
            self._note(label, found)

    def raw(self, label: str, data: bytes | Callable[[Side], bytes], wait_s: float = 20.0) -> None:
        """Send bytes to both over new connections; the answers must be equal, apart from ports."""

        def get(side: Side) -> str:
            side.close()
            answer = side.exchange(data if isinstance(data, bytes) else data(side), wait_s)
            side.close()
            return answer.replace(f"{side.target.port:08x}", "<port>")

        self.check(label, get)

    def unanswered(self, asked: Asked, version: int, label: str = "") -> None:
        """Send a request that gets no answer; compare whether the connection stays open."""

        def get(side: Side) -> bool:
            side.send(frame(self._request(asked, side), version))
            return side.is_open()

        self.check(f"{label} {brief(self._request(asked, self.kafka))} v{version} unanswered", get)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic on both, remember its ids, and wait until it can be written.

        Dots in keys are written as underscores.
        """
        config = CreateTopicsRequest.CreatableTopicConfig
        made = [config(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=made
        )
        for side in self.sides:
            response = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
            assert response.topics[0].error_code == 0, (side, response)
            side.learn_topic(name, response.topics[0].topic_id)
        for side in self.sides:
            _await_leaders(side, name, partitions)

    # inside

    def _ask(
        self, asked: Asked, version: int, mask: Callable[[Any], Any] | None, ordered: bool, client_id: str | None
    ) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        self.asked += 1
        answers = tuple(side.ask(self._request(asked, side), version, client_id) for side in self.sides)
        plain = [side.plain(answer, ordered=ordered) for side, answer in zip(self.sides, answers, strict=True)]
        if mask is not None:
            plain = [mask(p) for p in plain]
        return answers, (plain[0], plain[1])

    @staticmethod
    def _request(asked: Asked, side: Side) -> Any:
        return asked(side) if callable(asked) else asked

    def _versions(self, asked: Asked, versions: range | tuple[int, ...] | int | None) -> Iterator[int]:
        request = self._request(asked, self.kafka)
        api = API[request.SCHEMA.api_key]
        if isinstance(versions, int):
            versions = (versions,)
        for version in versions or range(api.min_version, api.max_version + 1):
            try:
                frame(request, version)
            except EncodeError:
                continue
            yield version

    def _note(self, label: str, plain: tuple[Any, Any]) -> None:
        self.differences.append(f"{label.strip()}\n" + "\n".join(apart(*plain)))

    def verdict(self) -> None:
        """Fail with all noted differences."""
        found, self.differences = self.differences, []
        assert not found, f"{len(found)} difference(s)\n" + "\n".join(found)


def _await_leaders(side: Side, topic: str, partitions: int) -> None:
    """Brokers learn of new topics a moment after the controller has answered; on a busy machine it is a long one."""
    rows = [ListOffsetsRequest.ListOffsetsPartition(index, timestamp=LATEST) for index in range(partitions)]
    request = ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic(topic, rows)])
    deadline = time.monotonic() + START_S
    while any(row.error_code for row in side.ask(request, 1).topics[0].partitions):
        assert time.monotonic() < deadline, f"{side}: {topic} has no leaders"
        time.sleep(0.02)


def warm_coordinator(pair: Pair) -> None:
    """Make every partition of the offsets topic led and loaded on both."""
    for side in pair.sides:
        for number in range(64):  # more than enough names to hit each of its eight partitions
            name = f"warm-{number}"
            deadline = time.monotonic() + START_S
            while time.monotonic() < deadline:
                side.ask(FindCoordinatorRequest(key=name), 0)
                if side.ask(HeartbeatRequest(name, 1, "m"), 0).error_code == UNKNOWN_MEMBER_ID:
                    break
                time.sleep(0.05)


def brief(value: Any) -> str:
    """A message without its default fields."""
    fields = getattr(value, "_fields", None)
    if fields is not None:
        plain = type(value)()
        changed = [(f, getattr(value, f)) for f in fields if getattr(value, f) != getattr(plain, f)]
        return f"{type(value).__name__}({', '.join(f'{f}={brief(v)}' for f, v in changed)})"
    if isinstance(value, list):
        return f"[{', '.join(map(brief, value))}]"
    if isinstance(value, (bytes, memoryview)):
        return f"<{len(value)} bytes {bytes(value[:20]).hex()}>"
    return f"{value!r:.60}"


def apart(theirs: Any, mine: Any, where: str = "") -> Iterator[str]:
    """The places where two plain answers differ."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for name in theirs:
            yield from apart(theirs[name], mine.get(name), f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(mine, list):
        if len(theirs) == len(mine) and sum(a != b for a, b in zip(theirs, mine, strict=True)) <= 3:
            for at, (a, b) in enumerate(zip(theirs, mine, strict=True)):
                yield from apart(a, b, f"{where}[{at}]")
            return
        yield from (f"  only Kafka {where}: {item}"[:500] for item in theirs if item not in mine)
        yield from (f"  only ours  {where}: {item}"[:500] for item in mine if item not in theirs)
        if len(theirs) != len(mine) or all(item in mine for item in theirs):
            yield f"  {where}: {len(theirs)} and {len(mine)} items, or another order"
    elif theirs != mine:
        yield f"  {where}: Kafka {theirs!r:.400}, ours {mine!r:.400}"
