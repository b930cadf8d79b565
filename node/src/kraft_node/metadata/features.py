"""Feature levels of Apache Kafka 4.3.1: metadata.version, and the other finalized features.

The controller, the storage tool and the broker's ApiVersions read this. Pure tables and look-ups. The finalized levels
of a cluster are in the image (`image.features`); a node's supported levels are in `SUPPORTED_RANGES`.

A feature without a finalized level has level 0 (KIP-584); metadata.version always has a level (KIP-778).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

MINIMUM_METADATA_VERSION: Final = 7
LATEST_PRODUCTION_METADATA_VERSION: Final = 30


class MetadataVersion(NamedTuple):
    """One metadata.version level."""

    level: int
    name: str
    """The form of tools: `4.3-IV0`."""
    did_metadata_change: bool
    """Whether a downgrade below this level could lose content of records."""

    @property
    def release(self) -> str:
        """The Kafka release that introduced it: `4.3`."""
        return self.name.partition("-")[0]


def _levels() -> tuple[MetadataVersion, ...]:
    names = (
        "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
        "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0",
        "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
    )  # fmt: skip
    changed = {7, 8, 11, 13, 14, 15, 17, 23, 30}
    return tuple(MetadataVersion(level, name, level in changed) for level, name in enumerate(names, start=7))


METADATA_VERSIONS: Final = _levels()
"""All production levels, ascending and without gaps."""

_BY_NAME: Final = {version.name: version for version in METADATA_VERSIONS}


def metadata_version(level: int) -> MetadataVersion:
    """The version of the level. Raises ValueError if 4.3.1 does not know it."""
    index = level - MINIMUM_METADATA_VERSION
    if not 0 <= index < len(METADATA_VERSIONS):
        known = f"{MINIMUM_METADATA_VERSION} to {LATEST_PRODUCTION_METADATA_VERSION}"
        raise ValueError(f"metadata.version level {level} is not known; known are {known}")
    return METADATA_VERSIONS[index]


def parse_metadata_version(text: str) -> MetadataVersion:
    """The version of `4.3-IV0`, of a release (`4.3`, `4.3.1`: its last level), or of a level in digits.

    Raises ValueError, which names the text.
    """
    found = _BY_NAME.get(text)
    if found is not None:
        return found
    if text.isdecimal():
        return metadata_version(int(text))
    release = ".".join(text.split(".")[:2])
    of_release = [version for version in METADATA_VERSIONS if version.release == release]
    if not of_release or "-" in text:
        oldest, newest = METADATA_VERSIONS[0].name, METADATA_VERSIONS[-1].name
        raise ValueError(f"metadata.version {text!r} is not known; known are {oldest} to {newest}")
    return of_release[-1]


# The abilities of levels. Each constant is the first level that has the ability.
IN_CONTROLLED_SHUTDOWN: Final = 7
MIGRATION_SUPPORTED: Final = 8
SCRAM_SUPPORTED: Final = 11
NO_LEADER_EPOCH_BUMP_ON_ISR_SHRINK: Final = 12
METADATA_TRANSACTIONS_SUPPORTED: Final = 13
DELEGATION_TOKENS_SUPPORTED: Final = 14
CONTROLLER_REGISTRATION_SUPPORTED: Final = 15
DIRECTORY_ASSIGNMENT_SUPPORTED: Final = 17
ELR_SUPPORTED: Final = 23
CORDONED_LOG_DIRS_SUPPORTED: Final = 30


def fetch_version(metadata_level: int) -> int:
    """The highest Fetch version between brokers at this level."""
    return _step(metadata_level, ((7, 13), (9, 14), (10, 15), (19, 16), (21, 17), (27, 18)))


def list_offsets_version(metadata_level: int) -> int:
    """The highest ListOffsets version between brokers at this level."""
    return _step(metadata_level, ((7, 7), (9, 8), (21, 9), (25, 10), (29, 11)))


def _step(level: int, steps: tuple[tuple[int, int], ...]) -> int:
    return max((value for first, value in steps if level >= first), default=steps[0][1])


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports, both ends included."""

    min_level: int
    max_level: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min_level <= level <= self.max_level


SUPPORTED_RANGES: Final[Mapping[str, FeatureRange]] = {
    METADATA_VERSION: FeatureRange(MINIMUM_METADATA_VERSION, LATEST_PRODUCTION_METADATA_VERSION),
    KRAFT_VERSION: FeatureRange(0, 1),
    TRANSACTION_VERSION: FeatureRange(0, 2),
    GROUP_VERSION: FeatureRange(0, 1),
    ELR_VERSION: FeatureRange(0, 1),
    SHARE_VERSION: FeatureRange(0, 1),
    STREAMS_VERSION: FeatureRange(0, 1),
}
"""The levels that a node of this release supports and reports in its registration and in ApiVersions."""

_BOOTSTRAP_LEVELS: Final[Mapping[str, tuple[int, ...]]] = {
    # For each level of the feature from 0: the metadata.version from which on it is that release line's default.
    KRAFT_VERSION: (7, 21),
    TRANSACTION_VERSION: (7, 24, 24),
    GROUP_VERSION: (7, 22),
    ELR_VERSION: (7, 26),
    SHARE_VERSION: (7, 28),
    STREAMS_VERSION: (7, 29),
}

_DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELR_VERSION, 1): {METADATA_VERSION: ELR_SUPPORTED}
}


def default_level(feature: str, metadata_level: int) -> int:
    """The level of `feature` in a cluster that is formatted at a metadata.version level without further options."""
    if feature == METADATA_VERSION:
        return metadata_level
    needed = _BOOTSTRAP_LEVELS[feature]
    return max(level for level, first in enumerate(needed) if metadata_level >= first or level == 0)


def dependencies(feature: str, level: int) -> Mapping[str, int]:
    """The minimum levels of other features that this level needs."""
    return _DEPENDENCIES.get((feature, level), {})


def missing_dependencies(feature: str, level: int, finalized: Mapping[str, int]) -> dict[str, int]:
    """The features below the level that `feature` needs for `level`, with that level."""
    return {other: needed for other, needed in dependencies(feature, level).items() if finalized.get(other, 0) < needed}
