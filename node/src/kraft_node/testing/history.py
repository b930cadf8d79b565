"""What clients of a run saw, as `histories.logs` judges it: a second opinion, which knows nothing of the simulation.

Only for runs in which nothing that acks=all acknowledged may be lost. Acknowledgements of less than all in-sync
replicas promise nothing there: their records count as ones that nobody knows of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.testing.histories.logs import Outcome, Read, Sent, judge

if TYPE_CHECKING:
    from kraft_node.testing.checker import Batch, Checker

ACKS_ALL = -1


def judge_history(checker: Checker) -> None:
    """Hand over what was sent, read and found in the end; what is broken goes to the checker's findings."""
    final = checker.final()
    sent = [record for partition in final for batch in checker.batches(partition) for record in _records(batch)]
    reads = [Read(who, at, records) for (who, at), parts in checker.reads.items() if at in final for records in parts]
    for finding in judge(sent, reads, final).findings:
        checker.broken(finding.law, finding.partition, f"in the history: {finding.text}")


def _records(batch: Batch) -> list[Sent]:
    outcome = Outcome.UNKNOWN
    if batch.acknowledged and batch.acks == ACKS_ALL:
        outcome = Outcome.ACKNOWLEDGED
    elif batch.refused and batch.attempts == 1:
        outcome = Outcome.REFUSED
    return [
        Sent(
            batch.session,
            batch.partition,
            int(value.rpartition(":")[2]),
            value,
            outcome,
            batch.offset + place if batch.offset >= 0 else -1,
            batch.idempotent,
        )
        for place, value in enumerate(batch.values)
    ]


__all__ = ["judge_history"]
