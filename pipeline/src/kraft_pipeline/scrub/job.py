"""The scrub on Spark: segments (or replicas to fetch) to digests, digests of a partition to findings.

Only findings reach the driver. Digests take 56 bytes a batch. They are shuffled by topic, partition and stretch of
offsets, in pieces of whole stretches. A task opens files on its own machine. So log directories must have the same
path there, as in local mode or on a shared file system. Otherwise replicas are read over the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from kraft_pipeline.scrub import findings as kinds
from kraft_pipeline.scrub.compare import BASE, LENGTH, POSITION, Copy, compare
from kraft_pipeline.scrub.findings import SCHEMA, Finding, table
from kraft_pipeline.scrub.layout import LOST, Replica, deleted_before
from kraft_pipeline.scrub.locate import differing_bits, flipped_bit
from kraft_pipeline.scrub.scanner import FIELDS, Damage, FileSource, Scanner

STRETCH: Final = 1 << 20
"""Offsets that are compared at once: some 60 MB of digests if every record is a batch."""
DIGEST_BYTES: Final = 8 * len(FIELDS)
"""Bytes of one batch's digest."""
NOT_BEHIND: Final = -1
"""Value of `behind` for a replica in the ISR."""
LOCATED_MAX: Final = 20
"""The most damaged batches of a segment for which the flipped bit is searched without a healthy replica."""

_FOUND: Final = pa.list_(pa.struct(list(SCHEMA)))
_REPLICAS: Final = pa.list_(
    pa.struct(
        [
            pa.field("broker", pa.int32()),
            pa.field("directory", pa.string()),
            pa.field("start", pa.int64()),
            pa.field("high", pa.int64()),
        ]
    )
)
REPLICAS_DDL: Final = from_arrow_type(_REPLICAS).simpleString()
SEGMENT_DDL: Final = (
    "topic string, partition int, broker int, directory string, segment string, base bigint, size bigint, "
    "next_base bigint, high bigint, compacted boolean, flushed bigint, "
    f"epochs array<struct<epoch: int, start: bigint>>, replicas {REPLICAS_DDL}"
)
"""One row for each segment, with the facts that its task needs. `replicas` are all replicas of the partition, also
without a batch."""

DIGEST_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("stretch", pa.int64()),
        pa.field("broker", pa.int32()),
        pa.field("directory", pa.string()),
        pa.field("segment", pa.string()),
        pa.field("compacted", pa.bool_()),
        pa.field("digests", pa.binary()),
        pa.field("bytes", pa.int64()),
        pa.field("gone", pa.int64()),
        pa.field("behind", pa.int64()),
        pa.field("found", _FOUND),
        pa.field("replicas", _REPLICAS),
    ]
)
DIGESTS: Final = from_arrow_schema(DIGEST_SCHEMA)
FINDINGS: Final = from_arrow_schema(SCHEMA)
"""The schemas as Spark types."""


def segments(spark: SparkSession, replicas: Iterable[Replica], tasks: int) -> DataFrame:
    """The segments of the replicas as rows in SEGMENT_DDL, distributed over tasks of about equal bytes."""
    by_partition: dict[tuple[str, int, str], list[Replica]] = {}
    for replica in replicas:
        by_partition.setdefault((replica.topic, replica.partition, replica.topic_id), []).append(replica)
    rows = []
    for same in by_partition.values():
        others = [(r.broker, r.directory, r.start, r.high_watermark) for r in same]
        compacted = any(r.compacted for r in same)
        for r in same:
            for s in r.segments:
                row = (r.topic, r.partition, r.broker, r.directory, s.name, s.base_offset, s.size, s.next_base)
                rows.append((*row, r.high_watermark, compacted, r.flushed, r.epochs, others))
    return spark.createDataFrame(_balanced(rows, tasks), SEGMENT_DDL).coalesce(max(1, tasks))


def _balanced(rows: list[tuple[Any, ...]], tasks: int) -> list[tuple[Any, ...]]:
    """In an order in which equal parts have about equal bytes: the largest segments are distributed first."""
    dealt: list[list[tuple[Any, ...]]] = [[] for _ in range(max(1, tasks))]
    for number, row in enumerate(sorted(rows, key=lambda row: -int(row[6]))):
        lap, place = divmod(number, len(dealt))
        dealt[place if lap % 2 == 0 else -1 - place].append(row)
    return [row for one in dealt for row in one]


