"""Laws of controllers that are checked at each response, because clients see a violation only with a well-timed crash.

- `answered`   a controller answers a request that has written records only once its own image holds them
- `departed`   a broker that may stop leads no partition

The handlers of a running controller are wrapped. Nothing else about the node changes, and no randomness is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.controller.controller import Controller
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.server.quorum.driver import RaftDriver
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimMachine


class ControllerLaws:
    """Watches the controllers of a cluster."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.checked = 0
        """The number of responses to requests that had written records."""
        self.departures = 0
        """The number of brokers that were permitted to stop."""
        self._watched: dict[str, Controller] = {}
        """By machine: the controller of its current process."""

    def watch(self, machine: SimMachine) -> None:
        """Check the responses of the machine's controller from now on."""
        node = machine.node
        if node is None or node.raft is None or node.controller is None:
            return
        controller = node.controller
        if self._watched.get(machine.name) is controller:
            return
        self._watched[machine.name] = controller
        # Raft answers its requests itself, before the image holds their records. An envelope may hold one of these
        # requests; the handlers of other requests are wrapped where the envelope finds them.
        for key in controller.handlers.keys() - node.raft.handlers().keys() - {ApiKey.ENVELOPE}:
            handler = controller.handlers[key]
            wrapped = controller.handlers[key] = self._wrapped(machine.name, controller, node.raft, handler)
            for listener in node.listeners:  # they have copied the handlers
                served = listener.apis.get(int(key))
                if served is not None and served.handler is handler:
                    served.handler = wrapped

    def _wrapped(self, name: str, controller: Controller, raft: RaftDriver, handler: Handler) -> Handler:
        def handle(ctx: RequestContext, request: Any) -> Any:
            epoch, before = controller.epoch, raft.next_offset
            ends: list[int] = []
            """The offset of the last record of the request, once the handler has returned."""

            def check() -> None:
                end = ends[0] if ends else raft.next_offset - 1
                if end < before or epoch is None or controller.epoch != epoch:
                    return  # nothing was written, or the epoch ended and the response reports it
                self.checked += 1
                if raft.image.offset < end:
                    what = ApiKey(ctx.api_key).name
                    text = f"{what} was answered, its records end at {end}, the image at {raft.image.offset}"
                    self.checker.broken("answered", name, text)

            reply = ctx._reply

            def checked_reply(answered: RequestContext, response: Any) -> None:
                check()
                self._look_at_departure(name, raft.image, request, response)
                assert reply is not None, "law: a request comes unanswered"
                reply(answered, response)

            ctx._reply = checked_reply
            response = handler(ctx, request)
            ends.append(raft.next_offset - 1)
            if response is not None:
                check()
                self._look_at_departure(name, raft.image, request, response)
            return response

        return handle

    def _look_at_departure(self, name: str, image: MetadataImage, request: Any, response: Any) -> None:
        if not isinstance(request, BrokerHeartbeatRequest) or not isinstance(response, BrokerHeartbeatResponse):
            return
        if not response.should_shut_down:
            return
        self.departures += 1
        for topic in image.topics:
            for number, state in topic.partitions():
                if state.leader == request.broker_id:
                    text = f"broker {request.broker_id} may stop, and leads {topic.name}-{number}"
                    self.checker.broken("departed", name, text)


__all__ = ["ControllerLaws"]
