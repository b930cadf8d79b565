"""`python -m tests.fuzz.pipeline.tables --values 100000`: no value stops a table or is changed on its way.

Random records go through everything but the network: decoder, parser, partitions, files, dead letters, commits. Each
offset must appear exactly once, as a row or as a dead letter. Each number of a JSON row must equal the written one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.codec import Decoder
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.opening import open_table
from tests.feed import Feed
from tests.fuzz.pipeline import generate
from tests.registry import RegistryServer

FORMS = ("raw", "json", "avro", "registry")
BATCH = 1000


@contextmanager
def registered(form: str) -> Iterator[dict[str, Any]]:
    """`spec.value` of a format, while its registry runs."""
    if form != "registry":
        avro = {"schema": generate.AVRO[1]} if form == "avro" else {"evolve": "additive"}
        yield {"format": form, **avro}
        return
    server = RegistryServer()
    for schema in generate.AVRO:
        server.add("t", schema)
    with server.serving():
        yield {"format": "avro", "evolve": "additive", "registry": {"url": server.url}}


def run(form: str, kind: str, count: int, seed: int, folder: Path) -> tuple[int, int]:
    """Write `count` values; returns the numbers of rows and dead letters. Raises the exception that stops the table."""
    rng = random.Random(f"{form} {kind} {seed}")
    path = folder / f"{form}-{kind}-{seed}"
    by = rng.choice([[], ["date"], ["hour", "key" if form == "raw" else "_key"], ["year"]])
    with registered(form) as value:
        given = table_spec.parse(
            {
                "apiVersion": table_spec.API_VERSION,
                "kind": table_spec.KIND,
                "metadata": {"name": "fuzz"},
                "spec": {
                    "bootstrapServers": "nowhere:1",
                    "topics": {"names": ["t"]},
                    "value": value,
                    "table": {"path": str(path), "format": kind, "partitionBy": by},
                    "engine": {"mode": "inline"},
                },
            }
        )
        feed = Feed(given)
        written: dict[int, bytes | None] = {}
        for start in range(0, count, BATCH):
            end = min(start + BATCH, count)
            log = generate.batch(rng, form, start, end - start)
            for part in Decoder("t", 0, ("offset", "value")).decode(log, check_crc=False):
                written.update(zip(part.column("offset").to_pylist(), part.column("value").to_pylist(), strict=True))
            feed.put(start, end, log)
    found = compared(given, written)
    shutil.rmtree(path)
    shutil.rmtree(f"{path}_dead_letters", ignore_errors=True)
    return found


def compared(given: table_spec.TableSpec, written: dict[int, bytes | None]) -> tuple[int, int]:
    """Check that rows and dead letters have each offset once and equal numbers; returns their counts."""
    offset = "offset" if given.value.format == "raw" else "_offset"
    rows = {row[offset]: row for row in read(Path(given.path), given)}
    letters = read(Path(given.dead_letter_path), given)
    dead = {row["offset"] for row in letters}
    assert not dead & rows.keys(), "a record is a row and a dead letter"
    assert dead | rows.keys() == written.keys(), (
        f"records are missing: {sorted(written.keys() - dead - rows.keys())[:9]}"
    )
    assert len(letters) == len(dead), "a dead letter occurs twice"
    assert all(row["code"] not in {"", "defect", None} for row in letters), "a parser of ours has a defect"
    for row in letters:
        assert row["value"] == written[row["offset"]]
    for place, row in rows.items():
        value = written[place]
        if given.value.format == "json" and value is not None:
            same(json.loads(value.decode("utf-8-sig"), parse_float=Decimal, strict=False), row, place)
    return len(rows), len(dead)


def read(path: Path, given: table_spec.TableSpec) -> list[dict[str, Any]]:
    """The rows of a table's live files, by our own list of files."""
    if not path.exists():
        return []
    table = open_table(given, dead_letters=str(path) == given.dead_letter_path)
    return [row for file in table.live() for row in plain(pq.read_table(path / file.path, partitioning=None))]


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows with times as numbers: Python's times end at year 1 and year 9999."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_temporal(field.type):
            kind = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
            rows = rows.set_column(at, field.name, rows.column(at).cast(kind))
    return rows.to_pylist()


def same(value: Any, column: Any, place: int) -> None:
    """Check that every number with a column equals the written one."""
    if isinstance(value, dict) and isinstance(column, dict):
        for name in value.keys() & column.keys():
            same(value[name], column[name], place)
    elif isinstance(value, list) and isinstance(column, list):
        assert len(value) == len(column), f"offset {place}: {value} became {column}"
        for one, other in zip(value, column, strict=True):
            same(one, other, place)
    elif isinstance(value, int | Decimal) and not isinstance(value, bool) and column is not None:
        number = Decimal(repr(column)) if isinstance(column, float) else column
        assert number == value, f"offset {place}: {value} became {column}"
    elif isinstance(value, str) and isinstance(column, str):
        assert value == column, f"offset {place}: {value!r} became {column!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=100_000, help="of each format (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--form", choices=FORMS, action="append", help="only this format; can be repeated")
    parser.add_argument("--folder", type=Path, help="where tables are written (default: a temporary folder)")
    options = parser.parse_args(arguments)
    with nullcontext(str(options.folder)) if options.folder else tempfile.TemporaryDirectory() as folder:
        for form in options.form or FORMS:
            for number, kind in enumerate(table_spec.FORMATS):
                begun, share = time.monotonic(), options.values // 3 + (number < options.values % 3)
                rows, dead = run(form, kind, share, options.seed, Path(folder))
                print(
                    f"{form:9} {kind:8} {rows:7} rows {dead:7} dead letters {time.monotonic() - begun:6.1f} s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    pa.set_cpu_count(1)
    sys.exit(main())
