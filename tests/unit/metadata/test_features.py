"""The feature tables against Apache Kafka's own, and the names of versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_node.metadata import features as f
from kraft_node.metadata.kinds import kind_of
from kraft_protocol.wire import stored
from tests.peer import run_java

GATES = (
    f.SCRAM_SUPPORTED,
    f.METADATA_TRANSACTIONS_SUPPORTED,
    f.DELEGATION_TOKENS_SUPPORTED,
    f.CONTROLLER_REGISTRATION_SUPPORTED,
    f.DIRECTORY_ASSIGNMENT_SUPPORTED,
    f.ELR_SUPPORTED,
    f.MIGRATION_SUPPORTED,
    f.CORDONED_LOG_DIRS_SUPPORTED,
    f.NO_LEADER_EPOCH_BUMP_ON_ISR_SHRINK,
)


def ours() -> set[str]:
    lines = set()
    for version in f.METADATA_VERSIONS:
        level = version.level
        kinds = [stored.RegisterBrokerRecord(), stored.PartitionRecord(), stored.PartitionChangeRecord()]
        records = [kind_of(record).version(level) for record in kinds]
        numbers = [*records, f.fetch_version(level), f.list_offsets_version(level)]
        gates = [str(level >= gate).lower() for gate in GATES]
        lines.add(" ".join(["level", str(level), version.name, str(version.did_metadata_change).lower()]
                           + [str(number) for number in numbers] + gates))  # fmt: skip
    for name, (low, high) in f.SUPPORTED_RANGES.items():
        if name == f.METADATA_VERSION:
            continue
        lines.add(f"feature {name} {low} {high}")
        for version in f.METADATA_VERSIONS:
            lines.add(f"default {name} {version.level} {f.default_level(name, version.level)}")
        for level in range(low, high + 1):
            first = min(v.level for v in f.METADATA_VERSIONS if f.default_level(name, v.level) >= level)
            needs = ", ".join(f"{other}={needed}" for other, needed in f.dependencies(name, level).items())
            lines.add(f"needs {name} {level} {first} {{{needs}}}")
    return lines


@pytest.mark.peer
def test_levels_and_features_match_the_release() -> None:
    program = Path(__file__).parents[2] / "java" / "MetadataVersions.java"
    theirs = set(run_java(str(program)).stdout.decode().splitlines())
    assert ours() == theirs


@pytest.mark.parametrize(
    ("text", "level"),
    [("4.3-IV0", 30), ("4.3", 30), ("4.3.1", 30), ("4.0", 25), ("3.9", 21), ("25", 25), ("3.3-IV3", 7)],
)
def test_versions_are_named_like_in_kafkas_tools(text: str, level: int) -> None:
    assert f.parse_metadata_version(text).level == level


@pytest.mark.parametrize("text", ["", "2.8", "4.4-IV0", "31", "6", "x", "4.3-IV1", "-1"])
def test_unknown_versions_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not known"):
        f.parse_metadata_version(text)


def test_dependencies_that_are_missing_are_named() -> None:
    assert f.missing_dependencies(f.ELR_VERSION, 1, {f.METADATA_VERSION: 22}) == {f.METADATA_VERSION: 23}
    assert not f.missing_dependencies(f.ELR_VERSION, 1, {f.METADATA_VERSION: 23})
