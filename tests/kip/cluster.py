"""A whole cluster in a simulated world, asked over its protocol: the product's own nodes, without processes.

`Cluster(controllers=3, brokers=3)` has machines c1… (ids 3001…) and b1… (ids 1…); combined ones are k1… (ids 1…).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kraft_node.base.config import NodeConfig
from kraft_node.broker.lifecycle import BrokerState
from kraft_node.metadata.features import parse_metadata_version
from kraft_node.testing.client import SimClient
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.machine import CLIENT_PORT, CONTROLLER_PORT, DIR, SimMachine
from kraft_node.testing.net import SimNetwork
from kraft_node.testing.world import SimHost, World
from kraft_protocol.ids import Uuid, uuid_text
from kraft_protocol.records.batch import build_batch, iter_headers, iter_records
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import API, ApiKey

LIMIT_MS = 60_000
"""What takes longer than this of simulated time does not come."""


class Cluster:
    def __init__(
        self,
        controllers: int = 0,
        brokers: int = 0,
        *,
        combined: int = 0,
        seed: int = 1,
        start: bool = True,
        overrides: Mapping[str, str] | None = None,
        per_machine: Mapping[str, Mapping[str, str]] | None = None,
        unformatted: Iterable[str] = (),
        release: str | None = None,
    ) -> None:
        """Start a cluster; `release`: its first metadata.version as kafka-storage names it. None: the latest."""
        self.world = World(seed)
        self.network = SimNetwork(self.world)
        self.cluster_id = uuid_text(Uuid(self.world.rng.randbytes(16)))
        names = {f"c{n}": (3000 + n, "controller") for n in range(1, controllers + 1)}
        names |= {f"k{n}": (n, "broker,controller") for n in range(1, combined + 1)}
        voters = ",".join(f"{number}@{name}:{CONTROLLER_PORT}" for name, (number, _) in names.items())
        names |= {f"b{n}": (n, "broker") for n in range(1, brokers + 1)}
        self.machines: dict[str, SimMachine] = {}
        for name, (number, roles) in names.items():
            texts = {**_texts(name, number, roles, voters), **(overrides or {}), **(per_machine or {}).get(name, {})}
            config = NodeConfig.parse("".join(f"{key}={value}\n" for key, value in texts.items()))
            machine = self.machines[name] = SimMachine(self.world, self.network, name, config)
            if name not in unformatted:
                machine.release = None if release is None else parse_metadata_version(release)
                machine.format(self.cluster_id)
        self._client = SimHost(self.world, "client", SimDisk(self.world.rng))
        self._net = self.network.host(self._client)
        self._clients: dict[tuple[str, int], SimClient] = {}
        self.looks: list[Callable[[], None]] = []
        """Called between any two events."""
        if start:
            for machine in self.machines.values():
                machine.start()
            self.until(lambda: all(machine.serving for machine in self.machines.values()))

    # Time

    def until(self, condition: Callable[[], bool], limit_ms: float = LIMIT_MS) -> None:
        """Let time pass until the condition is true. Fails if it stays false."""
        states = ", ".join(f"{name}: {machine.broken or 'well'}" for name, machine in self.machines.items())

        def looking() -> bool:
            for look in self.looks:
                look()
            return condition()

        assert self.world.run(looking, limit_ms), f"not within {limit_ms} ms of simulated time ({states})"

    def rest(self, ms: float) -> None:
        self.world.rest(ms)

    # Nodes

    def __getitem__(self, name: str) -> SimMachine:
        return self.machines[name]

    def node(self, name: str) -> Any:
        node = self.machines[name].node
        assert node is not None, f"{name} does not run"
        return node

    @property
    def active(self) -> SimMachine:
        """The machine of the active controller; waits until it exists."""

        def found() -> list[SimMachine]:
            return [
                machine
                for machine in self.machines.values()
                if machine.node is not None
                and machine.node.controller is not None
                and machine.node.controller.is_active
            ]

        self.until(lambda: len(found()) == 1)
        return found()[0]

    @property
    def image(self) -> Any:
        """The active controller's metadata image."""
        assert self.active.node is not None
        raft = self.active.node.raft
        assert raft is not None
        return raft.image

    def state(self, name: str) -> BrokerState:
        node = self.machines[name].node
        if node is None or node.broker is None:
            return BrokerState.NOT_RUNNING
        return node.broker.state

    def metrics(self, name: str) -> dict[str, float]:
        """The samples of /metrics: `name{labels}` -> value."""
        lines = self.node(name).registry.text().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    # Requests

    def client(self, name: str, *, controller: bool = False) -> SimClient:
        """A connection to one node; for nodes named c… to the controller listener."""
        port = CONTROLLER_PORT if controller or name.startswith("c") else CLIENT_PORT
        return self._clients.setdefault((name, port), SimClient(self._net, name, port))

    def ask(self, name: str, request: Any, version: int | None = None, *, controller: bool = False) -> Any:
        """The answer of one node; None if the connection broke."""
        client = self.client(name, controller=controller)
        key = key_of(request)
        answers: list[Any] = []
        client.request(key, API[key].max_version if version is None else version, request, answers.append)
        self.until(lambda: bool(answers))
        return answers[0]

    def served(self, name: str, *, controller: bool = False) -> set[int]:
        """The APIs that a listener advertises."""
        request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return {api.api_key for api in self.ask(name, request, 3, controller=controller).api_keys}

    def create(self, topic: str, *assignment: list[int], broker: str = "b1", **configs: str) -> Uuid:
        """Create a topic, with a partition for each list of replicas; returns its id."""
        created = m.CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=n, broker_ids=replicas)
                for n, replicas in enumerate(assignment)
            ],
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        answer = self.ask(broker, m.CreateTopicsRequest(topics=[created], timeout_ms=30_000)).topics[0]
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self.until(lambda: self.knows(topic, Uuid(bytes(answer.topic_id))))
        return Uuid(bytes(answer.topic_id))

    def delete(self, topic: str, broker: str = "b1") -> int:
        state = m.DeleteTopicsRequest.DeleteTopicState(name=topic)
        return int(self.ask(broker, m.DeleteTopicsRequest(topics=[state], timeout_ms=30_000)).responses[0].error_code)

    def knows(self, topic: str, topic_id: Uuid) -> bool:
        """Whether every running broker knows the topic under that id."""
        found = [
            machine.node.raft.image.topics.by_name(topic)
            for machine in self.machines.values()
            if machine.node is not None and machine.node.broker is not None and machine.node.raft is not None
        ]
        return all(one is not None and one.id == topic_id for one in found)

    def metadata(self, broker: str, topics: list[str] | None = None, version: int | None = None) -> Any:
        wanted = None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        return self.ask(broker, m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version)

    def brokers_shown(self, broker: str) -> set[int]:
        return {one.node_id for one in self.metadata(broker, []).brokers}

    def produce(self, broker: str, topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> Any:
        """Append to a partition; returns the partition's response, None if the connection broke."""
        found = self.node(broker).raft.image.topics.by_name(topic)
        return self.produce_to(broker, Uuid(found.id), *values, acks=acks, partition=partition)

    def produce_to(self, broker: str, topic_id: Uuid, *values: bytes, acks: int = -1, partition: int = 0) -> Any:
        batch = self.batch(*values)
        data = m.ProduceRequest.TopicProduceData(
            topic_id=topic_id,
            partition_data=[m.ProduceRequest.PartitionProduceData(index=partition, records=batch)],
        )
        answer = self.ask(broker, m.ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[data]))
        return None if answer is None else answer.responses[0].partition_responses[0]

    @staticmethod
    def batch(*values: bytes) -> bytes:
        return build_batch([(None, value) for value in values])

    def fetch(self, broker: str, topic: Uuid | str, offset: int = 0, *, partition: int = 0) -> Any:
        """Fetch one partition by id or (version 12) by name; None if the connection broke."""
        wanted = m.FetchRequest.FetchTopic(
            partitions=[
                m.FetchRequest.FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
                )
            ]
        )
        if isinstance(topic, str):
            wanted.topic = topic
        else:
            wanted.topic_id = topic
        request = m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[wanted])
        answer = self.ask(broker, request, 12 if isinstance(topic, str) else 17)
        if answer is None:
            return None
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def values(self, broker: str, topic: Uuid | str, offset: int = 0) -> list[bytes]:
        """The values that a consumer reads."""
        found = self.fetch(broker, topic, offset)
        assert found.error_code == 0, found.error_code
        records = bytes(found.records or b"")
        return [bytes(r.value) for h in iter_headers(records) for r in iter_records(records, h) if r.value is not None]

    def partition(self, topic: str, number: int = 0) -> Any:
        """A partition's state in the active controller."""
        found = self.image.topics.by_name(topic)
        return None if found is None else found.partition(number)

    def files(self, name: str) -> list[str]:
        return sorted(self.machines[name].disk.listdir(DIR))


def key_of(request: Any) -> ApiKey:
    for key, spec in API.items():
        if spec.request is type(request):
            return key
    raise AssertionError(f"no API has requests like {type(request).__name__}")


def _texts(name: str, number: int, roles: str, voters: str) -> dict[str, str]:
    client, controller = f"PLAINTEXT://{name}:{CLIENT_PORT}", f"CONTROLLER://{name}:{CONTROLLER_PORT}"
    texts = {
        "process.roles": roles,
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": ",".join([client] * ("broker" in roles) + [controller] * ("controller" in roles)),
        "log.dirs": DIR,
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "auto.create.topics.enable": "false",
    }
    if "broker" in roles:
        texts |= {"advertised.listeners": client, "inter.broker.listener.name": "PLAINTEXT"}
    return texts
