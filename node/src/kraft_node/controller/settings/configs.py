"""Dynamic configurations: IncrementalAlterConfigs (44) v0-1 and AlterConfigs (33) v0-2.

Resources: topics, brokers (one, or "" for all), consumer/share/streams groups and client metrics subscriptions.
`base.config` defines the allowed values; this file decides which changes are allowed, and when. An error in a resource
does not affect other resources.

Loggers (BROKER_LOGGER) are not in the metadata: each node handles its own (`base.loggers`) before requests come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kraft_node.base.config import GROUP, TOPIC, ConfigError, check_topic_overrides
from kraft_node.base.config.client_metrics import IntervalError, check_client_metrics_overrides
from kraft_node.base.config.definitions import CLIENT_METRICS
from kraft_node.base.config.dynamic import change_list, check_broker_overrides, definition
from kraft_node.base.config.group import check_group_overrides
from kraft_node.base.config.resources import (
    APPEND,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DELETE,
    GROUP_RESOURCE,
    RESOURCES,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
)
from kraft_node.base.config.value_types import java_int
from kraft_node.controller.partitions.topic_names import check_topic_name
from kraft_node.controller.plan import Plan
from kraft_node.controller.settings.cleared_elrs import cleared_elrs
from kraft_node.controller.settings.features import MIN_ISR
from kraft_node.controller.state.controller_state import ControllerState, check_operation_size
from kraft_node.metadata.features import CORDONED_LOG_DIRS_SUPPORTED
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraft_protocol.wire.stored import ConfigRecord

VALUE_LENGTH_MAX: Final = 32_767
"""Kafka's limit; brokers of older releases read the length of a value as int16."""

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"

Resource: TypeAlias = tuple[int, str]
Alteration: TypeAlias = tuple[int, str | None]
"""An operation and its value."""


