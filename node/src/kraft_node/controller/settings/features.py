"""Feature levels: UpdateFeatures (57), v0-2, and the first records of a new cluster (KIP-584, KIP-778).

A level is finalized if this controller, every registered broker and every other controller of the quorum support it.
metadata.version may be lowered only if no metadata would be lost, and does not change during a migration from
ZooKeeper. kraft.version belongs to the raft layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kraft_node.base.config.resources import BROKER_RESOURCE
from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState
from kraft_node.metadata.features import (
    CONTROLLER_REGISTRATION_SUPPORTED,
    ELR_VERSION,
    KRAFT_VERSION,
    LATEST_PRODUCTION_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    MINIMUM_METADATA_VERSION,
    SUPPORTED_RANGES,
    FeatureRange,
    metadata_version,
    missing_dependencies,
)
from kraft_node.metadata.kinds.zk_migration import MIGRATION
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraft_protocol.wire.stored import ConfigRecord, FeatureLevelRecord, NoOpRecord

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
MIN_ISR: Final = "min.insync.replicas"

KRaftVersionUpgrade = Callable[[int, bool], None]
"""Makes the raft layer raise kraft.version, or only checks whether it would. Raises KafkaError if it refuses."""


class Features:
    """Answers UpdateFeatures."""

    __slots__ = ("_cluster", "kraft_version", "quorum_nodes", "upgrade_kraft_version")

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster
        self.quorum_nodes: Callable[[], Iterable[int]] = lambda: (cluster.node_id,)
        """The ids of the voters."""
        self.kraft_version: Callable[[], int] = lambda: 0
        self.upgrade_kraft_version: KRaftVersionUpgrade = _refuse_kraft_upgrade

    def update(self, request: UpdateFeaturesRequest, api_version: int) -> Plan:
        """All updates are made, or no update: then the answer has the error of the first failing feature."""
        try:
            records = self._plan(request, api_version)
        except KafkaError as e:
            return Plan(self._failure(request, api_version, e))
        response = UpdateFeaturesResponse(error_message=None)
        if api_version <= 1:
            results = [_result(update.feature) for update in request.feature_updates]
            response.results = sorted(results, key=lambda result: result.feature)
        return Plan(response, () if request.validate_only else records)

    def _failure(self, request: UpdateFeaturesRequest, api_version: int, error: KafkaError) -> UpdateFeaturesResponse:
        del request, api_version  # the whole request fails; new versions have no errors per feature
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)

    def _plan(self, request: UpdateFeaturesRequest, api_version: int) -> list[Any]:
        wanted: dict[str, tuple[int, int]] = {}
        for update in request.feature_updates:
            kind = update.upgrade_type
            if api_version == 0:
                kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
            wanted[update.feature] = (update.max_version_level, kind)
        view = self._cluster.view
        proposed = {**dict(view.features.items()), METADATA_VERSION: self._cluster.level}
        proposed.update({name: level for name, (level, _) in wanted.items()})
        records: list[Any] = []
        # kraft.version comes last: raft's write for it cannot be undone, so no later update may fail.
        for name, (level, kind) in sorted(wanted.items(), key=lambda item: item[0] == KRAFT_VERSION):
            try:
                self._update_one(name, level, kind, proposed, records, request.validate_only)
            except KafkaError as e:
                message = f"The update failed for all features since the following feature had an error: {e.message}"
                raise KafkaError(e.code, message) from None
        if wanted.get(ELR_VERSION, (0, 0))[0] > 0:
            records = [*elr_safety_records(self._cluster), *records]
        return records

    def _update_one(
        self, name: str, level: int, kind: int, proposed: Mapping[str, int], records: list[Any], validate_only: bool
    ) -> None:
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            _refuse(name, level, "The controller does not support the given upgrade type.")
        if level < 0:
            _refuse(name, level, "A feature version cannot be less than 0.")
        reason = self._unsupported(name, level)
        if reason:
            _refuse(name, level, reason)
        current = self._current(name)
        if level < current and kind == UPGRADE:
            why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            _refuse(name, level, why + "unsafe downgrade.")
        if level > current and kind != UPGRADE:
            _refuse(name, level, "Can't downgrade to a newer version.")
        if name == METADATA_VERSION:
            self._check_metadata_version(level, current, kind)
        elif name == KRAFT_VERSION:
            if kind == UPGRADE:
                if level != current:
                    self.upgrade_kraft_version(level, validate_only)
                records.append(NoOpRecord())
            elif level != current:
                _refuse(name, level, "Can't downgrade the version of this feature.")
            return
        elif name not in SUPPORTED_RANGES:
            _refuse(name, level, f"Feature {name} not found.")
        else:
            missing = missing_dependencies(name, level, proposed)
            if missing:
                needs = " and ".join(f"{other} to be at least {least}" for other, least in missing.items())
                _refuse(name, level, f"{name} could not be set to {level} because it needs {needs}.")
        records.append(FeatureLevelRecord(name=name, feature_level=level))

    def _current(self, name: str) -> int:
        if name == METADATA_VERSION:
            return self._cluster.level
        return self.kraft_version() if name == KRAFT_VERSION else self._cluster.view.feature_level(name)

    def _check_metadata_version(self, level: int, current: int, kind: int) -> None:
        try:
            metadata_version(level)
        except ValueError:
            known = f"{MINIMUM_METADATA_VERSION} to {LATEST_PRODUCTION_METADATA_VERSION}"
            message = f"Invalid metadata.version {level}. Valid versions are from {known}."
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message) from None
        if level != current and self._cluster.view.zk_migration_state == MIGRATION:
            # Brokers with ZooKeeper register with one level only: after a change no broker could go back to ZooKeeper.
            message = f"Invalid metadata.version {level}. It may change once the migration from ZooKeeper is finished."
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
        if level >= current or not any(v.did_metadata_change for v in METADATA_VERSIONS if level < v.level <= current):
            return
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
        if kind == UNSAFE_DOWNGRADE:
            why = "Unsafe metadata downgrade is not supported in this version."
        message = f"Unsupported metadata.version downgrade from {current} to {level}. {why}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)

    def _unsupported(self, name: str, level: int) -> str | None:
        """The reason why a node does not support that level; None if all do."""
        why = _why_not(level, f"Local controller {self._cluster.node_id}", SUPPORTED_RANGES.get(name))
        if why:
            return why
        view = self._cluster.view
        for broker in view.brokers.values():
            why = _why_not(level, f"Broker {broker.id}", broker.features.get(name))
            if why:
                return why
        if self._cluster.level < CONTROLLER_REGISTRATION_SUPPORTED:
            return None
        known = {self._cluster.node_id}
        for controller in view.controllers.values():
            if controller.id == self._cluster.node_id:
                continue
            why = _why_not(level, f"Controller {controller.id}", controller.features.get(name))
            if why:
                return why
            known.add(controller.id)
        missing = next((node for node in self.quorum_nodes() if node not in known), None)
        return None if missing is None else f"controller {missing} has not registered, and may not support this feature"


def _why_not(level: int, who: str, supported: FeatureRange | tuple[int, int] | None) -> str | None:
    lowest, highest = supported or (0, 0)
    if lowest <= level <= highest:
        return None
    if (lowest, highest) == (0, 0):
        return f"{who} does not support this feature."
    return f"{who} only supports versions {lowest}-{highest}"


def _refuse(name: str, level: int, why: str) -> None:
    message = f"Invalid update version {level} for feature {name}. {why}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _refuse_kraft_upgrade(level: int, validate_only: bool) -> None:
    del validate_only
    _refuse(KRAFT_VERSION, level, "This quorum is static: its voters are in controller.quorum.voters.")


def _result(feature: str) -> UpdateFeaturesResponse.UpdatableFeatureResult:
    return UpdateFeaturesResponse.UpdatableFeatureResult(feature=feature, error_code=0, error_message="NONE")


def elr_safety_records(cluster: ControllerState) -> list[Any]:
    """The records that make min.insync.replicas equal on all brokers, as eligible leader replicas require (KIP-966)."""
    records: list[Any] = []
    configs = cluster.view.configs
    if MIN_ISR not in (configs.get((BROKER_RESOURCE, "")) or {}):
        least = str(cluster.static.int(MIN_ISR))
        record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=least)
        records.append(record)
    for (kind, name), values in configs.items():
        if kind == BROKER_RESOURCE and name and MIN_ISR in values:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=None))
    return records


def default_bootstrap_records() -> Sequence[Any]:
    """The first record of a cluster that was not formatted otherwise: the release's metadata.version."""
    return (FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_PRODUCTION_METADATA_VERSION),)
