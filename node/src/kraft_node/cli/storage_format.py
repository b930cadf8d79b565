"""The content that `kafka-storage format` writes: feature levels, bootstrap records, voters, by directory.

Planning is pure (`plan_features`, `bootstrap_records`, `parse_voters`). `storage_dirs.write_directories` writes; a
directory's `meta.properties` comes last, so that an interrupted format leaves an unformatted directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft_node.base.config.listeners import PORT_MAX
from kraft_node.cli.common import ToolError
from kraft_node.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SCRAM_SUPPORTED,
    SUPPORTED_RANGES,
    MetadataVersion,
    default_level,
    metadata_version,
    missing_dependencies,
    parse_metadata_version,
)
from kraft_protocol.ids import Uuid, parse_uuid, uuid_text

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.cli.scram_argument import ScramCredential

FEATURES: Final = tuple(sorted(name for name in SUPPORTED_RANGES if name != METADATA_VERSION))
_SHORT_MAX: Final = 32767
ID_MAX: Final = 2**31 - 1


class InitialVoter(NamedTuple):
    """A voter of a dynamic quorum in `--initial-controllers`."""

    node_id: int
    host: str
    port: int
    directory_id: Uuid

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}:{uuid_text(self.directory_id)}"


_VOTER: Final = re.compile(r"([0-9]+)@(\[[^\]]+\]|[^:\[\]]+):([0-9]{1,5}):([0-9A-Za-z_\-]{22})")


def parse_voters(text: str) -> list[InitialVoter]:
    """The voters in `id@host:port:directory,…`, sorted by id. Raises ToolError, which names the wrong entry."""
    voters: dict[int, InitialVoter] = {}
    for entry in text.rstrip(",").split(","):
        match = _VOTER.fullmatch(entry.strip())
        if not match or int(match[1]) > ID_MAX or int(match[3]) > PORT_MAX:
            raise ToolError(
                f"--initial-controllers: {entry.strip()!r} does not have the form id@hostname:port:directory"
            )
        voter = InitialVoter(int(match[1]), match[2].strip("[]"), int(match[3]), parse_uuid(match[4]))
        if voter.node_id in voters:
            raise ToolError(f"--initial-controllers: Node id {voter.node_id} was specified more than once.")
        voters[voter.node_id] = voter
    return [voters[node_id] for node_id in sorted(voters)]


def standalone_voter(config: NodeConfig, new_id: Callable[[], Uuid]) -> list[InitialVoter]:
    """The quorum of `--standalone`: only this controller."""
    if not config.is_controller:
        raise ToolError("You can only use --standalone on a controller.")
    endpoint = config.advertised_controller_listeners[0]
    return [InitialVoter(config.node_id, endpoint.host or "localhost", endpoint.port, new_id())]


# Features


def find_metadata_version(text: str) -> MetadataVersion:
    """The version of a `--release-version`. Raises ToolError, which lists the known versions."""
    try:
        if text.isdecimal():
            raise ValueError
        return parse_metadata_version(text)
    except ValueError:
        known = ", ".join(version.name for version in METADATA_VERSIONS)
        raise ToolError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {known}") from None


def parse_feature(text: str) -> tuple[str, int]:
    """Name and level of a `feature=level` argument."""
    name, equals, level = text.partition("=")
    if not equals:
        raise ToolError(f"Can't parse feature=level string {text}: equals sign not found.")
    if not re.fullmatch(r"[+-]?[0-9]{1,5}", level.strip()) or not -_SHORT_MAX - 1 <= int(level) <= _SHORT_MAX:
        raise ToolError(f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short.")
    return name.strip(), int(level)


def plan_features(given: Mapping[str, int], release: MetadataVersion | None, *, dynamic_quorum: bool) -> dict[str, int]:
    """The levels of all features of a new cluster, including metadata.version. Raises ToolError.

    `given` are the `--feature` levels, `release` the `--release-version`. Other features get the level that was the
    default when the metadata.version was released.
    """
    if METADATA_VERSION in given:
        if release is not None:
            raise ToolError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
        try:
            release = metadata_version(given[METADATA_VERSION])
        except ValueError as e:
            raise ToolError(str(e)) from None
    release = release or METADATA_VERSIONS[-1]
    for name in given:
        if name not in SUPPORTED_RANGES:
            raise ToolError(f"Unsupported feature: {name}. Supported features are: {', '.join(FEATURES)}")
    levels = {METADATA_VERSION: release.level}
    for name in FEATURES:
        if name == KRAFT_VERSION:
            levels[name] = _kraft_level(given.get(name), dynamic_quorum=dynamic_quorum)
        else:
            levels[name] = given.get(name, default_level(name, release.level))
        if levels[name] not in SUPPORTED_RANGES[name]:
            raise ToolError(f"No feature:{name} with feature level {levels[name]}")
    for name, level in levels.items():
        for other, needed in missing_dependencies(name, level, levels).items():
            raise ToolError(f"{name} could not be set to {level} because it depends on {other} level {needed}")
    return levels


def _kraft_level(given: int | None, *, dynamic_quorum: bool) -> int:
    flags = "one of the flags --standalone, --initial-controllers, or --no-initial-controllers is used"
    if given is None:
        return 1 if dynamic_quorum else 0
    if given == 0 and dynamic_quorum:
        raise ToolError(
            f"Cannot set kraft.version to 0 if controller.quorum.voters is empty and {flags}. For dynamic controllers "
            "support, try removing the --feature flag for kraft.version."
        )
    if given != 0 and not dynamic_quorum:
        raise ToolError(
            f"Cannot set kraft.version to {given} unless controller.quorum.voters is empty and {flags}. For dynamic "
            "controllers support, try using one of --standalone, --initial-controllers, or --no-initial-controllers "
            "and removing controller.quorum.voters."
        )
    return given


def bootstrap_records(levels: Mapping[str, int], scram: Sequence[ScramCredential]) -> list[Any]:
    """The first records of a new cluster's metadata log, in Kafka's order. Raises ToolError."""
    from kraft_protocol.wire.stored import FeatureLevelRecord, UserScramCredentialRecord

    if scram and levels[METADATA_VERSION] < SCRAM_SUPPORTED:
        first = metadata_version(SCRAM_SUPPORTED).name
        raise ToolError(f"SCRAM is only supported in metadata.version {first} or later.")
    records: list[Any] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels[METADATA_VERSION])]
    records += [
        FeatureLevelRecord(name=name, feature_level=levels[name])
        for name in FEATURES
        if name != KRAFT_VERSION and levels[name] > 0
    ]
    records += [
        UserScramCredentialRecord(
            name=user.name,
            mechanism=user.mechanism,
            salt=user.salt,
            stored_key=user.stored_key,
            server_key=user.server_key,
            iterations=user.iterations,
        )
        for user in scram
    ]
    return records
