"""ISR proposals of led partitions, sent to the controller in AlterPartition (KIP-497), one request at a time.

Every proposal is sent until a response row answers it. If a response is lost, the controller handles the proposal again
or rejects it as outdated. The partition decides whether a proposal is still valid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import rare
from kraft_node.broker.controller_link import problem_of
from kraft_node.partition.surroundings import RECOVERED, Proposal, ProposingPartition
from kraft_protocol.wire.messages import AlterPartitionRequest as Request

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler
    from kraft_node.broker.controller_link import Answer, ControllerLink

log = logging.getLogger(__name__)

RETRY_MS: Final = 50
TIMEOUT_MS: Final = 30_000
REQUEST_MAX: Final = 5_000
"""Proposals in one request: about 200 kB, which a controller handles in milliseconds."""


class IsrChanges:
    """Unanswered proposals: at most one per led partition."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerLink, scheduler: Scheduler
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._scheduler = scheduler
        self._pending: dict[ProposingPartition, Proposal] = {}
        self._under_way = False
        self._closed = False

    def propose(self, partition: ProposingPartition) -> None:
        """Send the partition's proposal, together with all others of this loop turn."""
        proposal = partition.proposal
        assert proposal is not None, "law: only leaders propose, and what is sent has been proposed"
        self._pending[partition] = proposal
        self._later(0)

    def close(self) -> None:
        """Send no further request. The answer to a request under way is still applied."""
        self._closed = True

    def _later(self, delay_ms: int) -> None:
        if not self._under_way and not self._closed:
            self._under_way = True
            self._scheduler.call_later(delay_ms, self._send)

    def _send(self) -> None:
        sent: dict[tuple[Any, int], tuple[ProposingPartition, Proposal]] = {}
        try:
            self._send_some(sent)
        except Exception:
            self._under_way = False
            self._again(sent.values(), RETRY_MS)
            raise

    def _again(self, proposals: Iterable[tuple[ProposingPartition, Proposal]], delay_ms: int) -> None:
        for partition, proposal in proposals:
            self._pending.setdefault(partition, proposal)
        if self._pending:
            self._later(delay_ms)

    def _send_some(self, sent: dict[tuple[Any, int], tuple[ProposingPartition, Proposal]]) -> None:
        topics: dict[Any, list[Any]] = {}
        own_epoch = self._broker_epoch()
        limit = 1 if rare.takes("one proposal") else REQUEST_MAX
        for partition, proposal in list(self._pending.items())[:limit]:
            del self._pending[partition]
            if partition.proposal is not proposal:
                continue
            sent[partition.topic_id, partition.index] = partition, proposal
            members = [
                Request.BrokerState(broker_id, own_epoch if broker_id == self._node_id else epoch)
                for broker_id, epoch in proposal.members
            ]
            row = Request.PartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=members,
                leader_recovery_state=RECOVERED,
                partition_epoch=proposal.partition_epoch,
            )
            topics.setdefault(partition.topic_id, []).append(row)
        if not sent or self._closed:
            self._under_way = False
            self._again((), 0)  # all of these were outdated; the others still count
            return
        request = Request(
            broker_id=self._node_id,
            broker_epoch=own_epoch,
            topics=[Request.TopicData(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
        )
        self._controller.send(request, None, lambda answer: self._answered(sent, answer), TIMEOUT_MS)

    def _answered(self, sent: dict[tuple[Any, int], tuple[ProposingPartition, Proposal]], answer: Answer) -> None:
        self._under_way = False
        problem = problem_of(answer)
        if problem is not None:
            log.info("controller did not take ISR changes count=%d error=%s", len(sent), problem)
            again = list(sent.values())
        else:
            try:
                again = self._settle(sent, answer)
            except Exception:
                self._again(sent.values(), RETRY_MS)
                raise
        self._again(again, RETRY_MS if again else 0)

    def _settle(
        self, sent: dict[tuple[Any, int], tuple[ProposingPartition, Proposal]], answer: Any
    ) -> list[tuple[ProposingPartition, Proposal]]:
        again = []
        for topic in answer.topics:
            for row in topic.partitions:
                requested = sent.pop((topic.topic_id, row.partition_index), None)
                if requested is not None and requested[0].isr_answered(requested[1], row):
                    again.append(requested)
        return [*again, *sent.values()]
