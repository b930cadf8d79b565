"""The image of the metadata shell: from a snapshot file, a log directory, or the controllers of a running cluster.

For a cluster it follows the metadata log like an observer without a broker. It sends Fetch and FetchSnapshot without a
replica id, so that the quorum does not track it. It shows committed data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.log_batches import MetadataBatch, decode_batches
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.errors import ErrorCode, error_name
from kraft_protocol.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME
from kraft_protocol.records.batch import whole_batches
from kraft_protocol.records.control import ControlType
from kraft_protocol.wire.api import ApiKey

CHECKPOINT: Final = ".checkpoint"
FETCH_BYTES: Final = 8 * 1024 * 1024
HEADER: Final = ControlType.SNAPSHOT_HEADER
TRIES_MAX: Final = 20
"""Maximum of attempts to find the leader, at most a second apart (an election takes one or two)."""
TRY_PAUSE_S: Final = 0.5
NOT_LEADER_CODES: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""The answer names leader and epoch."""


NO_LIMIT: Final = 1 << 62
"""An offset behind every log."""


class ImageSource:
    """An image and its updates."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()

    @property
    def image(self) -> MetadataImage:
        """The image after the last `refresh`. A later refresh may replace the object: do not keep it."""
        return self.loader.image

    def refresh(self) -> None:
        """Apply records that were committed meanwhile; files do not change. Raises ToolError."""

    def close(self) -> None:
        """Release what the source holds: nothing, unless a subclass holds something."""

    def _load(self, batches: Iterable[MetadataBatch], end_offset: int, epoch: int) -> None:
        found = list(batches)
        times = [_contained_ms(control) for batch in found for control in batch.control if control.type == HEADER]
        records = (record for batch in found for _, record in batch.records)
        self.loader.load(records, end_offset - 1, epoch, max(times, default=-1))
        self.loader.publish(is_snapshot=True)

    def _apply(self, batches: Iterable[MetadataBatch], start: int, stop: int) -> int:
        """Replay the batches between two offsets. Returns where the next batch begins."""
        for batch in batches:
            if batch.last_offset >= stop:
                break
            if batch.records:
                wanted = [(offset, record) for offset, record in batch.records if offset >= start]
                self.loader.apply(wanted, batch.epoch, batch.timestamp_ms)
            else:
                self.loader.skip(batch.last_offset, batch.epoch, batch.timestamp_ms)
            start = batch.last_offset + 1
        self.loader.publish()
        return start


def _contained_ms(control: Any) -> int:
    from kraft_protocol.wire.codec import decode
    from kraft_protocol.wire.stored import SnapshotHeaderRecord

    return int(decode(SnapshotHeaderRecord, bytes(control.value), 0).last_contained_log_timestamp)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def snapshot_name(path: str) -> tuple[int, int]:
    """End offset and epoch in a snapshot's file name; 0 and 0 for other names (bootstrap.checkpoint)."""
    stem = os.path.basename(path).removesuffix(CHECKPOINT)
    offset, _, epoch = stem.partition("-")
    return (int(offset), int(epoch)) if offset.isdecimal() and epoch.isdecimal() else (0, 0)


class SnapshotSource(ImageSource):
    """One snapshot file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        end, epoch = snapshot_name(path)
        batches = list(decode_batches(_read(path)))
        count = sum(len(batch.records) for batch in batches)
        self._load(batches, end or count, epoch)


class LogDirectory(ImageSource):
    """The latest snapshot of a log directory, and the log after it to its end.

    No file has the committed end of the log, so uncommitted records may be included.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        inner = os.path.join(path, f"{METADATA_TOPIC_NAME}-0")
        folder = inner if os.path.isdir(inner) else path
        names = os.listdir(folder)
        start = 0
        snapshots = sorted(name for name in names if name.endswith(CHECKPOINT) and snapshot_name(name) > (0, 0))
        logs = sorted(name for name in names if name.endswith(".log"))
        if not snapshots and not logs:
            raise ToolError(f"{folder}: the directory has neither a snapshot nor a log")
        if snapshots:
            start, epoch = snapshot_name(snapshots[-1])
            self._load(decode_batches(_read(os.path.join(folder, snapshots[-1]))), start, epoch)
        first = int(logs[0].partition(".")[0]) if logs else start
        if first > start:
            raise ToolError(f"{folder}: the log begins at {first}, snapshots end at {start}: records are missing")
        for name in logs:
            data = whole_batches(_read(os.path.join(folder, name)))
            start = self._apply((b for b in decode_batches(data) if b.last_offset >= start), start, NO_LIMIT)


