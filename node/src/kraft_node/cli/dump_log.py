"""kafka-dump-log: prints segment files, indexes, producer snapshots and metadata snapshots.

    kafka-dump-log --files a.log,b.index [--print-data-log | --deep-iteration] [--cluster-metadata-decoder | …]

The output lines are the same as in Apache Kafka 4.3.1. Differences: the exit code is 1 for unreadable files and for
indexes that do not match their log (Kafka: 0, or a stack trace). Only Kafka's own decoders are available, without the
decoder of remote log metadata. Kafka reports a gap before the first record of each later segment (`-1 is followed by`).
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.cli.common import Parser, ToolError, program, run

if TYPE_CHECKING:
    import argparse

    from kraft_node.cli.dump_text import Contents

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_DAMAGE_MAX: Final = 10_000
"""Maximum of listed mismatches per file."""


def main(arguments: Sequence[str]) -> int:
    """Run kafka-dump-log. Returns 1 if a file is damaged."""
    args = _parser().parse_args(arguments)
    sound = True
    for path in args.files.split(","):
        sound &= dump_file(path.strip(), args)
    return 0 if sound else 1


def _parser() -> Parser:
    parser = Parser(prog=program("kafka-dump-log"), description="Print log segments, indexes and snapshots.")
    add = parser.add_argument
    add("--files", required=True, metavar="FILE,FILE,…", help="the files to print")
    add("--print-data-log", action="store_true", help="print keys and values")
    add("--deep-iteration", action="store_true", help="print records, not only batches")
    add("--skip-record-metadata", action="store_true", help="print only keys and values of records")
    add("--max-bytes", type=int, default=2**31 - 1, help="read at most this many bytes of a log")
    add("--max-message-size", type=int, default=5 * 1024 * 1024, help="accepted; batches of any size are read")
    add("--verify-index-only", action="store_true", help="check indexes against their log and print only errors")
    add("--index-sanity-check", action="store_true", help="check indexes as a broker does when it starts")
    add("--key-decoder-class", help="StringDecoder (default), IntegerDecoder, LongDecoder or DefaultDecoder")
    add("--value-decoder-class", help="the same for values; either option prints keys and values")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--cluster-metadata-decoder", action="store_true", help="decode records of __cluster_metadata")
    kinds.add_argument("--offsets-decoder", action="store_true", help="decode records of __consumer_offsets")
    kinds.add_argument("--transaction-log-decoder", action="store_true", help="decode records of __transaction_state")
    kinds.add_argument("--share-group-state-decoder", action="store_true", help="decode records of __share_group_state")
    from kraft_node.base.version import COMPATIBLE_KAFKA_VERSION, VERSION

    add("--version", action="version", version=f"{COMPATIBLE_KAFKA_VERSION} (kraftcluster {VERSION})")
    return parser


def _contents(args: argparse.Namespace) -> Contents | None:
    from kraft_node.cli import dump_text

    if args.cluster_metadata_decoder:
        return dump_text.cluster_metadata
    for flag, log in (
        (args.offsets_decoder, "offsets"),
        (args.transaction_log_decoder, "transactions"),
        (args.share_group_state_decoder, "shares"),
    ):
        if flag:
            return dump_text.coordinator(log)
    names = args.key_decoder_class, args.value_decoder_class
    if args.print_data_log or any(names):
        return dump_text.plain(*(dump_text.decoder(name or "StringDecoder") for name in names))
    return None


def dump_file(path: str, args: argparse.Namespace) -> bool:
    """Print one file. Returns whether it is undamaged."""
    print(f"Dumping {path}")
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1]
    if suffix in (".log", ".checkpoint"):
        return dump_log(path, args)
    dumps: dict[str, Callable[[str, argparse.Namespace], bool]] = {
        ".index": dump_offset_index,
        ".timeindex": dump_time_index,
        ".txnindex": dump_transaction_index,
        ".snapshot": dump_producer_snapshot,
    }
    if suffix not in dumps:
        print(f"Ignoring unknown file {path}", file=sys.stderr)
        return True
    return dumps[suffix](path, args)


def _open(path: str) -> memoryview:
    """The file's bytes, memory-mapped."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def base_offset(path: str) -> int:
    """The offset in the name of a segment's file. Raises ToolError if the name has no kind."""
    stem = os.path.basename(path).split(".", 1)[0]
    if not stem.isdecimal():
        raise ToolError(f"{path}: the file name must be the segment's first offset")
    return int(stem)


# Logs


