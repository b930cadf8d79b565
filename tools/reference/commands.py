"""A page of all command lines, from the programs' own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click

import kraft_cli.kraftcluster
import kraft_cli.kubectl
import kraft_node.cli.cluster
import kraft_node.cli.dump_log
import kraft_node.cli.metadata_shell
import kraft_node.cli.server_start
import kraft_node.cli.storage
import kraft_pipeline.cli.main
from tools.reference.text import cell, code, generated, table

FOLDER: Final = "docs/reference/commands"
ARGPARSE: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "kafka-storage": kraft_node.cli.storage.main,
    "kafka-server-start": kraft_node.cli.server_start.main,
    "kafka-cluster": kraft_node.cli.cluster.main,
    "kafka-dump-log": kraft_node.cli.dump_log.main,
    "kafka-metadata-shell": kraft_node.cli.metadata_shell.main,
}
ROWS: Final = ("argument", "default", "meaning")


class _FoundError(Exception):
    """Carries the parser out of a program's `main`."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def pages() -> dict[str, str]:
    """Path -> text: the node's tools, the cluster programs, the pipeline's programs."""
    node = "".join(_argparse(name, parser_of(main)) for name, main in ARGPARSE.items())
    clusters = "".join(
        _click(name, group)
        for name, group in (
            ("kraftcluster", kraft_cli.kraftcluster.main),
            ("kubectl kraft", kraft_cli.kubectl.main),
        )
    )
    pipeline = _argparse("kraft-pipeline", parser_of(kraft_pipeline.cli.main.main))
    source = "the parsers of the programs"
    return {
        f"{FOLDER}/node.md": generated("The node's tools", source)
        + "Each tool is also installed under Kafka's file name with `.sh`.\n\n"
        + node.rstrip()
        + "\n",
        f"{FOLDER}/clusters.md": generated("kraftcluster and kubectl kraft", source) + clusters.rstrip() + "\n",
        f"{FOLDER}/pipeline.md": generated("kraft-pipeline", source) + pipeline.rstrip() + "\n",
    }


def parser_of(main: Callable[[Sequence[str]], int]) -> argparse.ArgumentParser:
    """The parser that `main` builds, before it parses anything."""

    def found(self: argparse.ArgumentParser, *_: Any, **__: Any) -> Any:
        raise _FoundError(self)

    parse = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = found  # type: ignore[method-assign]
    try:
        main([])
    except _FoundError as e:
        return e.parser
    finally:
        argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign]
    raise ValueError(f"{main.__module__} makes no parser")


def _argparse(name: str, parser: argparse.ArgumentParser, level: int = 2) -> str:
    text = f"{'#' * level} {name}\n\n{_sentence(parser.description)}"
    text += _ended(table(ROWS, _options(parser)))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for command, sub in action.choices.items():
                sub.description = sub.description or helps.get(command, "")
                text += _argparse(f"{name} {command}", sub, min(level + 1, 4))
    return text


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)) or action.help == argparse.SUPPRESS:
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            names += " " + _value(action)
        default = "required" if action.option_strings and action.required else _plain(action.default)
        text = (action.help or "") % {"default": action.default, "prog": parser.prog}
        yield code(names), default if default == "required" else code(default), cell(text)


def _value(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def _plain(default: Any) -> str:
    return "" if default in (None, False, True, [], (), argparse.SUPPRESS) else str(default)


def _click(name: str, command: click.Command, level: int = 2) -> str:
    text = f"{'#' * level} {name}\n\n{_sentence(command.help)}"
    context = click.Context(command, info_name=name)
    rows = [row for param in command.params if (row := _parameter(param, context))]
    text += _ended(table(ROWS, rows))
    if isinstance(command, click.Group):
        for sub in command.commands.values():
            if not sub.hidden:
                text += _click(f"{name} {sub.name}", sub, level + 1)
    return text


def _parameter(param: click.Parameter, context: click.Context) -> tuple[str, str, str] | None:
    if isinstance(param, click.Argument):
        words = param.make_metavar(context)
        return code(words), "", ""
    if not isinstance(param, click.Option) or param.hidden:
        return None
    names = ", ".join([*param.opts, *param.secondary_opts])
    if not param.is_flag and not param.count:
        names += " " + param.make_metavar(context)
    default = param.to_info_dict().get("default")
    shown = "" if param.is_flag or default is None or callable(default) else _plain(default)
    return code(names), "required" if param.required else code(shown), cell(param.help or "")


def _sentence(text: str | None) -> str:
    words = " ".join((text or "").replace("\b", "").split()).replace("<", "&lt;")
    if not words:
        return ""
    words = words[0].upper() + words[1:]
    return words + ("" if words.endswith((".", "!", "?")) else ".") + "\n\n"


def _ended(text: str) -> str:
    return text + "\n" if text else ""
