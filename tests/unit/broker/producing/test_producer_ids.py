"""Producer ids come in blocks and are never assigned twice."""

from __future__ import annotations

from kraft_node.broker.producer_ids import ProducerIds
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.unit.broker.world import Controller, Loop


def block(start: int, length: int = 10) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=length)


def test_producers_wait_for_the_first_block_and_are_served_in_order() -> None:
    controller, loop, got = Controller(), Loop(), list[object]()
    ids = ProducerIds(3, lambda: 12, controller, loop)
    ids.take(got.append)
    ids.take(got.append)
    assert got == []
    sent = controller.take(AllocateProducerIdsRequest)
    assert (sent.request.broker_id, sent.request.broker_epoch) == (3, 12)
    sent.answer(block(4000))
    assert got == [4000, 4001]
    assert controller.sent == []


def test_the_next_block_is_requested_early_and_used_after_the_first() -> None:
    controller, loop, got = Controller(), Loop(), list[object]()
    ids = ProducerIds(3, lambda: 12, controller, loop)
    ids.take(got.append)
    controller.take(AllocateProducerIdsRequest).answer(block(0))
    for _ in range(8):
        ids.take(got.append)
    controller.take(AllocateProducerIdsRequest).answer(block(500))
    for _ in range(4):
        ids.take(got.append)
    assert got == [*range(10), 500, 501, 502]
    assert controller.sent == []


def test_producers_beyond_a_block_wait_for_the_next() -> None:
    controller, loop, got = Controller(), Loop(), list[object]()
    ids = ProducerIds(3, lambda: 12, controller, loop)
    for _ in range(25):
        ids.take(got.append)
    for start in (0, 100, 200):
        controller.take(AllocateProducerIdsRequest).answer(block(start))
    assert got == [*range(10), *range(100, 110), *range(200, 205)]


def test_a_refusal_is_returned_and_the_block_requested_again() -> None:
    controller, loop, got = Controller(), Loop(), list[object]()
    ids = ProducerIds(3, lambda: 12, controller, loop)
    ids.take(got.append)
    controller.take(AllocateProducerIdsRequest).answer(
        AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    )
    assert isinstance(got[0], KafkaError)
    assert got[0].code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ids.take(got.append)
    assert controller.sent == []
    loop.run(50)
    controller.take(AllocateProducerIdsRequest).answer(block(7000))
    assert got[1:] == [7000]
