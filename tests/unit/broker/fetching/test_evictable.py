"""The order in which sessions make room, compared with a look at all of them."""

from __future__ import annotations

from random import Random

from kraft_node.broker.fetch.evictable import Evictable
from kraft_node.broker.fetch.session import FetchSession

PROTECTED_MS = 50


def least_of(sessions: dict[int, FetchSession], now_ms: int, *, for_follower: bool) -> tuple[bool, int, int] | None:
    may_go = (
        (session.privileged, session.counted, session.id)
        for session in sessions.values()
        if now_ms - session.created_ms > PROTECTED_MS or (for_follower and not session.privileged)
    )
    return min(may_go, default=None)


def test_random_changes_give_the_least_of_all_sessions() -> None:
    for seed in range(20):
        rng, evictable, sessions = Random(seed), Evictable(PROTECTED_MS), dict[int, FetchSession]()
        for now_ms in range(0, 1000, 5):
            step = rng.randrange(3)
            if step == 0 or not sessions:
                session = FetchSession(by_topic_id=True, replica_id=rng.choice([-1, -1, 3]))
                session.id, session.created_ms, session.counted = now_ms + 1, now_ms, rng.randrange(4)
                sessions[session.id] = session
                evictable.put(session.worth, session.created_ms)
            elif step == 1:
                session = rng.choice(list(sessions.values()))
                session.counted = rng.randrange(4)
                evictable.put(session.worth, session.created_ms)
            else:
                session_id = rng.choice(list(sessions))
                del sessions[session_id]
                evictable.remove(session_id)
            for for_follower in (False, True):
                found = evictable.least(now_ms, for_follower=for_follower)
                assert found == least_of(sessions, now_ms, for_follower=for_follower)
