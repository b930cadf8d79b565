"""A law of controllers that is checked at each response, because clients see a violation only with a well-timed crash.

- `answered`   a controller answers a request that has written records only once its own image holds them

The handlers of a running controller are wrapped. Nothing else about the node changes, and no randomness is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.controller.controller import Controller
    from kraft_node.server.raft_driver import RaftDriver
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimMachine


class ControllerLaws:
    """Watches the controllers of a cluster."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.checked = 0
        """The number of responses to requests that had written records."""
        self._watched: dict[str, Controller] = {}
        """By machine: the controller of its current process."""

    def watch(self, machine: SimMachine) -> None:
        """Check the responses of that machine's controller from now on."""
        node = machine.node
        if node is None or node.raft is None or node.controller is None:
            return
        controller = node.controller
        if self._watched.get(machine.name) is controller:
            return
        self._watched[machine.name] = controller
        for key in controller.handlers.keys() - node.raft.handlers().keys():  # Raft answers the others itself
            handler = controller.handlers[key]
            controller.handlers[key] = self._wrapped(machine.name, controller, node.raft, handler)

    def _wrapped(self, name: str, controller: Controller, raft: RaftDriver, handler: Handler) -> Handler:
        def handle(ctx: RequestContext, request: Any) -> Any:
            epoch, before = controller.epoch, raft.next_offset
            ends: list[int] = []
            """The offset of the last record of the request, once the handler has returned."""

            def check() -> None:
                end = ends[0] if ends else raft.next_offset - 1
                if end < before or epoch is None or controller.epoch != epoch:
                    return  # nothing was written, or the epoch ended and the response says so
                self.checked += 1
                if raft.image.offset < end:
                    what = ApiKey(ctx.api_key).name
                    text = f"{what} was answered, its records end at {end}, the image at {raft.image.offset}"
                    self.checker.broken("answered", name, text)

            reply = ctx._reply

            def checked_reply(answered: RequestContext, response: Any) -> None:
                check()
                assert reply is not None, "law: a request comes unanswered"
                reply(answered, response)

            ctx._reply = checked_reply
            response = handler(ctx, request)
            ends.append(raft.next_offset - 1)
            if response is not None:
                check()
            return response

        return handle


__all__ = ["ControllerLaws"]
