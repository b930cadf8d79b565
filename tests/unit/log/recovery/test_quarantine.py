"""Failures at the level of a partition: damage ends a replica, a shortage of descriptors ends nothing."""

from __future__ import annotations

import errno

import pytest

from kraft_node.base.env import write_atomic
from kraft_node.log.config import make_config
from kraft_node.log.errors import CutLater, LogDirDamaged, LogDirFailure
from kraft_node.log.log import Log
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, batch, values

SMALL = make_config({"internal.segment.bytes": "300", "index.interval.bytes": "1"})


class Rig:
    """Two logs in one directory, with several segments each."""

    def __init__(self) -> None:
        self.node = Node()
        self.start()
        for partition in (0, 1):
            log = self.node.manager.create("t", partition, ID)
            for number in range(12):
                log.append_as_leader(batch(b"%d" % number), 0, NOW)
            log.high_watermark = log.end_offset
            log.flush()

    def start(self) -> None:
        self.withdrawn: list[tuple[str, int, LogDirDamaged | None]] = []
        self.node.start(topic_config=lambda _topic: SMALL)
        self.node.manager.on_withdrawn = lambda *what: self.withdrawn.append(what)

    def log(self, partition: int) -> Log:
        log = self.node.manager.get("t", partition)
        assert log is not None
        return log

    def damage(self, log: Log) -> None:
        """The length of the first batch of the second segment."""
        self.node.disk.flip(log.segments.at(1).path(".log"), 8, 6)

    def is_alive(self) -> bool:
        return self.node.manager.directories[0].online and not self.node.failures


