"""Issues, renews and removes the stored certificates of a cluster, as its resource requires.

The keeper runs in every whole pass, before the steps of the plan. Each write follows from what is stored, so a keeper
that dies between two writes continues in the next pass. A store that cannot be read raises: unknown is not absent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from kraft_operator.security.authorities import (
    Asked,
    Policy,
    Proof,
    State,
    data_of,
    decide,
    given_authority,
    is_known,
    state_of,
)
from kraft_operator.security.certificates import CertificateError, ends_at, key_of
from kraft_operator.security.listeners import (
    OwnCertificate,
    PendingError,
    Presented,
    ServedCertificate,
    UnusableError,
    files_for,
    parsed,
    trust_for,
)
from kraft_operator.security.names import (
    CLIENTS,
    CLUSTER,
    KEYS,
    NODE,
    TRUST,
    TRUSTED,
    authority_name,
    listener_file,
    listener_of,
    node_name,
    subject,
)
from kraft_operator.security.nodes import RENEW_DAYS, chain_of, files_of

BOTH: Final = (CLUSTER, CLIENTS)
NO_PROOF: Final = Proof()
LISTENER_DAYS: Final = 14
"""A paused cluster warns this long before the end of a listener's own certificate, which may last 90 days only."""

Prove = Callable[[str, State], Awaitable[Proof]]
"""Finds out, by TLS handshakes, what every node trusts and presents. Arguments: the authority's name and state, which
is within a phase."""


class NotOursError(Exception):
    """An object that the operator did not make has the name of a node's certificate, or of the clients' trust."""


