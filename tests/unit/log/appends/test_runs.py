"""A follower writes many batches at once; its files are those of single appends."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft_node.log import names
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.control import build_marker
from tests.unit.log.world import DIR, NOW, LogWorld

CONFIGS = (
    {"internal.segment.bytes": "3000", "index.interval.bytes": "200"},
    {"internal.segment.bytes": "100000", "index.interval.bytes": "0", "segment.index.bytes": "80"},
    {"segment.ms": "500", "index.interval.bytes": "1000"},
)


def batches(seed: int) -> list[bytes]:
    """Batches of several epochs and producers, with gaps and transactions."""
    rng = random.Random(seed)
    found: list[bytes] = []
    offset = epoch = 0
    sequences = dict.fromkeys(range(3), 0)
    for number in range(150):
        epoch += rng.random() < 0.03
        offset += rng.choice((0, 0, 0, 0, 7))
        producer = rng.choice((-1, 0, 1, 2))
        how: dict[str, Any] = {"base_offset": offset, "leader_epoch": epoch, "timestamp": NOW + number * 10}
        if producer == 2 and sequences[2] and rng.random() < 0.3:
            ids = {"producer_id": 2, "producer_epoch": 0, "coordinator_epoch": 0}
            found.append(build_marker(commit=rng.random() < 0.5, **ids, **how))
            offset += 1
            continue
        count = rng.randint(1, 3)
        if producer >= 0:
            how |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            how["transactional"] = producer == 2
            sequences[producer] += count
        found.append(build_batch([(b"k", rng.randbytes(rng.randint(0, 100))) for _ in range(count)], **how))
        offset += count
    return found


def written(sent: list[bytes], config: dict[str, str]) -> tuple[dict[str, bytes], Any]:
    """The files and the state of a follower that fetched `sent`, one after the other."""
    world = LogWorld()
    log = world.open(config)
    for records in sent:
        log.append_as_follower(records, 99)
    log.flush()
    log.take_snapshot(log.end_offset)
    log.active.write_indexes()
    disk = world.disk
    files = {}
    for name in disk.listdir(f"{DIR}/t-0"):
        file = disk.open(f"{DIR}/t-0/{name}", read_only=True)
        files[name] = file.pread(0, file.size())
        file.close()
    return files, (log.end_offset, log.leader_epochs.entries(), log.last_stable_offset, log.segment_bases)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(5))
def test_batches_that_arrive_together_make_the_same_files_as_single_ones(seed: int, config: dict[str, str]) -> None:
    sent = batches(seed)
    files, state = written(sent, config)
    rng = random.Random(seed)
    together: list[bytes] = []
    while sent:
        count = rng.randint(1, 60)
        together.append(b"".join(sent[:count]))
        sent = sent[count:]
    again, state_again = written(together, config)
    assert state_again == state
    assert sum(name.endswith(names.LOG) for name in files) > 1
    assert again == files


def test_many_small_batches_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LogWorld()
    log = world.open()
    log.append_as_follower(build_batch([(b"k", b"v")], timestamp=NOW, leader_epoch=0))
    writes: list[str] = []
    about_to = world.disk.about_to
    monkeypatch.setattr(
        world.disk, "about_to", lambda operation, path: (writes.append(path), about_to(operation, path))
    )
    log.append_as_follower(
        b"".join(build_batch([(b"k", b"v")], timestamp=NOW, leader_epoch=0, base_offset=1 + n) for n in range(30))
    )
    assert log.end_offset == 31
    assert len([path for path in writes if path.endswith(names.LOG)]) == 1


def test_a_batch_that_goes_back_ends_the_append_behind_those_before_it() -> None:
    log = LogWorld().open()
    made = [build_batch([(b"k", b"v")], timestamp=NOW, leader_epoch=0, base_offset=at) for at in (0, 1, 2, 1)]
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(b"".join(made))
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.end_offset == 3
