"""A controller with a log, a clock and simulated brokers: the test decides when its appends are committed.

The image, the overlay, the loader and the codecs are real. `Quorum.ask` sends one request as a broker or an
administrator would. Its `Answer` is empty until `commit`, which `ask` calls by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kraft_node.base.config import NodeConfig
from kraft_node.base.env import Env
from kraft_node.base.request import RequestContext
from kraft_node.controller import Controller
from kraft_node.metadata.features import SUPPORTED_RANGES
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.partitions import PartitionState
from kraft_node.metadata.prepared import Prepared, encoded_batches
from kraft_node.metadata.records import decode_record
from kraft_node.raft.node import NotLeader
from kraft_protocol.errors import KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.stopped_time import SeededRandom, StoppedTime

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
CONTROLLER_ID = 3000


class FakeLog:
    """A metadata log of one voter; nothing is committed before `commit`."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.batches: list[tuple[int, list[Any]]] = []
        self.lost = False
        self.epoch = 0
        self.level: Callable[[], int] = lambda: 30

    def prepare(self, epoch: int, records: Sequence[Any], *, atomic: bool = True) -> Prepared:
        if self.lost or epoch != self.epoch:
            raise NotLeader
        return Prepared(epoch, self.next_offset, *encoded_batches(records, self.level(), atomic=atomic))

    def schedule(self, prepared: Prepared) -> None:
        assert prepared.first_offset == self.next_offset, "only what was prepared last is scheduled"
        for records, values in zip(prepared.batches, prepared.values, strict=True):
            decoded: list[Any] = [decode_record(value) for value in values]
            assert decoded == list(records), "what is written must say what was planned"
            self.batches.append((self.next_offset, decoded))
            self.next_offset += len(decoded)

    def append(self, *records: Any) -> None:
        """Append a former controller's records."""
        self.schedule(self.prepare(self.epoch, records))

    @property
    def records(self) -> list[Any]:
        return [record for _, batch in self.batches for record in batch]


class Answer:
    """The answer to one request."""

    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.error: KafkaError | None = None

    @property
    def given(self) -> bool:
        return bool(self.responses) or self.error is not None

    @property
    def response(self) -> Any:
        if self.error is not None:
            raise self.error
        assert len(self.responses) == 1, f"answered {len(self.responses)} times"
        return self.responses[0]


