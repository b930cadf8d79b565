"""The distribution of a state's replicas, leaders and bytes over brokers and racks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from kraft_pipeline.archive.state import ClusterState


class Load(NamedTuple):
    """The load of a broker or a rack."""

    name: str
    rack: str
    fenced: bool
    replicas: int
    leaders: int
    preferred_leaders: int
    """Partitions with this broker as the preferred leader."""
    out_of_sync: int
    """Replicas that are in no ISR."""
    bytes: int | None
    """Bytes; None if sizes are unknown."""


class Skew(NamedTuple):
    """Load of all brokers, including brokers without a replica."""

    brokers: list[Load]
    racks: list[Load]
    replicas_ratio: float
    """Maximum divided by average; 1 is even."""
    leaders_ratio: float
    not_preferred: int
    """Partitions that are not led by their preferred leader."""

    def to_json(self) -> dict[str, Any]:
        """The distribution as JSON values."""
        named = {"brokers": [b._asdict() for b in self.brokers], "racks": [r._asdict() for r in self.racks]}
        return {**self._asdict(), **named}


def skew(state: ClusterState, sizes: Mapping[tuple[str, int], int] | None = None) -> Skew:
    """The load of each broker. `sizes` has the bytes of partitions, if known."""
    rows = state.partitions
    replicas = rows.column("replicas").combine_chunks()
    flat = replicas.flatten().to_numpy()
    lengths = pc.list_value_length(replicas).to_numpy()
    leaders = rows.column("leader").to_numpy()
    first = flat[replicas.offsets.to_numpy()[:-1][lengths > 0] - replicas.offsets.to_numpy()[0]]
    in_sync = rows.column("isr").combine_chunks().flatten().to_numpy()
    weights = np.zeros(len(flat), np.int64)
    if sizes:
        keys = zip(rows.column("topic").to_pylist(), rows.column("partition").to_pylist(), strict=True)
        weights = np.repeat(np.array([sizes.get(key, 0) for key in keys], np.int64), lengths)
    known = state.small.brokers
    numbers = sorted({*known, *np.unique(flat).tolist()})
    counts = {
        "replicas": _counts(flat),
        "leaders": _counts(leaders[leaders >= 0]),
        "preferred_leaders": _counts(first),
        "in_sync": _counts(in_sync),
    }
    bytes_ = np.bincount(flat, weights, minlength=1) if len(flat) else np.zeros(1)
    brokers = []
    for number in numbers:
        each = {name: int(found.get(number, 0)) for name, found in counts.items()}
        brokers.append(
            Load(
                str(number),
                (known[number]["rack"] or "") if number in known else "",
                known[number]["fenced"] if number in known else True,
                each["replicas"],
                each["leaders"],
                each["preferred_leaders"],
                each["replicas"] - each["in_sync"],
                None if sizes is None else int(bytes_[number]) if number < len(bytes_) else 0,
            )
        )
    wrong = int((leaders[lengths > 0] != first).sum())
    ratios = (_ratio([b.replicas for b in brokers]), _ratio([b.leaders for b in brokers]))
    return Skew(brokers, _racks(brokers), *ratios, wrong)


def _counts(brokers: NDArray[np.int32]) -> dict[int, int]:
    numbers, counts = np.unique(brokers, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _ratio(values: list[int]) -> float:
    total = sum(values)
    return round(max(values) * len(values) / total, 3) if total else 1.0


def _racks(brokers: list[Load]) -> list[Load]:
    found: dict[str, Load] = {}
    for b in brokers:
        if b.rack:
            old = found.get(b.rack, Load(b.rack, b.rack, False, 0, 0, 0, 0, 0))
            found[b.rack] = Load(
                b.rack,
                b.rack,
                False,
                old.replicas + b.replicas,
                old.leaders + b.leaders,
                old.preferred_leaders + b.preferred_leaders,
                old.out_of_sync + b.out_of_sync,
                None if b.bytes is None or old.bytes is None else old.bytes + b.bytes,
            )
    return [found[rack] for rack in sorted(found)]
