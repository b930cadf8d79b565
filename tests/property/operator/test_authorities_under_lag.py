"""The replacement of an authority, while nodes read their files late, restart, join and leave, and the operator dies.

Laws, after every event:

- `connect`   each running node trusts the authority of each other running node's certificate, and of the operator's
- `one`       the record never loses the authority that a running node trusts

Each planted bug must break a law.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from kraft_operator.security import authorities, keeper
from kraft_operator.security.authorities import Asked, Decision, Policy, Proof, State
from kraft_operator.security.certificates import key_of
from kraft_operator.security.keeper import Needs
from kraft_operator.security.names import CLUSTER, CLUSTER_TRUST, KEYS, authority_name, node_name
from kraft_operator.security.nodes import chain_of

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = 220


class LawError(AssertionError):
    """A law does not hold."""


class DiedError(Exception):
    """The operator dies at a write."""


@dataclass
class Loaded:
    """What a running node has read: fingerprints of trusted authorities, and of the authority of its certificate."""

    trusts: frozenset[str]
    presents: str


def _loaded(files: Mapping[str, str], known: Mapping[str, str]) -> Loaded:
    parts = files[CLUSTER_TRUST].split("-----BEGIN CERTIFICATE-----")[1:]
    trusts = frozenset(key_of("-----BEGIN CERTIFICATE-----" + part) for part in parts)
    return Loaded(trusts, known[chain_of(files[KEYS])])


@dataclass
class World:
    """Stored objects, and the nodes that read them late."""

    rng: random.Random
    stored: dict[str, dict[str, str]] = field(default_factory=dict)
    running: dict[int, Loaded] = field(default_factory=dict)
    nodes: set[int] = field(default_factory=lambda: {1, 2, 3})
    joined: int = 3
    known: dict[str, str] = field(default_factory=dict)
    issuers: dict[str, str] = field(default_factory=dict)
    """Certificate -> fingerprint of its authority, noted when it is written."""
    request: str = ""
    now: datetime = START
    dies: bool = False
    replaced: int = 0

    async def read(self, name: str) -> Mapping[str, str] | None:
        return self.stored.get(name)

    given = read

    async def write(self, name: str, data: Mapping[str, str]) -> None:
        if self.dies and self.rng.random() < 0.15:
            raise DiedError
        self.stored[name] = dict(data)
        if KEYS in data:
            state = authorities.state_of(self.stored[authority_name(CLUSTER)])
            self.issuers.setdefault(chain_of(data[KEYS]), key_of(state.current.certificate))
        if self.dies and self.rng.random() < 0.15:
            raise DiedError

    async def prove(self, name: str, state: State) -> Proof:
        if name != CLUSTER:
            return Proof("", "")
        new = key_of((state.next or state.current).certificate)
        distrust = [i for i, one in self.running.items() if new not in one.trusts]
        former = [i for i, one in self.running.items() if one.presents != new]
        return Proof(f"{distrust}" if distrust else "", f"{former}" if former else "")

    async def operate(self) -> None:
        asked = {CLUSTER: Asked(request=self.request)}
        policies = {CLUSTER: Policy(days=160, renew_days=60)}
        needs = Needs("demo", "ns", {i: {f"demo-{i}"} for i in self.nodes}, self.known, asked, {}, policies)
        try:
            kept = await keeper.keep(self, needs, self.now, self.prove)
        except DiedError:
            return
        if kept.problems:
            raise LawError(f"one: {kept.problems}")
        if self.known and kept.fingerprints[CLUSTER] != self.known[CLUSTER]:
            self.replaced += 1
        if not (self.dies and self.rng.random() < 0.15):
            self.known = kept.fingerprints

    def check(self) -> None:
        presented = {i: one.presents for i, one in self.running.items()}
        data = self.stored.get(authority_name(CLUSTER))
        if data is not None and self.running:
            presented[0] = key_of(authorities.state_of(data).current.certificate)
        for i, one in self.running.items():
            for j, authority in presented.items():
                if authority not in one.trusts:
                    raise LawError(f"connect: node {i} does not trust the certificate of {j or 'the operator'}")

    async def event(self) -> None:
        kind = self.rng.choices(
            ["operate", "read", "start", "stop", "join", "leave", "request", "days"], [30, 24, 12, 6, 3, 2, 3, 6]
        )[0]
        if kind == "operate":
            await self.operate()
        elif kind in {"read", "start"}:
            there = sorted(self.running if kind == "read" else self.nodes - self.running.keys())
            if there and (files := self.stored.get(node_name(node := self.rng.choice(there)))):
                self.running[node] = _loaded(files, self.issuers)
        elif kind == "stop" and self.running:
            del self.running[self.rng.choice(sorted(self.running))]
        elif kind == "join" and len(self.nodes) < 5:
            self.joined += 1
            self.nodes.add(self.joined)
        elif kind == "leave" and len(self.nodes) > 2:
            node = self.rng.choice(sorted(self.nodes))
            self.nodes.discard(node)
            self.running.pop(node, None)
        elif kind == "request":
            self.request = str(self.rng.random())
        elif kind == "days":
            self.now += timedelta(days=self.rng.choice([1, 3, 10]))


def run(seed: int) -> World:
    async def main() -> World:
        world = World(random.Random(seed))
        world.dies = seed % 2 == 1
        for _ in range(EVENTS):
            await world.event()
            world.check()
        return world

    return asyncio.run(main())


@pytest.mark.parametrize("seed", range(6))
def test_nodes_can_always_connect_to_each_other(seed: int) -> None:
    run(seed)


def test_the_world_replaces_authorities() -> None:
    assert sum(run(seed).replaced for seed in range(4)) >= 4


def _at_once(decision: Decision) -> Decision:
    """Issue by the new authority without the phase in which nodes learn to trust it."""
    state = decision.state
    if state is None or state.next is None:
        return decision
    return replace(decision, state=replace(state, current=state.next, next=None, former=state.current.certificate))


def _forgets_at_once(decision: Decision) -> Decision:
    """Drop the former authority when the new one begins to issue."""
    state = decision.state
    if state is None or not state.former:
        return decision
    return replace(decision, state=replace(state, former="", since=None))


@pytest.mark.parametrize("bug", [_at_once, _forgets_at_once])
def test_a_planted_bug_in_a_decision_breaks_a_law(bug: object, monkeypatch: pytest.MonkeyPatch) -> None:
    right = authorities.decide
    monkeypatch.setattr(keeper, "decide", lambda *words: bug(right(*words)))  # type: ignore[operator]
    _some_law_breaks()


@pytest.mark.parametrize("phase", ["trusts_next", "presents_current"])
def test_a_phase_that_ends_without_its_proof_breaks_a_law(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = World.prove

    async def wrong(self: World, name: str, state: State) -> Proof:
        return replace(await right(self, name, state), **{phase: ""})

    monkeypatch.setattr(World, "prove", wrong)
    _some_law_breaks()


def test_an_authority_that_is_made_again_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    right = authorities.decide

    def wrong(name: str, state: State | None, known: str, *rest: object) -> Decision:
        lost = random.Random(key_of(state.current.certificate)).random() < 0.5 if state is not None else False
        return right(name, None if lost else state, "", *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(keeper, "decide", wrong)
    _some_law_breaks()


def _some_law_breaks() -> None:
    for seed in range(12):
        try:
            run(seed)
        except LawError:
            return
    raise AssertionError("no seed breaks a law")
