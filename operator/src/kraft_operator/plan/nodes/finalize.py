"""Finalizing of metadata.version, once all nodes run the wanted image. After that, no older image can take over.

`spec.metadataVersion` names the level. The policy `Latest` takes the highest level that the image supports. Without
either, the level does not change.
"""

from __future__ import annotations

from typing import Final

from kraft_operator.plan.model.levels import NAMES, UNKNOWN, name_of
from kraft_operator.plan.model.record import FINALIZED
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import SetFeature

METADATA_VERSION: Final = "metadata.version"


def finalize(s: Situation) -> None:
    """Plan the step that finalizes metadata.version, or report why it waits or is blocked."""
    level = s.wanted.metadata_version
    if s.metadata is None or METADATA_VERSION not in s.metadata.features:
        return
    present = s.metadata.features[METADATA_VERSION]
    supported = s.metadata.supported.get(METADATA_VERSION)
    if level is None and s.wanted.metadata_latest and supported is not None:
        level = max(present, supported)
    if level is None or level == present:
        return
    if level == UNKNOWN:
        text = f"spec.metadataVersion is unknown: known versions are {NAMES[0]} to {NAMES[-1]}"
        s.plan.block("MetadataVersionUnknown", text)
    elif level < present:
        text = f"metadata.version is finalized at {name_of(present)} and cannot go back to {name_of(level)}: records"
        s.plan.block(
            "MetadataVersionBehind", text + " written since would be lost; raise spec.metadataVersion, or leave it out"
        )
    elif supported is not None and level > supported:
        text = f"the image supports metadata.version up to {name_of(supported)}, not {name_of(level)}: roll out a newer"
        s.plan.block("MetadataVersionUnsupported", text + " image first")
    elif s.record.migration not in {"", FINALIZED}:
        s.plan.waits.append(f"metadata.version {name_of(level)} waits until the migration from ZooKeeper is finalized")
    elif s.record.open_replacement() is not None or any(node.leaving for node in s.record.nodes):
        s.plan.waits.append(f"metadata.version {name_of(level)} waits for nodes that are replaced or leave")
    elif waits := _not_everybody(s):
        s.plan.waits.append(f"metadata.version {name_of(level)} waits: {waits}")
    else:
        s.plan.steps.append(SetFeature(METADATA_VERSION, level))


def _not_everybody(s: Situation) -> str | None:
    """Name a node that is not up or needs a restart; None if all nodes are up and current. Skipped nodes count,
    too."""
    for node in s.record.nodes:
        if s.runs(node) and (not s.up(node.id) or s.lacks(node)):
            return f"{node.kind} is not up, or not restarted yet"
    return None
