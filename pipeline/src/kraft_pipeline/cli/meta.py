"""`kraft-pipeline meta archive | as-of | report | plan`: the metadata of a cluster, then and now."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from kraft_pipeline.archive.spec import ArchiveSpec
    from kraft_pipeline.archive.state import State

DONE: Final = 0
UNHEALTHY: Final = 1
NOT_DONE: Final = 2
"""Exit codes: done; `report --check` found partitions that are offline or under-replicated; it could not be done, or
what is wanted is no such thing."""

ROWS_SHOWN: Final = 50
PIPE_COLUMNS: Final = 1000
"""Whoever reads from a pipe wants a line a row."""


def add(groups: Any) -> None:
    """The parsers of this group."""
    meta = groups.add_parser("meta", help="the metadata log as tables, reports and plans", description=__doc__)
    commands = meta.add_subparsers(required=True, metavar="archive|as-of|report|plan")
    archive = _command(commands, "archive", _archive, "bring the archive of the metadata up to date")
    archive.add_argument("--table", metavar="PATH", help="where the archive is; with -f the file says it")
    archive.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    as_of = _command(commands, "as-of", _as_of, "the cluster at an offset or a time")
    when = as_of.add_mutually_exclusive_group()
    when.add_argument("--offset", type=int, help="after the record at this offset of the metadata log")
    when.add_argument("--time", help="at this time: ISO 8601 (UTC without a zone), or milliseconds since 1970")
    as_of.add_argument("--topic", help="one topic only, with its partitions")


def _command(commands: Any, name: str, run: Callable[..., int], text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"{_PATHS}; an archive of Parquet")
    parser.add_argument("-f", "--file", type=Path, help="a KafkaMetadataArchive in YAML instead of arguments")
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT", help="read from the controllers")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="read from the controllers, which brokers name")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=lambda options: _guarded(run, options))
    return parser


_PATHS: Final = "a directory __cluster_metadata-0 or one that holds it; segments and snapshots"


def _guarded(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    from kraft_pipeline.archive.errors import ArchiveError
    from kraft_pipeline.client import ClientError
    from kraft_pipeline.tables.committer import ConflictError

    try:
        return run(options)
    except (ArchiveError, ClientError, ConflictError, OSError, ValueError) as e:
        print(f"kraft-pipeline meta: {e}", file=sys.stderr)
        return NOT_DONE


def spec_of(options: argparse.Namespace) -> ArchiveSpec:
    """What the arguments name. Raises SpecError."""
    from kraft_pipeline.archive.spec import ArchiveSpec, load
    from kraft_pipeline.tables.spec import SpecError

    named = [bool(options.paths), options.file is not None, bool(options.bootstrap_controller)]
    if sum([*named, bool(options.bootstrap_server)]) != 1:
        raise SpecError("give one of: files or a directory, -f FILE, --bootstrap-controller, --bootstrap-server")
    if options.file is not None:
        return load(options.file)
    return ArchiveSpec(
        paths=tuple(options.paths),
        controllers=options.bootstrap_controller or "",
        brokers=options.bootstrap_server or "",
        format=getattr(options, "format", "parquet"),
        path=getattr(options, "table", "") or "",
    )


def rows_of(options: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    """The changes that the arguments name: those of an archive, or else those of the log itself."""
    from kraft_pipeline.archive.run import archived, source
    from kraft_pipeline.archive.spec import ArchiveSpec

    spec = spec_of(options)
    if options.file is not None:
        return archived(spec)
    if len(spec.paths) == 1 and (Path(spec.paths[0]) / "changes").is_dir():
        return archived(ArchiveSpec(path=spec.paths[0]))
    return source(spec)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal that is counted up by rows."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda rows: bar.update(task, advance=rows)


def _archive(options: argparse.Namespace) -> int:
    from kraft_pipeline.archive.run import archive
    from kraft_pipeline.tables.spec import SpecError

    spec = spec_of(options)
    if not spec.path:
        raise SpecError("--table says where the archive is to be")
    with _progress("archiving") as tell:
        done = archive(spec, tell)
    if options.json:
        print(json.dumps(done.to_json()))
    else:
        print(
            f"{done.rows:,} changes in {done.seconds:.2f} s, up to offset {done.offset}: {done.topics:,} topics, "
            f"{done.partitions:,} partitions, {done.brokers} brokers"
        )
    return DONE


def _as_of(options: argparse.Namespace) -> int:
    from kraft_pipeline.archive.run import state_at

    with _progress("replaying") as tell:
        time_ms = None if options.time is None else milliseconds(options.time)
        state = state_at(_told(rows_of(options), tell), offset=options.offset, time_ms=time_ms)
    return _show_state(state, options)


def _told(rows: Iterator[pa.RecordBatch], tell: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        tell(batch.num_rows)
        yield batch


def milliseconds(text: str) -> int:
    """Of a time as people write it. Raises ValueError."""
    from datetime import UTC, datetime

    if text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"--time: {text!r} is neither ISO 8601 nor milliseconds since 1970") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def iso(ms: int) -> str:
    """A time as people read it."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show_state(state: State, options: argparse.Namespace) -> int:
    import pyarrow.compute as pc

    from kraft_pipeline.archive.tables import state_tables

    tables = state_tables(state)
    if options.topic is not None:
        if options.topic not in state.small.topics.values():
            raise ValueError(f"there was no topic {options.topic} at offset {state.offset}")
        names = pc.equal(tables["partitions"].column("topic").cast("string"), options.topic)
        tables = {"partitions": tables["partitions"].filter(names), "configs": tables["configs"]}
        mine = pc.and_(
            pc.equal(tables["configs"].column("resource"), "topic"),
            pc.equal(tables["configs"].column("name"), options.topic),
        )
        tables["configs"] = tables["configs"].filter(mine)
    head = {"offset": state.offset, "epoch": state.epoch, "time": iso(state.timestamp_ms), "leader": state.small.leader}
    if options.json:
        print(json.dumps({**head, **{name: rows.to_pylist() for name, rows in tables.items()}}))
        return DONE
    from rich.table import Table

    console = _console()
    console.print("  ".join(f"{key} {value}" for key, value in head.items()), highlight=False)
    for name, rows in tables.items():
        shown = Table(title=f"{name} ({rows.num_rows:,})", box=None, title_justify="left")
        for column in rows.column_names:
            shown.add_column(column)
        for row in rows.slice(0, ROWS_SHOWN).to_pylist():
            shown.add_row(*(_cell(value) for value in row.values()))
        console.print(shown)
        if rows.num_rows > ROWS_SHOWN:
            console.print(f"and {rows.num_rows - ROWS_SHOWN:,} more (--json has them all)")
    return DONE


def _cell(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
