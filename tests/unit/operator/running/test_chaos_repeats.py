"""The hour of chaos excuses records that librdkafka has written twice, and no others."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.chaos.repeats import unexplained
from kraft_protocol.records.batch import build_batch

LOST = (
    "07:01:02 t [0]: MessageSet with 2 message(s) (MsgId 9, BaseSeq 4) encountered error: "
    "Local: Broker transport failure (actions Refresh,MsgPossiblyPersisted)"
)
BUMPED = "07:01:03 All partitions drained, bumped epoch to PID{Id:7,Epoch:1}"


def archive() -> bytes:
    """The files of a partition whose batch of two records is there twice, as `tar` in a broker's pod packs them."""
    values = [(None, b"8"), (None, b"9")]
    batches = [
        build_batch(
            values, base_offset=offset, timestamp=1, producer_id=7, producer_epoch=epoch, base_sequence=sequence
        )
        for offset, epoch, sequence in ((0, 0, 4), (2, 1, 0))
    ]
    data, packed = b"".join(batches), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as out:
        member = tarfile.TarInfo("./data/log/t-0/00000000000000000000.log")
        member.size = len(data)
        out.addfile(member, io.BytesIO(data))
    return packed.getvalue()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(command: list[str], **_: Any) -> Any:
        down = "broker-101" in command
        return subprocess.CompletedProcess(command, int(down), b"" if down else archive())

    monkeypatch.setattr(subprocess, "run", run)
    pods = {number: {"metadata": {"name": f"broker-{number}"}} for number in (101, 102)}
    return SimpleNamespace(namespace="n", pods=lambda: pods)


def work(lines: list[str]) -> Any:
    report = {"explanations": lines, "repeats": {"0": {"8": [0, 2], "9": [1, 3]}}, "disordered": [0]}
    return SimpleNamespace(topic="t", partitions=1, report=report)


def test_records_that_the_client_has_sent_again_are_excused(cluster: Any, tmp_path: Path) -> None:
    one = work([LOST, BUMPED])
    assert unexplained(cluster, one, tmp_path) == []
    assert one.report == {"disordered": [0]}
    assert BUMPED in (tmp_path / "producer.log").read_text()


def test_records_that_the_client_does_not_explain_are_named(cluster: Any, tmp_path: Path) -> None:
    found = unexplained(cluster, work([BUMPED]), tmp_path)
    assert found == ["partition 0, record 8: offsets [0, 2]", "partition 0, record 9: offsets [1, 3]"]


def test_without_repeated_records_no_broker_is_asked(tmp_path: Path) -> None:
    nobody: Any = None
    quiet: Any = SimpleNamespace(report={"lost": {}})
    assert unexplained(nobody, quiet, tmp_path) == []
