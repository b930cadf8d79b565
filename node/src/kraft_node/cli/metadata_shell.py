"""kafka-metadata-shell: shows the metadata of a cluster as a tree of files (KIP-631).

    kafka-metadata-shell --snapshot FILE                [command …]
    kafka-metadata-shell --directory DIR                [command …]
    kafka-metadata-shell --controllers HOST:PORT,…      [command …]
    kafka-metadata-shell --config FILE                  [command …]

`--command-config FILE` names client properties, for TLS and SASL.

Commands are cat, find, ls and tree; the prompt also has cd, exit, help, history, man and pwd. Names and texts are the
same as in Apache Kafka's shell, which reads only snapshots. As there, a command that finds nothing prints a message
and exits with 0. `--directory` is ours: it reads a whole log directory. `--controllers` and `--config` come from
KIP-631 and were never released. They read a running cluster and update the metadata before every command. The file
holds client properties; it may also name the controllers, like a node's file.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn

from kraft_node.cli.client import security_in
from kraft_node.cli.common import Parser, ToolError, message, program, read_text, run
from kraft_node.cli.metadata_source import Controllers, ImageSource, LogDirectory, SnapshotSource
from kraft_node.cli.metadata_tree import Node, ShellDirectory, root

PROMPT: Final = ">> "
INDENT: Final = "  "
GROUPED: Final = re.compile(r"\{([^{}]*)\}")

COMMANDS: Final = {
    "cat": "Show the contents of metadata files.",
    "cd": "Set the current working directory.",
    "exit": "Exit the metadata shell.",
    "find": "Search for nodes in the directory hierarchy.",
    "help": "Display this help message.",
    "history": "Print command history.",
    "ls": "List metadata nodes.",
    "man": "Show the help text for a specific command.",
    "pwd": "Print the current working directory.",
    "tree": "Show the contents of metadata nodes in a tree structure.",
}
ARGUMENTS: Final = {
    "cat": ("targets", "+", "The metadata files to display."),
    "cd": ("target", "?", "The directory to change to."),
    "find": ("paths", "*", "The paths to start at."),
    "history": ("numEntriesToShow", "?", "The number of entries to show."),
    "ls": ("targets", "*", "The metadata node paths to list."),
    "man": ("cmd", "1", "The command to get help text for."),
    "tree": ("targets", "+", "The metadata nodes to display."),
}
WITHOUT_PROMPT: Final = ("cat", "find", "ls", "tree")


class Leave(Exception):  # noqa: N818 - a command, not a fault
    """The user ends the session."""


class Shell:
    """One session: an image, a working directory and an output."""

    def __init__(
        self, source: ImageSource, say: Callable[[str], None], *, interactive: bool, width: int | None = None
    ) -> None:
        self._source = source
        self._say = say
        self._interactive = interactive
        self._width = width
        self.here: tuple[str, ...] = ()
        self.history: list[str] = []

    # Finding nodes

    def parts(self, path: str) -> list[str]:
        """The components of a path, starting at the root."""
        found: list[str] = [] if path.startswith("/") else list(self.here)
        for part in path.split("/"):
            if part == "..":
                del found[-1:]
            elif part not in ("", "."):
                found.append(part)
        return found

    def nodes(self, path: str) -> list[tuple[tuple[str, ...], Node]]:
        """Every node that matches a path. The path may contain `*`, `?` and `{a,b}`."""
        level: list[tuple[tuple[str, ...], Node]] = [((), root(self._source.image))]
        for part in self.parts(path):
            pattern = glob(part)
            below: list[tuple[tuple[str, ...], Node]] = []
            for where, node in level:
                if not isinstance(node, ShellDirectory):
                    continue
                names = [part] if pattern is None else [name for name in node.names() if pattern.fullmatch(name)]
                children = ((name, node.child(name)) for name in names)
                below += [((*where, name), child) for name, child in children if child is not None]
            level = below
        return level

    def complete(self, prefix: str) -> list[str]:
        """The paths that start with `prefix`; directories end with a slash."""
        folder, slash, start = prefix.rpartition("/")
        at = self.nodes(folder + slash if folder or slash else ".")
        found = []
        for _, node in at:
            if isinstance(node, ShellDirectory):
                found += [
                    f"{folder}{slash}{name}" + ("/" if isinstance(child, ShellDirectory) else "")
                    for name, child in node.children()
                    if name.startswith(start)
                ]
        return found

    # Commands

    def run(self, words: Sequence[str]) -> None:
        """Run one command. Raises Leave, ToolError."""
        words = list(words)
        while words and not words[-1]:
            words.pop()
        if not words:
            return
        name, arguments = words[0], words[1:]
        known = sorted(COMMANDS) if self._interactive else WITHOUT_PROMPT
        if name not in known:
            self._say(f"invalid choice: '{name}' (choose from {', '.join(repr(one) for one in known)})")
            return
        _, count, _ = ARGUMENTS.get(name, ("", "0", ""))
        if count in "1+" and not arguments:
            self._say("too few arguments")
        elif (count in "?1" and len(arguments) > 1) or (count == "0" and arguments):
            self._say(f"unrecognized arguments: '{arguments[1 if count in '?1' else 0]}'")
        else:
            self._source.refresh()
            getattr(self, f"_{name}")(arguments)

    def _cat(self, targets: Sequence[str]) -> None:
        for target in targets:
            found = self.nodes(target)
            for _, node in found:
                self._say(f"cat: {target}: Is a directory" if isinstance(node, ShellDirectory) else node)
            if not found:
                self._say(f"cat: {target}: No such file or directory.")

    def _tree(self, targets: Sequence[str]) -> None:
        for target in targets:
            found = self.nodes(target)
            for _, node in found:
                self._print(node, 0)
            if not found:
                self._say(f"tree: {target}: No such file or directory.")

    def _print(self, node: Node, level: int) -> None:
        if not isinstance(node, ShellDirectory):
            self._say(INDENT * level + node)
            return
        for name, child in node.children():
            self._say(f"{INDENT * level}{name}:")
            self._print(child, level + 1)

    def _find(self, paths: Sequence[str]) -> None:
        for path in [path for path in paths if path] or ["."]:
            found = self.nodes(path)
            for _, node in found:
                self._walk(path, node)
            if not found:
                self._say(f"find: {path}: no such file or directory.")

    def _walk(self, path: str, node: Node) -> None:
        self._say(path)
        if isinstance(node, ShellDirectory):
            for name, child in node.children():
                self._walk(f"/{name}" if path == "/" else f"{path}/{name}", child)

    def _ls(self, targets: Sequence[str]) -> None:
        files: list[str] = []
        directories: list[tuple[str, ShellDirectory]] = []
        for target in [target for target in targets if target] or ["."]:
            found = self.nodes(target)
            for where, node in found:
                name = where[-1] if where else "/"
                if isinstance(node, ShellDirectory):
                    directories.append((name, node))
                else:
                    files.append(name)
            if not found:
                self._say(f"ls: {target}: no such file or directory.")
        self._columns(files)
        is_first = not files
        for name, directory in directories:
            entries = directory.names()
            if entries and (files or len(directories) > 1):
                self._say(f"{'' if is_first else chr(10)}{name}:")
            is_first = False
            self._columns(entries)

    def _columns(self, entries: Sequence[str]) -> None:
        rows, widths = columns(entries, self._width)
        for row in range(rows):
            cells = [entries[at] for at in range(row, len(entries), rows)]
            padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
            self._say("".join(padded).rstrip())

    def _cd(self, arguments: Sequence[str]) -> None:
        target = arguments[0] if arguments else "/"
        found = self.nodes(target)
        for where, node in found:
            if isinstance(node, ShellDirectory):
                self.here = where
            else:
                self._say(f"cd: {target}: not a directory.")
        if not found:
            self._say(f"cd: {target}: no such directory.")

    def _pwd(self, _: Sequence[str]) -> None:
        self._say("/" + "/".join(self.here))

    def _history(self, arguments: Sequence[str]) -> None:
        if arguments and not arguments[0].lstrip("-").isdecimal():
            self._say(f"argument numEntriesToShow: could not convert '{arguments[0]}' to a number")
            return
        count = max(0, int(arguments[0])) if arguments else len(self.history)
        first = max(0, len(self.history) - count)
        for number, line in enumerate(self.history[first:], first):
            self._say(f"{number: 5d}  {line}")

    def _help(self, _: Sequence[str]) -> None:
        self._say("Welcome to the metadata shell.\n")
        self._say(f"usage:  {{{','.join(COMMANDS)}}} ...\n")
        for name, text in COMMANDS.items():
            self._say(f"  {name:<20} {text}")

    def _man(self, arguments: Sequence[str]) -> None:
        name = arguments[0]
        if name not in COMMANDS:
            self._say(f"man: unknown command {name}. Type help to get a list of commands.")
            return
        argument, count, text = ARGUMENTS.get(name, ("", "0", ""))
        forms = {"*": f" [{argument} ...]", "+": f" {argument} [{argument} ...]", "?": f" [{argument}]"}
        self._say(f"{name}: {COMMANDS[name]}\n\nusage: {name}{forms.get(count, f' {argument}').rstrip()}")
        if argument:
            self._say(f"\npositional arguments:\n  {argument:<20} {text}")

    def _exit(self, _: Sequence[str]) -> NoReturn:
        raise Leave

    # The prompt

    def talk(self, read: Callable[[str], str]) -> None:
        """Read commands until the input ends."""
        self._say("[ Kafka Metadata Shell ]")
        while True:
            try:
                line = read(PROMPT)
            except EOFError:
                return
            except KeyboardInterrupt:
                self._say("^C")
                continue
            if line.strip():
                self.history.append(line)
            try:
                self.run(shlex.split(line))
            except Leave:
                return
            except (ToolError, OSError, ValueError) as e:
                self._say(message(e))


def glob(text: str) -> re.Pattern[str] | None:
    """The pattern of a path component; None for a plain name, in which a backslash is an ordinary character."""
    if not set(text) & set("*?{"):
        return None
    out = ""
    at = 0
    while at < len(text):
        group = GROUPED.match(text, at)
        if text[at] == "\\" and at + 1 < len(text):
            out += re.escape(text[at + 1])
            at += 2
        elif group is not None:
            out += "(?:" + "|".join(re.escape(choice) for choice in group[1].split(",")) + ")"
            at = group.end()
        else:
            out += {"*": ".*", "?": "."}.get(text[at]) or re.escape(text[at])
            at += 1
    return re.compile(out)


def columns(entries: Sequence[str], width: int | None) -> tuple[int, list[int]]:
    """The number of rows and the width of each column: as many columns as fit, filled column by column.

    Without a screen width the output has one column.
    """
    for count in range((width or 0) // 4, 1, -1):
        rows = -(-len(entries) // count)
        if not rows or -(-len(entries) // rows) != count:
            continue
        widths = [max(map(len, entries[at : at + rows])) + 2 for at in range(0, len(entries), rows)]
        if width is not None and sum(widths) <= width:
            return rows, widths
    return len(entries), [0]


def _parser() -> Parser:
    parser = Parser(prog=program("kafka-metadata-shell"), description="The Kafka metadata shell.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--snapshot", "-s", metavar="FILE", help="the metadata snapshot file to read")
    where.add_argument("--directory", "-d", metavar="DIR", help="the log directory to read")
    where.add_argument("--controllers", "-C", metavar="HOST:PORT,…", help="controllers of a running cluster")
    parser.add_argument(
        "--config",
        "-c",
        metavar="FILE",
        help="client properties for --controllers; alone: a node's configuration, which names the controllers",
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="file of client properties, for TLS and SASL to the controllers"
    )
    parser.add_argument("command", nargs="*", help="the command to run (default: show a prompt)")
    return parser


def _source(args: argparse.Namespace) -> ImageSource:
    if args.snapshot is not None:
        return SnapshotSource(args.snapshot)
    if args.directory is not None:
        return LogDirectory(args.directory)
    if args.controllers:
        return Controllers(args.controllers, security_in(args.command_config or args.config))
    from kraft_node.base.config import parse_properties

    found = parse_properties(read_text(args.config))
    properties = args.config if "security.protocol" in found else None  # only a client's file has this key
    return Controllers(_controllers(args.config, found), security_in(args.command_config or properties))


def _controllers(config: str, properties: dict[str, str]) -> str:
    """The controllers that a node's configuration names. `config`: its file."""
    found = properties.get("controller.quorum.voters") or properties.get("controller.quorum.bootstrap.servers")
    if not found:
        raise ToolError(f"{config}: neither controller.quorum.voters nor controller.quorum.bootstrap.servers is set")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run kafka-metadata-shell. Returns its exit code. Raises ToolError if the metadata cannot be read."""
    from kraft_node.metadata.partitions import MetadataError
    from kraft_protocol.records.errors import BatchError

    parser = _parser()
    args = parser.parse_args(arguments)
    if not (args.snapshot or args.directory or args.controllers or args.config):
        parser.error("one of --snapshot, --directory, --controllers or --config is required")
    try:
        source = _source(args)
    except (BatchError, MetadataError) as e:
        raise ToolError(f"{args.snapshot or args.directory or 'the controllers'}: {e}") from None
    try:
        if args.command:
            Shell(source, print, interactive=False).run(args.command)
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            _interact(Shell(source, print, interactive=True, width=width))
    finally:
        source.close()
    return 0


def _interact(shell: Shell) -> None:
    """Run the shell at a terminal, with history and completion of commands and paths."""
    if sys.stdin.isatty():
        import readline

        def complete(text: str, state: int) -> str | None:
            begun = readline.get_line_buffer()[: readline.get_begidx()].strip()
            found: Iterable[str] = shell.complete(text) if begun else [n for n in COMMANDS if n.startswith(text)]
            return dict(enumerate(found)).get(state)

        readline.set_completer_delims(" \t\n")
        readline.set_completer(complete)
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    shell.talk(input)


def entry() -> None:
    """Run `kafka-metadata-shell` with the arguments of the process, then exit."""
    run(main)


if __name__ == "__main__":
    entry()
