"""InitProducerId (22), versions 0-5 (6 is unstable): an id for an idempotent producer (KIP-98, KIP-360).

An idempotent producer gets a new id each time, as in Kafka, whatever its earlier id. A transactional producer needs a
transaction coordinator: without one it gets NOT_COORDINATOR and looks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import InitProducerIdResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker

NO_PRODUCER_ID = -1


def init_producer_id(broker: Broker, ctx: RequestContext, request: Any) -> Any:
    """Answer at once from the current block, else when the controller has assigned another."""
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch must be given together or not at all")
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "there is no transaction coordinator")

    def taken(producer_id: int | KafkaError) -> None:
        if isinstance(producer_id, KafkaError):
            ctx.respond(InitProducerIdResponse(error_code=producer_id.code, producer_epoch=-1))
        else:
            ctx.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.producer_ids.take(taken)
    return None
