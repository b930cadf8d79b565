"""The law `idle` of simulated nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft_node.testing.leftovers import LENT_A_LINK, left_in


def _machine(**changed: Any) -> Any:
    fetches = [SimpleNamespace(session=SimpleNamespace(replica_id=replica)) for replica in changed.get("fetches", [2])]
    broker = SimpleNamespace(
        produce=SimpleNamespace(waiting=changed.get("produces", set())),
        fetch=SimpleNamespace(waiting=fetches),
        turns=changed.get("turns", []),
    )
    controller = SimpleNamespace(
        _deferred=changed.get("deferred", []), turns=[], in_turns=SimpleNamespace(under_way=changed.get("plans", 0))
    )
    pool = SimpleNamespace(lent=changed.get("lent", 0))
    return SimpleNamespace(node=SimpleNamespace(broker=broker, controller=controller, _pool=pool))


def test_a_node_that_only_replicates_is_idle() -> None:
    assert left_in(_machine(lent=LENT_A_LINK), 1) == []
    assert left_in(SimpleNamespace(node=None), 3) == []  # type: ignore[arg-type]


def test_what_requests_left_behind_is_named() -> None:
    kept = {"fetches": [2, -1], "produces": {1}, "turns": [1, 2], "deferred": [1], "plans": 1, "lent": LENT_A_LINK + 5}
    assert left_in(_machine(**kept), 1) == [
        "1 produce requests that wait",
        "1 fetches of clients that wait",
        "2 jobs of the broker",
        "1 answers that wait for a commit",
        "1 plans under way",
        "5 bytes lent to requests",
    ]
