"""Brings the stored certificates of a cluster to what they should be.

The keeper runs in every whole pass, before the steps of the plan. Each write follows from what is stored, so a keeper
that dies between two writes continues in the next pass. A store that cannot be read raises: unknown is not absent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from kraft_operator.security.authorities import (
    Asked,
    Policy,
    Proof,
    State,
    authority_of,
    data_of,
    decide,
    is_known,
    state_of,
)
from kraft_operator.security.certificates import CertificateError, ends_at, key_of
from kraft_operator.security.names import (
    CLIENTS,
    CLUSTER,
    KEYS,
    NODE,
    TRUST,
    TRUSTED,
    authority_name,
    node_name,
    subject,
)
from kraft_operator.security.nodes import RENEW_DAYS, chain_of, files_of

BOTH: Final = (CLUSTER, CLIENTS)
NO_PROOF: Final = Proof()

Prove = Callable[[str, State], Awaitable[Proof]]
"""Asks every node what it trusts and presents. Arguments: the authority's name and state, which is within a phase."""


class NotOursError(Exception):
    """Somebody else's object has the name of a node's certificate, or of what clients trust."""


class Store(Protocol):
    """Where certificates are kept: Secrets, or files."""

    async def read(self, name: str) -> Mapping[str, str] | None:
        """The entries of an object; None if it does not exist. Raises NotOursError, and if that cannot be known."""

    async def given(self, secret: str) -> Mapping[str, str] | None:
        """The entries of a Secret of the user; None if it does not exist. Raises if that cannot be known."""

    async def write(self, name: str, data: Mapping[str, str]) -> None:
        """Replace an object as it was last read. Raises if another writer has changed it since."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What certificates a cluster should have."""

    cluster: str
    namespace: str
    nodes: Mapping[int, Collection[str]]
    """The hosts and addresses of each node."""
    known: Mapping[str, str]
    """Fingerprints of the authorities in the record."""
    asked: Mapping[str, Asked] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The names of the user's Secrets, by authority."""
    policies: Mapping[str, Policy] = field(default_factory=dict)


