"""The state of a quorum of controllers, by its own report."""

from __future__ import annotations

import time

from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeQuorumRequest
from tests.compat.targets import Target

WAIT_S = 300.0
ABSENT_MS = 2_000
"""A voter that has not fetched for this long counts as absent."""


def until_caught_up(active: Target) -> None:
    """Wait until all voters are present and have everything committed."""
    topics = [DescribeQuorumRequest.TopicData("__cluster_metadata", [DescribeQuorumRequest.PartitionData(0)])]
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            with NodeClient("127.0.0.1", active.controller_port) as client:
                found = client.request(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics)).topics[0].partitions[0]
        except (OSError, ToolError):
            time.sleep(0.2)
            continue
        since = time.time() * 1000 - ABSENT_MS
        others = [voter for voter in found.current_voters if voter.replica_id != found.leader_id]
        if others and all(v.log_end_offset >= found.high_watermark and v.last_fetch_timestamp > since for v in others):
            return
        time.sleep(0.2)
    raise AssertionError(f"not all caught up within {WAIT_S} s:\n{active.tail()}")