class Configs:
    """Plans configuration records."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster

    # Requests

    def alter_incrementally(self, request: IncrementalAlterConfigsRequest) -> Plan:
        """IncrementalAlterConfigs: plan records for each valid resource; other resources get errors."""
        response = IncrementalAlterConfigsResponse()
        requested: dict[Resource, list[Any]] = {}
        answers = _Answers(IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, response.responses)
        records: list[Any] = []
        for resource in _distinct(request.resources, requested, answers):
            try:
                alterations: dict[str, Alteration] = {}
                for config in requested[resource]:
                    if config.name in alterations:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
                    alterations[config.name] = (config.config_operation, config.value)
                records += self._alter(resource, alterations)
            except KafkaError as e:
                answers.add(resource, e)
            else:
                answers.add(resource, None)
        return self._finish(response, records, request.validate_only)

    def alter_whole(self, request: AlterConfigsRequest) -> Plan:
        """AlterConfigs, the legacy way: keys that the request does not name are deleted."""
        response = AlterConfigsResponse()
        requested: dict[Resource, list[Any]] = {}
        answers = _Answers(AlterConfigsResponse.AlterConfigsResourceResponse, response.responses)
        records: list[Any] = []
        for resource in _distinct(request.resources, requested, answers):
            try:
                alterations: dict[str, Alteration] = {
                    config.name: (SET if config.value is not None else DELETE, config.value)
                    for config in requested[resource]
                }
                for name in self._cluster.view.configs.get(resource) or {}:
                    alterations.setdefault(name, (DELETE, None))
                records += self._alter(resource, alterations)
            except KafkaError as e:
                answers.add(resource, e)
            else:
                answers.add(resource, None)
        return self._finish(response, records, request.validate_only)

    def _finish(self, response: Any, records: list[Any], validate_only: bool) -> Plan:
        records += cleared_elrs(self._cluster, records)
        check_operation_size(records)
        return Plan(response, () if validate_only else records)

    # One resource

    def plan_new_topic(self, name: str, wanted: Mapping[str, str | None]) -> tuple[dict[str, str], list[Any]]:
        """The overrides of a new topic, and their records."""
        missing = [key for key, value in wanted.items() if value is None]
        if missing:
            message = f"Null value not supported for topic configs: {','.join(sorted(missing))}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        if not wanted:
            return {}, []
        alterations: dict[str, Alteration] = {key: (SET, value) for key, value in wanted.items()}
        records = self._alter((TOPIC_RESOURCE, name), alterations, is_new=True)
        return {record.name: record.value for record in records}, [*records, *cleared_elrs(self._cluster, records)]

    def _alter(self, resource: Resource, alterations: Mapping[str, Alteration], *, is_new: bool = False) -> list[Any]:
        before = {} if is_new else self._cluster.view.configs.get(resource) or {}
        after = dict(before)
        records: list[Any] = []
        for name, (operation, operand) in alterations.items():
            value = self._altered(resource, name, operation, operand, before.get(name))
            # A broker's record is written even if the value is unchanged: it makes the broker read its key files again.
            if value != before.get(name) or resource[0] == BROKER_RESOURCE:
                record = ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)
                self._check_transition(record)
                records.append(record)
            if value is None:
                after.pop(name, None)
            else:
                after[name] = value
        try:
            self._check(resource, after, before, is_new)
        except ConfigError as e:
            # In Apache Kafka, brokers check their own configurations and answer with this code.
            code = ErrorCode.INVALID_REQUEST if resource[0] == BROKER_RESOURCE else ErrorCode.INVALID_CONFIG
            raise KafkaError(code, str(e)) from None
        if not is_new:
            self._check_exists(resource)
        return records

    def _altered(
        self, resource: Resource, name: str, operation: int, operand: str | None, current: str | None
    ) -> str | None:
        if operation == DELETE:
            return None
        if operation not in (SET, APPEND, SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
        if operand is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if operation == SET:
            return operand
        kind, default = _list_key(resource[0], name)
        if kind != "list":
            word = "APPEND" if operation == APPEND else "SUBTRACT"
            message = f"Can't {word} to key {name} because its type is not LIST."
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        text = default if current is None else current
        return change_list(text or "", operand, append=operation == APPEND)

    def _check_transition(self, record: ConfigRecord) -> None:
        """Raise for alterations that the present state of the cluster forbids."""
        why: str | None = None
        of_broker = record.resource_type == BROKER_RESOURCE
        if of_broker and record.name == MIN_ISR and self._cluster.elr_enabled:
            if record.resource_name:
                why = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
            elif record.value is None:
                why = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        if of_broker and record.name == CORDONED_LOG_DIRS and self._cluster.level < CORDONED_LOG_DIRS_SUPPORTED:
            why = (
                f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires metadata.version >= 30"
            )
        if record.value is not None and len(record.value) > VALUE_LENGTH_MAX:
            why = (
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{VALUE_LENGTH_MAX} bytes."
            )
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)

    def _check(self, resource: Resource, after: dict[str, str], before: Mapping[str, str], is_new: bool) -> None:
        """Raise unless the resource may have exactly the values `after`."""
        kind, name = resource
        cluster = self._cluster
        if kind == TOPIC_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_topic_name(name)
            check_topic_overrides(after, cluster.config, None if is_new else before)
        elif kind == BROKER_RESOURCE:
            if name:
                _broker_id(name)
            check_broker_overrides(after, per_broker=bool(name))
        elif kind == GROUP_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            check_group_overrides(after, cluster.config)
        elif kind == CLIENT_METRICS_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
            self._check_client_metrics(name, after)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {RESOURCES.get(kind, kind)}")

    @staticmethod
    def _check_client_metrics(name: str, after: dict[str, str]) -> None:
        unknown = next((key for key in after if key not in CLIENT_METRICS), None)
        if unknown is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown}")
        try:
            check_client_metrics_overrides(name, after)
        except IntervalError as e:
            # Kafka answers this invalid value with INVALID_REQUEST, and any other with INVALID_CONFIG.
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(e)) from None

    def _check_exists(self, resource: Resource) -> None:
        kind, name = resource
        if kind == TOPIC_RESOURCE and self._cluster.topic_named(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if kind == BROKER_RESOURCE and name:
            node = _broker_id(name)
            view = self._cluster.view
            if node not in view.brokers and node not in view.controllers and node != self._cluster.node_id:
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node} found.")


class _Answers:
    """Collects the results of both responses, which have the same fields."""

    __slots__ = ("_class", "_into")

    def __init__(self, answer_class: Any, into: list[Any]) -> None:
        self._class = answer_class
        self._into = into

    def add(self, resource: Resource, error: KafkaError | None) -> None:
        self._into.append(
            self._class(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource[0],
                resource_name=resource[1],
            )
        )


def _distinct(resources: list[Any], requested: dict[Resource, list[Any]], answers: _Answers) -> list[Resource]:
    """The resources to handle; their configs are put into `requested`. Answers unknown and repeated resources."""
    twice: set[Resource] = set()
    for entry in resources:
        resource = (entry.resource_type, entry.resource_name)
        if entry.resource_type not in RESOURCES:
            message = f"Unknown resource type {entry.resource_type}."
            answers.add(resource, KafkaError(ErrorCode.UNSUPPORTED_VERSION, message))
        elif resource in requested or resource in twice:
            if requested.pop(resource, None) is not None:
                answers.add(resource, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource."))
            twice.add(resource)
        else:
            requested[resource] = entry.configs
    return list(requested)


def _list_key(kind: int, name: str) -> tuple[str | None, str | None]:
    """Type and default text of a key. As in Kafka, keys of client metrics do not count as lists here."""
    definitions = {TOPIC_RESOURCE: TOPIC, GROUP_RESOURCE: GROUP, CLIENT_METRICS_RESOURCE: {}}
    table = definitions.get(kind)
    key = definition(name) if table is None else table.get(name)
    return (None, None) if key is None else (key.kind, key.default_text)


def _broker_id(name: str) -> int:
    broker_id = java_int(name)
    if broker_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    if broker_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    return broker_id
