"""The law `idle`: once all clients have ended, a node holds nothing for their requests.

What a request leaves behind grows with the number of requests, and no client sees it: an entry of a purgatory that
nothing removes, a job that nothing ends, a receive buffer that is never given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimMachine

LENT_A_LINK: Final = 1 << 20
"""Receive memory that may be lent for requests between nodes, which go on."""


def left_in(machine: SimMachine, machines: int) -> list[str]:
    """What is left in the node of a machine, in words; `machines`: the number of nodes in the cluster."""
    node: Any = machine.node
    if node is None:
        return []
    counts: dict[str, int] = {}
    if node.broker is not None:
        broker = node.broker
        counts["produce requests that wait"] = len(broker.produce.waiting)
        counts["fetches of clients that wait"] = sum(each.session.replica_id < 0 for each in broker.fetch.waiting)
        counts["jobs of the broker"] = len(broker.turns)
    if node.controller is not None:
        controller = node.controller
        counts["answers that wait for a commit"] = len(controller._deferred)
        counts["jobs of the controller"] = len(controller.turns)
        counts["plans under way"] = controller.in_turns.under_way
    counts["bytes lent to requests"] = max(0, node._pool.lent - LENT_A_LINK * machines)
    return [f"{count} {what}" for what, count in counts.items() if count]


__all__ = ["left_in"]
