"""Several real brokers in one process: their logs on disk, their messages delayed and lost by a seeded schedule.

Fault model: messages take 0-50 ms and may overtake those of other links. A broker can be cut off from others and from
the controller; its requests then time out. It can be killed and started again under a new broker epoch; a kill keeps
its writes, like the death of a process. The controller is small and simple: one partition, cleanly elected leaders.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kraft_node.base.config import NodeConfig
from kraft_node.base.env import Env
from kraft_node.broker.broker import Broker
from kraft_node.log.checkpoints import meta_properties
from kraft_node.log.checkpoints.meta_properties import MetaProperties
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.partitions import PartitionState
from kraft_node.runtime.disk import RealDisk
from kraft_protocol.buffers import FileSlice
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch, iter_headers
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.codec import decode, encode
from kraft_protocol.wire.error_response import error_response
from tests.batches import iter_all_records
from tests.stopped_time import SeededRandom
from tests.unit.broker.world import CLUSTER_ID, AtOnce, Client, Loop, replay, topic_id, topic_records

TOPIC_ID = topic_id(1)
CONFIG = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "9@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "unused",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "min.insync.replicas": "2",
}
LOST_MS = 1000
"""After this time, a request to a dead target counts as lost."""
SENDS = {m.FetchRequest: ApiKey.FETCH, m.ListOffsetsRequest: ApiKey.LIST_OFFSETS}


class Link:
    """The connection from one broker to another, or to the controller."""

    def __init__(self, cluster: Cluster, source: int, target: int) -> None:
        self.cluster = cluster
        self.source = source
        self.target = target

    def send(self, request: Any, version: int | None, done: Callable[[Any], None], timeout_ms: int) -> None:
        cluster, life = self.cluster, self.cluster.lives[self.source]
        assert version is None
        assert timeout_ms > 0

        def answer(message: Any) -> None:
            if not cluster.connected(self.source, self.target):
                message = ConnectionResetError("cut")
            cluster.later(finish, message)

        finished: list[bool] = []

        def finish(message: Any) -> None:
            if cluster.lives[self.source] == life and not finished:
                finished.append(True)
                done(message)

        def arrive() -> None:
            if not cluster.connected(self.source, self.target):
                cluster.later(finish, ConnectionResetError("cut"))
            elif self.target == 0:
                cluster.controller.asked(self.source, request, answer)
            else:
                cluster.nodes[self.target].asked(request, answer)

        cluster.later(arrive)
        cluster.loop.call_later(LOST_MS, finish, TimeoutError("lost"))


class Node:
    """One broker; `broker` is None while it is down."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.broker: Broker | None = None
        self.image = MetadataImage()
        self.highest = 0
        """The high watermark seen since the last start."""

    def start(self, epoch: int) -> None:
        cluster = self.cluster
        cluster.lives[self.node_id] += 1
        path = f"{cluster.path}/{self.node_id}"
        env = cluster.env(self.node_id)
        if not env.disk.exists(path):
            env.disk.mkdir(path)
            directory_id: Any = topic_id(100 + self.node_id)
            meta_properties.write(env.disk, path, MetaProperties(1, CLUSTER_ID, self.node_id, directory_id))
        logs = LogManager(env, [path], node_id=self.node_id, cluster_id=CLUSTER_ID)
        logs.start()
        self.logs = logs
        self.image = MetadataImage()
        self.read = 0
        self.highest = 0
        broker = self.broker = Broker(
            env,
            NodeConfig.parse(CONFIG, {"node.id": str(self.node_id)}),
            cluster_id=CLUSTER_ID,
            image=self.image,
            logs=logs,
            controller=Link(cluster, self.node_id, 0),  # type: ignore[arg-type]
            peers=lambda target, _number: Link(cluster, self.node_id, target),  # type: ignore[arg-type,return-value]
        )
        lifecycle: Any = SimpleNamespace(broker_epoch=epoch, metadata_moved=lambda: None, close=lambda: None)
        broker.lifecycle = lifecycle
        self.catch_up()
        broker.topics_known()
        broker.replication.start(broker.replicas)

    def kill(self) -> None:
        assert self.broker is not None
        self.cluster.lives[self.node_id] += 1
        self.broker.close()
        self.broker = None
        for log in self.logs.open_logs():
            log.close()
        self.logs.release()

    def catch_up(self) -> None:
        """Replay the committed metadata."""
        records = self.cluster.controller.records
        if self.broker is not None and self.read < len(records):
            fresh, self.read = records[self.read :], len(records)
            self.broker.apply(replay(self.image, fresh), self.image)

    def asked(self, request: Any, answer: Callable[[Any], None]) -> None:
        assert self.broker is not None
        key = SENDS[type(request)]
        version = API[key].max_version
        request = decode(type(request), encode(request, version), version)
        client = Client()
        client.answer = lambda _ctx, message: answer(_over_the_wire(message, version))  # type: ignore[method-assign]
        try:
            response = self.broker.handlers[key](client.context(key, version), request)
        except KafkaError as error:
            response = error_response(request, version, error.code, error.message)
        if response is not None:
            answer(_over_the_wire(response, version))

    def produce(self, value: bytes, done: Callable[[int], None]) -> None:
        """Produce one record with acks=all; `done` gets its offset if it is acknowledged."""
        assert self.broker is not None
        batch = build_batch([(None, value)], timestamp=self.cluster.loop.wall_ms())
        data = m.ProduceRequest.TopicProduceData(
            name="t", partition_data=[m.ProduceRequest.PartitionProduceData(0, batch)]
        )

        def answered(response: Any) -> None:
            row = response.responses[0].partition_responses[0]
            if row.error_code == 0:
                done(row.base_offset)

        client = Client()
        client.answer = lambda _ctx, message: answered(message)  # type: ignore[method-assign]
        request = m.ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[data])
        response = self.broker.produce(client.context(ApiKey.PRODUCE, 9), request)
        if response is not None:
            answered(response)

    @property
    def partition(self) -> Any:
        return None if self.broker is None else self.broker.replicas.peek(("t", 0))

    def data(self) -> bytes:
        """The log's bytes."""
        log = self.partition.log
        found = log.read(log.start_offset, 1 << 30).records
        return found.read() if isinstance(found, FileSlice) else bytes(found)

    def values(self) -> dict[int, bytes]:
        return {record.offset: bytes(record.value or b"") for record in iter_all_records(self.data())}


