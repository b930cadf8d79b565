"""The keeper of certificates: what it asks the caller to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kraft_operator.security.authorities import Asked, Proof, State
from kraft_operator.security.keeper import NO_PROOF, Kept, Needs, ending, keep
from kraft_operator.security.names import CLIENTS, CLUSTER

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Memory:
    """A store in memory."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, str]] = {}

    async def read(self, name: str) -> Mapping[str, str] | None:
        return self.stored.get(name)

    given = certificate = read

    async def write(self, name: str, data: Mapping[str, str]) -> None:
        self.stored[name] = dict(data)


async def _unproven(_name: str, _state: State) -> Proof:
    return Proof("node 1 has not read it", "node 1 has not read it")


def test_a_cluster_rests_only_when_no_phase_of_its_authority_is_under_way() -> None:
    store = Memory()

    def once(request: str = "", known: Mapping[str, str] | None = None) -> Kept:
        needs = Needs("demo", "ns", {1: {"demo-1"}}, known or {}, {CLUSTER: Asked(request=request)})
        return asyncio.run(keep(store, needs, NOW, _unproven))

    known = once().fingerprints
    assert once(known=known).waits == []
    for _ in range(4):
        assert once("another", known).waits != [], "also in the pass that begins the phase"
    assert "next.crt" in store.stored["cluster-ca"]


def test_no_node_is_asked_about_a_former_authority_of_clients_that_stays() -> None:
    store, asked = Memory(), list[str]()

    async def prove(name: str, _state: State) -> Proof:
        asked.append(name)
        return Proof("", "")

    def once(known: Mapping[str, str]) -> Kept:
        needs = Needs("demo", "ns", {1: {"demo-1"}}, known, {CLIENTS: Asked(request="another" if known else "")})
        return asyncio.run(keep(store, needs, NOW, prove))

    known = once({}).fingerprints
    for _ in range(4):
        known = once(known).fingerprints
    assert asked == [CLIENTS], "whether the nodes trust the next one"
    assert "former.crt" in store.stored["clients-ca"]
    assert once(known).waits == []
    assert asked == [CLIENTS]


def test_certificates_that_end_are_named_in_time_and_nothing_is_written() -> None:
    """A paused cluster got no new certificates, and nothing warned before its nodes could not connect any more."""
    store, needs = Memory(), Needs("demo", "ns", {1: {"demo-1"}, 2: {"demo-2"}}, {})

    async def prove(_name: str, _state: State) -> Proof:
        return NO_PROOF

    asyncio.run(keep(store, needs, NOW, prove))
    before = {name: dict(data) for name, data in store.stored.items()}
    store.stored["2-tls"] = {}

    def problems(days: int, **more: Any) -> list[tuple[str, str]]:
        return asyncio.run(ending(store, replace(needs, **more), NOW + timedelta(days=days))).problems

    assert problems(300) == []
    ((reason, text),) = problems(310)
    assert reason == "CertificatesEnd"
    assert "1 certificate(s)" in text and "(node 1) ends at 2027-01-01T00:00:00Z" in text
    ((_, text),) = problems(1800)
    assert "3 certificate(s)" in text and "(node 1)" in text
    ((_, text),) = problems(1800, nodes={})
    assert "2 certificate(s)" in text and "authority) ends at 2030-12-31" in text
    assert problems(1800, nodes={}, secrets={CLUSTER: "a", CLIENTS: "b"}) == [], "their owner renews them"
    assert store.stored == {**before, "2-tls": {}}
    store.stored["1-tls"] = dict.fromkeys(before["1-tls"], "damaged")
    ((reason, text),) = problems(0)
    assert (reason, "(node 1)" in text) == ("CertificatesEnd", True), "what cannot be read is not taken for valid"
