"""Common parts of the programs: arguments, reading a configuration file, failing with one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig


class ToolError(Exception):
    """An expected failure; its text is the whole message for the user."""


class Parser(argparse.ArgumentParser):
    """An argument parser that exits with 1 for wrong arguments, as Kafka's programs do."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message to standard error, and exit with 1 (argparse: 2)."""
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: error: {message}\n")


def program(name: str) -> str:
    """The name under which the program was started; `name` if it was started by python -m."""
    started = os.path.basename(sys.argv[0])
    return started if started.startswith("kafka-") else name


def run(main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a program's main function and exit with its exit code."""
    try:
        code = main(sys.argv[1:] if arguments is None else arguments)
        flush_output()
    except (ToolError, OSError, ValueError) as e:
        if isinstance(e, BrokenPipeError):  # the reader (head, less) has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)
        print(message(e), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


def flush_output() -> None:
    """Flush the output. Raises OSError after a failure. A program may be started without standard output."""
    if sys.stdout is not None:
        sys.stdout.flush()


def message(error: Exception) -> str:
    """One line for an error; it names the file, if any."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def read_text(path: str) -> str:
    """The text of a properties file."""
    from kraft_protocol.configs.properties import decode_properties

    with open(path, "rb") as file:
        return decode_properties(file.read())


def read_config(path: str, overrides: Iterable[str] = (), needed: Container[str] | None = None) -> NodeConfig:
    """The node's configuration in the file at `path`, with values for its variables (`config.providers`).

    `needed`: other keys may have variables without a value. Raises ToolError, which names the file and the problem.
    """
    from kraft_node.base.config import ConfigError, NodeConfig
    from kraft_node.base.config.node import parse_overrides
    from kraft_node.base.config.properties import parse_properties
    from kraft_protocol.configs.providers import ProviderError, resolved

    try:
        texts = parse_properties(read_text(path)) | parse_overrides(overrides)
        return NodeConfig.parse(resolved(texts, needed))
    except (ConfigError, ProviderError) as e:
        raise ToolError(f"{path}: {e}") from None