def refused(log: Log, offset: int) -> None:
    with pytest.raises(KafkaError) as caught:
        log.read(offset, 1000)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_damaged_batch_found_by_a_read_quarantines_its_replica_alone() -> None:
    rig = Rig()
    log = rig.log(0)
    rig.damage(log)
    refused(log, log.segment_bases[1])
    rig.node.rest()
    assert rig.is_alive()
    ((topic, partition, damage),) = rig.withdrawn
    assert (topic, partition) == ("t", 0)
    assert damage is not None
    assert f"{log.path}/" in str(damage)
    with pytest.raises(KafkaError) as caught:
        rig.node.manager.get("t", 0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(values(rig.log(1))) == 12


def test_a_damaged_batch_found_by_recovery_quarantines_its_replica_alone() -> None:
    rig = Rig()
    path = rig.log(0).active.path(".log")
    rig.node.manager.note_all()
    rig.node.manager.checkpoint_all()
    rig.node.rest()
    rig.node.kill()
    rig.node.disk.flip(path, 8, 6)
    rig.start()
    rig.node.rest(5000)
    assert rig.is_alive()
    assert [what[:2] for what in rig.withdrawn] == [("t", 0)]
    assert len(values(rig.log(1))) == 12
    rig.node.stop()
    assert rig.node.disk.exists("/d1/.kafka_cleanshutdown"), "the other logs are not recovered at the next start"
    rig.withdrawn.clear()
    rig.start()
    assert list(rig.node.manager.directories[0].unrecovered) == [("t", 0)], "this one is looked at again"
    rig.node.rest(5000)
    assert [what[:2] for what in rig.withdrawn] == [("t", 0)]
    rig.node.kill()
    assert not rig.node.disk.exists("/d1/.kraft_quarantined")


def test_a_kill_while_the_clean_mark_is_read_keeps_a_log_quarantined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list of quarantined logs was removed first, and the mark vouched for them at the next start."""
    rig = Rig()
    log = rig.log(0)
    rig.damage(log)
    refused(log, log.segment_bases[1])
    rig.node.stop()
    remove = rig.node.disk.remove

    def dying(path: str) -> None:
        if path.endswith(".kafka_cleanshutdown"):
            raise OSError(errno.EIO, "the process is killed here")
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(rig.node.disk, "remove", dying)
        with pytest.raises(LogDirFailure):
            rig.start()
    rig.node.manager.release()
    rig.node.kill()
    rig.start()
    assert ("t", 0) in rig.node.manager.directories[0].unrecovered


def test_recovery_cuts_no_damaged_log_and_serves_it_once_it_is_whole() -> None:
    """Recovery took the damage for a torn tail, and cut records that had been acknowledged."""
    rig = Rig()
    log = rig.log(0)
    log.append_as_leader(batch(b"not flushed"), 0, NOW)
    end, path, position = log.end_offset, log.active.path(".log"), 8
    rig.node.disk.flip(path, position, 6)
    rig.node.manager.withdrawals.withdrawn(log, LogDirDamaged(log.dir.path, path, end - 1, "a bit has rotted"))
    size = rig.node.disk.size(path)
    for _ in range(2):
        rig.node.stop()
        rig.start()
        rig.node.rest(5000)
        assert [what[:2] for what in rig.withdrawn] == [("t", 0)]
        assert rig.node.disk.size(path) == size
    rig.node.stop()
    rig.node.disk.flip(path, position, 6)
    rig.start()
    rig.node.rest(5000)
    assert not rig.withdrawn
    assert rig.log(0).end_offset == end
    assert rig.node.manager.withdrawals.is_restored("t", 0)
    rig.node.stop()
    rig.start()
    rig.node.rest(5000)
    assert rig.node.manager.withdrawals.is_restored("t", 0), "the controller has not heard of it yet"
    rig.node.manager.withdrawals.settle("t", 0)
    rig.node.stop()
    rig.start()
    assert not rig.node.manager.withdrawals.is_restored("t", 0)
    assert rig.log(0).end_offset == end


def test_a_list_without_a_mark_does_not_outlive_the_next_clean_stop() -> None:
    """A crash came between both. The end offset in the list was stale, and a truncated log counted as damaged."""
    rig = Rig()
    write_atomic(rig.node.disk, "/d1/.kraft_quarantined", b"t-0 999\n")
    rig.node.kill()
    rig.start()
    rig.node.rest(5000)
    rig.node.stop()
    rig.start()
    rig.node.rest(5000)
    assert not rig.withdrawn
    assert rig.log(0).end_offset == 12


def test_a_quarantined_log_can_be_set_aside_for_a_new_one() -> None:
    rig = Rig()
    log = rig.log(0)
    rig.damage(log)
    refused(log, log.segment_bases[1])
    rig.node.manager.set_aside("t", 0)
    rig.node.rest()
    new = rig.node.manager.create("t", 0, ID)
    new.append_as_leader(batch(b"new"), 0, NOW)
    assert values(new) == [b"new"]
    assert [name for name in rig.node.disk.listdir("/d1") if name.endswith("-stray")]


def test_a_shortage_of_descriptors_refuses_a_read_but_ends_nothing() -> None:
    rig = Rig()
    log = rig.log(0)
    rig.node.manager.files.shed()
    rig.node.disk.short = True
    refused(log, 0)
    rig.node.disk.short = False
    assert rig.is_alive()
    assert len(values(log)) == 12


def test_an_append_without_a_descriptor_reopens_the_log() -> None:
    rig = Rig()
    log = rig.log(0)
    rig.node.manager.files.shed()
    rig.node.disk.short = True
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(b"late"), 0, NOW)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    rig.node.disk.short = False
    rig.node.rest()
    assert rig.is_alive()
    assert rig.withdrawn == [("t", 0, None)]
    again = rig.log(0)
    again.append_as_leader(batch(b"late"), 0, NOW)
    assert values(again)[-1] == b"late"
    assert again.end_offset == 13


def test_a_flush_without_a_descriptor_is_retried() -> None:
    rig = Rig()
    log = rig.log(0)
    log.append_as_leader(batch(b"late"), 0, NOW)
    fail = [True]
    rig.node.disk.fail = lambda operation, _: (
        OSError(errno.EMFILE, "too many open files") if operation == "fsync" and fail[0] else None
    )
    done: list[int] = []
    log.flush_in_background(lambda: done.append(1))
    rig.node.rest(50)
    assert not done
    fail[0] = False
    rig.node.rest(1000)
    assert done == [1]
    assert log.recovery_point == 13
    assert rig.is_alive()


def test_leader_epochs_without_a_descriptor_are_written_by_the_next_flush() -> None:
    """They counted as written, so the log had lost its last epoch after the next start, even after a clean stop."""
    rig = Rig()
    log = rig.log(0)
    log.append_as_leader(batch(b"late"), 7, NOW)
    done: list[int] = []
    rig.node.disk.short = True
    log.flush_in_background(lambda: done.append(1))
    rig.node.disk.short = False
    rig.node.rest(1000)
    assert done == [1]
    rig.node.stop()
    rig.start()
    assert rig.log(0).leader_epochs.entries() == [(0, 0), (7, 12)]


def test_a_checkpoint_write_without_a_descriptor_is_not_retried_with_old_offsets() -> None:
    """The retry came after a write that promised less, for a truncation: a kill then quarantined the replica."""
    rig = Rig()
    log = rig.log(0)
    rig.node.disk.short = True
    rig.node.manager.checkpoint_all()
    rig.node.rest(50)
    rig.node.disk.short = False
    with pytest.raises(CutLater):
        log.truncate_to(3)
    rig.node.rest(50)
    log.truncate_to(3)
    rig.node.rest(1000)
    rig.node.kill()
    rig.start()
    assert rig.log(0).end_offset == 3
    assert rig.is_alive()


def test_undecodable_records_do_not_take_the_directory_offline() -> None:
    """Their checksum is right, so the sender is wrong, not the disk."""
    rig = Rig()
    log = rig.log(1)
    log.append_as_follower(_nonsense(log.end_offset))
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(NOW + 1)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert rig.is_alive()
    assert not rig.withdrawn


def _nonsense(offset: int) -> bytes:
    from fastcrc.crc32 import iscsi

    raw = bytearray(batch(b"x" * 20, timestamp=NOW + 5))
    raw[0:8] = offset.to_bytes(8, "big")
    raw[61:] = b"\xff" * (len(raw) - 61)
    raw[17:21] = iscsi(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)
