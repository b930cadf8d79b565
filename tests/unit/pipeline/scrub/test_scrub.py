"""The scrub without Spark: one replica by itself, several beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraft_pipeline.scrub import findings as kinds
from kraft_pipeline.scrub.compare import Copy, compare
from kraft_pipeline.scrub.layout import LayoutError, replicas
from kraft_pipeline.scrub.locate import flipped_bit
from kraft_pipeline.scrub.scanner import BufferSource, Damage, FileSource, Scanner
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import NewRecord, build_batch
from tests.unit.pipeline.scrub.scrubbed import EPOCHS, batches, write_replica

FOR_EVER = 1 << 62


def scanned(
    data: bytes, *, expected: int = 0, high: int = FOR_EVER, compacted: bool = False, **options: Any
) -> Scanner:
    epochs = options.pop("epochs", EPOCHS)
    flushed = options.pop("flushed", high)
    scanner = Scanner(expected=expected, high_watermark=high, compacted=compacted, epochs=epochs, flushed=flushed)
    scanner.scan(BufferSource(data), **options)
    return scanner


def copy_of(data: bytes, *, high: int = FOR_EVER, start: int = 0, compacted: bool = False) -> Copy:
    return Copy(start, high, scanned(data, expected=start, compacted=compacted, high=0, epochs=[]).digests())


def spans(scanner: Scanner) -> list[tuple[str, int, int]]:
    return [(d.kind, d.base, d.last) for d in scanner.damages]


def test_a_sound_log_has_a_digest_of_each_batch_and_no_damage() -> None:
    made = batches()
    scanner = scanned(b"".join(made), next_base=12)
    assert scanner.damages == []
    digests = scanner.digests()
    assert digests[:, 0].tolist() == [0, 2, 4, 6, 8, 10]
    assert digests[:, 1].tolist() == [1, 3, 5, 7, 9, 11]
    assert digests[:, 2].tolist() == np.cumsum([0, *map(len, made[:-1])]).tolist()
    assert digests[:, 5].tolist() == [1, 1, 1, 4, 4, 4]


@pytest.mark.parametrize("compression", [0, 4])
def test_every_flipped_bit_of_a_log_is_found_at_its_batch(compression: int) -> None:
    made = batches(4, compression=compression)
    data = bytearray(b"".join(made))
    bounds = np.cumsum([0, *map(len, made)])
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            found = scanned(bytes(data), next_base=8).damages
            data[place] ^= 1 << bit
            batch = int(np.searchsorted(bounds, place, "right")) - 1
            assert found, (place, bit)
            first = found[0]
            assert first.base == 2 * batch, (place, bit, found)
            assert first.position in (bounds[batch], -1), (place, bit, found)
            assert len(found) == 1, (place, bit, found)


def test_damage_does_not_hide_later_damage() -> None:
    made = batches()
    for byte in (3, 9, 14, 16, 18, 22, 25, 40, 70):  # offset, length, epoch, magic, CRC, attributes, delta, times, data
        data = bytearray(b"".join(made))
        data[len(made[0]) + byte] ^= 0x11
        data[sum(map(len, made[:4])) + byte] ^= 0x11
        assert {(d.base, d.last) for d in scanned(bytes(data), next_base=12).damages} == {(2, 3), (8, 9)}, byte


def test_the_crc_locates_a_flipped_bit() -> None:
    made = batches(2)
    for byte in (17, 20, 21, 30, 61, len(made[0]) - 1):
        data = bytearray(b"".join(made))
        data[byte] ^= 0x20
        (damage,) = scanned(bytes(data)).damages
        assert damage.kind == kinds.CRC
        assert flipped_bit(0, len(made[0]), damage.stored_crc, damage.computed_crc) == [(byte, 5)]
    assert flipped_bit(0, 100, 0, 0x12345) == []


def test_unfinished_batches_above_the_high_watermark_are_not_damage() -> None:
    made = batches()
    whole = b"".join(made)
    assert scanned(whole[:-5], high=10).damages == []
    assert scanned(whole + bytes(100), high=12).damages == []
    assert spans(scanned(whole[:-5], high=12)) == [(kinds.CUT, 10, 10)]


def test_missing_batches_are_a_gap_unless_compacted() -> None:
    made = batches()
    holed = b"".join([*made[:2], *made[3:]])
    assert spans(scanned(holed)) == [(kinds.GAP, 4, 5)]
    assert spans(scanned(b"".join(made[:5]), next_base=12)) == [(kinds.GAP, 10, 11)]
    assert scanned(holed, compacted=True).damages == []


def test_an_epoch_missing_in_the_checkpoint_may_start_after_the_recovery_point() -> None:
    data = b"".join(batches())
    assert scanned(data, epochs=EPOCHS[:1], flushed=6).damages == []
    assert spans(scanned(data, epochs=EPOCHS[:1], flushed=7))[0] == (kinds.EPOCH, 6, 7)
    flipped = bytearray(data)
    flipped[len(batches()[0]) + 14] ^= 1  # the epoch of the second batch, but not of the later ones
    assert spans(scanned(bytes(flipped), epochs=EPOCHS[:1], flushed=0)) == [(kinds.EPOCH, 2, 3)]


def test_without_a_checkpoint_a_decreasing_epoch_marks_the_earlier_batch() -> None:
    made = batches()
    flipped = bytearray(b"".join(made))
    flipped[len(made[0]) + 14] ^= 1
    assert spans(scanned(bytes(flipped), epochs=[])) == [(kinds.EPOCH, 2, 3)]
    assert scanned(b"".join(made), epochs=[]).damages == []


def test_a_log_that_starts_inside_a_batch_is_sound() -> None:
    assert scanned(b"".join(batches()), expected=1).damages == []


def test_replicas_that_agree_have_no_difference() -> None:
    whole = b"".join(batches())
    later = copy_of(b"".join(batches()[2:]), start=4)
    lagging = copy_of(b"".join(batches()[:4]), high=8)
    assert compare([copy_of(whole), later, lagging], compacted=False) == []


def test_the_replica_in_the_minority_differs() -> None:
    made = batches()
    other = build_batch([(b"k4", b"VALUE 4"), (b"k5", b"value 5")], base_offset=4, leader_epoch=1, timestamp=5)
    wrong = b"".join([*made[:2], other, *made[3:]])
    right = b"".join(made)
    (found,) = compare([copy_of(right), copy_of(wrong), copy_of(right)], compacted=False)
    assert (found.copy, found.kind, found.base, found.last) == (1, kinds.DIFFERS, 4, 5)
    assert found.healthy == (0, 2)
    both = compare([copy_of(right), copy_of(wrong)], compacted=False)
    assert [(d.copy, d.kind, d.healthy) for d in both] == [(0, kinds.DIFFERS, None), (1, kinds.DIFFERS, None)]
    above = compare([copy_of(right), copy_of(wrong, high=5)], compacted=False)
    assert above == [], "what lies above a replica's own high watermark may differ"


def test_a_batch_missing_in_one_replica_is_found() -> None:
    made = batches()
    right, short = b"".join(made), b"".join(made[:5])
    (found,) = compare([copy_of(right), copy_of(short, high=12)], compacted=False)
    assert (found.copy, found.kind, found.base, found.last) == (1, kinds.MISSING, 10, 11)


def test_compacted_replicas_are_compared_record_by_record() -> None:
    def batch(value: bytes, *offsets: int) -> bytes:
        rows = [NewRecord(b"k%d" % o, value, 7, (), o) for o in offsets]
        return build_batch(rows, base_offset=offsets[0], timestamp=7)

    one = copy_of(batch(b"v", 0, 3, 4) + batch(b"v", 9), compacted=True)
    two = copy_of(batch(b"v", 3) + batch(b"v", 4, 9), compacted=True)
    assert compare([one, two], compacted=True) == []
    bad = copy_of(batch(b"v", 3) + batch(b"V", 4, 9), compacted=True)
    assert {(d.copy, d.base) for d in compare([one, two, bad], compacted=True)} == {(2, 4), (2, 9)}


def test_directories_list_their_replicas(tmp_path: Path) -> None:
    made = batches()
    write_replica(tmp_path / "a", 3, [made[:3], made[3:]], high_watermark=12)
    (tmp_path / "a" / "orders-2").mkdir()  # nothing is written yet
    (tmp_path / "a" / "orders-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    replica, unwritten = replicas([tmp_path / "a"])
    assert (unwritten.partition, unwritten.start, unwritten.high_watermark, unwritten.segments) == (2, 0, -1, [])
    assert (replica.topic, replica.partition, replica.broker, replica.high_watermark) == ("orders", 0, 3, 12)
    assert replica.topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert replica.epochs == EPOCHS
    assert [(s.base_offset, s.next_base) for s in replica.segments] == [(0, 6), (6, -1)]
    with pytest.raises(LayoutError, match=r"is not a log directory: it has no meta\.properties"):
        replicas([tmp_path])


def test_a_file_larger_than_a_window_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_pipeline.scrub.scanner.WINDOW_BYTES", 150)
    made = batches(20)
    large = build_batch([(None, bytes(1000))], base_offset=40, leader_epoch=4)
    path = tmp_path / "log"
    path.write_bytes(b"".join([*made, large]))
    scanner = Scanner(expected=0, epochs=EPOCHS, high_watermark=41)
    with FileSource(str(path), path.stat().st_size) as source:
        assert scanner.scan(source) == path.stat().st_size
    assert scanner.damages == []
    assert len(scanner.digests()) == 21


def test_findings_beyond_the_limit_are_only_counted() -> None:
    scanner = Scanner(expected=0)
    for number in range(kinds.PER_SEGMENT_MAX + 5):
        scanner._note(Damage(kinds.CRC, number, number, number, ""))
    assert (len(scanner.damages), scanner.damages_total) == (kinds.PER_SEGMENT_MAX, kinds.PER_SEGMENT_MAX + 5)


@pytest.mark.parametrize("length", [0x7FFFFFFF, 5000])
def test_damage_costs_a_search_for_the_next_batch_only(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """The rest of the segment was read into memory twice for each damage, and so was the range of a wrong length."""
    monkeypatch.setattr("kraft_pipeline.scrub.scanner.SEARCH_BYTES", 64)

    class Counted(BufferSource):
        most = total = 0

        def read(self, position: int, length: int) -> Buffer:
            found = super().read(position, length)
            self.most, self.total = max(self.most, len(found)), self.total + len(found)
            return found

    monkeypatch.setattr("kraft_pipeline.scrub.scanner.WINDOW_BYTES", 1000)
    made = batches(400, 1)
    data = bytearray(b"".join(made))
    places = [sum(map(len, made[:number])) for number in (10, 100, 390)]
    for place in places:
        data[place + 8 : place + 12] = length.to_bytes(4, "big")  # it points nowhere
    source, found = Counted(bytes(data)), Scanner(expected=0, high_watermark=FOR_EVER)
    found.scan(source)
    assert [(one.kind, one.position) for one in found.damages] == [(kinds.LENGTH, place) for place in places]
    assert source.most <= 1000
    assert source.total < 2 * len(data) + (3 * length if length < len(data) else 0)
