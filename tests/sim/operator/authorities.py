"""Authorities and certificates of one cluster under one seed, with the keeper of the operator.

Nodes read their files late, restart, join and leave. Administrators request other authorities, and exchange or lose the
certificate of a listener. The operator dies before and after any write, and before it writes the record.

Laws, after every event:

- `connect`   each running node trusts the authority of each other running node's certificate, and of the operator's
- `clients`   each running node trusts the authority that issues clients' certificates, and the former one until it is
              forgotten
- `one`       the record never loses an authority that a running node trusts
- `file`      the file of each listener that a running node's configuration names exists
- `good`      a listener that had a valid certificate of its own never goes back to that of the node
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from kraft_operator.security import authorities, keeper
from kraft_operator.security.authorities import Asked, Policy, Proof, State
from kraft_operator.security.certificates import issue, key_of, new_authority
from kraft_operator.security.keeper import Needs
from kraft_operator.security.listeners import OwnCertificate
from kraft_operator.security.names import (
    CLIENTS,
    CLIENTS_TRUST,
    CLUSTER,
    CLUSTER_TRUST,
    KEYS,
    authority_name,
    listener_file,
    node_name,
)
from kraft_operator.security.nodes import chain_of

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS: Final = 220
DIES: Final = 0.15
LISTENER: Final = "outside"
FILE: Final = listener_file(LISTENER)
HOST: Final = "kafka.example.com"
PUBLIC: Final = new_authority("public", START - timedelta(days=1), 36_000)
KINDS: Final = {
    "operate": 30,
    "read": 24,
    "start": 12,
    "stop": 6,
    "join": 3,
    "leave": 2,
    "request": 3,
    "days": 6,
    "secret": 3,
    "field": 2,
}
"""Kinds of events, with their weights."""


class LawError(AssertionError):
    """A law does not hold."""


class DiedError(Exception):
    """The operator dies at a write."""


@dataclass
class Loaded:
    """What a running node has read: fingerprints of trusted authorities, and of the authority of its certificate."""

    trusts: frozenset[str]
    trusts_clients: frozenset[str]
    presents: str
    has_listener: bool
    """Whether its configuration names the file of the listener. It stays until the node restarts."""


def _fingerprints(text: str) -> frozenset[str]:
    parts = text.split("-----BEGIN CERTIFICATE-----")[1:]
    return frozenset(key_of("-----BEGIN CERTIFICATE-----" + part) for part in parts)


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
    requests: dict[str, str] = field(default_factory=dict)
    forget: str = ""
    secret: dict[str, str] | None = None
    """The Secret with the certificate of the listener."""
    wants_listener: bool = False
    good: dict[int, str] = field(default_factory=dict)
    """By node: the certificate of the listener in its file."""
    now: datetime = START
    dies: bool = False
    dies_after: int | None = None
    """The operator dies once, after this many further writes."""
    replaced: dict[str, int] = field(default_factory=lambda: {CLUSTER: 0, CLIENTS: 0})

    # The store

    async def read(self, name: str) -> Mapping[str, str] | None:
        return self.stored.get(name)

    given = read

    async def certificate(self, listener: str) -> Mapping[str, str] | None:
        return self.secret

    async def write(self, name: str, data: Mapping[str, str]) -> None:
        self._may_die()
        self.stored[name] = dict(data)
        if KEYS in data:
            state = authorities.state_of(self.stored[authority_name(CLUSTER)])
            self.issuers.setdefault(chain_of(data[KEYS]), key_of(state.current.certificate))
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after == 0:
                self.dies_after = None
                raise DiedError
        self._may_die()

    def _may_die(self) -> None:
        if self.dies and self.rng.random() < DIES:
            raise DiedError

    # The operator

    async def prove(self, name: str, state: State) -> Proof:
        """What handshakes with all running nodes would show."""
        new = key_of((state.next or state.current).certificate)
        trusted = {i: one.trusts if name == CLUSTER else one.trusts_clients for i, one in self.running.items()}
        distrust = [i for i, one in trusted.items() if new not in one]
        former = [i for i, one in self.running.items() if one.presents != new]
        return Proof(f"{distrust}" if distrust else "", f"{former}" if former else "")

    def needs(self) -> Needs:
        asked = {name: Asked(request=self.requests.get(name, ""), forget=self.forget) for name in (CLUSTER, CLIENTS)}
        policies = {
            CLUSTER: Policy(days=160, renew_days=60),
            CLIENTS: Policy(days=160, renew_days=60, keeps_former=True),
        }
        own = OwnCertificate("corporate", {i: [frozenset({HOST})] for i in self.nodes})
        return Needs(
            "demo",
            "ns",
            {i: {f"demo-{i}"} for i in self.nodes},
            self.known,
            asked,
            {},
            policies,
            {LISTENER: own} if self.wants_listener else {},
            {i: [LISTENER] for i, one in self.running.items() if one.has_listener},
        )

    async def operate(self) -> None:
        """One pass. The operator may die within it."""
        try:
            kept = await keeper.keep(self, self.needs(), self.now, self.prove)
        except DiedError:
            return
        lost = [reason for reason, _ in kept.problems if not reason.startswith("Listener")]
        if lost:
            raise LawError(f"one: {kept.problems}")
        for name, fingerprint in kept.fingerprints.items():
            self.replaced[name] += bool(self.known) and fingerprint != self.known.get(name)
        if not (self.dies and self.rng.random() < DIES):
            self.known = kept.fingerprints

    # Everything else

    def load(self, node: int, *, starts: bool) -> None:
        """A node reads its files, if it has any."""
        files = self.stored.get(node_name(node))
        if files is None:
            return
        has_listener = self.wants_listener if starts else self.running[node].has_listener
        self.running[node] = Loaded(
            _fingerprints(files[CLUSTER_TRUST]),
            _fingerprints(files[CLIENTS_TRUST]),
            self.issuers[chain_of(files[KEYS])],
            # The operator creates a pod only after a pass that has written the file.
            has_listener and (not starts or FILE in files),
        )

    async def event(self) -> None:
        (kind,) = self.rng.choices([*KINDS], [*KINDS.values()])
        there = sorted(self.running if kind in {"read", "stop"} else self.nodes - self.running.keys())
        if kind == "operate":
            await self.operate()
        elif kind in {"read", "start"} and there:
            self.load(self.rng.choice(there), starts=kind == "start")
        elif kind == "stop" and there:
            del self.running[self.rng.choice(there)]
        elif kind == "join" and len(self.nodes) < 5:
            self.joined += 1
            self.nodes.add(self.joined)
        elif kind == "leave" and len(self.nodes) > 2:
            node = self.rng.choice(sorted(self.nodes))
            self.nodes.discard(node)
            self.running.pop(node, None)
        elif kind == "request":
            self.requests[self.rng.choice([CLUSTER, CLUSTER, CLIENTS])] = str(self.rng.random())
            self.forget = self.rng.choice(["", self.known.get(CLIENTS, "")])
        elif kind == "days":
            self.now += timedelta(days=self.rng.choice([1, 3, 10]))
        elif kind == "secret":
            self.secret = self.rng.choice([None, {"tls.crt": "damaged", "tls.key": "damaged"}, self.issued()])
        elif kind == "field":
            self.wants_listener = not self.wants_listener

    def issued(self) -> dict[str, str]:
        """The entries of a Secret with a new certificate of the listener."""
        leaf = issue(PUBLIC, {"CN": HOST}, self.now, self.rng.choice([30, 400]), names=[HOST], server=True)
        return {"tls.crt": leaf.chain, "tls.key": leaf.key}

    # Laws

    def check(self) -> None:
        self._check_connections()
        self._check_clients()
        self._check_listener()

    def _check_connections(self) -> None:
        presented = {i: one.presents for i, one in self.running.items()}
        data = self.stored.get(authority_name(CLUSTER))
        if data is not None and self.running:
            presented[0] = key_of(authorities.state_of(data).current.certificate)
        for i, one in self.running.items():
            for j, authority in presented.items():
                if authority not in one.trusts:
                    raise LawError(f"connect: node {i} does not trust the certificate of {j or 'the operator'}")

    def _check_clients(self) -> None:
        data = self.stored.get(authority_name(CLIENTS))
        if data is None:
            return
        state = authorities.state_of(data)
        needed = {key_of(text) for text in (state.current.certificate, state.former) if text}
        for i, one in self.running.items():
            if not needed <= one.trusts_clients:
                raise LawError(f"clients: node {i} does not trust certificates of clients")

    def _check_listener(self) -> None:
        for i in sorted(self.nodes):
            files = self.stored.get(node_name(i), {})
            if i in self.running and self.running[i].has_listener and FILE not in files:
                raise LawError(f"file: node {i} would not start again")
            pem = files.get(FILE, "")
            own = pem if pem != files.get(KEYS) else ""
            if i in self.good and pem and not own:
                raise LawError(f"good: the listener of node {i} lost its certificate")
            if own:
                self.good[i] = own
            else:
                self.good.pop(i, None)


def run(seed: int) -> World:
    """Chaos under one seed. Odd seeds let the operator die. Raises LawError."""

    async def main() -> World:
        world = World(random.Random(seed))
        world.dies = seed % 2 == 1
        for _ in range(EVENTS):
            await world.event()
            world.check()
        return world

    return asyncio.run(main())


def run_with_crash_after(seed: int, writes: int) -> bool:
    """Replace both authorities; the operator dies once, after this many writes. Returns whether it died.

    Raises LawError, also if the replacement never ends.
    """

    async def main() -> bool:
        world = World(random.Random(seed), dies_after=writes, wants_listener=True)
        world.secret = world.issued()
        for step in range(70):
            if step == 12:
                world.requests = {CLUSTER: "another", CLIENTS: "another"}
            await world.operate()
            world.check()
            for node in sorted(world.nodes):
                if world.rng.random() < 0.5:
                    world.load(node, starts=node not in world.running)
                    world.check()
        if min(world.replaced.values()) < 1 or len(world.running) != len(world.nodes):
            raise LawError("one: the replacement does not end")
        return world.dies_after is None

    return asyncio.run(main())
