"""Client quotas: AlterClientQuotas (49) v0-1, and how DescribeClientQuotas (48) reads them (KIP-546, KIP-612, KIP-599).

An entity is a set of (type, name) pairs, name None standing for the default: user, client-id, user with client-id, or
ip. Brokers answer DescribeClientQuotas from their image by `describe_client_quotas`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.controller.cluster import Cluster, check_operation_size
from kraft_node.controller.plan import Plan
from kraft_node.metadata.delta import Entity
from kraft_node.metadata.image import MetadataView
from kraft_node.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kraft_node.wire.stored import ClientQuotaRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

LONG_MAX: Final = 1 << 63
"""The largest long as a double, which is one more."""
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


class Quotas:
    """Answers AlterClientQuotas."""

    __slots__ = ("_cluster", "resolves")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.resolves: Callable[[str], bool] = is_host
        """Whether an ip entity's name is an address or may be a host's name."""

    def alter(self, request: AlterClientQuotasRequest) -> Plan:
        """An entity that is named again keeps what its first entry sets, and its one answer is an error.

        So is that of one with a key named twice.
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
    """Whether `name` is an address or looks like a host's name. Asking a name server would block the loop."""
    labels = name.rstrip(".").split(".")
    if ":" in name:
        return all(c in "0123456789abcdefABCDEF:.%" for c in name)
    if all(label.isdigit() for label in labels):
        return len(labels) == 4 and all(int(label) <= 255 for label in labels)
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


# DescribeClientQuotas


def describe_client_quotas(request: DescribeClientQuotasRequest, view: MetadataView) -> DescribeClientQuotasResponse:
    """The quotas of all entities that fit the filter. Raises KafkaError when the filter makes no sense."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = (component.match_type, _match_name(component))
    if IP in wanted and len(wanted) > 1:
        message = "Invalid entity filter component combination. IP filter component should not be used with user or "
        raise KafkaError(ErrorCode.INVALID_REQUEST, message + "clientId filter component.")
    response = DescribeClientQuotasResponse(error_message=None, entries=[])
    assert response.entries is not None
    for entity, values in view.quotas.items():
        if _fits(dict(entity), wanted, request.strict):
            response.entries.append(
                DescribeClientQuotasResponse.EntryData(
                    entity=[
                        DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity
                    ],
                    values=[DescribeClientQuotasResponse.ValueData(key=key, value=v) for key, v in values.items()],
                )
            )
    return response


def _match_name(component: DescribeClientQuotasRequest.ComponentData) -> str | None:
    if component.match_type == EXACT:
        if component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        name: str = component.match
        return name
    if component.match is not None:
        word = {DEFAULT: "MATCH_TYPE_DEFAULT", ANY: "MATCH_TYPE_SPECIFIED"}.get(component.match_type, "a match type")
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Request specified {word}, but also specified a match string.")
    if component.match_type not in (DEFAULT, ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    return None


def _fits(entity: Names, wanted: Mapping[str, tuple[int, str | None]], strict: bool) -> bool:
    if strict and entity.keys() != wanted.keys():
        return False
    for kind, (match_type, name) in wanted.items():
        if kind not in entity:
            return False
        if match_type != ANY and entity[kind] != name:
            return False
    return True
