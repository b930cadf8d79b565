"""Log directories as brokers leave them, for the scrub's tests; the node's own code makes the batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kraft_protocol.records.batch import build_batch

EPOCHS = [(1, 0), (4, 6)]
TIMESTAMP = 1_700_000_000_000


def batches(count: int = 6, records: int = 2, compression: int = 0) -> list[bytes]:
    """Consecutive batches from offset 0, with the leader epochs of EPOCHS."""
    made = []
    for number in range(count):
        base = number * records
        epoch = max(e for e, start in EPOCHS if start <= base)
        rows = [(b"k%d" % (base + i), b"value %d" % (base + i)) for i in range(records)]
        made.append(
            build_batch(
                rows, base_offset=base, leader_epoch=epoch, compression=compression, timestamp=1_700_000_000_000
            )
        )
    return made


def write_replica(
    directory: Path, broker: int, segments: Sequence[Sequence[bytes]], *, high_watermark: int, topic: str = "orders"
) -> Path:
    """Write a log directory with one partition of `topic`, a file for each of `segments`; returns its folder."""
    folder = directory / f"{topic}-0"
    folder.mkdir(parents=True)
    (directory / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={broker}\ndirectory.id=d{broker}\n")
    (directory / "replication-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {high_watermark}\n")
    (directory / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {high_watermark}\n")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (folder / "leader-epoch-checkpoint").write_text(
        "\n".join(["0", str(len(EPOCHS)), *(f"{e} {s}" for e, s in EPOCHS), ""])
    )
    for segment in segments:
        base = int.from_bytes(segment[0][:8], "big")
        (folder / f"{base:020}.log").write_bytes(b"".join(segment))
    return folder
