"""Blocks of producer ids: AllocateProducerIds (67) v0 (KIP-730). Each broker assigns the ids of its blocks itself."""

from __future__ import annotations

from typing import Final

from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraft_protocol.wire.stored import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = (1 << 63) - 1


def allocate(request: AllocateProducerIdsRequest, cluster: ControllerState) -> Plan:
    """Plan the next block of ids for the requesting broker. Raises STALE_BROKER_EPOCH."""
    cluster.check_epoch(request.broker_id, request.broker_epoch)
    first = cluster.view.next_producer_id
    if first > PRODUCER_ID_MAX - BLOCK_SIZE:
        message = "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Plan(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE), (record,))