class Store(Protocol):
    """Where certificates are kept: Secrets, or files."""

    async def read(self, name: str) -> Mapping[str, str] | None:
        """The entries of an object; None if it does not exist. Raises NotOursError, and if that cannot be known."""

    async def given(self, secret: str) -> Mapping[str, str] | None:
        """The entries of a Secret of the user; None if it does not exist. Raises if that cannot be known."""

    async def certificate(self, listener: str) -> Mapping[str, str] | None:
        """The entries of the Secret of a listener's own certificate; None if it does not exist.

        Raises UnusableError, PendingError, and if that cannot be known.
        """

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
    listeners: Mapping[str, OwnCertificate] = field(default_factory=dict)
    """Listeners with a certificate of their own."""
    retained: Mapping[int, Collection[str]] = field(default_factory=dict)
    """By node: listeners with a certificate of their own when its process started, which may still read the file."""


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
    """Nodes that cannot have a certificate, because an object that the operator did not make has its name."""
    certificates: dict[str, ServedCertificate | None] = field(default_factory=dict)
    """The own certificates of listeners. None: it cannot be used now, and nodes keep their present certificate."""

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of the authorities, for the record."""
        return {name: key_of(state.current.certificate) for name, state in self.states.items()}


async def keep(store: Store, needs: Needs, now: datetime, prove: Prove) -> Kept:
    """Make, renew and replace what is due."""
    kept = await seen(store)
    known = all(is_known(state, needs.known.get(name, "")) for name, state in kept.states.items())
    phase = any(state.in_phase for state in kept.states.values())
    listeners = await _of_listeners(store, needs, now)
    kept.certificates = listeners.certificates
    if phase and known and len(kept.states) == len(BOTH) and await _nodes(store, needs, now, kept):
        # A phase ends only after all files of it: a node that is stopped now may start with what is stored.
        kept.waits.append("nodes read their certificates")
        return _with(kept, listeners)
    kept = Kept(done=kept.done, certificates=listeners.certificates)
    for name in BOTH:
        await _authority(store, needs, name, now, prove, kept)
    if not kept.problems and len(kept.states) == len(BOTH):
        await _nodes(store, needs, now, kept)
    if kept.done or kept.refused:  # a cluster that waits for nothing would rest, and a phase would not go on
        kept.waits.append("nodes read their certificates")
    return _with(kept, listeners)


def _with(kept: Kept, listeners: Kept) -> Kept:
    """Add what the certificates of listeners wait for. Their problems do not hold up authorities and nodes."""
    kept.waits += listeners.waits
    kept.problems += listeners.problems
    return kept


async def _of_listeners(store: Store, needs: Needs, now: datetime) -> Kept:
    """Read the certificates of listeners that have their own."""
    found = Kept()
    for name, own in sorted(needs.listeners.items()):
        found.certificates[name] = None
        try:
            data = await store.certificate(name)
            if data is None:
                raise UnusableError("ListenerCertificateMissing", "it does not exist")
            found.certificates[name] = parsed(data, now)
        except PendingError as error:
            found.waits.append(f"certificate of listener {name}: {error}")
        except UnusableError as error:
            text = f"listener {name}: Secret {own.secret} cannot be used: {error}"
            found.problems.append((error.reason, f"{text}; brokers go on with the certificate that they have"))
    return found


async def _nodes(store: Store, needs: Needs, now: datetime, kept: Kept) -> bool:
    """Write the files of nodes and what clients trust, where they differ. Returns whether anything was written."""
    cluster, clients, wrote = kept.states[CLUSTER], kept.states[CLIENTS], False
    role = subject(NODE, needs.cluster, needs.namespace)
    presented: dict[int, Presented] = {}
    changed: dict[str, list[int]] = {}
    for node_id, names in sorted(needs.nodes.items()):
        try:
            before = await store.read(node_name(node_id))
        except CertificateError:
            before = {}  # it is not text, so it is issued again
        except NotOursError as error:
            kept.lacking.add(node_id)
            kept.problems.append(("InTheWay", f"node {node_id} has no certificate: {error}"))
            continue
        try:
            files, why = files_of(before, role, names, cluster, clients, now)
        except CertificateError as error:
            kept.problems.append(("AuthorityExpired", f"no certificate for node {node_id}: {error}: renew it"))
            return wrote
        presented[node_id] = own = _presented(needs, node_id, before, files[KEYS], kept.certificates, now)
        files |= own.files
        if files != before:
            await store.write(node_name(node_id), files)
            wrote = True
            kept.done += [f"certificate of node {node_id}: {why}"] if why else []
            for name in own.taken:
                if (before or {}).get(listener_file(name)) != own.files[listener_file(name)]:
                    changed.setdefault(name, []).append(node_id)
    kept.done += [f"certificate of listener {name}: on node {', '.join(map(str, on))}" for name, on in changed.items()]
    _report_names(kept, presented)
    return await _trust(store, needs, kept, presented) or wrote


def _presented(
    needs: Needs,
    node_id: int,
    before: Mapping[str, str] | None,
    node_pem: str,
    certificates: Mapping[str, ServedCertificate | None],
    now: datetime,
) -> Presented:
    here = {name: certificates.get(name) for name, own in needs.listeners.items() if node_id in own.needed}
    needed = {name: needs.listeners[name].needed[node_id] for name in here}
    return files_for(before, node_pem, here, needed, needs.retained.get(node_id, ()), now)


def _report_names(kept: Kept, presented: Mapping[int, Presented]) -> None:
    """Report certificates that lack names. Each listener is reported once."""
    lacking: dict[str, list[str]] = {}
    for one in presented.values():
        for name, hosts in one.lacking.items():
            lacking[name] = sorted({*lacking.get(name, ()), *hosts})
    for name, hosts in sorted(lacking.items()):
        text = f"the certificate of listener {name} is not valid for {', '.join(hosts)}"
        effect = "clients that verify names cannot connect there"
        kept.problems.append(("ListenerCertificateNames", f"{text}: {effect}: add the names to it"))


async def _trust(store: Store, needs: Needs, kept: Kept, presented: Mapping[int, Presented]) -> bool:
    """Write what clients trust, if it differs. Returns whether it was written."""
    taken = {name for one in presented.values() for name in one.taken}
    retained = {name for names in needs.retained.values() for name in names}
    try:
        before = await store.read(TRUST)
        trust = {TRUSTED: kept.states[CLUSTER].trusted, **trust_for(before, kept.certificates, taken, retained)}
        if before != trust:
            await store.write(TRUST, trust)
            return True
    except NotOursError as error:
        kept.problems.append(("InTheWay", f"clients cannot read what they trust: {error}"))
    return False


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
        try:
            files = await store.read(node_name(node_id)) or {}
        except NotOursError as error:
            kept.problems.append(("InTheWay", f"node {node_id} has no certificate: {error}"))
            continue
        except CertificateError:
            ends.append((now, f"node {node_id}"))  # it cannot be read, so the node may have none when it restarts
            continue
        ends += _ends_of(files, node_id, now)
    try:
        await store.read(TRUST)
    except NotOursError as error:
        kept.problems.append(("InTheWay", f"clients cannot read what they trust: {error}"))
    if ends:
        end, first = min(ends)
        text = (
            f"{len(ends)} certificate(s) must be renewed, and a paused cluster gets none: the first ({first}) ends at"
        )
        kept.problems.append(("CertificatesEnd", f"{text} {end:%Y-%m-%dT%H:%M:%SZ}: set paused to false before that"))
    return kept


def _ends_of(files: Mapping[str, str], node_id: int, now: datetime) -> Iterator[tuple[datetime, str]]:
    """The ends of certificates of a node that would be renewed now, or exchanged soon."""
    for file, pem in sorted(files.items()):
        listener = listener_of(file)
        if (file != KEYS and listener is None) or not pem or (listener is not None and pem == files.get(KEYS)):
            continue
        try:
            end = ends_at(chain_of(pem))
        except CertificateError:
            end = now
        if end - now < timedelta(days=RENEW_DAYS if listener is None else LISTENER_DAYS):
            yield end, f"node {node_id}" if listener is None else f"listener {listener} of node {node_id}"


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
            asked = replace(asked, given=given_authority(await store.given(secret) or {}))
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
