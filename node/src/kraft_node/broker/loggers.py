"""The levels of this process's loggers under Kafka's names for levels (KIP-412). Kept in memory, lost at restart."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

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
    """Every logger with the level in force, the root first."""
    yield ROOT, _name(logging.getLogger())
    known = logging.Logger.manager.loggerDict
    for name in sorted(known):
        logger = known[name]
        if isinstance(logger, logging.Logger):
            yield name, _name(logger)


def _name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return _NAMES.get(level) or _NAMES[min(_NAMES, key=lambda known: abs(known - level))]


def exists(name: str) -> bool:
    return name == ROOT or isinstance(logging.Logger.manager.loggerDict.get(name), logging.Logger)


def is_level(level: str) -> bool:
    return level in _LEVELS


def set_level(name: str, level: str) -> None:
    """Set one of Kafka's levels."""
    logging.getLogger(None if name == ROOT else name).setLevel(_LEVELS[level])


def unset_level(name: str) -> None:
    """Give a logger the level of its parent again."""
    logging.getLogger(name).setLevel(logging.NOTSET)
