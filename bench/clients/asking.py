"""Requests and waits that many scenarios share, over frames that neither server's code has made."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.clients import frames
from kraft_node.cli.common import ToolError
from tests.compat.targets import Target

READY_TIMEOUT_S = 180.0
WAIT_S = 300.0
STOP_TIMEOUT_S = 300.0
NOT_YET = (3, 5, 6)
"""Unknown topic, no leader, not the leader: possible errors for a new topic."""
BOUNDED = {"retention.bytes": str(1 << 30), "segment.bytes": str(1 << 28), "file.delete.delay.ms": "10000"}
"""For minutes of load: the topic keeps one GiB, so neither disk nor page cache overflow.

Apache Kafka may still flush a segment that retention deletes: with a delay of a second the flush met the closed file,
and the directory went offline.
"""
TRIMMED_OFTEN = {"log_retention_check_interval_ms": "1000", "log_initial_task_delay_ms": "1000"}
"""For nodes with these topics: retention runs every second from the start (Kafka's default first run: half a
minute)."""


def until(what: str, question: Callable[[], Any], pause_s: float = 0.002, limit_s: float = WAIT_S) -> Any:
    """Repeat `question` until its answer is true, and return it; connection and server errors count as no answer."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            answer = question()
        except (OSError, ToolError, AssertionError):
            answer = None
        if answer:
            return answer
        time.sleep(pause_s)
    raise AssertionError(f"not within {limit_s} s: {what}")


def until_produced(target: Target, topic: str, begun: float, partition: int = 0) -> float:
    """Seconds from `begun` until a produce to the topic (created if missing) is acknowledged."""
    request = frames.produce(topic, partition, frames.batch(1, 100))
    while time.monotonic() - begun < READY_TIMEOUT_S:
        try:
            wire = frames.Wire(target.port, 30)
        except OSError:
            time.sleep(0.002)
            continue
        try:
            while time.monotonic() - begun < READY_TIMEOUT_S:
                wire.ask(frames.metadata([topic], create=True))
                if frames.produce_error(wire.ask(request)) == 0:
                    return time.monotonic() - begun
                time.sleep(0.002)
        except OSError:
            time.sleep(0.002)
        finally:
            wire.close()
    raise AssertionError(f"{target.name}: no produce within {READY_TIMEOUT_S} s\n{target.tail()}")


def ask_once(target: Target, request: bytes) -> bytes:
    """The response to one frame, over a separate connection."""
    wire = frames.Wire(target.port)
    try:
        return wire.ask(request)
    finally:
        wire.close()


def create(target: Target, names: list[str], partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Create topics. Raises AssertionError if one is refused."""
    errors = set(frames.create_errors(ask_once(target, frames.create_topics(names, partitions, configs))))
    assert errors == {0}, f"CreateTopics: {errors}"


def until_accepted(target: Target, request: bytes, what: str) -> None:
    """Send a produce request until the server accepts it."""
    refused = frames.produce_error(ask_once(target, request))
    deadline = time.monotonic() + READY_TIMEOUT_S
    while refused in NOT_YET and time.monotonic() < deadline:
        time.sleep(0.05)
        refused = frames.produce_error(ask_once(target, request))
    assert refused == 0, f"{what}: error {refused}"


def end_offset(target: Target, topic: str, partition: int = 0) -> int:
    """The end of a partition's log. Raises AssertionError if the server refuses."""
    error, offset = frames.listed_offset(ask_once(target, frames.list_offsets(topic, partition)))
    assert error == 0, f"ListOffsets of {topic}-{partition}: error {error}"
    return offset


def until_coordinated(target: Target, key: str, kind: int) -> None:
    """Wait until the group or transactional id has a coordinator; its internal topic is made at the first request."""
    request = frames.find_coordinator(key, kind)
    until(f"a coordinator of {key}", lambda: frames.coordinator_error(ask_once(target, request)) == 0, 0.05)


def producer_id(wire: frames.Wire, transactional_id: str | None) -> frames.Producer:
    """A new producer id, or the transactional id's with a new epoch."""

    def allocated() -> frames.Producer | None:
        error, producer = frames.given_producer(wire.ask(frames.init_producer_id(transactional_id)))
        return producer if error == 0 else None

    found: frames.Producer = until(f"a producer id for {transactional_id}", allocated, 0.05)
    return found


def begin(wire: frames.Wire, transactional_id: str, producer: frames.Producer, topic: str, partition: int) -> None:
    """Add a partition to the producer's transaction."""
    error = frames.added_error(wire.ask(frames.add_partition(transactional_id, producer, topic, partition)))
    assert error == 0, f"AddPartitionsToTxn: error {error}"


def commit(wire: frames.Wire, transactional_id: str, producer: frames.Producer) -> None:
    """Commit the producer's transaction."""
    error = frames.ended_error(wire.ask(frames.end_transaction(transactional_id, producer)))
    assert error == 0, f"EndTxn: error {error}"


def spawn(target: Target) -> subprocess.Popen[bytes]:
    """Start the process without waiting."""
    with target.log.open("ab") as log:
        target.process = subprocess.Popen(
            target._command("server", str(target.properties())), stdout=log, stderr=log, env=target._env()
        )
    return target.process


def stop(target: Target) -> None:
    """Stop cleanly, with a longer time limit than in tests: after many topics a stop takes a while."""
    process = target.process
    assert process is not None
    process.terminate()
    process.wait(STOP_TIMEOUT_S)
    target.process = None
