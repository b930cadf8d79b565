"""Brokers that leave their ISRs: fencing and controlled shutdown, about a thousand partitions in a turn of the loop.

A broker with 20,000 partitions would hold the loop for half a second. So each turn is an append of its own, and other
requests are planned between two turns (`plan`). The order of the records makes each prefix of them safe, because the
controller may resign after any turn:

- **Fencing, unregistering, a new incarnation**: the partitions come first; the record that fences, removes or replaces
  the registration comes last. No committed state has a fenced broker as a leader, or in an ISR with others. After a
  prefix, the broker is registered as before, in fewer ISRs. A new controller gives it a full lease, then starts again.
- **Controlled shutdown**: the record that the broker shuts down comes first, because it bars the broker from elections,
  ISRs and new partitions. The broker may stop after the last turn (`Sessions.start_shutdown`). After a prefix, a new
  controller continues with the remaining partitions at the broker's next heartbeat.

Apache Kafka 4.3 writes these records in the same order, in several batches that are not one transaction, so it relies
on the same prefixes. But it plans all of them in one event.

While the partitions come first, nothing in the metadata bars the broker. `ControllerState.leaving` does: a leaving
broker is neither elected nor accepted into an ISR, and new partitions treat it like a fenced broker. So no partition
behind the search can name the broker again, and one search is enough. If the controller resigns, this soft state is
lost together with the plan. A partition with its only in-sync replica on a leaving broker may have lost its leader
then. So a new controller looks for leaders once (`Leaders.broker_unfenced`).

While the turns last, heartbeats of the broker only renew its lease: it is neither unfenced nor permitted to stop.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final

from kraft_node.controller.partitions.leaders import Leaders
from kraft_node.controller.plan import Plan, Steps, Turns, preceded
from kraft_node.controller.state.controller_state import ControllerState
from kraft_node.metadata.brokers import BrokerRegistration
from kraft_protocol.wire.stored import BrokerRegistrationChangeRecord

FENCE: Final = 1
UNFENCE: Final = -1
IN_CONTROLLED_SHUTDOWN: Final = 1

UNREGISTERED: Final = -1
"""For the epoch of a broker that is not registered."""


def broker_change(broker: BrokerRegistration, **fields: Any) -> BrokerRegistrationChangeRecord:
    """The record that changes these fields of a broker's registration."""
    return BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, **fields)


class Departures:
    """Plans in which a broker leaves its ISRs."""

    __slots__ = ("_cluster", "_leaders")

    def __init__(self, cluster: ControllerState, leaders: Leaders) -> None:
        self._cluster = cluster
        self._leaders = leaders

    def is_leaving(self, broker_id: int) -> bool:
        """Whether a departure plan of the broker is between two turns."""
        return self._cluster.leaving[broker_id] > 0

    def fence(self, broker: BrokerRegistration) -> Steps:
        """Take the broker out of its ISRs, then fence it. Its lease counts as fenced at once."""
        sessions = self._cluster.sessions
        sessions.set_fenced(broker.id, True)
        done = False
        try:
            turns = self._leaders.broker_leaves_isrs(broker.id)
            records = yield from self.out_of_isrs(broker.id, broker.epoch, turns)
            done = True
        finally:
            if not done:  # once its lease expires again, the controller tries again
                sessions.contact(broker.id, broker.epoch, self._cluster.clock.monotonic_ms())
        if records is None:
            return Plan(None)
        records.append(broker_change(broker, fenced=FENCE))
        return Plan(None, records, atomic=False)

    def shut_down(self, broker: BrokerRegistration) -> Steps:
        """Take a broker that wants to stop out of its ISRs. When the last record is appended, its shutdown starts."""
        first = []
        if not broker.in_controlled_shutdown:
            first.append(broker_change(broker, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN))
        turns = preceded(first, self._leaders.broker_leaves_isrs(broker.id))
        records = yield from self.out_of_isrs(broker.id, broker.epoch, turns)
        now = self._cluster.broker(broker.id)
        plan = Plan(None, records or (), atomic=False)
        if records is not None and now is not None and not now.fenced:
            plan.appended = partial(self._cluster.sessions.start_shutdown, broker.id)
        return plan

    def out_of_isrs(self, broker_id: int, epoch: int, turns: Turns) -> Generator[list[Any], None, list[Any] | None]:
        """`turns` of a broker that may neither lead nor join ISRs until the last of them.

        Returns None if the broker's registration of `epoch` has ended meanwhile.
        """
        self._cluster.leaving[broker_id] += 1
        try:
            while True:
                try:
                    records = next(turns)
                except StopIteration as end:
                    last: list[Any] = end.value
                    return last
                yield records
                if self.epoch_of(broker_id) != epoch:
                    return None
        finally:
            self._cluster.leaving[broker_id] -= 1

    def epoch_of(self, broker_id: int) -> int:
        """The epoch of the broker's registration, or UNREGISTERED."""
        broker = self._cluster.broker(broker_id)
        return UNREGISTERED if broker is None else broker.epoch
