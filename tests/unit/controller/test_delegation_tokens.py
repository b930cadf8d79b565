"""Delegation tokens in the controller (KIP-48)."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.request import RequestContext
from kraft_node.controller.settings import tokens
from kraft_node.security.tokens import hmac_of
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.messages import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.unit.controller.harness import Quorum

SECRET = {
    "delegation_token_secret_key": "s",
    "delegation_token_max_lifetime_ms": "5000",
    "delegation_token_expiry_time_ms": "2000",
}
OWNER = "User:ann"


@pytest.fixture
def quorum() -> Quorum:
    return Quorum(**SECRET)


def ask(quorum: Quorum, request: Any, principal: str = OWNER) -> Any:
    """The committed answer to a request of a principal."""
    answers: list[Any] = []
    key = ApiKey(request.SCHEMA.api_key)

    def reply(_: Any, response: Any) -> None:
        answers.append(response)

    ctx = RequestContext(
        int(key),
        API[key].max_version,
        1,
        "c",
        "h",
        "CONTROLLER",
        principal,
        None,
        0,
        reply,
    )
    answer = quorum.controller.handle(ctx, request)
    quorum.commit()
    return answers[0] if answer is None else answer


def create(quorum: Quorum, principal: str = OWNER, **request: Any) -> Any:
    return ask(quorum, CreateDelegationTokenRequest(**request), principal)


def test_a_token_belongs_to_its_requester_and_expires_by_the_configuration(quorum: Quorum) -> None:
    answer = create(quorum, max_lifetime_ms=-1)
    assert answer.error_code == 0
    assert (answer.principal_type, answer.principal_name) == ("User", "ann")
    now = answer.issue_timestamp_ms
    assert (answer.expiry_timestamp_ms - now, answer.max_timestamp_ms - now) == (2000, 5000)
    assert bytes(answer.hmac) == hmac_of(b"s", answer.token_id)
    record = quorum.image.tokens.get(answer.token_id)
    assert (record.owner, record.requester, list(record.renewers)) == (OWNER, OWNER, [])


def test_a_token_for_another_owner_notes_who_requested_it(quorum: Quorum) -> None:
    answer = create(quorum, owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=1000)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "ann")
    assert answer.expiry_timestamp_ms == answer.max_timestamp_ms == answer.issue_timestamp_ms + 1000


def test_only_users_may_renew(quorum: Quorum) -> None:
    renewer = CreateDelegationTokenRequest.CreatableRenewers("Group", "x")
    assert create(quorum, renewers=[renewer]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_a_renewal_moves_the_expiry_at_most_to_the_end_and_by_default_without_a_period(quorum: Quorum) -> None:
    token = create(quorum, max_lifetime_ms=-1)
    quorum.time.now += 1500
    for period, expiry in ((1000, 2500), (-1, 3500), (1000, 2500), (0, 3500), (60_000, 3500)):
        answer = ask(quorum, RenewDelegationTokenRequest(bytes(token.hmac), period))
        assert answer.expiry_timestamp_ms - token.issue_timestamp_ms == expiry
    quorum.time.now += 2000
    answer = ask(quorum, RenewDelegationTokenRequest(bytes(token.hmac), -1))
    assert answer.expiry_timestamp_ms == token.max_timestamp_ms
    assert quorum.image.tokens.get(token.token_id).expiration_timestamp == token.max_timestamp_ms


def test_strangers_cannot_renew_or_expire_a_token(quorum: Quorum) -> None:
    renewer = CreateDelegationTokenRequest.CreatableRenewers("User", "eve")
    hmac = bytes(create(quorum, renewers=[renewer]).hmac)
    for principal, code in (("User:mallory", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH), ("User:eve", 0)):
        assert ask(quorum, RenewDelegationTokenRequest(hmac, 10), principal).error_code == code
        assert ask(quorum, ExpireDelegationTokenRequest(hmac, 10), principal).error_code == code


def test_an_unknown_hmac_is_not_found(quorum: Quorum) -> None:
    for request in (RenewDelegationTokenRequest(b"x", 1), ExpireDelegationTokenRequest(b"x", 1)):
        assert ask(quorum, request).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_an_expired_token_cannot_be_renewed_but_removed(quorum: Quorum) -> None:
    token = create(quorum)
    hmac = bytes(token.hmac)
    quorum.time.now += 2001
    assert ask(quorum, RenewDelegationTokenRequest(hmac, 1)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert ask(quorum, ExpireDelegationTokenRequest(hmac, 1)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert ask(quorum, ExpireDelegationTokenRequest(hmac, -1)).error_code == 0
    assert quorum.image.tokens.get(token.token_id) is None
    assert ask(quorum, ExpireDelegationTokenRequest(hmac, -1)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_expired_tokens_are_swept_and_others_stay(quorum: Quorum) -> None:
    gone, kept = create(quorum, max_lifetime_ms=100), create(quorum)
    quorum.time.now += 200
    plan = quorum.controller.tokens.sweep()
    assert [record.token_id for record in plan.records] == [gone.token_id]
    assert kept.token_id in dict(quorum.image.tokens.items())


def test_an_unknown_hmac_computes_no_known_hmac_again(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that renews a removed token must not cost the HMACs of all others each time."""
    computed: list[str] = []

    def counted(secret: bytes, token_id: str) -> bytes:
        computed.append(token_id)
        return hmac_of(secret, token_id)

    monkeypatch.setattr(tokens, "hmac_of", counted)
    made = [create(quorum) for _ in range(5)]
    computed.clear()
    for _ in range(3):
        answer = ask(quorum, RenewDelegationTokenRequest(hmac=b"unknown"))
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert sorted(computed) == sorted(one.token_id for one in made)
    late = create(quorum)
    computed.clear()
    assert ask(quorum, RenewDelegationTokenRequest(hmac=late.hmac)).error_code == ErrorCode.NONE
    assert computed == [late.token_id]
