"""`kraft-pipeline table run|backfill|status|replay|acknowledge|compact|reset FILE`: commands for a KafkaTable."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft_pipeline.tables.engines.engine import Engine
    from kraft_pipeline.tables.fleet import Fleet
    from kraft_pipeline.tables.runner import Progress, Runner
    from kraft_pipeline.tables.specs.table_spec import TableSpec
    from kraft_pipeline.tables.status_server import TableStatus

FENCED = 3
"""Exit code: another process writes the table now. Other codes are 0, 1 (failed), 2 (wrong specification)."""


def add(groups: Any) -> None:
    """Add the parsers of this group."""
    table = groups.add_parser("table", help="write topics to Delta, Iceberg or Parquet tables, each record once")
    commands = table.add_subparsers(dest="command", required=True)
    run = _command(commands, "run", _run, "write batches until stopped")
    run.add_argument("--once", action="store_true", help="stop when all present records are written")
    run.add_argument(
        "--http", type=int, metavar="PORT", help="serve /status, /metrics and /readyz on this port meanwhile"
    )
    backfill = _command(
        commands, "backfill", _of_each(_backfill), "write records from before the table began; it may run meanwhile"
    )
    backfill.add_argument(
        "--since", type=_time, metavar="TIME", help="only records from this time on: 2024-02-29T10:00:00+00:00"
    )
    _command(commands, "status", _of_each(_status), "offsets of the table, and its lag")
    _command(
        commands,
        "acknowledge",
        _of_each(_acknowledge),
        "accept the loss of records in topics, and continue behind them",
    )
    _command(commands, "replay", _of_each(_replay), "turn dead letters into rows, after a repair")
    compact = _command(commands, "compact", _of_each(_compact), "merge small files and remove old files")
    compact.add_argument("--no-vacuum", action="store_true", help="keep the files of earlier versions")
    reset = _command(commands, "reset", _of_each(_reset), "remove the table: files, dead letters and offsets")
    reset.add_argument("--yes", action="store_true", help="confirm the reset")


def _command(commands: Any, name: str, run: Any, text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("file", type=Path, help="the KafkaTable's YAML")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=lambda options: _guarded(run, options))
    return parser


def _guarded(run: Any, options: argparse.Namespace) -> int:
    from kraft_pipeline.cli.errors import print_error
    from kraft_pipeline.codec import CodecError
    from kraft_pipeline.tables.errors import ConflictError, FencedError, TaskError
    from kraft_pipeline.tables.runner import DeadLetterError
    from kraft_pipeline.tables.specs import routes
    from kraft_protocol.client.errors import ClientError

    try:
        result: int = run(options, routes.load_all(options.file))
    except FencedError as e:
        print_error("kraft-pipeline", e, debug=options.debug)
        return FENCED
    except (ClientError, CodecError, ConflictError, DeadLetterError, TaskError, OSError) as e:
        print_error("kraft-pipeline", e, debug=options.debug)
        return 1
    except ValueError as e:
        print_error("kraft-pipeline", e, debug=options.debug)
        return 2
    return result


def engine_of(given: TableSpec) -> Engine:
    """The engine of the spec, which runs tasks."""
    from kraft_pipeline.tables.engines.engine import InlineEngine, SparkEngine

    return InlineEngine() if given.engine.mode == "inline" else SparkEngine.start(given.app_id, given.engine)


def _is_many(given: list[TableSpec]) -> bool:
    return len(given) > 1 or given[0].is_for_each_topic


def _of_each(command: Callable[[argparse.Namespace, TableSpec], int]) -> Callable[..., int]:
    """Run a command on each existing table, one after the other. Returns the greatest exit code."""

    def run(options: argparse.Namespace, given: list[TableSpec]) -> int:
        from kraft_pipeline.tables.fleet import Tables, tables_of

        tables = tables_of(given) if _is_many(given) else Tables(given, {})
        code = max((command(options, table) for table in tables.good), default=0)
        for error in tables.refused.values():
            raise error
        return code

    return run


def _run(options: argparse.Namespace, given: list[TableSpec]) -> int:
    from kraft_pipeline.tables.runner import Runner
    from kraft_pipeline.tables.status_server import TableStatus, serve

    if _is_many(given):
        return _run_many(options, given)
    shown = None if options.http is None else TableStatus(given[0])
    engine = engine_of(given[0])
    try:
        look = (lambda: None) if shown is None else shown.look
        runner = Runner(
            given[0], engine, report=lambda progress: _report(options, progress, shown), wait=_wait, look=look
        )
        _stop_at_signals(runner)
        with nullcontext() if shown is None else serve(shown, options.http):
            if shown is not None:
                shown.watch(runner)
            rows = runner.run(once=options.once)
        print(json.dumps({"rows": rows}) if options.json else f"{rows} rows written", flush=True)
    finally:
        engine.close()
    return 0


def _run_many(options: argparse.Namespace, given: list[TableSpec]) -> int:
    from kraft_pipeline.tables.fleet import Fleet
    from kraft_pipeline.tables.runner import Runner
    from kraft_pipeline.tables.status_server import FleetStatus, serve

    shown, engine = FleetStatus(given[0].name), engine_of(given[0])

    def writer(table: TableSpec) -> Runner:
        mine = shown.of(table)
        found = Runner(
            table,
            engine.another(),
            report=lambda progress: _report(options, progress, mine, table.label),
            wait=lambda text: _wait(f"{table.label}: {text}"),
            look=mine.look,
        )
        mine.watch(found)
        return found

    try:
        fleet = Fleet(given, writer, wait=_wait)
        shown.watch(fleet)
        _stop_at_signals(fleet)
        with nullcontext() if options.http is None else serve(shown, options.http):
            rows = fleet.run(once=options.once)
        print(json.dumps({"rows": rows}) if options.json else f"{rows} rows written", flush=True)
    finally:
        engine.close()
    return 0


def _backfill(options: argparse.Namespace, given: TableSpec) -> int:
    from kraft_pipeline.tables.runner import Runner

    engine = engine_of(given)
    try:
        runner = Runner(given, engine, report=lambda progress: _report(options, progress, None), backfill=True)
        _stop_at_signals(runner)
        rows = runner.run(since_ms=options.since)
        print(json.dumps({"rows": rows}) if options.json else f"{rows} rows written", flush=True)
    finally:
        engine.close()
    return 0


def _time(text: str) -> int:
    """Milliseconds of an ISO 8601 time; UTC without an offset."""
    from kraft_pipeline.tables.specs.instants import unix_ms

    try:
        return unix_ms(datetime.fromisoformat(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an ISO 8601 time") from None


def _stop_at_signals(runner: Runner | Fleet) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())


def _wait(text: str) -> None:
    print(f"kraft-pipeline: waiting: {text}", file=sys.stderr, flush=True)


def _report(options: argparse.Namespace, done: Progress, shown: TableStatus | None, label: str = "") -> None:
    if shown is not None:
        shown.add(done)
    if options.json:
        names = ("batch", "rows", "dead", "files", "seconds", "lag")
        table = {"table": label} if label else {}
        print(json.dumps({**table, **{name: getattr(done, name) for name in names}}), flush=True)
        return
    letters = f", {done.dead} dead letters" if done.dead else ""
    behind = f", {done.lag} behind" if done.lag else ""
    begin = f"{label}: " if label else ""
    print(f"{begin}batch {done.batch}: {done.rows} rows in {done.seconds:.2f} s{letters}{behind}", flush=True)


def _status(options: argparse.Namespace, given: TableSpec) -> int:
    from kraft_pipeline.tables.maintenance import status

    found = status(given)
    if options.json:
        print(json.dumps(found))
        return 0
    from rich.console import Console
    from rich.table import Table

    shown = Table("topic", "partition", "table is at", "topic ends at", "lag", title=f"{given.label}: {given.path}")
    for row in found["partitions"]:
        shown.add_row(row["topic"], *(str(row[name]) for name in ("partition", "offset", "end", "lag")))
    console = Console()
    console.print(shown)
    console.print(
        f"batch {found['batch']}, {found['rows']} rows in {found['files']} files, {found['deadLetters']} dead letters, "
        f"{found['lag']} records behind"
    )
    for loss in found["losses"]:
        lost = f"from offset {loss['first']} on" if loss["end"] < 0 else f"offsets {loss['first']} to {loss['end'] - 1}"
        console.print(f"lost: {loss['topic']}-{loss['partition']}, {lost}: {loss['cause']} (table acknowledge)")
    return 0


def _acknowledge(options: argparse.Namespace, given: TableSpec) -> int:
    from kraft_pipeline.tables.maintenance import acknowledge

    count = acknowledge(given)
    print(json.dumps({"acknowledged": count}) if options.json else f"{count} losses acknowledged")
    return 0


def _replay(options: argparse.Namespace, given: TableSpec) -> int:
    from kraft_pipeline.tables.replay import replay

    done = replay(given)
    found = {"rows": done.rows, "left": done.left}
    print(json.dumps(found) if options.json else f"{done.rows} rows written, {done.left} dead letters left")
    return 0


def _compact(options: argparse.Namespace, given: TableSpec) -> int:
    from kraft_pipeline.tables.maintenance import compact, vacuum

    engine = engine_of(given)
    try:
        merged, into = compact(given, engine)
    finally:
        engine.close()
    removed = 0 if options.no_vacuum else vacuum(given)
    found = {"merged": merged, "into": into, "removed": removed}
    print(json.dumps(found) if options.json else f"{merged} files merged into {into}, {removed} old files removed")
    return 0


def _reset(options: argparse.Namespace, given: TableSpec) -> int:
    from kraft_pipeline.tables.maintenance import reset

    if not options.yes:
        print(f"kraft-pipeline: this removes {given.path} and {given.dead_letter_path}; add --yes", file=sys.stderr)
        return 2
    count = reset(given)
    print(json.dumps({"removed": count}) if options.json else f"{count} files removed")
    return 0
