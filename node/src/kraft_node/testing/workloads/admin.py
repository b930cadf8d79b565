"""An administrator: creates, deletes and looks up topics, and writes to the topics that it has created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.histories.linearizability import CREATED, DELETED, EXISTS, NEVER, UNKNOWN, HistoryOperation
from kraft_node.testing.workloads.session import BOOTSTRAP, PAUSE_MS, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

CREATE_VERSION, DELETE_VERSION, PRODUCE_VERSION = 7, 6, 13

RESULTS: Final = {
    ("create", ErrorCode.NONE): CREATED,
    ("create", ErrorCode.TOPIC_ALREADY_EXISTS): EXISTS,
    ("delete", ErrorCode.NONE): DELETED,
    ("delete", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): UNKNOWN,
}
"""The state of the topic by an error; after any other error its state is unknown."""


class Admin:
    """Performs operations one after another on a few topics that no other client uses."""

    def __init__(
        self, cluster: SimCluster, checker: Checker, name: str, topics: Sequence[str], replicas: int = 1
    ) -> None:
        """`replicas`: the replication factor of every topic that it creates."""
        self.session = ClusterSession(cluster, name)
        self.checker = checker
        self.topics = topics
        self.replicas = replicas
        self.stopping = False
        self._rng = cluster.world.rng
        self._written = 0
        self._many = len(cluster.machines) > 1

    async def run(self) -> None:
        """Create, delete and look up random topics of its own until stopped; the checker gets each call."""
        rng = self._rng
        while not self.stopping:
            topic = rng.choice(self.topics)
            action = rng.choice(("create", "create", "delete", "get", "get"))
            if action == "create":
                await self._create(topic, rng.randint(1, 3))
            elif action == "delete":
                await self._delete(topic)
            else:
                await self.look_up(topic)
            await self.session.sleep(rng.random() * 400)

    # -- what others need too

    async def create_surely(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Retry until the topic exists."""
        while True:
            answer = await self._ask_create(topic, partitions, configs)
            if answer is not None and answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await self.session.sleep(PAUSE_MS)

    async def _ask_create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> Any:
        wanted = m.CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=self.replicas,
            configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        request = m.CreateTopicsRequest(topics=[wanted], timeout_ms=2000)
        answer = await self.session.request(BOOTSTRAP, ApiKey.CREATE_TOPICS, CREATE_VERSION, request)
        if answer is None:
            return None
        self.session.note(f"create {topic}: {ErrorCode(answer.topics[0].error_code).name}")
        return answer.topics[0]

    # -- one operation each

    async def _create(self, topic: str, partitions: int) -> None:
        called = self._called()
        answer = await self._ask_create(topic, partitions, {})
        self._record("create", topic, called, None if answer is None else answer.error_code, partitions)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            await self._write_first(topic, answer.topic_id)

    async def _delete(self, topic: str) -> None:
        called = self._called()
        request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=topic)], timeout_ms=2000)
        answer = await self.session.request(BOOTSTRAP, ApiKey.DELETE_TOPICS, DELETE_VERSION, request)
        code = None if answer is None else answer.responses[0].error_code
        if code is not None:
            self.session.note(f"delete {topic}: {ErrorCode(code).name}")
        self._record("delete", topic, called, code)

    async def look_up(self, topic: str, *, settled: bool = False) -> bool:
        """Request whether the topic exists. Returns whether there was an answer. `settled`: all brokers have all
        metadata.

        A single node answers from the metadata that it has just committed. In a cluster, a broker may be behind.
        """
        called = self._called()
        answer = await self.session.refresh([topic])
        if answer is None:
            return False
        found = answer.topics[0]
        self.session.expect(
            found.error_code, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"metadata of {topic}"
        )
        if not settled and self._many:
            return True
        state = None if found.error_code else (len(found.partitions), None)
        self.checker.operation(HistoryOperation(self.session.name, topic, called, self._called(), "get", result=state))
        return True

    def _called(self) -> float:
        return self.session.world.now_ms

    def _record(self, action: str, topic: str, called: float, code: int | None, argument: Any = None) -> None:
        result = None if code is None else RESULTS.get((action, ErrorCode(code)))
        if code is not None and result is None:
            self.session.expect(
                code, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICATION_FACTOR,
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, what=f"{action} {topic}",
            )  # fmt: skip
        returned = NEVER if result is None else self._called()
        # A broker forwards a request again if the controller has resigned. Both requests may take effect: the
        # new leader may have the records of the first.
        for _ in range(2 if returned == NEVER and self._many else 1):
            self.checker.operation(
                HistoryOperation(self.session.name, topic, called, returned, action, argument, result)
            )

    async def _write_first(self, topic: str, topic_id: bytes) -> None:
        """Check that a new topic is empty: the first record has offset 0."""
        self._written += 1
        raw = build_batch(
            [(None, f"{self.session.name}:{topic}:{self._written}".encode())],
            timestamp=START_WALL_MS + int(self.session.world.now_ms),
        )
        data = m.ProduceRequest.PartitionProduceData(index=0, records=raw)
        of_topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])  # type: ignore[arg-type]
        request = m.ProduceRequest(acks=-1, timeout_ms=2000, topic_data=[of_topic])
        answer = await self.session.request(BOOTSTRAP, ApiKey.PRODUCE, PRODUCE_VERSION, request)
        if answer is None:
            return
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE and row.base_offset != 0:
            self.checker.broken("fresh", (topic, 0), f"the first record of the new topic got offset {row.base_offset}")