def dump_log(path: str, args: argparse.Namespace) -> bool:
    """Print the batches of a segment, and their records on request. Returns False for damaged batches."""
    from kraft_node.cli.dump_text import batch_line, record_line
    from kraft_protocol.records.batch import check_crc, iter_records, read_header
    from kraft_protocol.records.errors import BatchError

    _print_start(path)
    data = _open(path)[: args.max_bytes]
    contents = _contents(args)
    deep = args.deep_iteration or contents is not None
    position, last_offset, sound = 0, -1, True
    gaps: list[tuple[int, int]] = []
    while position < len(data):
        try:
            batch = read_header(data, position)
        except BatchError:
            break
        try:
            check_crc(data, batch)
            valid = True
        except BatchError:
            valid = False
        sound &= valid
        print(batch_line(batch, position, valid=valid))
        position += batch.length
        if not deep:
            continue
        try:
            for record in iter_records(data, batch):
                if last_offset >= 0 and record.offset != last_offset + 1 and len(gaps) < _DAMAGE_MAX:
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                print(record_line(batch, record, contents, metadata=not args.skip_record_metadata))
        except ValueError as e:
            sound = False
            print(f"{path}: the batch at {batch.position} cannot be read: {e}", file=sys.stderr)
    if position < len(data) and len(data) < args.max_bytes:
        sound = False
        print(f"Found {len(data) - position} invalid bytes at the end of {os.path.basename(path)}")
    if gaps:
        print(f"Non-consecutive offsets in {os.path.abspath(path)}", file=sys.stderr)
        for before, after in gaps:
            print(f"  {before} is followed by {after}", file=sys.stderr)
    return sound


_SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


def _print_start(path: str) -> None:
    from kraft_node.log.checkpoints import bootstrap

    name = os.path.basename(path)
    if not name.endswith(".checkpoint"):
        print(f"Log starting offset: {base_offset(path)}")
    elif name == bootstrap.FILE:
        print("KRaft bootstrap snapshot")
    elif match := _SNAPSHOT_NAME.fullmatch(name):
        print(f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}")


# Indexes


def _entries(data: memoryview, layout: struct.Struct) -> Iterator[tuple[Any, ...]]:
    """The entries before the zeros that fill an open index."""
    whole = len(data) // layout.size * layout.size
    for number, entry in enumerate(layout.iter_unpack(data[:whole])):
        if number and not any(entry):
            return
        yield entry


def _multiple(path: str, data: memoryview, layout: struct.Struct) -> bool:
    if len(data) % layout.size == 0:
        return True
    print(
        f"Index file {os.path.abspath(path)} is corrupt, found {len(data)} bytes which is neither positive nor a "
        f"multiple of {layout.size}",
        file=sys.stderr,
    )
    return False


def _batch_at(log: memoryview, position: int) -> Any:
    """The header of the batch at `position`; None at the end."""
    from kraft_protocol.records.batch import read_header
    from kraft_protocol.records.errors import BatchError

    if not 0 <= position < len(log):
        return None
    try:
        return read_header(log, position)
    except BatchError:
        return None


def dump_offset_index(path: str, args: argparse.Namespace) -> bool:
    """Print an offset index, compared with its log. Returns False for entries that do not match."""
    data, base = _open(path), base_offset(path)
    if len(data) == 0:
        print(f"{path} is empty.")
        return True
    sound = _multiple(path, data, _OFFSET_ENTRY)
    if args.index_sanity_check:
        if sound:
            print(f"{path} passed sanity check.")
        return sound
    log = _open(path.removesuffix(".index") + ".log")
    mismatches: list[tuple[int, int]] = []
    for relative, position in _entries(data, _OFFSET_ENTRY):
        offset = base + relative
        batch = _batch_at(log, position)
        found = -1 if batch is None else batch.last_offset
        if found != offset and len(mismatches) < _DAMAGE_MAX:
            mismatches.append((offset, found))
        if not args.verify_index_only:
            print(f"offset: {offset} position: {position}")
    if mismatches:
        print(f"Mismatches in :{os.path.abspath(path)}", file=sys.stderr)
        for offset, found in mismatches:
            print(f"  Index offset: {offset}, log offset: {found}", file=sys.stderr)
    return sound and not mismatches


