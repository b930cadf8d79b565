"""Commits offsets of a consumer group, so that monitoring can show its lag.

The committer is not a member of the group, like a consumer that assigns its own partitions. The coordinator accepts
these offsets only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft_protocol.client import requests as m
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import BrokerError

PATIENCE_S: Final = 10.0
"""Seconds to retry a commit. This is short because the next commit supersedes it."""


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit the next offset to read, by topic and partition.

    Raises BrokerError if the coordinator refuses (UNKNOWN_MEMBER_ID: the group has members), and ClientError if no
    coordinator answers within PATIENCE_S.
    """
    if offsets:
        cluster.retried(
            f"offsets of group {group}",
            lambda: _commit(cluster, group, offsets),
            lambda: cluster.topics(()),
            seconds=min(cluster.settings.retry_s, PATIENCE_S),
        )


def _commit(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    with cluster.dropping(cluster.coordinator(group)) as connection:
        answers = m.read_offset_commit(connection.request(m.offset_commit(group, offsets)))
    for (topic, partition), error in answers.items():
        if error:
            raise BrokerError(error, f"offset of {topic}-{partition} for group {group}")
