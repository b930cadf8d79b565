"""When passes look for KRaftUsers at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft_operator.one_pass import USERS_S
from kraft_operator.plan.users import UsersSeen
from kraft_operator.reconcile import Reconciler
from tests.unit.operator.passes.test_reconcile_users import declare, passes, started
from tests.unit.operator.reconciling import KEY


async def _pods_changed(operator: Any) -> None:
    """A pass after a change that has nothing to do with users."""
    operator.touched(KEY, users=False)
    await Reconciler.reconcile(operator, KEY)


def test_without_users_only_a_change_of_one_or_a_minute_causes_another_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        await passes(operator)
        listed, listing, clock = [0], api.list, operator._clock

        async def list_(kind: str, *rest: Any, **named: Any) -> list[dict[str, Any]]:
            listed[0] += kind == "KRaftUser"
            return await listing(kind, *rest, **named)

        api.list = list_  # type: ignore[method-assign]
        for _ in range(3):
            await _pods_changed(operator)
        assert listed == [0]
        declare(api, "shop")
        await _pods_changed(operator)
        assert listed == [0], "no watch has reported the user yet"
        operator.touched(KEY)
        await _pods_changed(operator)
        assert "shop" in users.passwords
        del api.objects["KRaftUser", "demo", "shop"]
        await _pods_changed(operator)
        assert users.seen == UsersSeen({}, {}, {}), "a claim is enough to look again"
        for _ in range(2):
            await _pods_changed(operator)
        declare(api, "late")
        operator._clock = lambda: clock() + USERS_S
        await _pods_changed(operator)
        assert "late" in users.passwords
        operator.close()

    asyncio.run(main())


def test_a_user_reported_during_an_empty_look_is_found_by_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        await passes(operator)
        listing = api.list

        async def list_(kind: str, *rest: Any, **named: Any) -> list[dict[str, Any]]:
            found = await listing(kind, *rest, **named)
            if kind == "KRaftUser" and not found:
                declare(api, "shop")
                operator.touched(KEY)
            return found

        api.list = list_  # type: ignore[method-assign]
        operator.touched(KEY)
        await _pods_changed(operator)
        assert users.passwords == {}
        await _pods_changed(operator)
        assert "shop" in users.passwords
        operator.close()

    asyncio.run(main())
