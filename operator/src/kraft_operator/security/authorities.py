"""The phases of an authority: made, renewed, replaced. Pure.

    steady    `current` issues
    trusting  `next` is trusted, too, and issues nothing: until every node trusts it
    signing   the former next is `current` and issues; the `former` one is trusted: until no node presents its
              certificates any more

At every moment, each node trusts the authority of every other node's certificate. A node reads its files a while after
they were written, so each phase ends only with a proof from every node. An authority that expires soon is renewed with
the same key, which needs no phase.

An authority is made once, for a cluster without an authority in its record. If it is missing later, or has another key,
nothing is made and nothing is issued: the nodes still trust the recorded authority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from kraft_operator.security.certificates import (
    SHOWN,
    Authority,
    CertificateError,
    bundle,
    certificates_in,
    check_authority,
    ends_at,
    key_of,
    new_authority,
    renewed,
    text_of,
)

CERTIFICATE: Final = "ca.crt"
KEY: Final = "ca.key"
"""Keys of the Secret of an authority. Secrets of users have these two, or those of cert-manager."""
ISSUED_CERTIFICATE: Final = "tls.crt"
ISSUED_KEY: Final = "tls.key"
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
FORMER: Final = "former.crt"
SINCE: Final = "since"
REQUEST: Final = "request"


@dataclass(frozen=True, slots=True)
class State:
    """An authority as it is stored."""

    current: Authority
    next: Authority | None = None
    former: str = ""
    """The certificate of the authority before, while it is still trusted."""
    since: datetime | None = None
    """When the phase began; None if steady."""
    request: str = ""
    """The last request for a replacement that was begun."""

    @property
    def in_phase(self) -> bool:
        """Whether a replacement is under way."""
        return self.next is not None or bool(self.former)

    @property
    def trusted(self) -> str:
        """The certificates of all authorities that are trusted now."""
        return bundle(*self._certificates())

    @property
    def anchors(self) -> str:
        """Of each trusted authority its own certificate, without its issuers: what nodes and the operator trust.

        Everybody with a certificate of an issuer above could otherwise take the name of a node.
        """
        return bundle(*(text_of(certificates_in(one)[0]) for one in self._certificates() if one))

    def _certificates(self) -> tuple[str, ...]:
        return self.current.certificate, "" if self.next is None else self.next.certificate, self.former


@dataclass(frozen=True, slots=True)
class Policy:
    """How long certificates are valid, and when they are renewed."""

    days: int = 1825
    renew_days: int = 90
    overlap: timedelta = timedelta(0)
    """How long both authorities are trusted at least before the new one issues, for clients that update their trust."""
    keeps_former: bool = False
    """Whether the former authority stays trusted until a request or its end: nodes cannot prove what clients have."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the nodes have shown. An empty text is a proof; otherwise it says which node lacks it."""

    trusts_next: str = "no node has been asked"
    presents_current: str = "no node has been asked"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the authority becomes, and why. Without a change `state` is the stored one."""

    state: State | None
    why: str = ""
    waits: str = ""
    problem: tuple[str, str] | None = field(default=None)
    """A reason and a message for people: nothing is changed until they act."""
    refused: str = ""
    """Why a request has no effect. The state records the request, so it is reported once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of the resource."""

    given: Authority | None = None
    """The authority of the user's own Secret."""
    request: str = ""
    """A new word requests a replacement."""
    forget: str = ""
    """The fingerprint, or its beginning, of a former authority that need not be trusted any more."""


def decide(
    name: str, state: State | None, known: str, asked: Asked, policy: Policy, proof: Proof, now: datetime
) -> Decision:
    """The next state of the authority `name`. `known` is the fingerprint in the record; empty for a new cluster."""
    if asked.given is not None:
        try:
            check_authority(asked.given)
        except CertificateError as error:
            return Decision(state, problem=("AuthorityNotValid", f"the {name} authority of spec.security: {error}"))
    if state is None:
        return _first(name, known, asked, policy, now)
    own = key_of(state.current.certificate)
    if not is_known(state, known):
        text = f"the {name} authority has the key {own[:SHOWN]}, and the nodes trust {known[:SHOWN]}"
        return Decision(state, problem=("AuthorityChanged", f"{text}: restore its Secret; nothing is issued meanwhile"))
    if _cannot_replace(state, asked):
        text = f"replace-authority {name}={asked.request} has no effect, because spec.security names the Secret of the"
        text = f"{text} {name} authority: put another key into that Secret"
        return Decision(replace(state, request=asked.request), refused=text)
    if state.next is not None:
        return _trusting(name, state, policy, proof, now)
    if state.former:
        return _signing(name, state, known == own, asked, policy, proof, now)
    return _steady(name, state, asked, policy, now)


def is_known(state: State, known: str) -> bool:
    """Whether a stored authority is the recorded one, or has just followed it."""
    return (
        not known or known == key_of(state.current.certificate) or bool(state.former and key_of(state.former) == known)
    )


def _first(name: str, known: str, asked: Asked, policy: Policy, now: datetime) -> Decision:
    if known:
        text = f"the Secret of the {name} authority {known[:SHOWN]} is missing, and the nodes trust it"
        return Decision(None, problem=("AuthorityMissing", f"{text}: restore the Secret; no other authority is made"))
    made = asked.given or new_authority(f"{name} CA", now, policy.days)
    return Decision(State(made, request=asked.request), why=f"make the {name} authority")


def _steady(name: str, state: State, asked: Asked, policy: Policy, now: datetime) -> Decision:
    if _asks_for_another(state, asked):
        another = asked.given or new_authority(f"{name} CA", now, policy.days)
        return _begin(name, state, another, asked.request, now)
    return _lasting(name, state, asked, policy, now)


