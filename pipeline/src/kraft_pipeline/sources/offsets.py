"""Resolves options to partitions, and to the start and end offset of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kraft_pipeline.sources.options import Bound, Options
from kraft_pipeline.sources.positions import Key, Offsets, Position, position
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import BrokerError, ClientError
from kraft_protocol.client.requests import EARLIEST, LATEST
from kraft_protocol.errors import ErrorCode


def partitions(cluster: Cluster, options: Options, *, may_miss: bool = False) -> list[tuple[str, int]]:
    """The partitions to read, sorted.

    Raises BrokerError if a named topic or partition does not exist, unless `may_miss`.
    """
    if options.pattern is not None:
        topics = cluster.topics()
        # As with a consumer's pattern, the whole name must match, and internal topics are excluded.
        names = [n for n, info in topics.items() if re.fullmatch(options.pattern, n) and not info.is_internal]
        return sorted((name, p) for name in names for p in topics[name].partitions)
    wanted = set(options.topics or ()) | {topic for topic, _ in options.assigned or ()}
    topics = cluster.topics(wanted)
    for topic in sorted(wanted):
        if topic not in topics and not may_miss:
            raise BrokerError(3, f"topic {topic}")
    if options.assigned is None:
        return sorted((name, p) for name, info in topics.items() for p in info.partitions)
    there = [(t, p) for t, p in options.assigned if t in topics and p in topics[t].partitions]
    for topic, partition in () if may_miss else options.assigned:
        if (topic, partition) not in there:
            raise BrokerError(3, f"partition {topic}-{partition}")
    return there


def starting(cluster: Cluster, options: Options) -> Offsets:
    """The start offset of each partition. For a time after the last record, raises ClientError or starts at the end."""
    found = _resolve(cluster, options, options.starting, "startingOffsets")
    late = [key for key, offset in found.items() if offset < 0]
    if late and not options.latest_where_no_time:
        topic, partition = late[0]
        raise ClientError(
            f"startingTimestamp: {topic}-{partition} has no record as late "
            "(startingOffsetsByTimestampStrategy=latest starts at its end)"
        )
    return {**found, **_ends(cluster, options, late)}


def ending(cluster: Cluster, options: Options) -> Offsets:
    """The end offset of each partition; a time after the last record means the partition's end."""
    found = _resolve(cluster, options, options.ending, "endingOffsets")
    return {**found, **_ends(cluster, options, [key for key, offset in found.items() if offset < 0])}


AWAY_S: Final = 5.0
"""Seconds to wait for partitions without a leader; after that the others are read without them."""


def latest(
    cluster: Cluster,
    options: Options,
    then: Position | None = None,
    *,
    grace_s: float | None = AWAY_S,
) -> Position:
    """The end of each partition for a stream of this isolation level. Without failOnDataLoss, topics may be missing.

    `then`: the reader's position. If one of its topics is missing or has another id, all brokers get the request.
    While any broker still has the topic, the metadata of the others is stale, and the call waits. If the leader of a
    partition does not answer within `grace_s`, the partition keeps its offset of `then`, so the others need not wait.
    None waits for all.
    """

    def listed() -> list[Key]:
        return partitions(cluster, options, may_miss=not options.fail_on_data_loss)

    def agreed() -> list[Key]:
        found = listed()
        behind = _behind(cluster, then, found)
        if behind is not None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {behind}: the metadata of a broker is behind")
        return found

    keys = listed()
    if _behind(cluster, then, keys) is not None:
        keys = cluster.retried("topics", agreed)
    wanted = dict.fromkeys(keys, LATEST)
    grace = None if then is None else grace_s
    found = cluster.offsets_with_epochs(wanted, committed=options.committed, grace_s=grace) if keys else {}
    ends = {key: answer.offset for key, answer in found.items()}
    epochs = {key: answer.epoch for key, answer in found.items() if answer.epoch >= 0}
    if then is not None:
        away = then.offsets.keys() & (set(keys) - set(found))
        ends |= {key: then.offsets[key] for key in away}
        epochs |= {key: then.epochs[key] for key in away if key in then.epochs}
    return position(cluster, ends, epochs)


def _behind(cluster: Cluster, then: Position | None, keys: Sequence[Key]) -> str | None:
    """A topic of the reader that `keys` lack although some broker has it; None if `keys` lack no topic."""
    if then is None or (then.cluster and cluster.cluster_id and then.cluster != cluster.cluster_id):
        return None
    ids = {name: cluster.topic(name).id.hex() for name in {topic for topic, _ in keys}}
    asked = {topic for topic, _ in set(then.offsets) - set(keys)}
    asked |= {topic for topic, former_id in then.topics.items() if ids.get(topic, former_id) != former_id}
    for topic, there in sorted(cluster.topic_ids(asked).items()) if asked else ():
        former_id = then.topics.get(topic)
        if bool(there) if former_id is None else bytes.fromhex(former_id) in there:
            return topic  # topics never lose partitions, and a new topic has a new id
    return None


def earliest(cluster: Cluster, keys: list[tuple[str, int]]) -> Offsets:
    """The first offset of each partition."""
    return cluster.offsets(dict.fromkeys(keys, EARLIEST)) if keys else {}


def _ends(cluster: Cluster, options: Options, keys: list[tuple[str, int]]) -> Offsets:
    return cluster.offsets(dict.fromkeys(keys, LATEST), committed=options.committed) if keys else {}


def _resolve(cluster: Cluster, options: Options, bound: Bound, name: str) -> Offsets:
    keys = partitions(cluster, options)
    if bound.everywhere is not None:
        questions = dict.fromkeys(keys, bound.everywhere)
    elif bound.timestamp_ms is not None:
        questions = dict.fromkeys(keys, bound.timestamp_ms)
    else:
        given = bound.offsets or bound.timestamps_ms
        if set(given) != set(keys):
            strange, by = min(set(given) ^ set(keys)), "" if bound.offsets else "ByTimestamp"
            what = "is not read" if strange in given else "is missing there"
            raise ValueError(f"option {name}{by}: {strange[0]}-{strange[1]} {what}")
        if bound.offsets:
            known = {key: offset for key, offset in given.items() if offset >= 0}
            asked = {key: offset for key, offset in given.items() if offset < 0}
            return {**known, **(cluster.offsets(asked, committed=options.committed) if asked else {})}
        questions = dict(given)
    return cluster.offsets(questions, committed=options.committed) if questions else {}
