"""Reads replicas from their brokers, for disks that cannot be accessed.

A broker answers a consumer's Fetch for any of its replicas (KIP-392), up to the high watermark that it knows. Brokers
do not check batches when they send them, so damage on disk arrives unchanged.
"""

from __future__ import annotations

import fnmatch
import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kraft_pipeline.scrub import findings as kinds
from kraft_pipeline.scrub.compare import POSITION
from kraft_pipeline.scrub.job import DIGESTS, NOT_BEHIND, REPLICAS_DDL, finding, findings_of, pieces
from kraft_pipeline.scrub.scanner import FIELDS, BufferSource, Damage, Scanner
from kraft_protocol.client import requests as m
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.errors import GONE, OFFSET_OUT_OF_RANGE, BrokerError, ClientError

T = TypeVar("T")
FETCH_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 500
LAG_S: Final = 30.0
"""Seconds until a replica in the ISR must know the high watermark of the plan: after that, leaders remove it."""
LOOK_S: Final = 0.1
_COMPACT: Final = "compact"
REPLICA_DDL: Final = (
    "topic string, partition int, topic_id binary, broker int, directory string, segment string, base bigint, "
    f"high bigint, compacted boolean, replicas {REPLICAS_DDL}"
)
"""One row per replica; `directory` is the broker's address, and `segment` is empty."""
PLACES: Final = {
    part.split()[0]: place for place, part in enumerate(REPLICA_DDL.partition(", replicas")[0].split(", "))
}
TASK_OFFSETS: Final = 256 * 1024
"""Offsets of a task with several replicas: a second or two at 1 KB a record. The bytes of a replica are not known."""


def plan(settings: Settings, topics: Sequence[str]) -> list[tuple[Any, ...]]:
    """The replicas of the topics with names that match any of the patterns (`*` and `?`), as rows of REPLICA_DDL.

    Topics that are deleted meanwhile are left out. Raises ClientError if the cluster cannot be reached.
    """
    with Cluster(settings) as cluster:
        while True:
            there = cluster.topics()
            wanted = {name: there[name] for name in sorted(there) if any(fnmatch.fnmatchcase(name, t) for t in topics)}
            try:
                return _rows(cluster, wanted)
            except ClientError:
                known = cluster.topic_ids(list(wanted))
                if all(topic.id in known[name] for name, topic in wanted.items()):
                    raise


def _rows(cluster: Cluster, wanted: Mapping[str, m.TopicInfo]) -> list[tuple[Any, ...]]:
    rows = []
    policies = cluster.config(list(wanted), "cleanup.policy") if wanted else {}
    keys = [(name, number) for name, topic in wanted.items() for number in topic.partitions]
    highs = cluster.offsets(dict.fromkeys(keys, m.LATEST))
    starts = cluster.offsets(dict.fromkeys(keys, m.EARLIEST))
    for name, number in keys:
        start, high = starts[name, number], highs[name, number]
        there = [(node, cluster.address(node)) for node in wanted[name].partitions[number].replicas]
        others = [(node, address, start, high) for node, address in there]
        for node, address in there:
            row = (name, number, wanted[name].id, node, address, "", start, high)
            rows.append((*row, _COMPACT in policies[name], others))
    return rows