def _asks_for_another(state: State, asked: Asked) -> bool:
    """Whether the resource requests an authority with another key."""
    if asked.given is not None:
        return _has_another_key(state, asked)
    return bool(asked.request) and asked.request != state.request


def _cannot_replace(state: State, asked: Asked) -> bool:
    """Whether a new request names an authority that only the user's own Secret can replace."""
    return asked.given is not None and asked.request not in {"", state.request} and not _has_another_key(state, asked)


def _has_another_key(state: State, asked: Asked) -> bool:
    """Whether the user's own Secret has another key than the authority."""
    return asked.given is not None and key_of(asked.given.certificate) != key_of(state.current.certificate)


def _lasting(name: str, state: State, asked: Asked, policy: Policy, now: datetime) -> Decision:
    """Renew an authority that is near its end. Its key stays, so this needs no phase."""
    current = state.current
    if asked.given is not None:
        if asked.given.certificate != current.certificate:
            return Decision(replace(state, current=asked.given), why=f"take over the renewed {name} authority")
        return Decision(state, waits=_late(name, current, now))
    if ends_at(current.certificate) - now < timedelta(days=policy.renew_days):
        return Decision(replace(state, current=renewed(current, now, policy.days)), why=f"renew the {name} authority")
    return Decision(state)


def _late(name: str, authority: Authority, now: datetime) -> str:
    """A warning for an authority that only its owner can renew."""
    return f"the {name} authority has expired: renew it" if ends_at(authority.certificate) <= now else ""


def _begin(name: str, state: State, authority: Authority, request: str, now: datetime) -> Decision:
    became = replace(state, next=authority, since=now, request=request)
    return Decision(became, why=f"trust a new {name} authority beside the present one")


def _trusting(name: str, state: State, policy: Policy, proof: Proof, now: datetime) -> Decision:
    assert state.next is not None and state.since is not None, "law: a phase has a beginning"
    if proof.trusts_next:
        return Decision(state, waits=f"the new {name} authority: {proof.trusts_next}")
    if now - state.since < policy.overlap:
        until = f"{state.since + policy.overlap:%Y-%m-%dT%H:%M:%SZ}"
        return Decision(state, waits=f"the new {name} authority issues from {until} on, so that clients can trust it")
    became = replace(state, current=state.next, next=None, former=state.current.certificate, since=now)
    return Decision(became, why=f"issue by the new {name} authority: every node trusts it")


def _signing(
    name: str, state: State, is_recorded: bool, asked: Asked, policy: Policy, proof: Proof, now: datetime
) -> Decision:
    steady = replace(state, former="", since=None)
    if not is_recorded:
        return Decision(state, waits=f"the record of the new {name} authority")
    if policy.keeps_former:
        former = key_of(state.former)
        if ends_at(state.former) <= now or (asked.forget and former.startswith(asked.forget)):
            return Decision(steady, why=f"stop trusting the former {name} authority {former[:SHOWN]}")
        # The former one may be kept for years, and the present one has to outlast that.
        lasting = _lasting(name, state, asked, policy, now) if not _has_another_key(state, asked) else Decision(state)
        if lasting.state is state and _asks_for_another(state, asked):
            text = f"another {name} authority: nodes still trust the former one {former[:SHOWN]}, and keep one only"
            return Decision(state, waits=f"{text}: name it in the annotation forget-authority")
        return lasting
    if proof.presents_current:
        return Decision(state, waits=f"the former {name} authority: {proof.presents_current}")
    return Decision(steady, why=f"stop trusting the former {name} authority: no node presents its certificates")


# Stored form


def data_of(state: State) -> dict[str, str]:
    """The entries of the Secret."""
    found = {CERTIFICATE: state.current.certificate, KEY: state.current.key}
    if state.next is not None:
        found |= {NEXT_CERTIFICATE: state.next.certificate, NEXT_KEY: state.next.key}
    if state.former:
        found[FORMER] = state.former
    if state.since is not None:
        found[SINCE] = state.since.isoformat()
    if state.request:
        found[REQUEST] = state.request
    return found


def state_of(data: Mapping[str, str]) -> State:
    """The authority in the entries of its Secret. Raises CertificateError if they are damaged."""
    current = authority_of(data)
    next_ = authority_of(data, NEXT_CERTIFICATE, NEXT_KEY) if NEXT_CERTIFICATE in data else None
    try:
        since = datetime.fromisoformat(data[SINCE]) if SINCE in data else None
    except ValueError:
        raise CertificateError(f"{SINCE} is not a time") from None
    former = data.get(FORMER, "")
    if former:
        key_of(former)
    if (next_ is not None or former) and since is None:
        raise CertificateError(f"{SINCE} is missing")
    return State(current, next_, former, since, data.get(REQUEST, ""))


def authority_of(data: Mapping[str, str], certificate: str = CERTIFICATE, key: str = KEY) -> Authority:
    """The authority in these entries. Raises CertificateError if they are missing or damaged."""
    missing = [name for name in (certificate, key) if not data.get(name)]
    if missing:
        raise CertificateError(f"{' and '.join(missing)} is missing")
    found = Authority(data[certificate], data[key])
    check_authority(found)
    return found


def given_authority(data: Mapping[str, str]) -> Authority:
    """The authority in a Secret of the user: `ca.crt` and `ca.key`, or the entries that cert-manager writes.

    cert-manager's `tls.crt` has the authority with its issuers, and `ca.crt` the root, if it knows one. Raises
    CertificateError if entries are missing or damaged.
    """
    if KEY in data or ISSUED_KEY not in data:
        return authority_of(data)
    issued = authority_of(data, ISSUED_CERTIFICATE, ISSUED_KEY)
    return Authority(bundle(issued.certificate, data.get(CERTIFICATE, "")), issued.key)
