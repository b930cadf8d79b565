"""Steps through Kafka's protocol: configuration, reassignments, registrations, voters.

Requests go to brokers, which forward them to the active controller (KIP-590), or to controllers (KIP-919).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import CORDONED, THROTTLED, Quorum
from kraft_protocol.client.aio import Address, Client, UnreachableError
from kraft_protocol.errors import ErrorCode, error_name
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import name_of

TIMEOUT_MS: Final = 2500
TOPIC: Final = 2
BROKER: Final = 4
UPGRADE: Final = 1
"""The type of a feature update (KIP-584): upgrades only."""
SET: Final = 0
DELETE: Final = 1
GONE: Final = frozenset({ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.DUPLICATE_VOTER})
"""The step was done before."""
LISTENER: Final = "CONTROLLER"
LEFT: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REPLICA_NOT_AVAILABLE})
"""The replica to move has left the broker."""
LASTING: Final = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,  # for wrong values of brokers
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.FEATURE_UPDATE_FAILED,
    }
)

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


class RefusedError(Exception):
    """The cluster answered with an error. `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def lasting(self) -> bool:
        """Whether the request itself is wrong, so that a retry cannot help."""
        return self.code in LASTING


async def carry_out(
    client: Client,
    step: KafkaStep,
    addresses: Sequence[Address],
    *,
    quorum: Quorum | None = None,
    controllers: Mapping[int, Address] | None = None,
) -> None:
    """Carry out a step through the first of `addresses` that answers. A disruptive step is sent once, to the first.

    `controllers` has the addresses that AddVoter registers for the new voter. Raises UnreachableError if no node
    answers, RefusedError if the cluster refuses.
    """
    if isinstance(step, do.RemoveVoter):
        addresses = addresses[:1]  # an answer may be lost, and a repeated request comes after the views have expired
    request = _request(step, quorum, controllers or {})
    _check(request, await _send(client, addresses, request))


async def _send(client: Client, addresses: Sequence[Address], request: Any) -> Any:
    reasons = []
    for address in addresses:
        try:
            return await client.request(address, request)
        except UnreachableError as error:
            reasons.append(str(error))
    name = name_of(request.SCHEMA.api_key)
    raise UnreachableError("; ".join(reasons) or f"{name}: no node can take the request")


def altered(kind: int, name: str, put: Mapping[str, str], remove: Iterable[str]) -> Any:
    """The configuration changes of one resource."""
    config = m.IncrementalAlterConfigsRequest.AlterableConfig
    configs = [config(key, SET, value) for key, value in put.items()]
    configs += [config(key, DELETE, None) for key in remove]
    return m.IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)


def _request(step: KafkaStep, quorum: Quorum | None, controllers: Mapping[int, Address]) -> Any:
    if isinstance(step, do.SetConfig):
        return m.IncrementalAlterConfigsRequest([altered(BROKER, "", step.put, step.remove)])
    if isinstance(step, do.SetFeature):
        update = m.UpdateFeaturesRequest.FeatureUpdateKey(step.name, step.level, upgrade_type=UPGRADE)
        return m.UpdateFeaturesRequest(TIMEOUT_MS, [update])
    if isinstance(step, do.Throttle):
        put, remove = (dict.fromkeys(THROTTLED, "*"), ()) if step.on else ({}, THROTTLED)
        return m.IncrementalAlterConfigsRequest([altered(TOPIC, name, put, remove) for name in step.topics])
    if isinstance(step, do.Cordon):
        paths = {CORDONED: ",".join(step.paths)} if step.paths else {}
        return m.IncrementalAlterConfigsRequest([altered(BROKER, str(step.node), paths, () if paths else [CORDONED])])
    if isinstance(step, do.MoveLogs):
        return m.AlterReplicaLogDirsRequest(_log_dirs(step))
    if isinstance(step, do.Reassign):
        topics: dict[str, list[m.AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for (topic, number), replicas in step.moves.items():
            moved = m.AlterPartitionReassignmentsRequest.ReassignablePartition(number, list(replicas))
            topics.setdefault(topic, []).append(moved)
        moves = [m.AlterPartitionReassignmentsRequest.ReassignableTopic(*one) for one in topics.items()]
        return m.AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=moves)
    if isinstance(step, do.Unregister):
        return m.UnregisterBrokerRequest(step.node)
    known = {} if quorum is None else {**quorum.observers, **quorum.voters}
    if step.node not in known:
        raise RefusedError(ErrorCode.VOTER_NOT_FOUND, f"the leader does not know node {step.node}")
    directory = Uuid(known[step.node].directory)
    if isinstance(step, do.RemoveVoter):
        return m.RemoveRaftVoterRequest(None, step.node, directory)
    listener = m.AddRaftVoterRequest.Listener(LISTENER, *controllers[step.node])
    return m.AddRaftVoterRequest(None, TIMEOUT_MS, step.node, directory, [listener])


def _log_dirs(step: do.MoveLogs) -> list[m.AlterReplicaLogDirsRequest.AlterReplicaLogDir]:
    """The moves grouped by target path, as AlterReplicaLogDirs has them."""
    dirs: dict[str, dict[str, list[int]]] = {}
    for (topic, number), path in step.moves.items():
        dirs.setdefault(path, {}).setdefault(topic, []).append(number)
    entry = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    entry_of_topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    return [entry(path, [entry_of_topic(*one) for one in topics.items()]) for path, topics in dirs.items()]


def _check(request: Any, answer: Any) -> None:
    """Raise RefusedError with the first error of the answer, if any."""
    found = [answer]
    if isinstance(answer, m.AlterReplicaLogDirsResponse):
        moved = [one for topic in answer.results for one in topic.partitions]
        found += [one for one in moved if one.error_code not in LEFT]
    elif isinstance(answer, m.AlterPartitionReassignmentsResponse):
        found += [one for topic in answer.responses for one in topic.partitions]
    elif isinstance(answer, m.UpdateFeaturesResponse):
        found += answer.results
    elif isinstance(answer, m.IncrementalAlterConfigsResponse):
        found += answer.responses
    for one in found:
        code = getattr(one, "error_code", 0)
        if code and code not in GONE:
            message = getattr(one, "error_message", None) or error_name(code)
            raise RefusedError(code, f"{name_of(request.SCHEMA.api_key)}: {message}")
