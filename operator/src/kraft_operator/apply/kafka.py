"""Steps through Kafka's protocol: configuration, reassignments, registrations, voters.

Requests go to brokers, which forward them to the active controller (KIP-590), or to controllers (KIP-919).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_operator.kafka import schemas
from kraft_operator.kafka.client import Address, Client, RefusedError, UnreachableError
from kraft_operator.plan import steps as do
from kraft_operator.plan.observed import CORDONED, THROTTLED, Quorum

TIMEOUT_MS: Final = 2500
TOPIC: Final = 2
BROKER: Final = 4
UPGRADE: Final = 1
"""The type of a feature update (KIP-584): upgrades only."""
SET: Final = 0
DELETE: Final = 1
GONE: Final = frozenset({102, 126})
"""BROKER_ID_NOT_REGISTERED, DUPLICATE_VOTER: the step was done before."""
NOT_CONTROLLER: Final = 41
VOTER_NOT_FOUND: Final = 127
LISTENER: Final = "CONTROLLER"
LEFT: Final = frozenset({3, 9})
"""UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE: the replica to move has left the broker."""

KafkaStep = (
    do.SetConfig
    | do.SetFeature
    | do.Throttle
    | do.Reassign
    | do.Unregister
    | do.AddVoter
    | do.RemoveVoter
    | do.Cordon
    | do.MoveLogs
)
OWN_STEPS: Final = (do.Cordon, do.MoveLogs)
"""Steps that only the broker itself can carry out."""


async def carry_out(
    client: Client,
    step: KafkaStep,
    ask: Sequence[Address],
    *,
    quorum: Quorum | None = None,
    controllers: Mapping[int, Address] | None = None,
) -> None:
    """Carry out a step through the first address of `ask` that answers.

    `controllers` has the addresses that AddVoter registers for the new voter. Raises UnreachableError if no node
    answers, RefusedError if the cluster refuses.
    """
    for api, fields in _requests(step, quorum, controllers or {}):
        _check(api, await _ask(client, ask, api, fields))


async def _ask(client: Client, ask: Sequence[Address], api: schemas.Api, fields: dict[str, Any]) -> dict[str, Any]:
    reasons = []
    for address in ask:
        try:
            return await client.ask(address, api, **fields)
        except UnreachableError as error:
            reasons.append(str(error))
    raise UnreachableError("; ".join(reasons) or f"{api.name}: no node is there to be asked")


def _requests(
    step: KafkaStep, quorum: Quorum | None, controllers: Mapping[int, Address]
) -> list[tuple[schemas.Api, dict[str, Any]]]:
    if isinstance(step, do.SetConfig):
        configs = [{"name": key, "operation": SET, "value": value} for key, value in step.put.items()]
        configs += [{"name": key, "operation": DELETE, "value": None} for key in step.remove]
        resources = [{"type": BROKER, "name": "", "configs": configs}]
        return [(schemas.INCREMENTAL_ALTER_CONFIGS, {"resources": resources, "validate_only": False})]
    if isinstance(step, do.SetFeature):
        features = [{"name": step.name, "level": step.level, "type": UPGRADE}]
        return [(schemas.UPDATE_FEATURES, {"timeout_ms": TIMEOUT_MS, "features": features, "validate_only": False})]
    if isinstance(step, do.Throttle):
        operation, value = (SET, "*") if step.on else (DELETE, None)
        configs = [{"name": name, "operation": operation, "value": value} for name in THROTTLED]
        resources = [{"type": TOPIC, "name": name, "configs": configs} for name in step.topics]
        return [(schemas.INCREMENTAL_ALTER_CONFIGS, {"resources": resources, "validate_only": False})]
    if isinstance(step, do.Cordon):
        operation, value = (SET, ",".join(step.paths)) if step.paths else (DELETE, None)
        configs = [{"name": CORDONED, "operation": operation, "value": value}]
        resources = [{"type": BROKER, "name": str(step.node), "configs": configs}]
        return [(schemas.INCREMENTAL_ALTER_CONFIGS, {"resources": resources, "validate_only": False})]
    if isinstance(step, do.MoveLogs):
        return [(schemas.ALTER_LOG_DIRS, {"dirs": _log_dirs(step)})]
    if isinstance(step, do.Reassign):
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), replicas in step.moves.items():
            topics.setdefault(topic, []).append({"index": number, "replicas": list(replicas)})
        moves = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        return [(schemas.ALTER_REASSIGNMENTS, {"timeout_ms": TIMEOUT_MS, "topics": moves})]
    if isinstance(step, do.Unregister):
        return [(schemas.UNREGISTER_BROKER, {"id": step.node})]
    known = {} if quorum is None else {**quorum.observers, **quorum.voters}
    if step.node not in known:
        raise RefusedError(VOTER_NOT_FOUND, f"the leader does not know node {step.node}")
    directory = known[step.node].directory
    if isinstance(step, do.RemoveVoter):
        return [(schemas.REMOVE_VOTER, {"cluster_id": None, "id": step.node, "directory": directory})]
    host, port = controllers[step.node]
    listeners = [{"name": LISTENER, "host": host, "port": port}]
    fields = {"cluster_id": None, "timeout_ms": TIMEOUT_MS, "id": step.node, "directory": directory}
    return [(schemas.ADD_VOTER, {**fields, "listeners": listeners})]


def _log_dirs(step: do.MoveLogs) -> list[dict[str, Any]]:
    """The moves grouped by target path, as AlterReplicaLogDirs has them."""
    dirs: dict[str, dict[str, list[int]]] = {}
    for (topic, number), path in step.moves.items():
        dirs.setdefault(path, {}).setdefault(topic, []).append(number)
    return [
        {"path": path, "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()]}
        for path, topics in dirs.items()
    ]


def _check(api: schemas.Api, answer: dict[str, Any]) -> None:
    """Raises RefusedError with the first error of the answer."""
    found = [answer, *answer.get("responses", ()), *answer.get("results", ()), *answer.get("features", ())]
    for topic in answer.get("topics", ()):
        found += [topic, *topic.get("partitions", ())]
    moved = [one for topic in answer.get("results", ()) for one in topic.get("partitions", ())]
    found += [one for one in moved if one["error"] not in LEFT]
    for one in found:
        code = one.get("error", 0)
        if code and code not in GONE:
            raise RefusedError(code, f"{api.name}: {one.get('message') or f'error {code}'}")