class Quorum:
    """One controller and its log."""

    def __init__(
        self,
        *,
        bootstrap: Sequence[Any] = (),
        active: bool = True,
        loader: MetadataLoader | None = None,
        **properties: str,
    ) -> None:
        """Make the quorum; a `loader` may hold an image already, as after a snapshot."""
        self.time = StoppedTime(now=1_000)
        self.loader = loader or MetadataLoader()
        self.log = FakeLog()
        texts = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "controller.quorum.voters": f"{CONTROLLER_ID}@localhost:9093",
            "listeners": "CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "nowhere",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        nothing: Any = None
        env = Env(self.time, self.time, SeededRandom(), nothing, nothing, nothing)
        self.controller = Controller(env, NodeConfig.parse(texts), CLUSTER_ID, self.image, self.log, bootstrap)
        self.log.level = self.controller.metadata_level
        self.controller.follow(self.loader)
        self.controller.in_transaction = lambda: self.loader.in_transaction
        self._committed = 0
        self._first_offset = self.log.next_offset = self.image.offset + 1
        self.epoch = 0
        self.connection: Any = None
        """What the requests come over."""
        if active:
            self.lead()

    @property
    def image(self) -> MetadataImage:
        return self.loader.image

    def lead(self) -> None:
        self.epoch += 1
        self.log.epoch = self.epoch
        self.log.lost = False
        self.controller.on_leader(self.epoch)
        self.commit()

    def lose(self, leader_id: int = -1) -> None:
        """Elect another node; uncommitted records are lost."""
        self.log.lost = True
        self.controller.on_lost_leadership(self.epoch)
        self.controller.on_leader_changed(leader_id, self.epoch + 1)
        del self.log.batches[self._committed :]
        self.log.next_offset = self._first_offset + sum(len(batch) for _, batch in self.log.batches)

    def commit(self) -> None:
        while self._committed < len(self.log.batches):
            offset, records = self.log.batches[self._committed]
            self._committed += 1
            self.loader.apply(list(enumerate(records, start=offset)), self.epoch, self.time.wall_ms())
            self.loader.publish()
            self.controller.on_commit(offset + len(records) - 1)

    def pass_time(self, ms: int) -> None:
        self.time.advance(ms)
        self.commit()

    def ask(self, request: Any, version: int | None = None, *, commit: bool = True) -> Answer:
        key = ApiKey[api_name(type(request).__name__)]
        if version is None:
            version = API[key].max_version
        answer = Answer()
        ctx = RequestContext(
            key,
            version,
            1,
            "test",
            "127.0.0.1",
            "CONTROLLER",
            "User:ANONYMOUS",
            self.connection,
            self.time.now,
            lambda _, response: answer.responses.append(response),
        )
        try:
            response = self.controller.handle(ctx, request)
        except KafkaError as e:
            answer.error = e
            return answer
        if response is not None:
            ctx.respond(response)
        if commit:
            self.commit()
        return answer

    def respond(self, request: Any, version: int | None = None) -> Any:
        answer = self.ask(request, version)
        if not answer.given:
            self.time.advance(0)
        return answer.response

    def written(self, kind: str | None = None, since: int = 0) -> list[Any]:
        """Records of one class by name, from offset `since` on."""
        found = self.log.records[since:]
        return [record for record in found if kind is None or type(record).__name__ == kind]

    # Brokers

    def register(
        self,
        broker_id: int,
        *,
        incarnation: int = 1,
        directories: Sequence[bytes] | None = None,
        rack: str | None = None,
        previous_epoch: int = -1,
        features: dict[str, tuple[int, int]] | None = None,
        version: int | None = None,
    ) -> Answer:
        if features is None:
            features = {name: (r.min_level, r.max_level) for name, r in SUPPORTED_RANGES.items()}
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=uuid(broker_id * 1000 + incarnation),
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name="PLAINTEXT", host="localhost", port=9092 + broker_id, security_protocol=0
                )
            ],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in features.items()
            ],
            rack=rack,
            log_dirs=[directory(broker_id)] if directories is None else list(directories),
            previous_broker_epoch=previous_epoch,
        )
        return self.ask(request, version)

    def epoch_of(self, broker_id: int) -> int:
        broker = self.controller.cluster.broker(broker_id)
        assert broker is not None
        return broker.epoch

    def heartbeat(self, broker_id: int, **fields: Any) -> BrokerHeartbeatResponse:
        fields.setdefault("broker_epoch", self.epoch_of(broker_id))
        fields.setdefault("current_metadata_offset", self.log.next_offset - 1)
        response: BrokerHeartbeatResponse = self.respond(BrokerHeartbeatRequest(broker_id=broker_id, **fields))
        return response

    def start(self, *broker_ids: int, **registration: Any) -> None:
        """Register brokers and unfence them."""
        for broker_id in broker_ids:
            assert self.register(broker_id, **registration).response.error_code == 0
            assert not self.heartbeat(broker_id).is_fenced

    # Topics

    def create(
        self,
        name: str,
        assignments: Sequence[Sequence[int]] = (),
        *,
        partitions: int = -1,
        factor: int = -1,
        configs: dict[str, str | None] | None = None,
        validate_only: bool = False,
        version: int | None = None,
    ) -> CreateTopicsResponse.CreatableTopicResult:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
                for number, replicas in enumerate(assignments)
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        response = self.respond(CreateTopicsRequest(topics=[topic], validate_only=validate_only), version)
        result: CreateTopicsResponse.CreatableTopicResult = response.topics[0]
        return result

    def partition(self, topic: str, number: int = 0) -> PartitionState:
        found = self.image.topics.by_name(topic)
        assert found is not None, f"no topic {topic}"
        state = found.partition(number)
        assert state is not None, f"no partition {topic}-{number}"
        return state

    def topic_id(self, topic: str) -> Uuid:
        found = self.image.topics.by_name(topic)
        assert found is not None, f"no topic {topic}"
        return found.id


def flat(blocks: Iterable[tuple[Uuid, list[int]]]) -> Iterator[tuple[Uuid, int]]:
    """The partitions in blocks of the index."""
    return ((topic_id, number) for topic_id, numbers in blocks for number in numbers)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def directory(broker_id: int, which: int = 0) -> Uuid:
    """The id of a log directory of a broker."""
    return uuid(1_000_000 + broker_id * 10 + which)


def api_name(request_class: str) -> str:
    """`CreateTopicsRequest` -> `CREATE_TOPICS`."""
    letters = [("_" + c if c.isupper() and at else c) for at, c in enumerate(request_class.removesuffix("Request"))]
    return "".join(letters).upper()
