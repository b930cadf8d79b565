"""Laws of transactions inside the nodes, once the cluster is at rest and all producers have ended.

- `hanging`   no coordinator has an open or unfinished transaction, and no replica has an open one
- `aborted`   every replica gives readers the aborted transactions that are in its log
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_node.broker.coordinators.transaction.states import RESTING
from kraft_protocol.records.control import ControlType

if TYPE_CHECKING:
    from kraft_node.partition.partition import Partition
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimMachine
    from kraft_node.testing.transactions.judge import FinalLog


def replicas(machines: Iterable[SimMachine]) -> Iterator[tuple[str, Partition]]:
    """All replicas of running brokers, with the names of their machines."""
    for machine in machines:
        if machine.node is not None and machine.node.broker is not None:
            for partition in machine.node.broker.replicas.opened():
                yield machine.name, partition


def unfinished(machines: list[SimMachine]) -> str | None:
    """A transaction that has not ended; None if all have."""
    for machine in machines:
        if machine.node is None or machine.node.broker is None:
            return f"{machine.name} does not run"
        for shard in machine.node.broker.transactions.runtime.shards.values():
            if shard.phase is not Phase.ACTIVE:
                return f"{machine.name} has not loaded transactions {shard.partition}"
            for transaction in shard.machine.transactions.all():
                if transaction.values.state not in RESTING or transaction.pending is not None:
                    return f"{transaction.name} on {machine.name} is in {transaction.values.state.label}"
    for name, partition in replicas(machines):
        log = partition.log
        if log.last_stable_offset < log.high_watermark:
            where = f"{partition.topic}-{partition.index}"
            return f"{where} on {name} is stable up to {log.last_stable_offset}, committed up to {log.high_watermark}"
    return None


def judge_aborted(checker: Checker, machines: list[SimMachine], logs: dict[tuple[str, int], FinalLog]) -> None:
    """Compare what each replica knows of aborted transactions with the log."""
    for name, partition in replicas(machines):
        final = logs.get((partition.topic, partition.index))
        if final is None or final.is_compacted or final.start or partition.log.start_offset:
            continue  # a replica may have deleted more than the present leader: it led when it was cut off
        first: dict[int, int] = {}
        expected = []
        for entry in final.entries:
            if entry.marker is None and entry.is_transactional:
                first.setdefault(entry.producer_id, entry.offset)
            elif entry.marker is not None:
                begun = first.pop(entry.producer_id, None)
                if begun is not None and entry.marker is ControlType.ABORT:
                    expected.append((entry.producer_id, begun))
        log = partition.log
        found = sorted(log.aborted_transactions(log.start_offset, log.end_offset))
        if found != sorted(expected):
            text = f"{name} knows the aborted transactions {found}, its log holds {sorted(expected)}"
            checker.broken("aborted", f"{partition.topic}-{partition.index}", text)
