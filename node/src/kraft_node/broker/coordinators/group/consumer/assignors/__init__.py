"""Server-side assignors: pure functions from subscriptions and earlier targets to a new target (KIP-848).

`uniform` balances the number of partitions and moves few of them; `range` gives contiguous ranges, so partitions with
the same number of topics with equal partition counts go to one member. `ASSIGNORS` has them by name. An assignor must
give each partition of a subscribed topic to exactly one subscriber, and no other partition to any member.
"""

from __future__ import annotations

from typing import Final

from kraft_node.broker.coordinators.group.consumer.assignors import range_, uniform
from kraft_node.broker.coordinators.group.consumer.assignors.spec import Assignor

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform.assign, "range": range_.assign}
"""The assignors of this release, by the names of `group.consumer.assignors`."""
