"""Decisions about transactional ids: by the rules of `rules`, written, and answered when they are committed.

When the result of a transaction is committed (a Prepare record), `markers` writes it into the transaction's partitions.
A Complete record follows, at the latest with the next record of the id (`completions`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kraft_node.base.calls import call_each
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_node.broker.coordinators.transaction import rules
from kraft_node.broker.coordinators.transaction.markers import Ending, MarkerSender
from kraft_node.broker.coordinators.transaction.rules import NEEDS_ID, Settled, Step
from kraft_node.broker.coordinators.transaction.states import ENDING, Change, Transaction, Values
from kraft_node.broker.coordinators.transaction.writing import store
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock
    from kraft_node.broker.coordinators.runtime.engine import Runtime
    from kraft_node.broker.coordinators.transaction.machine import Shard, TransactionMachine

Done: TypeAlias = Callable[["Values | Settled | KafkaError"], None]
"""Gets the written or found value, or the error with a code for clients."""
TakeId: TypeAlias = Callable[[Callable[[int | KafkaError], None]], None]
"""`broker.producer_ids.ProducerIds.take`."""


class Decisions:
    """Decides, writes and completes. `clock`, `take_id` and `runtime` also serve the handlers of requests."""

    __slots__ = ("_sender", "clock", "runtime", "take_id")

    def __init__(
        self, runtime: Runtime[TransactionMachine], sender: MarkerSender, clock: Clock, take_id: TakeId
    ) -> None:
        self.runtime = runtime
        self._sender = sender
        self.clock = clock
        self.take_id = take_id

    def run(
        self,
        name: str,
        decide: Callable[[Transaction, int | None], Step],
        done: Done,
        *,
        create: Callable[[int], Values] | None = None,
        fresh_id: int | None = None,
    ) -> None:
        """Decide about a transactional id, write the decision, and call `done` when it is committed.

        `decide(transaction, fresh_id)` is called again with an unused producer id if it needs one. `create(fresh_id)`
        makes the values of an unknown transactional id; None: it is refused.
        """
        need_id = partial(self._with_id, name, decide, done, create)
        try:
            shard = self._settled_shard(name)
            transaction = shard.machine.transactions.get(name)
            if transaction is None:
                if create is None:
                    raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {name} is not known")
                if fresh_id is None:
                    self.take_id(need_id)
                    return
                transaction = shard.machine.transactions[name] = Transaction(name, create(fresh_id))
            step = decide(transaction.as_seen(), fresh_id)
        except KafkaError as error:
            done(error)
            return
        if step is NEEDS_ID:
            self.take_id(need_id)
        elif isinstance(step, Values):
            self.write(shard, transaction, step, done)
        else:
            assert isinstance(step, Settled), "law: a step is one of three things"
            done(step)

    def _with_id(
        self,
        name: str,
        decide: Callable[[Transaction, int | None], Step],
        done: Done,
        create: Callable[[int], Values] | None,
        fresh_id: int | KafkaError,
    ) -> None:
        if isinstance(fresh_id, KafkaError):
            done(fresh_id)
        else:
            self.run(name, decide, done, create=create, fresh_id=fresh_id)

    def write(self, shard: Shard, transaction: Transaction, values: Values, done: Done) -> None:
        """Write the values of a transactional id; they count, and `done` is called, when they are committed.

        If they are the result of a transaction, its markers follow. `done` gets an error if the commit takes longer
        than the transaction may; the write stays pending then, and counts if it is committed later.
        """
        last = None if transaction.completion is None else shard.machine.completions.take(transaction)
        transaction.begin(values, last)
        answers = [done]
        # Unless the append commits at once, a follower's fetch commits. During a fetch nothing may be appended.
        at_once = True

        def answer(result: Values | KafkaError) -> None:
            if answers:
                answers.pop()(result)

        def refuse(error: KafkaError) -> None:
            answer(KafkaError(client_error(error), str(error)))

        def decided(error: KafkaError | None) -> None:
            if error is not None:
                transaction.cancel()
                if last is not None:
                    shard.machine.completions.put_back(transaction, last, error)
                refuse(error)
                return
            transaction.commit(values)
            if last is not None:
                shard.machine.completions.written(transaction)
            if values.state not in ENDING:
                answer(values)
                return
            send_markers = self.finish(shard, transaction)
            go_on = send_markers if at_once else partial(shard.timers.call_soon, send_markers)
            call_each([partial(answer, values), go_on])

        changes = [Change(transaction.name, step) for step in (last, values) if step is not None]
        store(shard, changes, decided, refuse, timeout_ms=values.timeout_ms)
        at_once = False

    def finish(self, shard: Shard, transaction: Transaction) -> Callable[[], None]:
        """Begin the last step of a transaction with a stored result. Returns the call that sends its markers."""
        complete = rules.completed(transaction.values, self.clock.wall_ms())
        transaction.begin(complete)
        done = partial(shard.machine.completions.add, transaction, complete)
        return partial(self._sender.add, Ending(shard, transaction, done))

    def transaction(self, name: str) -> Transaction | None:
        """The transactional id, as requests see it; None if it is not known.

        Raises KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        found = self._settled_shard(name).machine.transactions.get(name)
        return None if found is None else found.as_seen()

    def _settled_shard(self, name: str) -> Shard:
        shard = self.runtime.shard_of(name)
        if not shard.machine.is_settled:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{shard!r} has loaded uncommitted records")
        return shard
