"""The law `visible`: acks=all acknowledges no record at or beyond the high watermark of the broker that answers.

A consumer of the broker would not see the record yet. The high watermark of a process never goes back, so it is read
when the response arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster, SimMachine


class RequestedProcess(NamedTuple):
    """The process that runs on a machine when a client sends a request to it."""

    machine: SimMachine
    process: int


class AcksLaw:
    """Judges the responses that a client receives."""

    def __init__(self, cluster: SimCluster, checker: Checker) -> None:
        self._cluster = cluster
        self._checker = checker

    def process_of(self, node_id: int) -> RequestedProcess:
        """Note the process that a request is about to be sent to."""
        machine = self._broker(node_id)
        return RequestedProcess(machine, machine.starts)

    def leads(self, node_id: int, partition: tuple[str, int]) -> bool:
        """Whether the broker leads the partition now, as far as it knows."""
        node = self._broker(node_id).node
        opened = () if node is None or node.broker is None else node.broker.replicas.opened()
        return any(replica.is_leader for replica in opened if (replica.topic, replica.index) == partition)

    def _broker(self, node_id: int) -> SimMachine:
        """The machine of a broker; clusters may get more of them during a run."""
        return next(machine for machine in self._cluster.brokers if machine.config.node_id == node_id)

    def acknowledged(self, asked: RequestedProcess, partition: tuple[str, int], end: int) -> None:
        """Check a response that acknowledges the records below `end`, unless the process has ended since."""
        machine = asked.machine
        if machine.node is None or machine.node.broker is None or machine.starts != asked.process:
            return
        for replica in machine.node.broker.replicas.opened():
            if (replica.topic, replica.index) != partition or not (replica.is_leader or replica.decides_alone):
                continue  # a follower may have been removed since, and have come back with an empty log
            if replica.log.high_watermark < end:
                text = f"{machine.name} has acknowledged records below {end}, its high watermark is"
                self._checker.broken("visible", partition, f"{text} {replica.log.high_watermark}")
