"""Compares a repeated batch with its first attempt, after the writer died between dead letters and rows.

The dead letters are committed before the rows, together with the number of rows of each partition. The repeated batch
skips records that are dead letters already, even if they could be rows now. Each stays a dead letter once and never
becomes a row as well. A record that was a row but cannot be a row now becomes a dead letter of the same batch. All
other differences are losses: the log no longer has the same records.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.sources.positions import Key, Loss, Offsets
from kraft_pipeline.tables.engines.plans import Plan
from kraft_pipeline.tables.engines.tasks import Result
from kraft_pipeline.tables.stores.committer import Committer
from kraft_pipeline.tables.stores.storage import Storage
from kraft_protocol.client.fetch import Range

PLACE: Final = ("topic", "partition", "offset", "batch")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FirstAttempt:
    """The rows and dead letters that the first attempt of a batch committed."""

    dead: Mapping[Key, np.ndarray] = field(default_factory=dict)
    """Sorted offsets of its dead letters by partition."""
    rows: Offsets = field(default_factory=dict)
    """Number of rows by partition; empty if an earlier release wrote it."""

    @classmethod
    def of(cls, plan: Plan, number: int, dead: Committer, storage: Storage, app: str) -> FirstAttempt:
        """Read the record of a batch that is repeated. Raises OSError."""
        assert plan.again and plan.dead.position is not None
        found: dict[Key, list[np.ndarray]] = {}
        for file in dead.live():
            if _may_hold(file.path.rpartition("/")[2], app, number):
                with storage.open(file.path) as source:
                    rows = pq.read_table(source, columns=list(PLACE))
                for key, offsets in _places(rows.filter(pc.equal(rows.column("batch"), number))):
                    # The table also has dead letters of other writers with the same batch numbers.
                    first, last = plan.start.get(key, 0), plan.end.offsets.get(key, 0)
                    found.setdefault(key, []).append(offsets[(offsets >= first) & (offsets < last)])
        merged = {key: np.unique(np.concatenate(parts)) for key, parts in found.items()}
        return cls({key: offsets for key, offsets in merged.items() if len(offsets)}, plan.dead.position.rows)

    def differences(self, plan: Plan, number: int, now: Counts) -> list[Loss]:
        """The partitions that have more or fewer records than in the first attempt, as losses."""
        lost = []
        for key, then in sorted(self.rows.items()):
            rows, dead, before = now.rows.get(key, 0), now.dead.get(key, 0), len(self.dead.get(key, ()))
            counts = (
                f"the first attempt of batch {number} made {then} rows and {before} dead letters of them, "
                f"this one makes {rows} rows and {before + dead} dead letters"
            )
            if then != rows + dead and key not in plan.cut:
                mark = f"batch {number} {plan.start[key]} {then} {rows + dead}"
                lost.append(Loss(*key, plan.start[key], plan.end.offsets[key], counts, mark))
            elif dead:
                _LOG.warning("%s-%d: %s; the specification or a schema has changed since", *key, counts)
        return lost


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one attempt by partition: rows, and dead letters that were not committed before."""

    rows: Offsets
    dead: Offsets

    @classmethod
    def of(cls, pieces: Sequence[Range], results: Sequence[Result]) -> Counts:
        """Sum the results of the tasks."""
        rows: Offsets = {}
        dead: Offsets = {}
        for piece, result in zip(pieces, results, strict=True):
            key = piece.topic, piece.partition
            rows[key] = rows.get(key, 0) + result.rows
            dead[key] = dead.get(key, 0) + result.dead
        return cls(rows, dead)


def _may_hold(name: str, app: str, number: int) -> bool:
    """Whether a file may have dead letters of the batch. Names of merged files do not show their batches."""
    found = re.match(r"(.+)-e\d{10}-b(\d{8,})-", name)
    return found is None or (found[1], int(found[2])) == (app, number)


def _places(rows: pa.Table) -> list[tuple[Key, np.ndarray]]:
    """The offsets by topic and partition."""
    found = []
    topics = rows.column("topic").cast(pa.string())
    for topic in pc.unique(topics).to_pylist():
        of_topic = rows.filter(pc.equal(topics, topic))
        partitions = of_topic.column("partition").to_numpy()
        offsets = of_topic.column("offset").to_numpy()
        found += [((topic, int(p)), offsets[partitions == p]) for p in np.unique(partitions)]
    return found