def replicas(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    """The rows of `plan` as a DataFrame; a task reads several small replicas, or a large one."""
    tasks = tasks_of([row[PLACES["high"]] - row[PLACES["base"]] for row in rows], spark.sparkContext.defaultParallelism)
    numbered = [(*row, task) for row, task in zip(rows, tasks, strict=True)]
    frame = spark.createDataFrame(numbered, f"{REPLICA_DDL}, task int")
    return frame.repartitionById(max(tasks, default=0) + 1, frame.task).drop("task")


def tasks_of(offsets: Sequence[int], parallelism: int) -> list[int]:
    """The number of each replica's task, by its number of offsets. The tasks are about equally large.

    TASK_OFFSETS determines the number of tasks. It is at least `parallelism`, if enough replicas exist.
    """
    if not offsets:
        return []
    count = min(len(offsets), max(parallelism, -(-sum(offsets) // TASK_OFFSETS)))
    loads = [(0, task) for task in range(count)]
    found = [0] * len(offsets)
    for place in sorted(range(len(offsets)), key=lambda place: -offsets[place]):
        load, task = heapq.heappop(loads)
        found[place] = task
        # An empty replica costs a request, too.
        heapq.heappush(loads, (load + max(1, offsets[place]), task))
    return found


def digests(replicas: DataFrame, settings: Settings) -> DataFrame:
    """Fetch and check each replica alone. Returns rows in job.DIGEST_SCHEMA."""

    def scan_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Cluster(settings) as cluster:
            for batch in batches:
                for row in batch.to_pylist():
                    yield from pieces(row, *_scan_replica(cluster, row))

    return replicas.mapInArrow(scan_all, DIGESTS)


def _scan_replica(cluster: Cluster, row: dict[str, Any]) -> tuple[Any, list[kinds.Finding], int, int, int]:
    """As `job._scan_segment`, for all offsets of a replica, and the first offset that it lacks outside of the ISR."""
    scanner = Scanner(expected=row["base"], compacted=row["compacted"], high_watermark=0)
    at = total = gone = 0
    until = time.monotonic() + LAG_S
    try:
        at = row["base"]
        while at < row["high"]:
            try:
                answer = _fetch(cluster, row, at)
            except BrokerError as e:
                start = _start(cluster, row) if e.code == OFFSET_OUT_OF_RANGE else at
                if start <= at:
                    raise
                at = gone = scanner.expected = start  # retention has deleted the offsets before
                continue
            scanner.scan(BufferSource(answer.records), may_end_early=True)
            total += len(answer.records)
            # After a damaged batch at the end no offset is expected, so its own header is the best known source.
            after = max(scanner.expected, scanner.last + 1)
            if after <= at:
                if not _is_in_sync(cluster, row):
                    return *_done(scanner, row, total, None), row["high"], at
                if answer.high_watermark <= at and time.monotonic() < until:
                    time.sleep(LOOK_S)
                    continue
                cut = f"no complete batch arrives at offset {at}, high watermark {answer.high_watermark}"
                return *_done(scanner, row, total, Damage(kinds.CUT, -1, at, row["high"] - 1, cut)), gone, NOT_BEHIND
            at, until = after, time.monotonic() + LAG_S
    except _DeletedError:
        gone = row["high"]
    except (ClientError, OSError) as e:
        # A broker that is down, or whose replica is damaged, says nothing about the records: only a missing one may be.
        if isinstance(e, _AbsentError) and not _is_in_sync(cluster, row):
            return *_done(scanner, row, total, None), row["high"], at
        unreadable = Damage(kinds.UNREADABLE, -1, at, row["high"] - 1, str(e))
        return *_done(scanner, row, total, unreadable), gone, NOT_BEHIND
    return *_done(scanner, row, total, None), gone, NOT_BEHIND


def _is_in_sync(cluster: Cluster, row: dict[str, Any]) -> bool:
    """Whether the broker must have all records up to the high watermark.

    A broker outside of the ISR need not: it still copies them, or the replica has moved. If no broker answers, the
    result is True.
    """
    try:
        topic = cluster.topics([row["topic"]]).get(row["topic"])
    except (ClientError, OSError):
        return True
    partition = None if topic is None or topic.id != row["topic_id"] else topic.partitions.get(row["partition"])
    return partition is None or row["broker"] in partition.in_sync


def _done(
    scanner: Scanner, row: dict[str, Any], total: int, end: Damage | None
) -> tuple[Any, list[kinds.Finding], int]:
    """Fetched batches have no position in a file."""
    found = [f._replace(position=-1, bits=[]) for f in findings_of(row, scanner)]
    rows = scanner.digests() if total else np.empty((0, len(FIELDS)), np.int64)
    rows[:, POSITION] = -1
    return rows, found + ([finding(row, end, [])] if end is not None else []), total


class _AbsentError(ClientError):
    """The broker answers that it does not have the replica."""


class _DeletedError(Exception):
    """The topic has been deleted since the plan. Every broker has answered so."""


def _start(cluster: Cluster, row: dict[str, Any]) -> int:
    """The first offset of this replica: retention may trim a follower before its leader. Raises as `_fetch`."""
    key = (row["topic"], row["partition"])
    body = m.list_offsets({key: m.EARLIEST}, committed=False, from_follower=True)

    def attempt() -> int:
        with cluster.dropping(cluster.connection(row["broker"])) as connection:
            answer = m.read_list_offsets(connection.request(body))[key]
        return _checked(row, answer.error, answer.offset)

    return _retried(cluster, row, attempt)


def _fetch(cluster: Cluster, row: dict[str, Any], at: int) -> m.FetchAnswer:
    """Fetch from this broker, with retries while it may be restarting. Raises ClientError, and _DeletedError."""
    body = m.fetch(row["topic_id"], row["partition"], at, FETCH_BYTES, max_wait_ms=MAX_WAIT_MS, committed=False)

    def attempt() -> m.FetchAnswer:
        with cluster.dropping(cluster.connection(row["broker"])) as connection:
            answer = m.read_fetch(connection.request(body))
        return _checked(row, answer.error, answer)

    return _retried(cluster, row, attempt)


def _checked(row: dict[str, Any], error: int, answer: T) -> T:
    if error:
        raise BrokerError(error, f"{row['topic']}-{row['partition']} of broker {row['broker']}")
    return answer


def _retried(cluster: Cluster, row: dict[str, Any], attempt: Callable[[], T]) -> T:
    """As `Cluster.retried`. A broker may lack a topic because its metadata is behind, so all brokers are asked."""
    is_absent = False

    def observed() -> T:
        nonlocal is_absent
        is_absent = False
        try:
            return attempt()
        except BrokerError as e:
            is_absent = e.code in GONE
            raise

    def mend() -> None:
        cluster.topics()
        if is_absent and row["topic_id"] not in cluster.topic_ids([row["topic"]])[row["topic"]]:
            raise _DeletedError

    try:
        return cluster.retried("fetch", observed, mend)
    except ClientError as e:
        if is_absent:
            raise _AbsentError(str(e)) from e
        raise
