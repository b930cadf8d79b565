"""The fetching side of fetch sessions (KIP-227)."""

from __future__ import annotations

from kraft_protocol.client.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION, ClientFetchSession


def _open(session_id: int = 7) -> ClientFetchSession[str]:
    session: ClientFetchSession[str] = ClientFetchSession()
    session.answered(session_id)
    session.known = {"a", "b"}
    return session


def test_a_session_opens_with_the_first_response_and_counts_requests() -> None:
    session = _open()
    assert (session.id, session.epoch, session.is_full) == (7, 1, False)
    session.answered(7)
    assert session.epoch == 2
    session.epoch = EPOCH_MAX
    session.answered(7)
    assert session.epoch == 1


def test_every_request_is_full_if_the_leader_has_no_room_for_sessions() -> None:
    session = _open(NO_SESSION)
    assert (session.id, session.epoch, session.is_full) == (NO_SESSION, INITIAL_EPOCH, True)


def test_a_full_request_names_the_session_that_its_leader_ended() -> None:
    for restart in (ClientFetchSession.restart, lambda session: session.answered(NO_SESSION)):
        session = _open()
        restart(session)
        assert (session.id, session.is_full, session.known) == (7, True, set())


def test_a_session_that_the_leader_lost_is_not_named_again() -> None:
    session = _open()
    session.forgotten_by_leader()
    assert (session.id, session.is_full, session.known) == (NO_SESSION, True, set())