@dataclass(slots=True)
class Kept:
    """What the keeper found and did."""

    states: dict[str, State] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Requests that have no effect, with the reason. Each is listed once."""
    lacking: set[int] = field(default_factory=set)
    """Nodes that cannot have a certificate, because somebody else's object has its name."""

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of the authorities, for the record."""
        return {name: key_of(state.current.certificate) for name, state in self.states.items()}


async def keep(store: Store, needs: Needs, now: datetime, prove: Prove) -> Kept:
    """Make, renew and replace what is due."""
    kept = await seen(store)
    known = all(is_known(state, needs.known.get(name, "")) for name, state in kept.states.items())
    phase = any(state.in_phase for state in kept.states.values())
    if phase and known and len(kept.states) == len(BOTH) and await _nodes(store, needs, now, kept):
        # A phase ends only after all files of it: a node that is stopped now may start with what is stored.
        kept.waits.append("nodes read their certificates")
        return kept
    kept = Kept(done=kept.done)
    for name in BOTH:
        await _authority(store, needs, name, now, prove, kept)
    if not kept.problems and len(kept.states) == len(BOTH):
        await _nodes(store, needs, now, kept)
    if kept.done or kept.refused:  # a cluster that waits for nothing would rest, and a phase would not go on
        kept.waits.append("nodes read their certificates")
    return kept


async def _nodes(store: Store, needs: Needs, now: datetime, kept: Kept) -> bool:
    """Write the files of nodes and what clients trust, where they differ. Returns whether anything was written."""
    cluster, clients, wrote = kept.states[CLUSTER], kept.states[CLIENTS], False
    role = subject(NODE, needs.cluster, needs.namespace)
    for node_id, names in sorted(needs.nodes.items()):
        try:
            before = await store.read(node_name(node_id))
        except CertificateError:
            before = {}  # it is no text, so it is issued again
        except NotOursError as error:
            kept.lacking.add(node_id)
            kept.problems.append(("InTheWay", f"node {node_id} has no certificate: {error}"))
            continue
        try:
            files, why = files_of(before, role, names, cluster, clients, now)
        except CertificateError as error:
            kept.problems.append(("AuthorityExpired", f"no certificate for node {node_id}: {error}: renew it"))
            return wrote
        if files != before:
            await store.write(node_name(node_id), files)
            wrote = True
            kept.done += [f"certificate of node {node_id}: {why}"] if why else []
    trust = {TRUSTED: cluster.trusted}
    try:
        if await store.read(TRUST) != trust:
            await store.write(TRUST, trust)
            wrote = True
    except NotOursError as error:
        kept.problems.append(("InTheWay", f"clients cannot read what they trust: {error}"))
    return wrote


async def seen(store: Store) -> Kept:
    """The authorities as they are. Nothing is changed."""
    kept = Kept()
    for name in BOTH:
        state = await _stored(store, name, kept)
        if state is not None:
            kept.states[name] = state
    return kept


async def ending(store: Store, needs: Needs, now: datetime) -> Kept:
    """The authorities as they are, and a problem if a certificate would be renewed now. Nothing is changed."""
    kept = await seen(store)
    ends: list[tuple[datetime, str]] = []
    for name, state in kept.states.items():
        end, days = ends_at(state.current.certificate), needs.policies.get(name, Policy()).renew_days
        if name not in needs.secrets and end - now < timedelta(days=days):
            ends.append((end, f"{name} authority"))
    for node_id in sorted(needs.nodes):
        with contextlib.suppress(NotOursError):
            try:
                files = await store.read(node_name(node_id)) or {}
                found = [ends_at(chain_of(files[KEYS]))] if files.get(KEYS) else []
            except CertificateError:
                found = [now]  # it cannot be read, so the node may have none when it restarts
            ends += [(end, f"node {node_id}") for end in found if end - now < timedelta(days=RENEW_DAYS)]
    if ends:
        end, first = min(ends)
        text = (
            f"{len(ends)} certificate(s) must be renewed, and a paused cluster gets none: the first ({first}) ends at"
        )
        kept.problems.append(("CertificatesEnd", f"{text} {end:%Y-%m-%dT%H:%M:%SZ}: set paused to false before that"))
    return kept


async def _stored(store: Store, name: str, kept: Kept) -> State | None:
    """A stored authority; None if it does not exist or, as a problem, if it is damaged."""
    try:
        data = await store.read(authority_name(name))
        return None if data is None else state_of(data)
    except CertificateError as error:
        text = f"the Secret of the {name} authority cannot be used: {error}: restore it; nothing is issued meanwhile"
        kept.problems.append(("AuthorityNotValid", text))
        return None


async def _authority(store: Store, needs: Needs, name: str, now: datetime, prove: Prove, kept: Kept) -> None:
    known_problems = len(kept.problems)
    state = await _stored(store, name, kept)
    if len(kept.problems) > known_problems:
        return
    policy = needs.policies.get(name, Policy(keeps_former=name == CLIENTS))
    # Nodes prove nothing about a former authority that clients may still need: it is kept for years, and each question
    # is a failed handshake at every listener.
    shown = state is not None and (state.next is not None or (state.in_phase and not policy.keeps_former))
    proof = await prove(name, state) if state is not None and shown else NO_PROOF
    asked = needs.asked.get(name, Asked())
    if secret := needs.secrets.get(name):
        try:
            asked = replace(asked, given=authority_of(await store.given(secret) or {}))
        except CertificateError as error:
            kept.problems.append(("AuthorityNotValid", f"Secret {secret} of spec.security: {error}"))
            return
    decision = decide(name, state, needs.known.get(name, ""), asked, policy, proof, now)
    if decision.problem is not None:
        kept.problems.append(decision.problem)
        return
    if decision.state is not None:
        if decision.state != state:
            await store.write(authority_name(name), data_of(decision.state))
            kept.done += [decision.why] if decision.why else []
            kept.refused += [decision.refused] if decision.refused else []
        kept.states[name] = decision.state
    if decision.waits:
        kept.waits.append(decision.waits)
