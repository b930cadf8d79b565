"""`kraft-pipeline scrub run | report`: checks that replicas hold the bytes that were written."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

SOUND: Final = 0
DAMAGED: Final = 1
NOT_DONE: Final = 2
"""Exit codes: 0 no damage; 1 damage; 2 the scrub failed, or the file is not a report."""

PIPE_COLUMNS: Final = 1000
"""Width in characters of a pipe: a finding must fit into a line."""

EXAMPLE: Final = "kraft-pipeline scrub run /var/lib/kafka-1 /var/lib/kafka-2 /var/lib/kafka-3"


def add(commands: Any) -> None:
    """Add this group's parsers."""
    group = commands.add_parser("scrub", help="check every byte of the replicas", description=__doc__)
    verbs = group.add_subparsers(required=True, metavar="run|report")
    run = verbs.add_parser("run", help="read replicas and compare them", epilog=f"example: {EXAMPLE}")
    run.add_argument("directories", nargs="*", type=Path, metavar="LOG_DIR", help="log directories of any brokers")
    run.add_argument("-f", "--file", type=Path, help="a KafkaScrub in YAML instead of arguments")
    run.add_argument("--bootstrap-server", metavar="HOST:PORT", help="read from the brokers instead of directories")
    run.add_argument(
        "--command-config", type=Path, metavar="FILE", help="Kafka's client properties, for a secured cluster"
    )
    run.add_argument(
        "--topic",
        action="append",
        metavar="PATTERN",
        help="read only these topics (* and ? match any text); repeatable",
    )
    run.add_argument("--master", default="local[*]", help="Spark's master (default: %(default)s)")
    run.add_argument("--out", type=Path, metavar="FILE", help="append the report to this file, for `report`")
    run.add_argument("--json", action="store_true", help="print the report as JSON")
    run.set_defaults(run=_run)
    report = verbs.add_parser("report", help="show the report in a file of `run --out`")
    report.add_argument("file", type=Path, metavar="FILE")
    report.add_argument("--json", action="store_true", help="print JSON")
    report.set_defaults(run=_report)


def _run(options: argparse.Namespace) -> int:
    from kraft_pipeline.cli.errors import print_error
    from kraft_pipeline.scrub.history import keep
    from kraft_pipeline.scrub.layout import LayoutError
    from kraft_pipeline.scrub.spec import ScrubSpec, load
    from kraft_pipeline.tables.specs.sections import SpecError
    from kraft_protocol.client.errors import ClientError

    try:
        if options.command_config is not None and not options.bootstrap_server:
            raise SpecError(
                "--command-config has no effect here: it secures --bootstrap-server; a KafkaScrub has "
                "spec.security.propertiesFile"
            )
        if options.file is not None:
            if options.directories or options.bootstrap_server or options.topic:
                raise SpecError("give either -f FILE, or directories, --bootstrap-server and --topic")
            spec = load(options.file)
        else:
            spec = ScrubSpec(
                directories=tuple(map(str, options.directories)),
                bootstrap=options.bootstrap_server or "",
                topics=tuple(options.topic or ("*",)),
                properties=str(options.command_config or ""),
            )
        spec.check()
        report = _scrub(spec, options.master)
    except (LayoutError, ClientError, OSError, ValueError) as e:
        print_error("kraft-pipeline scrub", e, debug=options.debug)
        return NOT_DONE
    if options.out is not None:
        try:
            report = keep(report, options.out)
        except OSError as e:
            print(f"kraft-pipeline scrub: the report is not kept: {e}", file=sys.stderr)
            _show(report, as_json=options.json)
            return NOT_DONE
    return _show(report, as_json=options.json)


def _scrub(spec: Any, master: str) -> dict[str, Any]:
    from kraft_pipeline.scrub.run import run, session

    spark = session(master, f"kafkascrub-{spec.name}", spec.engine, progress=sys.stderr.isatty())
    try:
        return run(spark, spec)
    finally:
        spark.stop()


def _report(options: argparse.Namespace) -> int:
    try:
        report = json.loads(options.file.read_text())
        report["findings"], report["totals"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        print(f"kraft-pipeline scrub report: {options.file} is not a report of a scrub: {e!r}", file=sys.stderr)
        return NOT_DONE
    return _show(report, as_json=options.json)


def _show(report: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        _print(report)
    return DAMAGED if report["findings"] else SOUND


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    totals, found = report["totals"], report["findings"]
    if found:
        table = Table("partition", "broker", "offset", "segment", "byte", "kind", "what", "flipped bits", box=None)
        for one in found:
            bits = ", ".join(f"{b['byte']}.{b['bit']}" for b in one["bits"]) or "-"
            name = f"{one['topic']}-{one['partition']}"
            file = f"{one['directory']}/{name}/{one['segment']}" if one["segment"] else one["directory"]
            row = (name, one["broker"], one["base_offset"], file, one["position"])
            table.add_row(*map(str, row), f"[red]{one['kind']}[/]", one["detail"], bits)
        console.print(table)
    for one in report.get("behind", ()):
        name = f"{one['topic']}-{one['partition']}"
        text = f"{name} on broker {one['broker']} lacks records from offset {one['behind']} on: it is not in the ISR"
        console.print(text, highlight=False)
    if len(report.get("history", ())) > 1:
        table = Table("scrub", "partitions", "batches", "MB", "seconds", "damaged places", box=None)
        for one in report["history"]:
            places = ", ".join(f"{kind} {count}" for kind, count in sorted(one["kinds"].items())) or "none"
            size, seconds = f"{one['bytes'] / 1e6:,.1f}", f"{one['seconds']:.1f}"
            table.add_row(one["time"], str(one["partitions"]), f"{one['batches']:,}", size, seconds, places)
        console.print(table)
    summary = (
        f"{totals['replicas']} replicas of {totals['partitions']} partitions, {totals['batches']:,} batches, "
        f"{totals['bytes'] / 1e6:,.1f} MB in {totals['seconds']:.1f} s: "
    )
    verdict = f"[red]{len(found)} damaged places[/]" if found else "[green]no damage[/]"
    console.print(summary + verdict, highlight=False)
    if totals["cut_short"]:
        console.print("there is more damage: a report names at most so many places")
    if totals["not_compared"]:
        console.print(f"{totals['not_compared']} partitions have a single replica here: checked, but not compared")
