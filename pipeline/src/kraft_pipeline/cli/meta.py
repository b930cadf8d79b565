"""`kraft-pipeline meta archive | as-of | report | plan`: past and present metadata of a cluster."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from kraft_pipeline.archive.health import Health
    from kraft_pipeline.archive.skew import Skew
    from kraft_pipeline.archive.spec import ArchiveSpec
    from kraft_pipeline.archive.state import ClusterState
    from kraft_pipeline.tables.engines.engine import Engine

DONE: Final = 0
UNHEALTHY: Final = 1
NOT_DONE: Final = 2
"""Exit codes: 0 done; 1 `report --check` found offline or under-replicated partitions; 2 failed, or wrong arguments."""

ROWS_SHOWN: Final = 50
PIPE_COLUMNS: Final = 1000
"""Width in characters of a pipe: a row must fit into a line."""


def add(groups: Any) -> None:
    """Add the parsers of this group."""
    meta = groups.add_parser("meta", help="make tables, reports and plans from the metadata log", description=__doc__)
    commands = meta.add_subparsers(required=True, metavar="archive|as-of|report|plan")
    archive = _command(commands, "archive", _archive, "bring the archive of the metadata up to date")
    archive.add_argument("--table", metavar="PATH", help="path of the archive (with -f: see the file)")
    archive.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    archive.add_argument(
        "--master", default="local[*]", help="Spark's master, for large archives (default: %(default)s)"
    )
    as_of = _command(commands, "as-of", _as_of, "the cluster at an offset or a time")
    when = as_of.add_mutually_exclusive_group()
    when.add_argument("--offset", type=int, help="the state after the record at this offset of the metadata log")
    when.add_argument(
        "--time", help="the state at this time: ISO 8601 (UTC without a zone), or milliseconds since 1970"
    )
    as_of.add_argument("--topic", help="show only this topic, with its partitions")
    report = _command(commands, "report", _report, "history of the cluster, and distribution of its load")
    report.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write report.html and the plots (PNG) into this folder"
    )
    report.add_argument(
        "--check", action="store_true", help="exit with code 1 if partitions are offline or under-replicated"
    )
    plan = _command(commands, "plan", _plan, "a reassignment that balances the cluster and moves little")
    plan.add_argument("--brokers", metavar="ID,ID", help="brokers that get replicas (default: all unfenced brokers)")
    plan.add_argument("--topic", action="append", metavar="NAME", help="plan only this topic's partitions; repeatable")
    for one, what in ((report, "show bytes by broker"), (plan, "balance bytes too")):
        one.add_argument("--sizes-from", metavar="HOST:PORT", help=f"{what}, as the brokers' log directories have them")
        one.add_argument(
            "--sizes-file", type=Path, metavar="FILE", help="the same from an output of kafka-log-dirs --describe"
        )
    plan.add_argument("--compare", type=Path, metavar="FILE", help="compare with this other plan")
    plan.add_argument(
        "--out", type=Path, metavar="FILE", help="write the plan to this file, for kafka-reassign-partitions --execute"
    )


def _command(commands: Any, name: str, run: Callable[..., int], text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"{_PATHS}; an archive")
    parser.add_argument("-f", "--file", type=Path, help="a KafkaMetadataArchive in YAML instead of arguments")
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT", help="read from the controllers")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="ask these brokers for the controllers, and read from those"
    )
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="Kafka's client properties, for a secured cluster"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda options: _guarded(run, options))
    return parser


_PATHS: Final = "a directory __cluster_metadata-0 or one that holds it; segments and snapshots"


def _guarded(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    from kraft_pipeline.archive.errors import ArchiveError
    from kraft_pipeline.cli.errors import print_error
    from kraft_pipeline.tables.errors import ConflictError, TaskError
    from kraft_protocol.client.errors import ClientError

    try:
        return run(options)
    except (ArchiveError, ClientError, ConflictError, TaskError, OSError, ValueError) as e:
        print_error("kraft-pipeline meta", e, debug=options.debug)
        return NOT_DONE


def spec_of(options: argparse.Namespace) -> ArchiveSpec:
    """The specification that the arguments describe. Raises SpecError."""
    from kraft_pipeline.archive.spec import ArchiveSpec, load
    from kraft_pipeline.tables.specs.table_spec import SpecError

    named = [bool(options.paths), options.file is not None, bool(options.bootstrap_controller)]
    if sum([*named, bool(options.bootstrap_server)]) != 1:
        raise SpecError("give one of: files or a directory, -f FILE, --bootstrap-controller, --bootstrap-server")
    remote = options.bootstrap_controller or options.bootstrap_server or getattr(options, "sizes_from", None)
    if options.command_config is not None and not remote:
        raise SpecError(
            "--command-config has no effect here: it secures --bootstrap-controller, --bootstrap-server and "
            "--sizes-from; a KafkaMetadataArchive has spec.security.propertiesFile"
        )
    if options.file is not None:
        return load(options.file)
    return ArchiveSpec(
        paths=tuple(options.paths),
        controllers=options.bootstrap_controller or "",
        brokers=options.bootstrap_server or "",
        format=getattr(options, "format", "parquet"),
        path=getattr(options, "table", "") or "",
        properties=str(options.command_config or ""),
    )


def rows_of(options: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    """The changes of the archive in the arguments; without an archive, of the log itself."""
    from kraft_pipeline.archive.run import MetadataSource, archived

    archive = archive_of(options)
    return MetadataSource(spec_of(options)).rows() if archive is None else archived(archive)


def archive_of(options: argparse.Namespace) -> ArchiveSpec | None:
    """The archive in the arguments; None for a log."""
    from kraft_pipeline.archive.spec import ArchiveSpec

    spec = spec_of(options)
    if options.file is not None:
        return spec
    if len(spec.paths) == 1 and (Path(spec.paths[0]) / "changes").is_dir():
        kind = "delta" if (Path(spec.paths[0]) / "changes" / "_delta_log").is_dir() else "parquet"
        return ArchiveSpec(path=spec.paths[0], format=kind)
    return None


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    """A progress bar that counts rows."""
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
    from kraft_pipeline.tables.specs.table_spec import SpecError

    spec = spec_of(options)
    if not spec.path:
        raise SpecError("give the path of the archive with --table")
    with _progress("archiving") as on_rows:
        done = archive(spec, on_rows, lambda: _engine(spec, options.master))
    if options.json:
        print(json.dumps(done.to_json()))
    else:
        print(
            f"{done.rows:,} changes in {done.seconds:.2f} s, up to offset {done.offset}: {done.topics:,} topics, "
            f"{done.partitions:,} partitions, {done.brokers} brokers"
        )
    if done.cut is not None:
        print(
            f"kraft-pipeline meta: the archive's records from offset {done.cut} on were never committed and have been "
            "cut off the log since: they have been replaced",
            file=sys.stderr,
        )
    for first, last in done.gaps:
        text = f"the changes from offset {first} to {last} were trimmed before they were archived"
        print(f"kraft-pipeline meta: {text}", file=sys.stderr)
    return DONE


def _engine(spec: ArchiveSpec, master: str) -> Engine:
    from kraft_pipeline.scrub.run import session
    from kraft_pipeline.tables.engines.engine import SparkEngine

    return SparkEngine(session(master, "kraft-pipeline meta archive", spec.engine))


def _as_of(options: argparse.Namespace) -> int:
    from kraft_pipeline.archive.run import gaps_of, state_at

    archive = archive_of(options)
    gaps = [] if archive is None else gaps_of(archive)
    with _progress("replaying") as on_rows:
        time_ms = None if options.time is None else milliseconds(options.time)
        state = state_at(_counted(rows_of(options), on_rows), offset=options.offset, time_ms=time_ms, gaps=gaps)
    return _show_state(state, options)


def _report(options: argparse.Namespace) -> int:
    from kraft_pipeline.archive.health import Reader
    from kraft_pipeline.archive.report import html, plots
    from kraft_pipeline.archive.skew import skew
    from kraft_pipeline.archive.state import Replay

    reader, replay = Reader(), Replay()
    with _progress("reading") as on_rows:
        for batch in _counted(rows_of(options), on_rows):
            reader.add(batch)
            replay.add(batch)
    found, load = reader.report(), skew(replay.state(), _sizes(options))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        pictures = plots(found, load)
        for name, raw in pictures.items():
            (options.out / f"{name}.png").write_bytes(raw)
        (options.out / "report.html").write_text(html("Metadata of the cluster", found, load, pictures))
    if options.json:
        print(json.dumps({"health": found.to_json(), "skew": load.to_json()}))
    else:
        _print_report(found, load)
    is_well = not (found.offline_now or found.under_replicated_now)
    return DONE if is_well or not options.check else UNHEALTHY


def _print_report(found: Health, load: Skew) -> None:
    console = _console()
    console.print(
        f"offsets {found.first_offset} to {found.last_offset}: {found.partitions:,} partitions, "
        f"{found.offline_now:,} offline, {found.under_replicated_now:,} under-replicated "
        f"(at most {max(found.offline, default=0):,} and {max(found.under_replicated, default=0):,}); "
        f"{sum(found.leader_moves):,} leader moves, {sum(found.isr_shrinks):,} ISR shrinks, "
        f"{sum(found.isr_expansions):,} expansions, {len(found.controllers):,} active controllers",
        highlight=False,
    )
    columns = ("broker", "rack", "fenced", "replicas", "leaders", "preferred", "out of sync", "bytes")
    rows = []
    for one in load.brokers:
        past = found.brokers.get(int(one.name))
        rows.append((*one, past.flaps if past else 0, round(past.fenced_ms / 1000, 1) if past else 0))
    _print_table(console, "brokers", (*columns, "flaps", "fenced for, s"), rows)
    if load.racks:
        _print_table(console, "racks", ("rack", *columns[3:]), [(rack.name, *rack[3:]) for rack in load.racks])
    _print_table(console, "leaders that moved most", ("topic", "partition", "moves"), found.moved_most)
    _print_table(console, "ISRs that shrank most", ("topic", "partition", "shrinks"), found.churned_most)


def _print_table(console: Any, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.table import Table

    shown = Table(*columns, title=title, box=None, title_justify="left")
    for row in rows:
        shown.add_row(
            *("unknown" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
        )
    console.print(shown)


def _sizes(options: argparse.Namespace) -> dict[tuple[str, int], int] | None:
    """Bytes of partitions; None without an option for their source."""
    from kraft_pipeline.archive import sizes
    from kraft_pipeline.sources.security import security_of_file
    from kraft_protocol.client.cluster import Settings

    if options.sizes_from is not None:
        security = security_of_file(str(options.command_config or ""))
        return sizes.of_brokers(Settings(options.sizes_from, security=security))
    return None if options.sizes_file is None else sizes.of_file(options.sizes_file)


def _plan(options: argparse.Namespace) -> int:
    from kraft_pipeline.archive import plan
    from kraft_pipeline.archive.run import state_at
    from kraft_pipeline.tables.specs.table_spec import SpecError

    with _progress("replaying") as on_rows:
        state = state_at(_counted(rows_of(options), on_rows))
    racks = plan.racks_of(state)
    if options.brokers is not None:
        wanted = [word.strip() for word in options.brokers.split(",")]
        for word in wanted:
            if not word.isdecimal() or int(word) not in state.small.brokers:
                raise SpecError(f"--brokers: {word!r} is not a registered broker")
        racks = {int(word): state.small.brokers[int(word)]["rack"] for word in wanted}
    known = _sizes(options) or {}
    for topic in options.topic or ():
        if topic not in state.small.topics.values():
            raise SpecError(f"--topic: topic {topic} does not exist")
    before = plan.of_state(state, options.topic)
    after = plan.plan(before, racks, known)
    scores = {"now": plan.score(before, {}, racks, known), "plan": plan.score(before, after, racks, known)}
    if options.compare is not None:
        other = plan.from_json(_proposed(options.compare))
        scores["other"] = plan.score(before, other, racks, known)
    document = plan.to_json(after)
    if options.out is not None:
        options.out.write_text(json.dumps(document) + "\n")
    if options.json:
        as_json = {name: one.to_json() for name, one in scores.items()}
        print(json.dumps({"scores": as_json, "reassignment": document}))
        return DONE
    rows = [(field.replace("_", " "), *(getattr(one, field) for one in scores.values())) for field in _fields(scores)]
    _print_table(_console(), f"{len(after):,} partitions change", ("", *scores), rows)
    if options.out is None:
        print(json.dumps(document))
    return DONE


def _fields(scores: dict[str, Any]) -> list[str]:
    return list(scores["now"].to_json())


def _proposed(path: Path) -> Any:
    """The reassignment in a file, or in output of kafka-reassign-partitions --generate. Raises ArchiveError."""
    from kraft_pipeline.archive.errors import ArchiveError

    text = path.read_text()
    lines = [line for line in text.splitlines() if line.startswith("{")]
    for document in (*lines[-1:], text):
        try:
            return json.loads(document)
        except ValueError:
            continue
    raise ArchiveError(f"--compare: {path} has no reassignment in JSON")


def _counted(rows: Iterator[pa.RecordBatch], on_rows: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        on_rows(batch.num_rows)
        yield batch


def milliseconds(text: str) -> int:
    """Parse a time: ISO 8601 or milliseconds. Raises ValueError."""
    from datetime import datetime

    from kraft_pipeline.tables.specs.instants import unix_ms

    if text.isdecimal():
        return int(text)
    try:
        return unix_ms(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"--time: {text!r} is neither ISO 8601 nor milliseconds since 1970") from None


def iso(ms: int) -> str:
    """Format a time for people."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show_state(state: ClusterState, options: argparse.Namespace) -> int:
    import pyarrow.compute as pc

    from kraft_pipeline.archive.tables import state_tables

    tables = state_tables(state)
    if options.topic is not None:
        if options.topic not in state.small.topics.values():
            raise ValueError(f"topic {options.topic} does not exist at offset {state.offset}")
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
