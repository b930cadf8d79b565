"""Client quotas: AlterClientQuotas (49) v0-1 (KIP-546, KIP-612, KIP-599); brokers answer DescribeClientQuotas.

An entity is a set of (type, name) pairs; name None means the default. Valid sets: user, client-id, user with client-id,
ip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kraft_node.controller.migration import check_znode_name
from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState, check_operation_size
from kraft_node.metadata.client_quotas import Entity
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from kraft_protocol.wire.stored import ClientQuotaRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

LONG_MAX: Final = 1 << 63
"""Java's largest long as a double, which is greater by one."""
INT_MAX: Final = (1 << 31) - 1

_INTEGER_KEYS: Final[Mapping[str, tuple[int, str]]] = {
    "producer_byte_rate": (LONG_MAX, "a LONG"),
    "consumer_byte_rate": (LONG_MAX, "a LONG"),
    "connection_creation_rate": (INT_MAX, "an INT"),
}
_USER_KEYS: Final = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_KEYS: Final = frozenset({"connection_creation_rate"})

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2

Names: TypeAlias = dict[str, str | None]


class QuotaManager:
    """Answers AlterClientQuotas."""

    __slots__ = ("_cluster", "resolves")

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster
        self.resolves: Callable[[str], bool] = is_host
        """Whether an ip entity's name is an address or may be a host name."""

    def alter(self, request: AlterClientQuotasRequest) -> Plan:
        """Plan quota changes. For an entity that is named twice, the first entry counts and the answer is an error.

        The answer for an entity with a repeated key is an error, too.
        """
        answers: dict[Entity, AlterClientQuotasResponse.EntryData] = {}
        records: list[Any] = []
        for entry in request.entries:
            names: Names = {part.entity_type: part.entity_name for part in entry.entity}
            entity: Entity = tuple(sorted(names.items()))
            is_twice = entity in answers or len({op.key for op in entry.ops}) < len(entry.ops)
            if entity not in answers:
                answers[entity] = AlterClientQuotasResponse.EntryData(
                    error_message=None,
                    entity=[AlterClientQuotasResponse.EntityData(kind, name) for kind, name in names.items()],
                )
            try:
                if is_twice:
                    raise _duplicate(names)
                records += self._alter_one(entity, names, entry.ops)
            except KafkaError as e:
                answers[entity].error_code = e.code
                answers[entity].error_message = e.message
        check_operation_size(records)
        response = AlterClientQuotasResponse(entries=list(answers.values()))
        return Plan(response, () if request.validate_only else records)

    def _alter_one(self, entity: Entity, names: Names, ops: list[AlterClientQuotasRequest.OpData]) -> list[Any]:
        _check_names(names)
        for name in names.values():
            check_znode_name(self._cluster, name, is_encoded=True)
        keys = self._keys_for(names)
        current = self._cluster.view.quotas.get(entity) or {}
        records: list[Any] = []
        for op in ops:
            if op.remove:
                if op.key in current:
                    records.append(ClientQuotaRecord(entity=_record_entity(names), key=op.key, remove=True))
                continue
            _check_value(op.key, op.value, keys)
            if current.get(op.key) != op.value:
                records.append(ClientQuotaRecord(entity=_record_entity(names), key=op.key, value=op.value))
        return records

    def _keys_for(self, names: Names) -> frozenset[str]:
        if IP not in names:
            return _USER_KEYS
        if len(names) > 1:
            message = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        name = names[IP]
        if name is not None and not self.resolves(name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host.")
        return _IP_KEYS


def is_host(name: str) -> bool:
    """Whether `name` is an address or looks like a host name. A DNS query would block the loop."""
    labels = name.rstrip(".").split(".")
    if ":" in name:
        return all(c in "0123456789abcdefABCDEF:.%" for c in name)
    if all(label.isascii() and label.isdigit() for label in labels):
        return len(labels) == 4 and all(len(label) <= 3 and int(label) <= 255 for label in labels)
    return all(label and label.replace("-", "a").isalnum() and label.isascii() for label in labels)


def _check_names(names: Names) -> None:
    for kind, name in names.items():
        why: str | None = None
        if kind not in ENTITY_TYPES:
            why = f"Unhandled client quota entity type: {kind}"
        elif name == "":
            why = f"Empty {kind} not supported"
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if not names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")


def _duplicate(names: Names) -> KafkaError:
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items())
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})")


def _record_entity(names: Names) -> list[Any]:
    return [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]


def _check_value(key: str, value: float, keys: frozenset[str]) -> None:
    why: str | None = None
    if key not in keys:
        why = f"Invalid configuration key {key}"
    elif not value > 0:
        why = f"Quota {key} must be greater than 0"
    elif key in _INTEGER_KEYS:
        largest, word = _INTEGER_KEYS[key]
        if value > largest:
            why = f"Proposed value for {key} is too large for {word}."
        elif value - int(value) > 1e-6:
            why = f"{key} cannot be a fractional value."
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