class Controllers(ImageSource):
    """The quorum of a running cluster."""

    def __init__(self, servers: str, security: ClientSecurity = NO_SECURITY) -> None:
        """Follow a quorum. `servers`: `host:port,…` or voters."""
        super().__init__()
        self._security = security
        self._servers = [text.strip().rpartition("@")[2] for text in servers.split(",")]
        self._client: NodeClient | None = None
        self._epoch = 0  # Apache Kafka refuses a request without an epoch; the answer names the present one
        self._next = 0
        self._last_epoch = 0
        self.refresh()

    def close(self) -> None:
        """Close the connection. The next `refresh` connects again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def refresh(self) -> None:
        """Read the records that were committed since the last call. Raises ToolError after `TRIES_MAX` attempts."""
        import time

        failure = ToolError("the controllers name no leader")
        for attempt in range(TRIES_MAX):
            try:
                if self._fetch():
                    return
            except ToolError as e:
                self.close()
                failure = e
            if attempt > 1:
                time.sleep(TRY_PAUSE_S)
        raise failure

    def _connected(self) -> NodeClient:
        from kraft_node.cli.client import connect

        if self._client is None:
            self._client = connect(",".join(self._servers), self._security)
        return self._client

    def _fetch(self) -> bool:
        """Fetch until all committed records are here. Returns whether that succeeded."""
        from kraft_protocol.wire.messages import FetchRequest

        while True:
            row = FetchRequest.FetchPartition(
                partition=0,
                fetch_offset=self._next,
                partition_max_bytes=FETCH_BYTES,
                current_leader_epoch=self._epoch,
                last_fetched_epoch=self._last_epoch,
            )
            topic = FetchRequest.FetchTopic(topic=METADATA_TOPIC_NAME, topic_id=METADATA_TOPIC_ID, partitions=[row])
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=[topic])
            answer = self._connected().request(ApiKey.FETCH, request)
            if answer.error_code or not answer.responses:
                raise ToolError(f"{self._connected().address} refused the metadata: {error_name(answer.error_code)}")
            found = answer.responses[0].partitions[0]
            if found.error_code:
                self._follow(found, answer.node_endpoints)
                return False
            if found.snapshot_id is not None and found.snapshot_id.end_offset >= 0:
                self._fetch_snapshot(found.snapshot_id)
                continue
            if found.diverging_epoch is not None and found.diverging_epoch.end_offset >= 0:
                self._forget()
                continue
            if found.high_watermark < 0:  # a new leader does not know yet what is committed
                return False
            batches = list(decode_batches(bytes(found.records or b"")))
            before = self._next
            self._next = self._apply(batches, self._next, found.high_watermark)
            for batch in batches:
                if batch.last_offset < self._next:
                    self._last_epoch = batch.epoch
            if self._next >= found.high_watermark or self._next == before:
                return True

    def _forget(self) -> None:
        """The records read so far differ from the committed records: start again."""
        self.loader = MetadataLoader()
        self._next = self._last_epoch = 0

    def _follow(self, found: Any, endpoints: Any) -> None:
        """Connect to the leader that an answer names."""
        if found.error_code not in NOT_LEADER_CODES:
            raise ToolError(f"{self._connected().address} refused the metadata: {error_name(found.error_code)}")
        self._epoch = max(self._epoch, found.current_leader.leader_epoch)
        leader = [node for node in endpoints or () if node.node_id == found.current_leader.leader_id]
        if leader:
            where = f"{leader[0].host}:{leader[0].port}"
            if self._client is None or self._client.address != where:
                self.close()
                self._client = NodeClient(leader[0].host, leader[0].port, security=self._security)
        elif found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # The answer does not name the leader: send the request to the next controller.
            self._servers.append(self._servers.pop(0))
            self.close()

    def _fetch_snapshot(self, identity: Any) -> None:
        from kraft_protocol.wire.messages import FetchSnapshotRequest as Request

        data = b""
        while True:
            row = Request.PartitionSnapshot(
                partition=0,
                current_leader_epoch=self._epoch,
                snapshot_id=Request.SnapshotId(end_offset=identity.end_offset, epoch=identity.epoch),
                position=len(data),
            )
            topic = Request.TopicSnapshot(name=METADATA_TOPIC_NAME, partitions=[row])
            answer = self._connected().request(ApiKey.FETCH_SNAPSHOT, Request(max_bytes=FETCH_BYTES, topics=[topic]))
            found = None if answer.error_code else answer.topics[0].partitions[0]
            code = answer.error_code if found is None else found.error_code
            if found is None or code:
                raise ToolError(f"{self._connected().address} refused a snapshot: {error_name(code)}")
            part = bytes(found.unaligned_records)
            data += part
            if len(data) >= found.size or not part:
                break
        self._load(decode_batches(data), identity.end_offset, identity.epoch)
        self._next, self._last_epoch = identity.end_offset, identity.epoch
