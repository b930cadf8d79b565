"""An operator who changes the quotas of clients while they work.

Law `quota`: after all faults, every broker describes each quota with the last acknowledged value, or with one whose
request got no answer. It holds once all brokers have all metadata. Throttled clients lose nothing: all other laws hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.whole.operators import ChangesOperator, Remembered
from kraft_node.testing.workloads.session import PAUSE_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

VERSION: Final = 1
CHANGES_MS: Final = 1_000.0
CLIENT_ID: Final = "client-id"
RATES: Final[dict[str, tuple[float, ...]]] = {
    "producer_byte_rate": (400.0, 2_000.0, 50_000.0),
    "consumer_byte_rate": (800.0, 5_000.0, 50_000.0),
    "request_percentage": (1.0, 50.0, 200.0),
    "controller_mutation_rate": (1.0, 20.0),
}
Quota = tuple[str | None, str]
"""Client id, None for the default, and key."""


class QuotasOperator(ChangesOperator):
    """Sets and removes quotas of client ids; in the end it removes all of them."""

    def __init__(
        self, cluster: SimCluster, checker: Checker, name: str, rng: random.Random, clients: Sequence[str]
    ) -> None:
        super().__init__(cluster, name, rng, CHANGES_MS)
        self._checker = checker
        self._clients: list[str | None] = [*clients, None]
        self._known: Remembered[Quota, float | None] = Remembered()

    async def change(self) -> None:
        """Set or remove one quota."""
        rng = self._rng
        key = rng.choice(sorted(RATES))
        value = None if rng.random() < 0.3 else rng.choice(RATES[key])
        quota = (rng.choice(self._clients), key)
        self._known.sent(quota, value)
        self._answered(quota, value, await self.ask(*_request(quota, value)))

    def _answered(self, quota: Quota, value: float | None, code: ErrorCode | None) -> None:
        outcome = "no answer" if code is None else code.name
        self.session.note(f"{quota[1]} of {quota[0] or 'all others'} to {value}: {outcome}")
        self._known.answered(quota, value, code)

    async def restore(self) -> None:
        """Remove all quotas."""
        for quota in self._known.requested():
            self._known.sent(quota, None)
            self._answered(quota, None, await self.ask_surely(*_request(quota, None)))

    async def judge(self) -> None:
        """Describe all quotas at every broker."""
        component = m.DescribeClientQuotasRequest.ComponentData(entity_type=CLIENT_ID, match_type=2, match=None)
        request = m.DescribeClientQuotasRequest(components=[component], strict=False)
        for node in await self.broker_ids():
            answer: Any = None
            while answer is None:
                answer = await self.session.request(node, ApiKey.DESCRIBE_CLIENT_QUOTAS, VERSION, request)
                if answer is None:
                    await self.session.sleep(PAUSE_MS)
            self.session.expect(answer.error_code, ErrorCode.NONE, what="describe client quotas")
            found = {
                (entry.entity[0].entity_name, value.key): value.value
                for entry in answer.entries or ()
                for value in entry.values
            }
            for quota in self._known.requested():
                if not self._known.may_be(quota, found.get(quota), None):
                    text = f"{quota} is {found.get(quota)} at broker {node}, not {self._known.sure.get(quota)}"
                    self._checker.broken("quota", "cluster", text)


def _request(quota: Quota, value: float | None) -> tuple[ApiKey, int, Any, Any]:
    request = m.AlterClientQuotasRequest
    entity = [request.EntityData(entity_type=CLIENT_ID, entity_name=quota[0])]
    row = request.OpData(key=quota[1], value=value or 0.0, remove=value is None)
    made = request(entries=[request.EntryData(entity=entity, ops=[row])], validate_only=False)
    return ApiKey.ALTER_CLIENT_QUOTAS, VERSION, made, lambda answer: answer.entries[0].error_code


__all__ = ["QuotasOperator"]
