"""An operator who adds partitions to topics while clients write to them and groups read them.

Law `grown`: a topic never has fewer partitions than the last acknowledged request named; a partition once seen stays.
It holds always, because metadata counts only if committed. All laws of records hold for the new partitions, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.whole.operators import ChangesOperator
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    import random

    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

VERSION: Final = 3
COUNT_MAX: Final = 6
PAUSE_MS: Final = 2_500.0


class GrowthOperator(ChangesOperator):
    """Adds one or two partitions at a time, up to COUNT_MAX."""

    def __init__(
        self,
        cluster: SimCluster,
        checker: Checker,
        name: str,
        rng: random.Random,
        counts: dict[str, int],
        partitions: list[tuple[str, int]],
    ) -> None:
        """`counts` and `partitions` of the topics; the operator adds the partitions that it has seen."""
        super().__init__(cluster, name, rng, PAUSE_MS)
        self._checker = checker
        self._counts = counts
        self._partitions = partitions
        self._least = dict(counts)
        """What the cluster must have."""

    async def change(self) -> None:
        """Request more partitions of a topic, and look how many it has."""
        topic = self._rng.choice(sorted(self._counts))
        wanted = self._counts[topic] + self._rng.randint(1, 2)
        if wanted <= COUNT_MAX:
            row = m.CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=wanted, assignments=None)
            request = m.CreatePartitionsRequest(topics=[row], timeout_ms=2000)
            code = await self.ask(
                ApiKey.CREATE_PARTITIONS, VERSION, request, lambda answer: answer.results[0].error_code,
                ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.REASSIGNMENT_IN_PROGRESS,
            )  # fmt: skip
            self.session.note(f"{topic} to {wanted} partitions: {'no answer' if code is None else code.name}")
            if code == ErrorCode.NONE:
                self._least[topic] = max(self._least[topic], wanted)
        await self._look(topic)

    async def _look(self, topic: str) -> None:
        answer = await self.session.refresh([topic])
        if answer is not None and answer.topics[0].error_code == ErrorCode.NONE:
            self._seen(topic, len(answer.topics[0].partitions))

    def _seen(self, topic: str, count: int) -> None:
        self._partitions += [(topic, index) for index in range(self._counts[topic], count)]
        self._counts[topic] = max(self._counts[topic], count)
        self._least[topic] = max(self._least[topic], count)

    def settle(self, counts: dict[str, int]) -> None:
        """Judge the number of partitions of each topic in the newest metadata, and take over what was not seen."""
        for topic, least in self._least.items():
            if counts.get(topic, 0) < least:
                text = f"has {counts.get(topic)} partitions, {least} were acknowledged or seen"
                self._checker.broken("grown", topic, text)
            self._seen(topic, counts.get(topic, 0))


__all__ = ["GrowthOperator"]
