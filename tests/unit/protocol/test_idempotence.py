"""The batches of an idempotent producer between sending and acknowledgement, without a broker."""

from __future__ import annotations

from kraft_protocol.client import idempotence
from kraft_protocol.client.idempotence import IN_FLIGHT_MAX, SEQUENCES, ProducerSequence, Unacknowledged
from kraft_protocol.client.requests import ProduceAnswer

S, T = ("t", 0), ("t", 1)
STORED, DUPLICATE, LATER = ProduceAnswer(0, 5, ""), ProduceAnswer(46, -1, ""), ProduceAnswer(6, -1, "away")


def _queued(*keys: tuple[str, int], batches: int = 8) -> Unacknowledged:
    queued = Unacknowledged()
    for number in range(batches):
        for key in keys:
            queued.add(key, b"%d" % number)
    return queued


def _known(*keys: tuple[str, int]) -> Unacknowledged:
    queued = _queued(*keys)
    queued.window(keys).answered(dict.fromkeys(keys, STORED))
    return queued


def test_sequence_numbers_wrap_after_the_last() -> None:
    assert ProducerSequence(7, 0, SEQUENCES - 2).after(3) == ProducerSequence(7, 0, 1)
    assert ProducerSequence().after(3) == ProducerSequence()


def test_the_first_batch_of_a_partition_is_sent_alone() -> None:
    assert _queued(S, T).window([S, T]).requests == [{S: b"0", T: b"0"}]


def test_a_window_has_as_many_batches_as_a_broker_remembers() -> None:
    requests = _known(S).window([S]).requests
    assert requests == [{S: b"%d" % number} for number in range(1, 1 + IN_FLIGHT_MAX)]


def test_a_request_is_bounded_in_bytes_and_keeps_the_order() -> None:
    queued = Unacknowledged()
    size = idempotence.REQUEST_BYTES_MAX // 2 + 1
    for key in (S, T):
        queued.add(key, bytes(size))
    assert [list(request) for request in queued.window([S, T]).requests] == [[S]]


def test_a_stored_or_duplicate_batch_leaves_the_queue() -> None:
    queued = _known(S, T)
    before = queued.bytes
    window = queued.window([S, T])
    window.answered({S: STORED, T: DUPLICATE})
    assert queued.bytes == before - 2
    assert window.error is None
    assert queued.window([S]).requests[0] == {S: b"2"}


def test_batches_after_a_refused_batch_stay_queued() -> None:
    queued = _known(S, T)
    window = queued.window([S, T])
    window.answered({S: LATER, T: STORED})
    window.answered({S: STORED, T: STORED})
    assert str(window.error) == "t-0: away: NOT_LEADER_OR_FOLLOWER (6)"
    assert queued.window([S, T]).requests[0] == {S: b"1", T: b"3"}


def test_a_partition_without_batches_is_not_listed() -> None:
    queued = _queued(S, T, batches=1)
    queued.window([S, T]).answered({S: STORED, T: LATER})
    assert set(queued.partitions) == {T}