def _over_the_wire(message: Any, version: int) -> Any:
    for topic in getattr(message, "responses", ()):
        for row in topic.partitions:
            if isinstance(row.records, FileSlice):
                row.records = row.records.read()
    return decode(type(message), encode(message, version), version)


class Controller:
    """Decides at once, by the committed state only. Brokers receive the decision later."""

    def __init__(self, cluster: Cluster, size: int) -> None:
        self.cluster = cluster
        everybody = tuple(range(1, size + 1))
        self.records: list[Any] = []
        self.epochs: dict[int, int] = {}
        self.alive: set[int] = set()
        self.state = PartitionState(everybody, everybody, 1, 0, 0)
        for broker_id in everybody:
            self.register(broker_id)
            self.unfence(broker_id)
        self.records += topic_records("t", 1, isr=everybody)

    def register(self, broker_id: int) -> int:
        """Register a new incarnation as fenced, without the in-sync replicas of the previous one; returns its epoch."""
        if broker_id in self.alive:
            self.fence(broker_id)
        epoch = self.epochs[broker_id] = self.epochs.get(broker_id, broker_id * 1000) + 1
        end_point = stored.RegisterBrokerRecord.BrokerEndpoint(
            name="PLAINTEXT", host=f"h{broker_id}", port=1, security_protocol=0
        )
        self.records.append(
            stored.RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=topic_id(epoch % 60000),
                broker_epoch=epoch,
                end_points=[end_point],
                fenced=True,
            )
        )
        return epoch

    def unfence(self, broker_id: int) -> None:
        self.records.append(stored.UnfenceBrokerRecord(id=broker_id, epoch=self.epochs[broker_id]))
        self.alive.add(broker_id)
        if len(self.records) > 9 and self.state.leader < 0 and broker_id in self.state.isr:
            self.change(leader=broker_id)

    def fence(self, broker_id: int) -> None:
        """Fence the broker: it loses leadership, and leaves the ISR unless it is the last member."""
        self.records.append(stored.FenceBrokerRecord(id=broker_id, epoch=self.epochs[broker_id]))
        self.alive.discard(broker_id)
        state = self.state
        if broker_id in state.isr:
            rest = [member for member in state.isr if member != broker_id]
            change: dict[str, Any] = {"isr": rest} if rest else {}
            if state.leader == broker_id:
                change["leader"] = next((member for member in rest if member in self.alive), -1)
            self.change(**change)

    def change(self, **fields: Any) -> None:
        record = stored.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **fields)
        self.records.append(record)
        self.state = self.state.changed_by(record)
        state = self.state
        assert set(state.isr) <= set(state.replicas), "law: the ISR is made of replicas"
        assert state.leader < 0 or state.leader in state.isr, "law: the leader is in the ISR"

    def elect(self, broker_id: int) -> None:
        """Move leadership to another member of the ISR."""
        if broker_id in self.state.isr and broker_id in self.alive and broker_id != self.state.leader:
            self.change(leader=broker_id)

    def asked(self, sender: int, request: Any, answer: Callable[[Any], None]) -> None:
        response = m.AlterPartitionResponse()
        if not isinstance(request, m.AlterPartitionRequest):
            answer(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
            return
        if request.broker_epoch != self.epochs[sender]:
            response.error_code = ErrorCode.STALE_BROKER_EPOCH
        else:
            row = request.topics[0].partitions[0]
            result = m.AlterPartitionResponse.PartitionData(error_code=self._alter(sender, row))
            if not result.error_code:
                state = self.state
                result.leader_id, result.leader_epoch = state.leader, state.leader_epoch
                result.isr, result.partition_epoch = list(state.isr), state.partition_epoch
            response.topics.append(m.AlterPartitionResponse.TopicData(request.topics[0].topic_id, [result]))
        answer(response)

    def _alter(self, sender: int, row: Any) -> ErrorCode:
        state = self.state
        members = [(member.broker_id, member.broker_epoch) for member in row.new_isr_with_epochs]
        if row.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if row.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        assert sender == state.leader, "law: who knows the leader epoch is its leader"
        if any(member not in self.alive or epoch != self.epochs[member] for member, epoch in members):
            return ErrorCode.INELIGIBLE_REPLICA
        self.change(isr=[member for member, _ in members])
        return ErrorCode.NONE


class Cluster:
    """The whole cluster, under one seed."""

    def __init__(self, path: Path, seed: int, size: int = 3) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.loop = Loop()
        self.lives = dict.fromkeys(range(size + 1), 0)
        self.cut: set[int] = set()
        self.acked: dict[int, bytes] = {}
        self.nodes = {node_id: Node(self, node_id) for node_id in range(1, size + 1)}
        self.controller = Controller(self, size)
        for node in self.nodes.values():
            node.start(self.controller.epochs[node.node_id])

    def env(self, node_id: int) -> Env:
        """The environment of a broker; timers of a killed broker never fire."""
        life = self.lives[node_id]
        loop = self.loop

        def call_later(delay_ms: float, function: Callable[..., None], *args: Any) -> Any:
            return loop.call_later(delay_ms, run, function, args)

        def run(function: Callable[..., None], args: tuple[Any, ...]) -> None:
            if self.lives[node_id] == life:
                function(*args)

        scheduler: Any = SimpleNamespace(call_later=call_later, call_soon=partial(call_later, 0))
        return Env(loop, scheduler, SeededRandom(node_id), RealDisk(), AtOnce(loop), None)  # type: ignore[arg-type]

    def later(self, function: Callable[..., None], *args: Any) -> None:
        self.loop.call_later(self.random.randrange(50), function, *args)

    def connected(self, one: int, other: int) -> bool:
        up = all(end == 0 or self.nodes[end].broker is not None for end in (one, other))
        return up and one not in self.cut and other not in self.cut

    def produce(self, number: int, to: int | None = None) -> None:
        """Send a record to that broker, or to any broker by default; only leaders accept it."""
        node = self.nodes[self.random.choice(list(self.nodes)) if to is None else to]
        if node.broker is not None:
            value = b"%d" % number

            def acknowledged(offset: int) -> None:
                assert offset not in self.acked, f"law: offset {offset} is acknowledged once"
                self.acked[offset] = value

            node.produce(value, acknowledged)

    def kill(self, node_id: int) -> None:
        if self.nodes[node_id].broker is not None:
            self.nodes[node_id].kill()

    def restart(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.broker is None:
            node.start(self.controller.register(node_id))
            self.controller.unfence(node_id)

    def run(self, for_ms: int) -> None:
        """Let time pass. Connected brokers receive committed metadata sooner or later."""
        for _ in range(max(1, for_ms // 50)):
            self.loop.run(50)
            for node_id, node in self.nodes.items():
                if node_id not in self.cut and self.random.randrange(3):
                    node.catch_up()
                self.check(node)

    def check(self, node: Node) -> None:
        """Laws that hold at every moment."""
        partition = node.partition
        if partition is None:
            return
        log = partition.log
        assert log.start_offset <= log.high_watermark <= log.end_offset
        assert log.high_watermark >= node.highest, (
            f"law: the high watermark never goes back, broker {node.node_id}: {node.highest} to {log.high_watermark}"
        )
        node.highest = log.high_watermark

    def heal(self) -> None:
        """Start and connect all brokers, and run until all replicas are in sync."""
        self.cut.clear()
        for node_id in self.nodes:
            self.restart(node_id)
        for node_id in set(self.nodes) - self.controller.alive:
            self.controller.unfence(node_id)
        for _ in range(400):
            self.run(50)
            ends = {node.partition.log.end_offset for node in self.nodes.values() if node.partition is not None}
            marks = {node.partition.log.high_watermark for node in self.nodes.values() if node.partition is not None}
            if len(self.controller.state.isr) == len(self.nodes) and len(ends | marks) == 1:
                return
        logs = {node.node_id: node.partition and node.partition.log for node in self.nodes.values()}
        raise AssertionError(f"law: the ISR heals; it is {self.controller.state}, with {logs}")

    def check_all(self) -> None:
        """Check the laws of a healed cluster."""
        logs = {node.data() for node in self.nodes.values()}
        assert len(logs) == 1, "law: replicas hold the same bytes"
        for node in self.nodes.values():
            values = node.values()
            for offset, value in self.acked.items():
                assert values.get(offset) == value, f"law: acknowledged record {value!r} at {offset} is kept"
            epochs = node.partition.log.leader_epochs
            for header in iter_headers(node.data()):
                assert epochs.epoch_at(header.base_offset) == header.partition_leader_epoch, (
                    f"law: the epoch cache is right at {header.base_offset}"
                )

    def close(self) -> None:
        for node_id in self.nodes:
            self.kill(node_id)
