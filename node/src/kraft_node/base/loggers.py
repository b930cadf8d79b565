"""The levels of this process's loggers, under Kafka's names of levels (KIP-412). Kept in memory, lost on restart.

Each broker and controller handles its own loggers, active or not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.resources import APPEND, DELETE, OPERATIONS, SET, SUBTRACT, check_altered
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.config.describe import ConfigEntry

ROOT: Final = "root"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}


def levels() -> Iterator[tuple[str, str]]:
    """Every logger with its effective level, the root first."""
    yield ROOT, _name(logging.getLogger())
    known = logging.Logger.manager.loggerDict
    for name in sorted(known):
        logger = known[name]
        if isinstance(logger, logging.Logger):
            yield name, _name(logger)


def _name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return _NAMES.get(level) or _NAMES[min(_NAMES, key=lambda known: abs(known - level))]


def described() -> list[ConfigEntry]:
    """Every logger in the form of DescribeConfigs, which has neither types nor synonyms for loggers."""
    from kraft_node.base.config.describe import (  # noqa: PLC0415  (administrators' requests only)
        DYNAMIC_BROKER_LOGGER_CONFIG,
        ConfigEntry,
    )

    return [
        ConfigEntry(
            name,
            level,
            source=DYNAMIC_BROKER_LOGGER_CONFIG,
            read_only=False,
            sensitive=False,
            type_id=0,
            synonyms=[],
        )
        for name, level in levels()
    ]


def alter(resource: Any, node_id: int, *, validate_only: bool) -> None:
    """Set the levels in a resource of IncrementalAlterConfigs. If it raises KafkaError, nothing was set."""
    check_own(node_id, resource.resource_name)
    for config in resource.configs:
        _check(config)
    if validate_only:
        return
    for config in resource.configs:
        if config.config_operation == SET:
            logging.getLogger(None if config.name == ROOT else config.name).setLevel(_LEVELS[config.value])
        else:
            logging.getLogger(config.name).setLevel(logging.NOTSET)  # inherit from its parent again


def check_own(own: int, name: str) -> None:
    """Raise INVALID_REQUEST unless the resource `name` is this node."""
    check_altered(own, name, "Unexpected node id. Expected %d, but received %s")


def _check(config: Any) -> None:
    operation, name = config.config_operation, config.name
    if operation in (APPEND, SUBTRACT):
        word = "APPEND" if operation == APPEND else "SUBTRACT"
        message = f"{word} operation is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if operation not in OPERATIONS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if name != ROOT and not isinstance(logging.Logger.manager.loggerDict.get(name), logging.Logger):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == DELETE and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if operation == SET and config.value not in _LEVELS:
        message = (
            f"Cannot set the log level of {name} to {config.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
