"""What becomes of an authority: made once, renewed, replaced in phases that end by proof."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kraft_operator.security.authorities import (
    Asked,
    Policy,
    Proof,
    State,
    data_of,
    decide,
    given_authority,
    state_of,
)
from kraft_operator.security.certificates import Authority, CertificateError, ends_at, key_of, new_authority, renewed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROVEN = Proof("", "")
POLICY = Policy(days=100, renew_days=10)


def made(days: int = 100) -> State:
    return State(new_authority("cluster CA", NOW, days))


def known(state: State) -> str:
    return key_of(state.current.certificate)


def step(state: State | None, recorded: str, *, asked: Asked | None = None, policy: Policy = POLICY, **more: object):  # type: ignore[no-untyped-def]
    at = more.get("now", NOW)
    proof = more.get("proof", Proof())
    return decide("cluster", state, recorded, asked or Asked(), policy, proof, at)  # type: ignore[arg-type]


def test_a_new_cluster_gets_an_authority() -> None:
    decision = step(None, "")

    assert decision.state is not None and ends_at(decision.state.current.certificate) == NOW + timedelta(days=100)


def test_a_missing_authority_is_reported_and_no_other_is_made() -> None:
    decision = step(None, known(made()))

    assert decision.state is None and decision.problem[0] == "AuthorityMissing"


def test_an_authority_with_another_key_than_recorded_is_reported() -> None:
    decision = step(made(), known(made()))

    assert decision.problem[0] == "AuthorityChanged"


def test_a_steady_authority_stays() -> None:
    state = made()

    assert step(state, known(state)).state is state


def test_an_authority_near_its_end_is_renewed_with_its_key() -> None:
    state = made()
    late = NOW + timedelta(days=91)

    after = step(state, known(state), now=late).state
    assert known(after) == known(state) and ends_at(after.current.certificate) == late + timedelta(days=100)
    assert after.next is None and not after.former


def test_a_requested_replacement_goes_through_both_phases() -> None:
    state, asked = made(), Asked(request="once")
    old = known(state)

    trusting = step(state, old, asked=asked).state
    assert trusting.current == state.current and trusting.next is not None
    assert trusting.trusted.count("BEGIN CERTIFICATE") == 2
    waiting = step(trusting, old, asked=asked)
    assert waiting.state is trusting and "no node" in waiting.waits

    signing = step(trusting, old, asked=asked, proof=PROVEN).state
    assert signing.current == trusting.next and signing.former == state.current.certificate
    unrecorded = step(signing, old, asked=asked, proof=PROVEN)
    assert unrecorded.state is signing and "record" in unrecorded.waits

    last = step(signing, known(signing), asked=asked, proof=PROVEN).state
    assert (last.next, last.former, last.since) == (None, "", None)
    assert step(last, known(last), asked=asked).state is last, "a request is carried out once"


def test_the_new_authority_issues_only_after_the_overlap() -> None:
    policy = replace(POLICY, overlap=timedelta(hours=2))
    state = replace(made(), next=new_authority("cluster CA", NOW, 9), since=NOW)

    early = step(state, known(state), policy=policy, proof=PROVEN, now=NOW + timedelta(hours=1))
    assert early.state is state and "2026-01-01T02:00:00Z" in early.waits
    assert step(state, known(state), policy=policy, proof=PROVEN, now=NOW + timedelta(hours=2)).state.former


def test_a_key_in_the_users_secret_replaces_the_authority_and_a_new_certificate_of_it_does_not() -> None:
    state, own = made(), new_authority("Corp", NOW, 50)

    begun = step(state, known(state), asked=Asked(given=own)).state
    assert begun.next == own
    there = State(own)
    again = Authority(new_authority("x", NOW, 60).certificate, own.key)
    assert step(there, known(there), asked=Asked(given=again)).problem[0] == "AuthorityNotValid"
    renewed_by_user = step(State(own), known(there), asked=Asked(given=own))
    assert renewed_by_user.state == there


def test_the_users_authority_is_not_renewed_by_the_operator() -> None:
    own = new_authority("Corp", NOW, 5)
    state = State(own)

    assert step(state, known(state), asked=Asked(given=own)).state == state
    expired = step(state, known(state), asked=Asked(given=own), now=NOW + timedelta(days=6))
    assert "has expired" in expired.waits


def test_a_former_authority_of_clients_is_trusted_until_a_request_names_it() -> None:
    policy = replace(POLICY, keeps_former=True)
    former = new_authority("x", NOW, 50).certificate
    state = replace(made(), former=former, since=NOW)

    assert step(state, known(state), policy=policy, proof=PROVEN).state is state
    asked = Asked(forget=key_of(former)[:16])
    assert step(state, known(state), policy=policy, asked=asked).state.former == ""
    assert step(state, known(state), policy=policy, now=NOW + timedelta(days=51)).state.former == ""


def test_an_authority_of_clients_is_renewed_while_a_former_one_is_trusted() -> None:
    policy, late = replace(POLICY, keeps_former=True), NOW + timedelta(days=91)
    state = replace(made(), former=new_authority("x", NOW, 1000).certificate, since=NOW)

    after = step(state, known(state), policy=policy, now=late).state
    assert known(after) == known(state) and ends_at(after.current.certificate) == late + timedelta(days=100)
    assert (after.former, after.since) == (state.former, NOW)
    again = step(state, known(state), policy=policy, asked=Asked(request="again"), now=late)
    assert ends_at(again.state.current.certificate) > late, "also while another replacement waits"
    by_owner = renewed(state.current, late, 30)
    taken = step(state, known(state), policy=policy, asked=Asked(given=by_owner), now=late).state
    assert taken == replace(state, current=by_owner)


@pytest.mark.parametrize("asked", [Asked(request="again"), Asked(given=new_authority("Corp", NOW, 50))])
def test_a_second_replacement_names_the_former_authority_that_it_waits_for(asked: Asked) -> None:
    policy = replace(POLICY, keeps_former=True)
    former = new_authority("x", NOW, 50).certificate
    state = replace(made(), former=former, since=NOW)

    waiting = step(state, known(state), policy=policy, asked=asked)
    assert waiting.state is state and key_of(former)[:16] in waiting.waits
    forgotten = step(state, known(state), policy=policy, asked=replace(asked, forget=key_of(former)[:16])).state
    assert step(forgotten, known(state), policy=policy, asked=asked).state.next is not None


@pytest.mark.parametrize("phase", ["steady", "trusting", "signing"])
def test_the_stored_form_keeps_everything(phase: str) -> None:
    state = replace(made(), request="r")
    if phase == "trusting":
        state = replace(state, next=new_authority("x", NOW, 9), since=NOW)
    elif phase == "signing":
        state = replace(state, former=new_authority("x", NOW, 9).certificate, since=NOW)

    assert state_of(data_of(state)) == state


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key", "next.key", "since"])
def test_a_secret_that_lost_an_entry_is_damaged_and_not_absent(lost: str) -> None:
    data = data_of(replace(made(), next=new_authority("x", NOW, 9), since=NOW))
    del data[lost]

    with pytest.raises(CertificateError, match=lost):
        state_of(data)


def test_the_secret_of_cert_manager_is_an_authority_too() -> None:
    root, own = new_authority("root", NOW, 50), new_authority("Corp", NOW, 50)
    issued = {"tls.crt": own.certificate, "tls.key": own.key}

    assert given_authority(issued) == own
    assert given_authority({**issued, "ca.crt": own.certificate}) == own, "signed by itself"
    assert given_authority({**issued, "ca.crt": root.certificate}).certificate == own.certificate + root.certificate
    both = {**issued, "ca.crt": root.certificate, "ca.key": root.key}
    assert given_authority(both) == root, "entries of the user's own come first"


@pytest.mark.parametrize(("data", "said"), [({"tls.key": "k"}, "tls.crt is missing"), ({}, "ca.crt and ca.key is")])
def test_an_incomplete_secret_is_named(data: dict[str, str], said: str) -> None:
    with pytest.raises(CertificateError, match=said):
        given_authority(data)
