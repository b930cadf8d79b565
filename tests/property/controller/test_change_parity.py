"""Random changes of random partitions, planned by us and by Apache Kafka's own controller: the same record bytes."""

from __future__ import annotations

import random

import pytest

from kraft_node.controller.partitions.change import Election, PartitionChange
from kraft_node.metadata.features import ELR_SUPPORTED
from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.partitions import PartitionState
from kraft_node.metadata.records import decode_record, encode_record
from tests.peer import run_java
from tests.unit.controller.harness import uuid

pytestmark = pytest.mark.peer

CASES = 20_000


def directory(broker_id: int) -> bytes:
    return uuid(1000 + broker_id)


def subset(rng: random.Random, of: list[int], least: int = 0) -> list[int]:
    return rng.sample(of, rng.randint(min(least, len(of)), len(of)))


def text(values: list[int] | tuple[int, ...] | int | None) -> str:
    if values is None:
        return "-"
    return str(values) if isinstance(values, int) else ",".join(map(str, values))


def targets_of(
    rng: random.Random, change: PartitionChange, replicas: list[int], brokers: list[int]
) -> list[list[int] | int | None]:
    """Set random targets of the change. Returns ISR, replicas, removing, adding, recovery, unclean shutdowns."""
    targets: list[list[int] | int | None] = [None] * 6
    if rng.random() < 0.6:
        targets[0] = change.isr = subset(rng, replicas)
    if rng.random() < 0.3:
        targets[1] = change.replicas = subset(rng, brokers, 1)
        targets[2] = change.removing = subset(rng, change.replicas)
        targets[3] = change.adding = subset(rng, [b for b in change.replicas if b not in change.removing])
    if rng.random() < 0.3:
        targets[4] = change.recovery = rng.choice([0, 1])
    if rng.random() < 0.3:
        unclean = rng.sample(brokers, 1)
        targets[5] = unclean
        change.unclean_shutdown = frozenset(unclean)
    return targets


def case(rng: random.Random) -> tuple[PartitionChange, str]:
    """A planned change, and the same change as a line for the oracle."""
    brokers = list(range(1, 7))
    replicas = subset(rng, brokers, 1)
    level = rng.choice([7, 11, 12, 16, 17, 22, 23, 26, 30])
    elr_enabled = level >= ELR_SUPPORTED and rng.random() < 0.6
    isr = subset(rng, replicas, 0 if elr_enabled else 1)
    elr = subset(rng, [b for b in replicas if b not in isr]) if elr_enabled else []
    last_known = rng.sample(replicas, rng.choice([0, 1, 1])) if elr_enabled else []
    adding = subset(rng, replicas[1:]) if rng.random() < 0.3 else []
    removing = subset(rng, [b for b in replicas if b not in adding]) if rng.random() < 0.3 else []
    leader = rng.choice([*isr, -1]) if isr else -1
    state = PartitionState(
        tuple(replicas),
        tuple(isr),
        leader,
        5,
        7,
        tuple(directory(b) for b in replicas),  # type: ignore[arg-type]
        tuple(removing),
        tuple(adding),
        tuple(elr),
        tuple(last_known),
        rng.choice([0, 0, 0, 1]),
    )
    acceptable = subset(rng, brokers)
    min_isr = rng.randint(1, 3)
    change = PartitionChange(
        uuid(42),
        3,
        state,
        acceptable=acceptable.__contains__,
        level=level,
        elr_enabled=elr_enabled,
        min_isr=min_isr,
        directory_for=directory,  # type: ignore[arg-type]
    )
    change.election = rng.choice(list(Election))
    targets = targets_of(rng, change, replicas, brokers)
    fields = [
        level,
        int(elr_enabled),
        min_isr,
        change.election.name,
        text(acceptable),
        text(replicas),
        text(isr),
        text(removing),
        text(adding),
        text(elr),
        text(last_known),
        leader,
        state.leader_recovering,
        *map(text, targets),
    ]
    return change, ";".join(map(str, fields))


def test_changes_equal_those_planned_by_kafka() -> None:
    rng = random.Random(20)
    changes, lines = zip(*(case(rng) for _ in range(CASES)), strict=True)
    done = run_java("tests/java/PartitionChangeOracle.java", stdin="\n".join(lines).encode())
    answers = done.stdout.decode().splitlines()
    assert len(answers) == CASES, done.stderr.decode()
    differing = 0
    for change, line, answer in zip(changes, lines, answers, strict=True):
        record = change.record()
        theirs = None if answer == "-" else decode_record(bytes.fromhex(answer))
        if theirs is not None:
            # Kafka lists these in the order of a hash set.
            for name in ("eligible_leader_replicas", "last_known_elr"):
                values = getattr(theirs, name)
                setattr(theirs, name, None if values is None else sorted(values))
        leaves = {*change.state.elr, *change.state.isr}.difference(change.replicas)
        if record != theirs and change.elr_enabled and leaves:
            # Apache Kafka keeps a removed replica eligible: if it returns, it is elected without its log.
            eligible = change.state.elr if record is None else record.eligible_leader_replicas
            assert set(eligible or ()) <= set(change.replicas), line
            differing += 1
            continue
        assert record == theirs, line
        if record is not None:
            version = kind_of(record).version(change.level)
            assert decode_record(encode_record(record, version)) == record, line
    assert 0 < differing < CASES // 10
