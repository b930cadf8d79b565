"""Conversion between the status and the planner's record, and the stored form of users' claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.plan.model.record import TLS, Claim, Node, Record, ReplacementRecord, UserClaim


def record_of(status: KRaftClusterStatus) -> Record:
    """Read the record from a status."""
    return Record(
        cluster_id=status.cluster_id,
        nodes=tuple(
            Node(
                node.id,
                node.pool,
                "controller" in node.roles,
                "broker" in node.roles,
                node.disk,
                node.formatted,
                node.leaving,
                node.stopped,
                tuple(node.volumes),
                node.rack,
            )
            for node in sorted(status.nodes, key=lambda node: node.id)
        ),
        retired=tuple(status.retired_ids),
        voters=tuple(status.voters),
        replacements=tuple(
            ReplacementRecord(r.name, r.node, r.by, r.disk, r.new_id, r.done, frozenset(r.accept))
            for r in status.replacements
        ),
        managed_config=tuple(status.managed_config),
        dynamic=status.dynamic,
        balanced=tuple(status.balanced),
        balanced_for=status.balanced_for,
        joining=None if status.joining < 0 else status.joining,
        topics=tuple(Claim(one.name, one.id, one.resource, one.uid) for one in status.topics),
        authorities=tuple((one.name, one.key) for one in status.authorities),
        # A status has the mode of every cluster; a record marks plaintext only after TLS.
        security=(status.security or "") if status.security == TLS or status.authorities else "",
        migration="" if status.migration is None else status.migration.phase,
    )


def remembered(record: Record) -> dict[str, Any]:
    """The part of the status that holds the record."""
    return {
        "clusterId": record.cluster_id,
        "nodes": [
            {
                "id": node.id,
                "pool": node.pool,
                "roles": ["controller"] * node.controller + ["broker"] * node.broker,
                "disk": node.disk,
                "formatted": node.formatted,
                "leaving": node.leaving,
                "stopped": node.stopped,
                "volumes": list(node.volumes),
                "rack": node.rack,
            }
            for node in record.nodes
        ],
        "retiredIds": list(record.retired),
        "voters": list(record.voters),
        "replacements": [
            {
                "name": r.name,
                "node": r.node,
                "by": r.by,
                "disk": r.disk,
                "newId": r.new_id,
                "done": r.done,
                "accept": sorted(r.accept),
            }
            for r in record.replacements
        ],
        "managedConfig": list(record.managed_config),
        "dynamic": record.dynamic,
        "balanced": list(record.balanced),
        "balancedFor": record.balanced_for,
        "joining": -1 if record.joining is None else record.joining,
        "topics": [
            {"name": one.topic, "id": one.id, "resource": one.resource, "uid": one.uid} for one in record.topics
        ],
        # Operators without TLS refuse this field, so a cluster without TLS does not have it.
        **(
            {"authorities": [{"name": name, "key": key} for name, key in found]}
            if (found := record.authorities)
            else {}
        ),
        # So a cluster without TLS does not have this one either.
        **({"security": record.security} if record.security else {}),
        **({"migration": {"phase": record.migration}} if record.migration else {}),
    }


_USERS: Final = TypeAdapter(list[UserClaim])


def user_claims_of(stored: Iterable[Mapping[str, Any]]) -> dict[str, UserClaim]:
    """The claims of users by user. Raises pydantic's ValidationError."""
    return {claim.user: claim for claim in _USERS.validate_python(list(stored))}


def remembered_users(claims: Mapping[str, UserClaim]) -> list[dict[str, Any]]:
    """The stored form of claims, in a fixed order."""
    return [
        {
            "user": one.user,
            "resource": one.resource,
            "uid": one.uid,
            "mechanisms": sorted(one.mechanisms),
            "acls": sorted(one.acls),
            "quotas": sorted(one.quotas),
            **({"unanswered": one.unanswered} if one.unanswered else {}),
        }
        for _, one in sorted(claims.items())
    ]
