"""The shared parts of a broker's guards: the authorizer, the topics, and removing items from a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kraft_node.security.names import REFUSALS, Operation, ResourceType
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.error_response import error_response

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.broker.broker import Broker
    from kraft_node.security.authorizer import Authorizer
    from kraft_protocol.ids import Uuid


class Gate:
    """One per broker."""

    __slots__ = ("authorizer", "broker")

    def __init__(self, broker: Broker, authorizer: Authorizer) -> None:
        self.broker = broker
        self.authorizer = authorizer

    def exists(self, topic: str) -> bool:
        return self.broker.image.topics.by_name(topic) is not None

    def name_of(self, topic_id: Uuid) -> str | None:
        """The name of the topic with that id; None for an unknown id, which the handler refuses."""
        topic = self.broker.image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def require_group(self, ctx: RequestContext, operation: Operation, group_id: str) -> None:
        """Raise GROUP_AUTHORIZATION_FAILED unless the client may do that to the group."""
        if not self.authorizer.allows(ctx, operation, ResourceType.GROUP, group_id):
            raise KafkaError(*REFUSALS[ResourceType.GROUP])

    def denied_topics(
        self, ctx: RequestContext, operation: Operation, named: list[tuple[Any, str | None]]
    ) -> list[Any]:
        """The items of the (item, topic name) pairs whose topic is denied.

        Name None: an unknown topic, not denied here.
        """
        names = [name for _, name in named if name is not None]
        permitted = self.authorizer.permitted(ctx, operation, ResourceType.TOPIC, names)
        return [item for item, name in named if name is not None and name not in permitted]


def rest_of(items: list[Any], denied: list[Any]) -> list[Any]:
    """The items that are not among `denied`, compared by identity."""
    refused = {id(item) for item in denied}
    return [item for item in items if id(item) not in refused]


Guard: TypeAlias = "Callable[[Gate, Handler, RequestContext, Any], Any]"


def without_topics(
    handler: Handler,
    ctx: RequestContext,
    request: Any,
    denied: list[Any],
    asked: str,
    told: str,
    words: str | None = None,
) -> Any:
    """Let `handler` answer for the allowed part of `request.asked`; denied items are appended to `answer.told`.

    For APIs whose answers have errors per partition, with `words` if there is a message field.
    """
    if not denied:
        return handler(ctx, request)
    left = rest_of(getattr(request, asked), denied)
    refused = changed(request, **{asked: denied})
    rows = getattr(error_response(refused, ctx.api_version, ErrorCode.TOPIC_AUTHORIZATION_FAILED, words), told)

    def complete(response: Any) -> Any:
        getattr(response, told).extend(rows)
        return response

    return answered(handler, ctx, changed(request, **{asked: left}), complete)
