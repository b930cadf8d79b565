"""The judgement of a soak: what is lost, repeated, or grows is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.cluster import Cluster
from tests.soak.reading import Latencies, Sequences
from tests.soak.report import Result, draw, judge
from tests.soak.samples import LatencySample, NodeSample, Sampler

MIB = 2**20


def record(producer: str, sequence: int) -> bytes:
    return f"{producer} {sequence} xxx".encode()


def test_a_lost_and_a_repeated_record_are_found() -> None:
    sequences = Sequences("group")
    for offset, sequence in enumerate([0, 1, 3, 4, 4]):
        assert sequences.take(0, offset, record("p0", sequence))
    assert [finding.split(":")[0] for finding in sequences.findings] == ["lost", "repeated"]


def test_records_read_again_after_a_rebalance_are_counted_once() -> None:
    sequences = Sequences("group")
    for offset in (0, 1, 2, 1, 2, 3):
        sequences.take(2, offset, record("p0", offset))
    assert (sequences.read, sequences.read_again, sequences.findings) == (4, 2, [])


def test_records_that_nobody_read_are_missing() -> None:
    sequences = Sequences("group")
    sequences.take(0, 0, record("p0", 0))
    assert sequences.missing({("p0", 0): 1}) == []
    assert sequences.missing({("p0", 0): 2, ("p1", 3): 1}) == [
        "not read: group: p0 in partition 0: 1 of 2",
        "not read: group: p1 in partition 3: 0 of 1",
    ]


def test_latencies_are_forgotten_when_they_are_taken() -> None:
    latencies = Latencies()
    for value in range(1, 101):
        latencies.add(float(value))
    assert latencies.taken() == (100, 51.0, 100.0, 100.0)
    assert latencies.taken() == (0, 0.0, 0.0, 0.0)


class Samples(Sampler):
    """Three lives of one node, each of ten minutes; `memory` of each at its end."""

    def __init__(self, memory: list[float], descriptors: list[int]) -> None:
        self.nodes = [
            NodeSample(
                600.0 * life + at, 101, life, int(MIB * memory[life] * (0.5 + at / 1160)), descriptors[life], at, 0
            )
            for life in range(len(memory))
            for at in range(0, 590, 10)
        ]
        self.latencies = [LatencySample(float(at), "acknowledged", 1, 1.0, 5.0, 9.0) for at in range(0, 1800, 60)]
        self.rolls = [(600.0, 620.0), (1200.0, 1220.0)]
        self.failure = None


@pytest.mark.parametrize(
    ("memory", "descriptors", "found"),
    [
        ([30, 40, 42], [100, 120, 125], []),
        ([30, 40, 60], [100, 120, 125], ["memory"]),
        ([30, 40, 42], [100, 120, 300], ["descriptors"]),
        ([10, 11, 17], [20, 20, 30], []),
    ],
    ids=["flat", "memory", "descriptors", "within the slack"],
)
def test_growth_from_life_to_life_is_found(
    memory: list[float], descriptors: list[int], found: list[str], tmp_path: Path
) -> None:
    result, sampler = Result(30.0), Samples(memory, descriptors)
    judge(result, sampler)
    assert [finding.split()[1] for finding in result.findings] == found
    assert result.latencies == [("acknowledged", 5.0, 5.0)]
    draw(sampler, tmp_path / "soak.svg")
    assert (tmp_path / "soak.svg").read_text().count("<svg") == 1


class Unreadable(Cluster):
    """A cluster whose status cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pids(self) -> dict[int, int]:
        raise ValueError("half a file")


def test_a_run_whose_samples_end_early_is_not_good(tmp_path: Path) -> None:
    sampler = Sampler(Unreadable(tmp_path), {}, 0.0)
    sampler.sample_until(lambda: False)
    result = Result(30.0)
    judge(result, sampler)
    assert result.findings == ["not sampled: ValueError('half a file')"]


def test_growth_is_not_judged_by_fewer_than_three_lives() -> None:
    result = Result(30.0)
    judge(result, Samples([30, 90], [100, 120]))
    assert result.growth == []
    assert "growth is not judged" in result.text()
