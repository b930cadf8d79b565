"""The shared parts of a broker's guards: the authorizer, the topics, and removing items from a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kraft_node.security.names import REFUSALS, Operation, ResourceType
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.error_response import error_response

if TYPE_CHECKING:
    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.metadata.image import MetadataView
    from kraft_node.security.authorizer import Authorizer
    from kraft_protocol.ids import Uuid


class Gate:
    """What the guards of one broker need."""

    __slots__ = ("authorizer", "config", "image", "turns")

    def __init__(self, authorizer: Authorizer, image: MetadataView, turns: Turns, config: ConfigView) -> None:
        self.authorizer = authorizer
        self.image = image
        self.turns = turns
        self.config = config

    def exists(self, topic: str) -> bool:
        """Whether the broker's image, which may lag behind the controller, has a topic of that name."""
        return self.image.topics.by_name(topic) is not None

    def name_of(self, topic_id: Uuid) -> str | None:
        """The name of the topic with that id; None for an unknown id, which the handler refuses."""
        topic = self.image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def require_group(self, ctx: RequestContext, operation: Operation, group_id: str) -> None:
        """Raise GROUP_AUTHORIZATION_FAILED unless the client may do the operation on the group."""
        if not self.authorizer.allows(ctx, operation, ResourceType.GROUP, group_id):
            raise KafkaError(*REFUSALS[ResourceType.GROUP])

    def denied_topics(
        self, ctx: RequestContext, operation: Operation, named: list[tuple[Any, str | None]]
    ) -> list[Any]:
        """The items of the (item, topic name) pairs with a denied topic.

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
    requested: str,
    answer_field: str,
    words: str | None = None,
) -> Any:
    """Let `handler` answer for the allowed items of the request; denied items are appended to its answer.

    `requested` and `answer_field` name the lists in the request and in the answer. For APIs that answer with errors
    per partition; `words` fills the message field, if it exists.
    """
    if not denied:
        return handler(ctx, request)
    left = rest_of(getattr(request, requested), denied)
    refused = changed(request, **{requested: denied})
    rows = getattr(error_response(refused, ctx.api_version, ErrorCode.TOPIC_AUTHORIZATION_FAILED, words), answer_field)

    def complete(response: Any) -> Any:
        getattr(response, answer_field).extend(rows)
        return response

    return answered(handler, ctx, changed(request, **{requested: left}), complete)
