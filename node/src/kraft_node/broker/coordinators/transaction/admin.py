"""DescribeTransactions (0) and ListTransactions (0-2) (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import answer
from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_node.broker.coordinators.transaction.patterns import matcher
from kraft_node.broker.coordinators.transaction.states import BY_LABEL, Transaction, TransactionState
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import DescribeTransactionsResponse, ListTransactionsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.coordinators.transaction.decisions import Decisions

IDS_A_STEP: Final = 300

Described = DescribeTransactionsResponse.TransactionState


class TransactionAdmin:
    """Handlers of the two requests."""

    __slots__ = ("_decisions", "_turns")

    def __init__(self, decisions: Decisions, turns: Turns) -> None:
        self._decisions = decisions
        self._turns = turns

    def describe(self, _ctx: RequestContext, request: Any) -> Any:
        """The state of each transactional id, with the partitions that may lack the marker."""
        return DescribeTransactionsResponse(
            transaction_states=[self._described(name) for name in request.transactional_ids]
        )

    def _described(self, name: str) -> Any:
        if not name:
            return Described(error_code=ErrorCode.INVALID_REQUEST, transactional_id=name)
        try:
            transaction = self._decisions.transaction(name)
        except KafkaError as error:
            return Described(error_code=error.code, transactional_id=name)
        if transaction is None or transaction.pending is TransactionState.DEAD:
            return Described(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=name)
        values = transaction.values
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(values.partitions):
            topics.setdefault(topic, []).append(number)
        return Described(
            transactional_id=name,
            transaction_state=values.state.label,
            transaction_timeout_ms=values.timeout_ms,
            transaction_start_time_ms=values.start_ms,
            producer_id=values.producer_id,
            producer_epoch=values.epoch,
            topics=[DescribeTransactionsResponse.TopicData(topic, numbers) for topic, numbers in topics.items()],
        )

    def list(self, ctx: RequestContext, request: Any, sees: Callable[[str], bool] = lambda _: True) -> Any:
        """The visible transactional ids that are coordinated here and pass all filters."""
        return answer(self._turns, ctx, request, self._listed(request, sees))

    def _listed(self, request: Any, sees: Callable[[str], bool]) -> Generator[None, None, Any]:
        response = ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in BY_LABEL]
        )
        states = {BY_LABEL[name] for name in request.state_filters if name in BY_LABEL}
        wants = _Filters(request, states, matcher(request.transactional_id_pattern))
        number = 0
        for shard in list(self._decisions.runtime.shards.values()):
            if shard.phase is Phase.LOADING:
                return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            for stored in shard.machine.transactions.all():
                number += 1
                if number % IDS_A_STEP == 0:
                    yield
                transaction = stored.as_seen()
                if wants(transaction, self._decisions.clock.wall_ms()) and sees(transaction.name):
                    response.transaction_states.append(
                        ListTransactionsResponse.TransactionState(
                            transactional_id=transaction.name,
                            producer_id=transaction.values.producer_id,
                            transaction_state=transaction.values.state.label,
                        )
                    )
        return response


class _Filters:
    """The filters of a request; an empty filter lets everything pass, but unknown states pass nothing."""

    def __init__(self, request: Any, states: set[TransactionState], matches: Callable[[str], bool] | None) -> None:
        self._producer_ids = frozenset(request.producer_id_filters)
        self._by_state = bool(request.state_filters)
        self._states = states
        self._duration_ms = request.duration_filter
        self._matches = matches

    def __call__(self, transaction: Transaction, now_ms: int) -> bool:
        values = transaction.values
        if transaction.pending is TransactionState.DEAD:
            return False
        if self._producer_ids and values.producer_id not in self._producer_ids:
            return False
        if self._by_state and values.state not in self._states:
            return False
        if self._duration_ms >= 0 and now_ms - values.start_ms <= self._duration_ms:
            return False
        return self._matches is None or self._matches(transaction.name)
