"""What the operators of the whole world share: one change after another, and requests that are repeated until done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kraft_node.testing.workloads.session import BOOTSTRAP, PAUSE_MS, ClusterSession
from kraft_protocol.errors import ErrorCode

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kraft_node.testing.machine import SimCluster
    from kraft_protocol.wire.api import ApiKey

PASSING: Final = (
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)  # fmt: skip
"""Errors after which an operator may repeat any request: the cluster has no controller, or is behind."""


Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """The values that settings may have: the last acknowledged one, and those of requests with an unknown outcome.

    A request without an answer may take effect at any later time, because a broker forwards it again.
    """

    def __init__(self) -> None:
        self.sure: dict[Key, Value] = {}
        self._doubtful: dict[Key, Counter[Value]] = {}

    def sent(self, key: Key, value: Value) -> None:
        """A request is about to be sent."""
        self._doubtful.setdefault(key, Counter())[value] += 1

    def answered(self, key: Key, value: Value, code: ErrorCode | None) -> None:
        """Its outcome; None: no answer."""
        if code is None or code in PASSING:
            return
        self._doubtful[key][value] -= 1
        if code == ErrorCode.NONE:
            self.sure[key] = value

    def requested(self) -> list[Key]:
        """All settings that were ever requested, in the order of their first requests."""
        return list(self._doubtful)

    def may_be(self, key: Key, value: Value, first: Value) -> bool:
        """Whether the setting may have the value; `first`: its value before all requests."""
        return value == self.sure.get(key, first) or self._doubtful[key][value] > 0


class ChangesOperator(ABC):
    """Changes something now and then until it is stopped; then it restores an end state, and returns."""

    def __init__(self, cluster: SimCluster, name: str, rng: random.Random, pause_ms: float) -> None:
        """`pause_ms`: the longest pause between two changes."""
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self.changes = 0
        """Acknowledged changes."""
        self._cluster = cluster
        self._rng = rng
        self._pause_ms = pause_ms

    async def run(self) -> None:
        """Change until stopped, and restore."""
        while not self.stopping:
            await self.session.sleep(100 + self._rng.random() * self._pause_ms)
            if not self.stopping:
                await self.change()
        await self.restore()

    @abstractmethod
    async def change(self) -> None:
        """Change one thing."""

    async def restore(self) -> None:  # noqa: B027 - some have nothing to restore
        """Make the last changes. All faults are over."""

    async def ask(
        self, api_key: ApiKey, version: int, request: Any, code_of: Callable[[Any], int], *allowed: ErrorCode
    ) -> ErrorCode | None:
        """Send a request through any broker. Returns its error, or None without an answer: the outcome is unknown.

        Raises Surprise for an error that is neither in PASSING nor in `allowed`.
        """
        answer = await self.session.request(BOOTSTRAP, api_key, version, request)
        if answer is None:
            return None
        code = ErrorCode(code_of(answer))
        if code == ErrorCode.NONE:
            self.changes += 1
        else:
            self.session.expect(code, *PASSING, *allowed, what=api_key.name.lower())
        return code

    async def ask_surely(
        self, api_key: ApiKey, version: int, request: Any, code_of: Callable[[Any], int], *allowed: ErrorCode
    ) -> ErrorCode:
        """Like `ask`, until the request is done or gets an error in `allowed`. Call it only after all faults."""
        while True:
            code = await self.ask(api_key, version, request, code_of, *allowed)
            if code is not None and code not in PASSING:
                return code
            await self.session.sleep(PAUSE_MS)

    async def broker_ids(self) -> list[int]:
        """All brokers, once each is known. Call it only after all faults."""
        wanted = [machine.config.node_id for machine in self._cluster.brokers]
        while True:
            answer = await self.session.refresh([])
            if answer is not None and {broker.node_id for broker in answer.brokers} >= set(wanted):
                return wanted
            await self.session.sleep(PAUSE_MS)


__all__ = ["PASSING", "ChangesOperator", "Remembered"]