def dump_time_index(path: str, args: argparse.Namespace) -> bool:
    """Print a time index, compared with its log. Returns False for entries that do not match."""
    data, base = _open(path), base_offset(path)
    sound = _multiple(path, data, _TIME_ENTRY)
    if args.index_sanity_check:
        if sound:
            print(f"{path} passed sanity check.")
        return sound
    log = _open(path.removesuffix(".timeindex") + ".log")
    problems: list[tuple[str, str]] = []
    previous = -1
    # Offsets increase in the index, so one pass over the log checks all entries.
    position = 0
    for timestamp, relative in _entries(data, _TIME_ENTRY):
        offset = base + relative
        position = _seek(log, position, offset)
        problems += _time_problems(_batch_at(log, position), offset, timestamp, previous)
        if not args.verify_index_only:
            print(f"timestamp: {timestamp} offset: {offset}")
        previous = timestamp
    for heading in (_OTHER_TIME, _OUT_OF_ORDER, _NO_BATCH):
        lines = [line for kind, line in problems if kind == heading]
        if lines:
            print(f"{heading}{os.path.abspath(path)}", *lines[:_DAMAGE_MAX], sep="\n", file=sys.stderr)
    return sound and not problems


def _seek(log: memoryview, position: int, offset: int) -> int:
    """The position of the first batch at or after `position` that reaches `offset`; the log's end if no batch does."""
    batch = _batch_at(log, position)
    if batch is not None and batch.base_offset > offset:
        batch, position = _batch_at(log, 0), 0
    while batch is not None and batch.last_offset < offset:
        position += batch.length
        batch = _batch_at(log, position)
    return position


_OTHER_TIME: Final = "Found timestamp mismatch in :"
_OUT_OF_ORDER: Final = "Found out of order timestamp in :"
_NO_BATCH: Final = "The following indexed offsets are not found in :"


def _time_problems(batch: Any, offset: int, timestamp: int, previous: int) -> list[tuple[str, str]]:
    """Heading and line of each fault of an entry; `batch` is the first that reaches its offset."""
    if batch is None or batch.last_offset != offset:
        found = -1 if batch is None else batch.last_offset
        return [(_NO_BATCH, f"Indexed offset: {offset}, found log offset: {found}")]
    problems: list[tuple[str, str]] = []
    if batch.max_timestamp != timestamp:
        problems.append((_OTHER_TIME, f"  Index timestamp: {timestamp}, log timestamp: {batch.max_timestamp}"))
    if previous >= timestamp:
        problems.append((_OUT_OF_ORDER, f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"))
    return problems


def dump_transaction_index(path: str, args: argparse.Namespace) -> bool:
    """Print an index of aborted transactions. Returns False if it ends within an entry."""
    data = _open(path)
    sound = _multiple(path, data, _TRANSACTION_ENTRY)
    if args.index_sanity_check:
        if sound:
            print(f"{path} passed sanity check.")
        return sound
    whole = len(data) // _TRANSACTION_ENTRY.size * _TRANSACTION_ENTRY.size
    for version, producer_id, first, last, stable in _TRANSACTION_ENTRY.iter_unpack(data[:whole]):
        print(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )
    return sound


def dump_producer_snapshot(path: str, args: argparse.Namespace) -> bool:  # noqa: ARG001  (as the others)
    """Print a snapshot of producer state. Returns False for another version, or if the CRC does not match."""
    from kraft_node.cli.dump_text import sequence_after
    from kraft_protocol.wire.codec import decode
    from kraft_protocol.wire.stored import ProducerSnapshot

    data = _open(path)
    if len(data) < 6 or struct.unpack_from(">h", data)[0] != 1:
        print(f"{path}: not a producer snapshot of version 1", file=sys.stderr)
        return False
    snapshot = decode(ProducerSnapshot, data[2:], 1)
    sound = _snapshot_crc(data) == snapshot.crc
    if not sound:
        print(f"{path}: the CRC does not match the content", file=sys.stderr)
    for entry in snapshot.producer_entries:
        open_at = entry.current_txn_first_offset
        shown = f"OptionalLong[{open_at}]" if open_at >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {shown} lastTimestamp: {entry.timestamp} "
        )
        if entry.last_offset >= 0:
            first = sequence_after(entry.last_sequence, -entry.offset_delta)
            line += (
                f"firstSequence: {first} lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
                f"offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
            )
        print(line)
    return sound


def _snapshot_crc(data: memoryview) -> int:
    from fastcrc.crc32 import iscsi

    # Version i16, then the CRC of the rest.
    return int(iscsi(data[6:]))


def entry() -> None:
    """Run `kafka-dump-log` with the arguments of the process, then exit."""
    run(main)


if __name__ == "__main__":
    entry()
