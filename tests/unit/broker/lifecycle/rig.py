"""A broker with its logs in a folder, led by records that a test commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraft_node.base.config import NodeConfig
from kraft_node.broker.broker import Broker
from kraft_node.log.checkpoints import meta_properties
from kraft_node.log.checkpoints.meta_properties import MetaProperties
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.metadata.image import MetadataImage
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.codec import decode, encode
from tests.batches import iter_all_records
from tests.unit.broker.fetching.test_fetching import CONFIG
from tests.unit.broker.world import (
    CLUSTER_ID,
    Client,
    Controller,
    Loop,
    broker_records,
    make_env,
    replay,
    topic_id,
)

ENDPOINTS = [("PLAINTEXT", "host1", 9092, 0)]


class Rig:
    """Broker 1 with its logs under `path`."""

    def __init__(self, path: Path, dirs: int = 1, image: MetadataImage | None = None, **config: str) -> None:
        self.loop = Loop()
        self.client = Client()
        self.controller = Controller()
        self.image = image or MetadataImage()
        env = make_env(self.loop)
        self.dirs = [str(path / f"d{number}") for number in range(dirs)]
        for number, directory in enumerate(self.dirs):
            env.disk.mkdir(directory)
            if not env.disk.exists(f"{directory}/meta.properties"):
                meta_properties.write(env.disk, directory, MetaProperties(1, CLUSTER_ID, 1, topic_id(800 + number)))  # type: ignore[arg-type]
        self.logs = LogManager(env, self.dirs, node_id=1, cluster_id=CLUSTER_ID)
        self.logs.start()
        self.broker = Broker(
            env,
            NodeConfig.parse(CONFIG, {"log.dirs": ",".join(self.dirs)} | config),
            cluster_id=CLUSTER_ID,
            image=self.image,
            logs=self.logs,
            controller=self.controller,
        )
        if image is None:
            self.commit([stored.FeatureLevelRecord(name="metadata.version", feature_level=30), *broker_records(1)])

    def commit(self, records: list[Any]) -> None:
        self.broker.apply(replay(self.image, records), self.image)

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        """Call a handler as a client does: request and response go through their codecs."""
        request = decode(type(request), encode(request, version), version)
        response = self.broker.handlers[key](self.client.context(key, version), request)
        if response is None:
            return None
        return decode(type(response), encode(response, version), version)

    def produce(self, topic: str, index: int = 0, **fields: Any) -> Any:
        batch = build_batch([(b"k", b"v")], timestamp=self.loop.wall_ms(), **fields)
        data = m.ProduceRequest.TopicProduceData(
            name=topic, partition_data=[m.ProduceRequest.PartitionProduceData(index, batch)]
        )
        response = self.call(ApiKey.PRODUCE, 9, m.ProduceRequest(acks=-1, timeout_ms=100, topic_data=[data]))
        return response.responses[0].partition_responses[0]

    def consume(self, topic: str, index: int = 0, offset: int = 0) -> list[int]:
        row = m.FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = m.FetchRequest(max_wait_ms=0, topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[row])])
        row = self.call(ApiKey.FETCH, 12, request).responses[0].partitions[0]
        # retry, as clients do, while the partition is being created
        if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.loop.run(100)
            row = self.call(ApiKey.FETCH, 12, request).responses[0].partitions[0]
        assert row.error_code == 0, ErrorCode(row.error_code)
        return [record.offset for record in iter_all_records(bytes(row.records))]

    def names(self, number: int = 0) -> list[str]:
        return [p.name for p in Path(self.dirs[number]).iterdir() if p.is_dir()]

    def stop(self) -> None:
        done: list[int] = []
        self.broker.close()
        self.logs.shutdown(lambda: done.append(1))
        self.loop.run()
        assert done
        self.logs.release()

    def run_up(self) -> None:
        """Register, and wait until the broker is unfenced."""
        self.broker.start(ENDPOINTS)
        self.controller.take(m.BrokerRegistrationRequest).answer(m.BrokerRegistrationResponse(broker_epoch=0))
        self.controller.take(m.BrokerHeartbeatRequest).answer(m.BrokerHeartbeatResponse(is_fenced=False))
        self.loop.run()


def config(kind: int, name: str, key: str, value: str | None) -> Any:
    return stored.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
