"""AlterConfigs (33), versions 0-2, and IncrementalAlterConfigs (44), versions 0-1 (KIP-339, KIP-412).

The controller handles all resources except the levels of this process's loggers, which are set here. A configuration
that this broker could not use is refused here with INVALID_REQUEST, because the controller does not know its file. The
rest is forwarded, and the two answers are merged.

A lane reads the stores of an alteration (`dynamic.check_change`). The request waits for it before it is forwarded.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import loggers
from kraft_node.base.config.definitions import BROKER
from kraft_node.base.config.dynamic import change_list, check_broker_overrides, check_change
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.resources import (
    APPEND,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DELETE,
    GROUP_RESOURCE,
    OPERATIONS,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
    check_altered,
)
from kraft_node.security.rewriting import changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.messages import (
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.base.config.dynamic import BrokerConfig, Remainder
    from kraft_node.base.env import Background
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.controller_link import Answer
    from kraft_node.broker.forward import Forwarder
    from kraft_node.broker.metadata_cache import MetadataCache

    Unchecked = list[tuple[Any, list[Remainder]]]
    """Resources with the parts of their checks that a lane makes."""

log = logging.getLogger(__name__)

LANE: Final = "configs:check"


class AlterConfigsHandler:
    """Handles loggers and refusals of this broker; forwards all other resources to the controller."""

    def __init__(
        self,
        background: Background,
        node_id: int,
        config: BrokerConfig,
        metadata: MetadataCache,
        forward: Forwarder,
    ) -> None:
        self._background = background
        self._node_id = node_id
        self._config = config
        self._metadata = metadata
        self._forward = forward

    def replace(self, ctx: RequestContext, request: Any) -> Any:
        """AlterConfigs: loggers cannot be set as a whole."""
        return self._handle(ctx, request, self._refused_as_whole)

    def incremental(self, ctx: RequestContext, request: Any) -> Any:
        """IncrementalAlterConfigs."""
        return self._handle(ctx, request, partial(self._answered_here, validate_only=request.validate_only))

    def _handle(self, ctx: RequestContext, request: Any, answer_here: Callable[[Any, Unchecked], Any]) -> Any:
        """Answer the resources that `answer_here` handles, forward the rest."""
        resources = request.resources
        named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        results = []
        others = []
        unchecked: Unchecked = []
        for resource in resources:
            if named[resource.resource_type, resource.resource_name] > 1:
                twice = "Each resource must appear at most once."
                result = _result(resource, ErrorCode.INVALID_REQUEST, twice)
            else:
                result = answer_here(resource, unchecked)
            if result is None:
                others.append(resource)
            else:
                results.append(result)
        if not unchecked:
            return self._go_on(ctx, request, results, others)
        go_on = partial(self._checked, ctx, request, results, others)
        self._background.submit(LANE, partial(_check, unchecked), go_on)
        return None

    def _checked(
        self,
        ctx: RequestContext,
        request: Any,
        results: list[Any],
        others: list[Any],
        refused: list[tuple[Any, Any]] | BaseException,
    ) -> None:
        """Go on after the lane's work: `refused` are resources with their results."""
        if isinstance(refused, BaseException):
            log.error("check of an alteration failed", exc_info=refused)
            ctx.respond(error_response(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, None))
            return
        bad = [resource for resource, _ in refused]
        rest = [resource for resource in others if not any(resource is one for one in bad)]
        try:
            response = self._go_on(ctx, request, results + [result for _, result in refused], rest)
        except KafkaError as e:
            response = error_response(request, ctx.api_version, e.code, e.message)
        if response is not None:
            ctx.respond(response)

    def _go_on(self, ctx: RequestContext, request: Any, results: list[Any], others: list[Any]) -> Any:
        """Forward `others`; the answer has these `results`, too."""
        if not results:
            return self._forward(ctx, request)
        if not others:
            return _response(request, results)
        rest = changed(request, resources=others)
        self._forward.send(ctx, rest, partial(self._merge, ctx, rest, results))
        return None

    def _merge(self, ctx: RequestContext, rest: Any, results: list[Any], answer: Answer) -> None:
        if isinstance(answer, KafkaError | OSError):
            code = answer.code if isinstance(answer, KafkaError) else ErrorCode.REQUEST_TIMED_OUT
            others = [_result(resource, code, str(answer)) for resource in rest.resources]
        else:
            others = answer.responses
        ctx.respond(_response(rest, results + others))

    def _refused_as_whole(self, resource: Any, unchecked: Unchecked) -> Any:
        problem = self._refusal(resource)
        if problem is None and resource.resource_type == BROKER_LOGGER_RESOURCE:
            problem = ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}"
        if problem is not None:
            return _result(resource, *problem)
        if resource.resource_type == BROKER_RESOURCE:
            overrides = {config.name: config.value for config in resource.configs}
            return self._refused_own(resource, overrides, unchecked)
        return None

    def _answered_here(self, resource: Any, unchecked: Unchecked, *, validate_only: bool) -> Any:
        problem = self._refusal(resource)
        if problem is not None:
            return _result(resource, *problem)
        try:
            if resource.resource_type == BROKER_LOGGER_RESOURCE:
                loggers.alter(resource, self._node_id, validate_only=validate_only)
                return _result(resource, ErrorCode.NONE, None)
            if resource.resource_type == BROKER_RESOURCE:
                return self._refused_own(resource, self._altered(resource), unchecked)
        except KafkaError as e:
            return _result(resource, e.code, e.message)
        return None

    def _refused_own(self, resource: Any, overrides: dict[str, str], unchecked: Unchecked) -> Any:
        """The error if this broker could not use `overrides` as its own or every broker's configuration; None if it
        could, as far as it can be seen on the loop.
        """
        per_broker = bool(resource.resource_name)
        try:
            check_broker_overrides(overrides, per_broker=per_broker)
            remainders = check_change(self._config, overrides, per_broker=per_broker)
        except ConfigError as e:
            return _result(resource, ErrorCode.INVALID_REQUEST, str(e))
        if remainders:
            unchecked.append((resource, remainders))
        return None

    def _refusal(self, resource: Any) -> tuple[ErrorCode, str | None] | None:
        """The error for alterations that are invalid for every resource; Kafka does not report unknown operations
        here."""
        names = [config.name for config in resource.configs]
        if len(set(names)) < len(names):
            return ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"
        nulls = [config.name for config in resource.configs if config.value is None and not _deletes(config)]
        if nulls:
            return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        kind, name = resource.resource_type, resource.resource_name
        if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
            try:
                if kind == BROKER_LOGGER_RESOURCE:
                    loggers.check_own(self._node_id, name)
                elif name:
                    check_altered(self._node_id, name, "Unexpected broker id, expected %d, but received %s")
            except KafkaError as e:
                return e.code, e.message
            return None
        if kind not in (TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
            return ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}"
        if any(getattr(config, "config_operation", SET) not in OPERATIONS for config in resource.configs):
            return ErrorCode.UNKNOWN_SERVER_ERROR, None
        return None

    def _altered(self, resource: Any) -> dict[str, str]:
        """A broker's overrides after the alteration; the controller refuses unknown operations.

        Raises KafkaError for list operations on keys that are not lists.
        """
        overrides = self._metadata.configs(BROKER_RESOURCE, resource.resource_name)
        for config in resource.configs:
            name, operation = config.name, config.config_operation
            if operation == DELETE:
                overrides.pop(name, None)
            elif operation == SET:
                overrides[name] = config.value
            elif operation in (APPEND, SUBTRACT):
                key = BROKER.get(name)
                if key is None:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
                if key.kind != "list":
                    word = "append" if operation == APPEND else "subtract"
                    message = f"Config value {word} is not allowed for config key: {name}"
                    raise KafkaError(ErrorCode.INVALID_CONFIG, message)
                text = overrides.get(name, key.default_text) or ""
                overrides[name] = change_list(text, config.value, append=operation == APPEND)
        return overrides


def _check(unchecked: Unchecked) -> list[tuple[Any, Any]]:
    """Make the checks that remain. Returns the resources that are refused, with their results."""
    refused = []
    for resource, remainders in unchecked:
        try:
            for remainder in remainders:
                remainder()
        except ConfigError as e:
            refused.append((resource, _result(resource, ErrorCode.INVALID_REQUEST, str(e))))
    return refused


def _response(request: Any, results: list[Any]) -> Any:
    """The response class for `request`: rows of both kinds of answer have the same fields."""
    if isinstance(request, IncrementalAlterConfigsRequest):
        return IncrementalAlterConfigsResponse(responses=results)
    row = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(
        responses=[row(r.error_code, r.error_message, r.resource_type, r.resource_name) for r in results]
    )


def _deletes(config: Any) -> bool:
    return getattr(config, "config_operation", SET) == DELETE


def _result(resource: Any, code: ErrorCode, text: str | None) -> Any:
    return IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        code, text, resource.resource_type, resource.resource_name
    )