def digests(segments: DataFrame) -> DataFrame:
    """Check each segment alone. Returns rows in DIGEST_SCHEMA."""
    return segments.mapInArrow(_scan_all, DIGESTS)


def findings(digests: DataFrame) -> DataFrame:
    """The findings of each replica, alone and compared with the others: rows in findings.SCHEMA."""
    return digests.groupBy("topic", "partition", "stretch").applyInArrow(_compared, FINDINGS)


def _scan_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            yield from pieces(row, *_scan_segment(row))


def _scan_segment(row: dict[str, Any]) -> tuple[Any, list[Finding], int, int]:
    """Digests, findings and bytes of one segment, and the offset below which retention has deleted it meanwhile."""
    if row["segment"] == LOST:
        return _lost(row)
    scanner = Scanner(
        expected=row["base"],
        compacted=row["compacted"],
        epochs=[(e["epoch"], e["start"]) for e in row["epochs"]],
        high_watermark=row["high"],
        flushed=row["flushed"],
    )
    folder, nothing = f"{row['topic']}-{row['partition']}", np.empty((0, len(FIELDS)), np.int64)
    try:
        try:
            with FileSource(f"{row['directory']}/{folder}/{row['segment']}", row["size"]) as source:
                scanner.scan(source, next_base=row["next_base"])
        except FileNotFoundError:
            if not deleted_before(Path(row["directory"]), folder, row["base"]):
                return nothing, [], 0, 0  # the comparison finds what is missing
            return nothing, [], 0, row["next_base"] if row["next_base"] >= 0 else row["high"]
    except OSError as e:
        unreadable = Damage(kinds.UNREADABLE, -1, row["base"], max(row["base"], row["next_base"] - 1), str(e))
        return nothing, [finding(row, unreadable, [])], 0, 0
    return scanner.digests(), findings_of(row, scanner), row["size"], 0


