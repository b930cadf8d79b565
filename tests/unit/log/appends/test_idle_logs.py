"""A log at rest holds nothing that only an active log needs."""

from __future__ import annotations

from kraft_node.log.checkpoints.leader_epochs import LeaderEpochs
from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments.files import NO_ENDS
from tests.unit.log.node import ID, Node
from tests.unit.log.world import DIR, NOW, LogWorld, batch, values

OPEN_FILES = 8
"""As many as the world's cache keeps open."""


def many(world: LogWorld, count: int) -> list[Log]:
    """Logs with two batches each."""
    logs = []
    for number in range(count):
        world.disk.mkdir(f"{DIR}/m-{number}")
        log = open_log(world.dir, f"{DIR}/m-{number}", "m", number, make_config())
        for value in (b"a", b"b"):
            log.append_as_leader(batch(value), 0, NOW)
        logs.append(log)
    return logs


def test_closing_a_file_drops_its_handle_and_the_ends_of_its_batches() -> None:
    logs = many(LogWorld(), 3 * OPEN_FILES)
    open_logs = [log for log in logs if log.active.handle is not None]
    assert len(open_logs) == OPEN_FILES
    for log in logs:
        assert (log.active.ends is NO_ENDS) == (log not in open_logs)


def test_a_log_with_a_closed_file_is_read_and_appended_to() -> None:
    logs = many(LogWorld(), 3 * OPEN_FILES)
    for _ in range(2):
        for log in logs:
            assert values(log)[:2] == [b"a", b"b"]
            log.append_as_leader(batch(b"c"), 0, NOW)
            assert values(log)[-1] == b"c"


def test_a_shortage_of_descriptors_drops_all_handles() -> None:
    world = LogWorld()
    logs = many(world, 3)
    assert world.dir.files.shed()
    assert [log.active.handle for log in logs] == [None] * 3
    assert not world.dir.files.shed()
    assert [values(log) for log in logs] == [[b"a", b"b"]] * 3


def test_reading_a_closed_log_keeps_no_file_open() -> None:
    world = LogWorld()
    (log,) = many(world, 1)
    log.close()
    assert values(log) == [b"a", b"b"]
    assert log.active.handle is None
    assert len(world.dir.files) == 0


def test_logs_without_producers_have_no_state_of_producers() -> None:
    node = Node()
    log = node.start().create("t", 0, ID)
    log.append_as_leader(batch(b"a"), 0, NOW)
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == 1
    assert log.producer_snapshots == ()
    node.rest(1_000_000)
    assert log.known_producers is None
    node.stop()
    found = node.start().get("t", 0)
    assert found is not None
    assert found.known_producers is None
    found.append_as_leader(batch(b"b", producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW)
    assert found.known_producers is not None
    assert len(found.producers) == 1


def test_a_log_opens_at_its_usual_path_and_at_another() -> None:
    node = Node(("/d1", "/d2"))
    manager = node.start()
    log = manager.create("t", 0, ID)
    target = next(directory for directory in manager.directories if directory is not log.dir)
    copy = manager.futures.create("t", 0, ID, target)
    assert log.path == f"{log.dir.path}/t-0"
    assert copy.path.startswith(f"{target.path}/t-0.")
    assert copy.path.endswith("-future")
    moved = manager.futures.promote("t", 0)
    assert moved.path == f"{target.path}/t-0"
    assert log.path.endswith("-delete")


def test_equal_histories_of_epochs_share_their_numbers() -> None:
    one, other = LeaderEpochs([(1000, 2000), (1001, 3000)]), LeaderEpochs([(1000, 2000), (1001, 3000)])
    assert one._epochs is other._epochs
    assert one._starts is other._starts
    one.assign(1002, 4000)
    assert other.entries() == [(1000, 2000), (1001, 3000)]
