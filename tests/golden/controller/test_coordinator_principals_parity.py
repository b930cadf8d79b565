"""Every API of transactions, groups of KIP-848 and delegation tokens, in every version, by users who log in.

Each row of rights, allowed, denied, by prefixes, for everybody, is tried by users of each way to log in: PLAIN, SCRAM,
certificates, and delegation tokens, whose principal is their owner. Both servers must answer alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.certificates import Authority
from tests.compat.targets import all_running
from tests.golden.broker.pair import Pair, Side, warm_coordinator
from tests.golden.controller import coordinating as requests
from tests.golden.controller import coordinating_users as users
from tests.golden.controller import principals as who

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("coordinator-principals")]

DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
OUTCOMES: Final = {
    "nothing": "",
    "denied ids by a prefix": "",
    "everything": "CompleteAbort",
    "everything by prefixes": "CompleteAbort",
    users.SUPER: "CompleteAbort",
}
"""What users see of their last transaction, in words: the comparison alone would not notice that all are refused."""
HOUR_MS: Final = 3_600_000


def _parameters(rows: Any) -> list[Any]:
    return [
        pytest.param(user, id=str(user), marks=() if users.everyday(user) else pytest.mark.slow)
        for user in users.USERS
        if user.row in rows
    ]


ALL = pytest.mark.parametrize("user", _parameters(users.ENTRIES))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers with the users, an id that has an open transaction, one without, and a group with a member."""
    folder = tmp_path_factory.mktemp("users")
    authority = Authority(folder / "certificates")
    clients = users.certificates(authority)
    settings = {
        "super.users": f"{who.SETTINGS['super.users']};{users.super_users()}",
        "delegation.token.expiry.check.interval.ms": "3600000",
        **requests.SETTINGS,
    }
    options = {name.replace(".", "_"): value for name, value in settings.items()}
    made = [
        who.server(kind, folder / kind, authority, users.MECHANISMS, **options) for kind in ("apache", "kraftcluster")
    ]
    targets = [secured.target for secured, _ in made]
    with all_running(targets):
        ports = [{"sasl": s.sasl_port, "secure": port, "controller": s.target.controller_port} for s, port in made]
        both = Pair(
            *(
                who.User(name, secured, at, clients, users.MECHANISMS)
                for name, (secured, _), at in zip(("Kafka", "ours"), made, ports, strict=True)
            )
        )
        _prepare(both)
        yield both
        for side in both.sides:
            side.close()


def _prepare(pair: Pair) -> None:
    for topic in requests.TOPICS:
        pair.create(topic)
    warm_coordinator(pair)
    for request in users.acls():
        pair.same(request, 3)
    pair.verdict()
    for side in pair.sides:
        assert isinstance(side, who.User)
        requests.prepare(side)
        _make_tokens(side)
        last = next(user for user in users.USERS if user.row == "alters the cluster" and user.way == users.WHOLE)
        side.become(last.name)
        who.until(
            f"the last entry at {side}",
            lambda side=side: (
                side.ask(m.DescribeQuorumRequest(), 0).error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            ),
        )


def _make_tokens(side: who.User) -> None:
    """A token of the owner, and the tokens of users who log in by one."""
    create = m.CreateDelegationTokenRequest
    side.become(users.OWNER)
    answer = side.ask(create(None, None, [create.CreatableRenewers("User", users.RENEWER)], -1), 3)
    assert answer.error_code == ErrorCode.NONE, (side, answer)
    side.memory["token"] = bytes(answer.hmac)


def become(pair: Pair, user: users.User) -> None:
    """Log in as the user at both; make the user's token first."""
    for side in pair.sides:
        assert isinstance(side, who.User)
        if user.way in (users.TOKEN, users.GRANTED) and user.name not in side.tokens:
            users.make_token(side, user)
            side.become(who.SUPER)
            who.until(f"the token at {side}", partial(_knows, side, side.tokens[user.name][0]))
        side.become(user.name)


def _knows(side: Side, token_id: str) -> bool:
    return token_id in {token.token_id for token in side.ask(m.DescribeDelegationTokenRequest(None), 3).tokens}


def become_super(pair: Pair) -> None:
    for side in pair.sides:
        assert isinstance(side, who.User)
        side.become(who.SUPER)


def play(pair: Pair, story: Any, label: str, mask: Any, settling: tuple[Any, ...] = ()) -> None:
    """Ask both for each request of a story, which finds the answer before in `side.memory["answer"]`."""
    for (theirs, versions), (mine, _) in zip(*(story(side) for side in pair.sides), strict=True):
        asked = partial(requests.for_each, theirs=theirs, mine=mine)
        answers = pair.same(asked, versions, label=label, mask=mask, settles=isinstance(mine, settling))
        for side, answer in zip(pair.sides, answers, strict=True):
            side.memory["answer"] = answer
    pair.verdict()


@ALL
@pytest.mark.parametrize("story", requests.STORIES)
def test_every_right_permits_users_what_kafka_permits(pair: Pair, story: str, user: users.User) -> None:
    become_super(pair)
    for side in pair.sides:
        requests.keep_member(side)
    become(pair, user)
    play(pair, requests.STORIES[story], str(user), requests.without_words)


@ALL
def test_transactions_of_users_go_as_far_as_with_kafka(pair: Pair, user: users.User) -> None:
    become(pair, user)
    settling = (m.DescribeTransactionsRequest, m.OffsetFetchRequest)
    play(pair, partial(users.living, name=user.name), str(user), requests.without_words, settling)
    for side in pair.sides:
        (last,) = side.memory["answer"].transaction_states
        assert OUTCOMES.get(user.row, last.transaction_state) == last.transaction_state, (side, last)
    become_super(pair)
    for side in pair.sides:
        who.until(f"no other transaction at {side}", partial(_has_only_one, side))


def _has_only_one(side: Side) -> bool:
    states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
    found = side.ask(m.ListTransactionsRequest(states), 1).transaction_states
    return [row.transactional_id for row in found] == ["t-open"]


@pytest.mark.parametrize("user", _parameters(("nothing", users.SUPER, *users.TOKEN_ENTRIES)))
def test_users_get_and_see_tokens_as_with_kafka(pair: Pair, user: users.User) -> None:
    become(pair, user)
    play(pair, users.of_tokens, str(user), without_secrets, (m.DescribeDelegationTokenRequest,))


@pytest.mark.parametrize("user", (users.OWNER, users.RENEWER, users.OTHER))
def test_owners_and_renewers_use_a_token_as_with_kafka(pair: Pair, user: str) -> None:
    for side in pair.sides:
        assert isinstance(side, who.User)
        side.become(user)
    play(pair, users.of_tokens, user, without_secrets, (m.DescribeDelegationTokenRequest,))


def without_secrets(plain: Any) -> Any:
    """Tokens have random ids and HMACs. Times are compared to the hour, for a test of at most 54 minutes."""
    if isinstance(plain, dict):
        return {name: _without_secret(name, value) for name, value in plain.items()}
    return sorted(map(without_secrets, plain), key=repr) if isinstance(plain, list) else plain


def _without_secret(name: str, value: Any) -> Any:
    if name in ("token_id", "hmac") and value:
        return "set"
    if "timestamp" in name and value not in (-1, 0):
        hours = 0 if value == "now" else math.floor((value - time.time() * 1000) / HOUR_MS + 0.9)
        return f"{hours} hours from now"
    return without_secrets(value)
