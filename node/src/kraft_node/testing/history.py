"""A second verdict on a run's client observations, by `histories.logs`, which does not know the simulation.

Only for runs in which no record acknowledged with acks=all may be lost. In these runs, weaker acknowledgements promise
nothing, so their records count as records with unknown outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.testing.histories.logs import Read, RecordOutcome, Sent, judge

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker, ProducedBatch

ACKS_ALL = -1


def judge_history(checker: Checker) -> None:
    """Judge the records that were sent, read and finally found; violations become findings of the checker."""
    final = checker.final()
    sent = [record for partition in final for batch in checker.batches(partition) for record in _records(batch)]
    reads = [Read(who, at, records) for (who, at), parts in checker.reads.items() if at in final for records in parts]
    for finding in judge(sent, reads, final).findings:
        checker.broken(finding.law, finding.partition, f"in the history: {finding.text}")


def _records(batch: ProducedBatch) -> list[Sent]:
    outcome = RecordOutcome.UNKNOWN
    if batch.acknowledged and batch.acks == ACKS_ALL:
        outcome = RecordOutcome.ACKNOWLEDGED
    elif batch.refused and batch.attempts == 1:
        outcome = RecordOutcome.REFUSED
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
