"""Secrets of users that a person edits, and names that no certificate can have."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.passes.test_reconcile_users import (
    SCRAM,
    Users,
    _encoded,
    condition,
    declare,
    entry,
    events,
    passes,
    started,
)
from tests.unit.operator.reconciling import KEY


def edit(api: FakeApi, operator: Any, **entries: str) -> None:
    api.objects["Secret", "demo", "shop"]["data"] |= {key: _encoded(value) for key, value in entries.items()}
    operator.touched(KEY)


def settled_user(monkeypatch: pytest.MonkeyPatch, then: Any) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, "shop")
        await passes(operator)
        await then(api, operator, users)
        operator.close()

    asyncio.run(main())


def test_an_edited_password_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client files got the edited password, the cluster kept the former one, and the user was Ready."""

    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        api.objects["KRaftUser", "demo", "shop"]["status"]["issued"] = "2020-01-01T00:00:00Z"
        edit(api, operator, password="chosen by hand")
        await passes(operator)
        assert users.passwords["shop"] == "chosen by hand"
        assert json.loads(entry(api, "shop", "python.json"))["sasl.password"] == "chosen by hand"
        assert condition(api, "shop")["reason"] == "InForce"
        assert ("KRaftUser", "CredentialsRotated") in events(api)
        writes = len(api.writes)
        operator.touched(KEY)
        await passes(operator)
        assert [one for one in api.writes[writes:] if one[1] == "Secret"] == [], "it is taken over once"

    settled_user(monkeypatch, then)


def test_an_edited_password_is_set_again_if_the_pass_ends_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        def die() -> None:
            raise RuntimeError("the operator dies")

        users.before = die
        edit(api, operator, password="chosen by hand")
        with pytest.raises(RuntimeError):
            await operator.reconcile(KEY)
        assert users.passwords["shop"] != "chosen by hand"
        users.before = lambda: None
        await passes(operator)
        assert users.passwords["shop"] == "chosen by hand"

    settled_user(monkeypatch, then)


@pytest.mark.parametrize("password", ["two\nlines", " blanks "])
def test_an_edited_password_that_no_file_can_hold_is_reported(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        before = users.passwords["shop"]
        edit(api, operator, password=password)
        await passes(operator)
        assert condition(api, "shop")["reason"] == "PasswordNotUsable"
        assert "Secret shop, key password" in condition(api, "shop")["message"]
        assert password not in condition(api, "shop")["message"]
        assert users.passwords["shop"] == before
        assert users.seen.credentials == {"shop": {SCRAM: 4096}}, "the former password stays in force"

    settled_user(monkeypatch, then)


def test_another_edited_entry_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        before = users.passwords["shop"]
        edit(api, operator, **{"client.properties": "x=y"})
        await passes(operator)
        assert "sasl.mechanism" in entry(api, "shop", "client.properties")
        assert users.passwords["shop"] == before

    settled_user(monkeypatch, then)


def test_a_name_that_no_certificate_can_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason was AuthorityNotValid, and the message blamed the Secret of the authority."""

    async def main() -> None:
        api, operator, _ = await started(monkeypatch)
        name = "u" * 65
        declare(api, name, authentication={"type": "MutualTls", "validDays": 30})
        declare(api, f"{name}x", userName="short", authentication={"type": "MutualTls", "validDays": 30})
        await passes(operator)
        assert condition(api, name)["reason"] == "UserNameTooLong"
        assert "spec.userName" in condition(api, name)["message"]
        assert condition(api, f"{name}x")["reason"] == "InForce"
        operator.close()

    asyncio.run(main())
