"""Brokers that lag, and requests that take effect late: claims of users outlive both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kraft_operator.apply.users import SETTLED_S
from kraft_operator.plan.users import UsersSeen
from kraft_protocol.client.aio import UnreachableError
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.passes.test_reconcile_users import RULE, SCRAM, Users, condition, declare, passes, started
from tests.unit.operator.reconciling import KEY

EMPTY = UsersSeen({}, {}, {})
Then = Callable[[FakeApi, Any, Users], Awaitable[None]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[[Then], None]:
    def run(then: Then) -> None:
        async def main() -> None:
            api, operator, users = await started(monkeypatch)
            await then(api, operator, users)
            operator.close()

        asyncio.run(main())

    return run


def claims(api: FakeApi) -> list[dict[str, Any]]:
    return list(json.loads(api.objects["ConfigMap", "demo", "sample-users"]["data"]["users"]))


def test_a_user_that_is_deleted_before_a_broker_shows_it_is_deleted_later(cluster: Any) -> None:
    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        declare(api, "shop", acls=[RULE], quotas={"producerByteRate": 5})
        await operator.reconcile(KEY)
        there, users.seen, users.complete = users.seen, EMPTY, False
        assert there.credentials == {"shop": {SCRAM: 4096}}
        del api.objects["KRaftUser", "demo", "shop"]
        await passes(operator)
        assert [one["user"] for one in claims(api)] == ["shop"], "the broker lags, and shows nothing"
        users.seen, users.complete = there, True
        await passes(operator)
        assert users.seen == EMPTY
        assert claims(api) == []

    cluster(then)


def test_an_acl_that_is_removed_before_a_broker_shows_it_is_deleted_later(cluster: Any) -> None:
    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        declare(api, "shop")
        await passes(operator)
        before = dict(users.seen.acls)
        api.objects["KRaftUser", "demo", "shop"]["spec"]["acls"] = [RULE]
        await operator.reconcile(KEY)
        there = dict(users.seen.acls)
        assert there != before
        users.seen, users.complete = UsersSeen(users.seen.credentials, before, {}), False
        api.objects["KRaftUser", "demo", "shop"]["spec"]["acls"] = []
        await passes(operator)
        users.seen, users.complete = UsersSeen(users.seen.credentials, there, {}), True
        await passes(operator)
        assert users.seen.acls == {}

    cluster(then)


def test_a_request_without_an_answer_may_take_effect_after_the_deletion(cluster: Any) -> None:
    """Controllers had no leader, the operator gave up, and the user was made once they had one."""

    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        def lost() -> None:
            raise UnreachableError("b:1: no answer")

        users.before = lost
        declare(api, "shop")
        with pytest.raises(UnreachableError):
            await operator.reconcile(KEY)
        users.before = lambda: None
        del api.objects["KRaftUser", "demo", "shop"]
        await passes(operator)
        (claim,) = claims(api)
        assert claim["unanswered"], "the broker proves that it is complete, but the request is under way"
        users.seen = UsersSeen({"shop": {SCRAM: 4096}}, {}, {})
        operator.touched(KEY)
        await passes(operator)
        assert users.seen == EMPTY
        assert len(claims(api)) == 1
        long_ago = datetime.now(UTC) - timedelta(seconds=SETTLED_S + 1)
        text = json.dumps([{**claim, "unanswered": long_ago.isoformat()}])
        api.objects["ConfigMap", "demo", "sample-users"]["data"]["users"] = text
        operator.touched(KEY)
        await passes(operator)
        assert claims(api) == []

    cluster(then)


def test_a_request_with_an_answer_delays_no_deletion(cluster: Any) -> None:
    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        declare(api, "shop")
        await operator.reconcile(KEY)
        assert "unanswered" not in claims(api)[0]
        users.refused = {"shop": "the cluster refuses the credentials of shop: timed out"}
        api.objects["KRaftUser", "demo", "shop"]["spec"]["authentication"]["iterations"] = 8192
        await operator.reconcile(KEY)
        assert claims(api)[0]["unanswered"], "a refusal may be a timeout"
        assert condition(api, "shop")["reason"] == "Refused"

    cluster(then)


def test_a_cluster_with_a_claim_that_waits_for_a_proof_does_not_rest(cluster: Any) -> None:
    async def then(api: FakeApi, operator: Any, users: Users) -> None:
        declare(api, "shop")
        await passes(operator)
        users.seen, users.complete = EMPTY, False
        del api.objects["KRaftUser", "demo", "shop"]
        await passes(operator)
        reads = api.reads
        await operator.reconcile(KEY)
        assert api.reads > reads
        users.complete = True
        await passes(operator, 2)
        assert claims(api) == []
        reads = api.reads
        await operator.reconcile(KEY)
        assert api.reads == reads, "nothing is left to look after"

    cluster(then)