def _lost(row: dict[str, Any]) -> tuple[Any, list[Finding], int, int]:
    """As `_scan_segment`, for a replica without a file: one finding, and a damaged digest for each stretch."""
    bounds = [row["base"], *range((row["base"] // STRETCH + 1) * STRETCH, row["high"], STRETCH), row["high"]]
    rows = [(base, end - 1, -1, 0, 0, 0, 1) for base, end in pairwise(bounds)]
    detail = f"the folder has no segment, but the high watermark is {row['high']}"
    lost = Damage(kinds.MISSING, -1, row["base"], row["high"] - 1, detail)
    return np.array(rows, np.int64), [finding(row, lost, [])], 0, 0


def findings_of(row: dict[str, Any], scanner: Scanner) -> list[Finding]:
    """Convert a scanner's damages to findings of the replica in `row`."""
    lengths = {int(d[POSITION]): int(d[LENGTH]) for d in scanner.digests() if d[-1]}
    found = []
    for number, damage in enumerate(scanner.damages):
        bits: list[tuple[int, int]] = []
        if damage.kind == kinds.CRC and damage.stored_crc != damage.computed_crc and number < LOCATED_MAX:
            length = lengths[damage.position]
            bits = flipped_bit(damage.position, length, damage.stored_crc, damage.computed_crc)
        found.append(finding(row, damage, bits))
    if scanner.damages_total > len(scanner.damages):
        more = f"and {scanner.damages_total - len(scanner.damages)} more in this segment"
        found[-1] = found[-1]._replace(detail=f"{found[-1].detail}; {more}")
    return found


def finding(row: dict[str, Any], damage: Damage, bits: list[tuple[int, int]]) -> Finding:
    """Convert a damage to a finding with its place."""
    place = (row["topic"], row["partition"], row["broker"], row["directory"], row["segment"])
    return Finding(*place, damage.position, damage.base, damage.last, damage.kind, damage.detail, bits)


def pieces(
    row: dict[str, Any], digests: Any, found: list[Finding], size: int, gone: int, behind: int = NOT_BEHIND
) -> Iterator[pa.RecordBatch]:
    """Yield rows in DIGEST_SCHEMA, one per stretch with its findings; at least one row, so that bytes are counted.

    `behind`: the first offset that the replica lacks because it is outside of the ISR.
    `gone`: the replica lacks the offsets from the row's base up to this one, because retention has deleted them.
    """
    by_stretch: dict[int, list[Finding]] = {}
    for one in found:
        by_stretch.setdefault(one.base_offset // STRETCH, []).append(one)
    stretches = digests[:, BASE] // STRETCH
    without = range(row["base"] // STRETCH, -(-gone // STRETCH))
    for stretch in sorted({*np.unique(stretches).tolist(), *by_stretch, *without}) or [row["base"] // STRETCH]:
        rows = np.ascontiguousarray(digests[stretches == stretch])
        names = ("topic", "partition", "broker", "directory", "segment", "compacted", "replicas")
        piece = {
            **{name: row[name] for name in names},
            "stretch": stretch,
            "digests": rows.tobytes(),
            "bytes": size,
            "gone": gone,
            "behind": behind,
            "found": table(by_stretch.get(stretch, [])).to_pylist(),
        }
        size = 0
        yield pa.RecordBatch.from_pylist([piece], schema=DIGEST_SCHEMA)


def _compared(digests: pa.Table) -> pa.Table:
    """The findings of one stretch of one partition."""
    rows = digests.sort_by([("broker", "ascending"), ("directory", "ascending"), ("segment", "ascending")]).to_pylist()
    found = [_finding(one) for row in rows for one in row["found"]]
    places = [(r["broker"], r["directory"]) for r in rows[0]["replicas"]]
    arrays: dict[tuple[int, str], list[Any]] = {place: [] for place in places}
    names: dict[tuple[int, str], list[str]] = {place: [] for place in places}
    starts = {(r["broker"], r["directory"]): r["start"] for r in rows[0]["replicas"]}
    for row in rows:
        starts[row["broker"], row["directory"]] = max(starts[row["broker"], row["directory"]], row["gone"])
        array = np.frombuffer(row["digests"], np.int64).reshape(-1, len(FIELDS))
        arrays[row["broker"], row["directory"]].append(array)
        names[row["broker"], row["directory"]] += [row["segment"]] * len(array)
    empty = np.empty((0, len(FIELDS)), np.int64)
    copies = [
        Copy(starts[place], r["high"], np.concatenate([empty, *arrays[place]]))
        for place, r in zip(places, rows[0]["replicas"], strict=True)
    ]
    folder = f"{rows[0]['topic']}-{rows[0]['partition']}"

    def read(copy: int, number: int) -> bytes:
        """The bytes of a batch on a replica; empty if they cannot be read."""
        position, length = (int(x) for x in copies[copy].rows[number, [POSITION, LENGTH]])
        path = f"{places[copy][1]}/{folder}/{names[places[copy]][number]}"
        try:
            with FileSource(path, position + length) as source:
                return bytes(source.read(position, length)) if position >= 0 else b""
        except OSError:
            return b""

    if len(copies) > 1:
        for difference in compare(copies, compacted=rows[0]["compacted"]):
            broker, directory = places[difference.copy]
            position, segment = -1, ""
            if difference.row >= 0:
                position = int(copies[difference.copy].rows[difference.row, POSITION])
                segment = names[broker, directory][difference.row]
            bits = _bits(copies, difference.copy, difference.row, difference.healthy, position, read)
            if difference.kind:
                place = (rows[0]["topic"], rows[0]["partition"], broker, directory, segment, position)
                known = (difference.base, difference.last, difference.kind, difference.detail)
                found.append(Finding(*place, *known, bits))
            elif bits:
                found = [
                    f._replace(bits=bits)
                    if (f.broker, f.directory, f.segment, f.position) == (broker, directory, segment, position)
                    else f
                    for f in found
                ]
    return pa.Table.from_batches([table(found)], schema=SCHEMA)


def _bits(
    copies: list[Copy],
    copy: int,
    row: int,
    healthy: tuple[int, int] | None,
    position: int,
    read: Callable[[int, int], bytes],
) -> list[tuple[int, int]]:
    """The bits in which a batch differs from a healthy copy; empty without a copy, or if too many differ."""
    if row < 0 or healthy is None or position < 0:
        return []
    right = read(*healthy)
    copies[copy].rows[row, LENGTH] = len(right)  # the length of a damaged batch may itself be damaged
    return differing_bits(read(copy, row), right, position) or []


def _finding(row: dict[str, Any]) -> Finding:
    return Finding(**{**row, "bits": [(bit["byte"], bit["bit"]) for bit in row["bits"]]})
