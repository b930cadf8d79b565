"""Consumers of both protocols that do what they are told, for tests of a coordinator alone."""

from __future__ import annotations

from kraft_node.broker.coordinators.group.consumer import embedded
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import codec
from kraft_protocol.wire.stored import ConsumerProtocolSubscription
from tests.unit.coordinators.harness import Node

REBALANCE_MS = 600_000
"""No test lets so much time pass: a slow member is not removed."""


def asking(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """A subscription of version 1, with owned partitions as of the cooperative protocol."""
    row = ConsumerProtocolSubscription.TopicPartition
    rows = [row(topic=t, partitions=p) for t, p in (owned or {}).items()]
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=None, owned_partitions=rows)
    return (1).to_bytes(2, "big") + codec.encode(message, 1)


class Classic:
    """A classic consumer that obeys the coordinator."""

    def __init__(self, node: Node, instance: str | None = None, *, eager: bool = True) -> None:
        self.node = node
        self.instance = instance
        self.eager = eager
        self.member = ""
        self.generation = -1
        self.parts: dict[str, list[int]] = {}

    def join(self) -> ErrorCode:
        """Join again; an eager member has given up everything."""
        if self.eager:
            self.parts = {}
        protocols = {"range": asking("t", owned=self.parts)}
        call = self.node.join(member=self.member, instance=self.instance, protocols=protocols)
        if call.answered and call.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member = call.response.member_id
            call = self.node.join(member=self.member, instance=self.instance, protocols=protocols)
        if not call.answered:
            self.node.wait(self.node.config.initial_rebalance_delay_ms)
        if call.error is ErrorCode.NONE:
            self.member, self.generation = call.response.member_id, call.response.generation_id
        return call.error

    def sync(self, assignments: dict[str, bytes] | None = None) -> ErrorCode:
        call = self.node.sync(self.member, self.generation, assignments, instance=self.instance)
        if call.error is ErrorCode.NONE:
            self.parts = dict(embedded.read_assignment(call.response.assignment)[0])
            self.parts = {topic: sorted(numbers) for topic, numbers in self.parts.items()}
        return call.error

    def step(self) -> None:
        """A heartbeat, and what follows from it."""
        error = self.node.heartbeat(self.member, self.generation, instance=self.instance)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member, self.parts = "", {}
        if error is not ErrorCode.NONE and self.join() is ErrorCode.NONE:
            self.sync()


class Modern:
    """A consumer of the new protocol that obeys the coordinator; a slow one takes time to give partitions up."""

    def __init__(self, node: Node, member: str = "m") -> None:
        self.node = node
        self.member = member
        self.epoch = 0
        self.parts: dict[str, list[int]] = {}

    def step(self, *, slow: bool = False) -> None:
        """A heartbeat, and what follows from it; a slow member goes on to use what it must give up."""
        call = self.node.beat(self.member, self.epoch, "t", owned=self.parts, rebalance_timeout_ms=REBALANCE_MS)
        if call.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}:
            self.epoch, self.parts = 0, {}
            call = self.node.beat(self.member, 0, "t", rebalance_timeout_ms=REBALANCE_MS)
        found = self.node.assigned(call)
        self.epoch = call.response.member_epoch
        if found is not None and not (slow and set(self.parts.get("t", ())) - set(found.get("t", ()))):
            self.parts = found
