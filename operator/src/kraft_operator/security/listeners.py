"""Certificates of listeners that do not come from the cluster's authority: what Secrets have, and what nodes get. Pure.

A node has a file for each of these listeners, beside its own key and certificate. The file always exists, so no Secret
stops a node: until the Secret can be used, the file has the node's own certificate. Later, a Secret that is missing or
damaged leaves the last good certificate in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from kraft_operator.security.certificates import (
    CertificateError,
    as_named,
    certificates_in,
    ends_at,
    is_issued_by,
    key_in_pkcs8,
    key_of,
    names_in,
    public_key_of,
    text_of,
)
from kraft_operator.security.names import KEYS, listener_file, trusted_by_clients_of
from kraft_operator.security.nodes import Files, chain_of
from kraft_protocol.tls.contexts import client_context
from kraft_protocol.tls.errors import TlsConfigError
from kraft_protocol.tls.settings import SslSettings

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
TRUSTED: Final = "ca.crt"
"""Keys of the Secret of a listener, as in Secrets of the type `kubernetes.io/tls`."""

NamesNeeded = Collection[frozenset[str]]
"""Names by which clients reach a listener. Of each set, a certificate needs one name."""


class UnusableError(Exception):
    """A Secret cannot be used for a listener. Messages never contain keys."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PendingError(Exception):
    """The certificate of a listener has been requested, and has not been issued yet."""


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A listener with a certificate of its own."""

    secret: str
    """The name of its Secret, for people."""
    needed: Mapping[int, NamesNeeded]
    """The names by which clients reach each broker."""


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """A certificate that a listener can present."""

    pem: str = field(repr=False)
    """The key, then the certificate and its chain."""
    trusted: str = ""
    """What clients must trust; empty for an authority that their system trusts."""

    @property
    def chain(self) -> str:
        """The certificate and its chain."""
        return chain_of(self.pem)


def parsed(data: Mapping[str, str], now: datetime) -> ServedCertificate:
    """The certificate in the entries of a Secret. Raises UnusableError."""
    if missing := [name for name in (CERTIFICATE, KEY) if not data.get(name)]:
        raise UnusableError("ListenerCertificateNotValid", f"{' and '.join(missing)} is missing")
    try:
        key, chain = key_in_pkcs8(data[KEY]), certificates_in(data[CERTIFICATE])
        given = data.get(TRUSTED, "").strip()
        trusted = certificates_in(given) if given else []
        if public_key_of(data[KEY]) != key_of(data[CERTIFICATE]):
            raise CertificateError(f"{KEY} does not belong to the first certificate of {CERTIFICATE}")
        _check_usage(chain[0])
        if trusted and not _leads_to(chain, trusted):
            raise CertificateError(
                f"{TRUSTED} does not have the authority of {CERTIFICATE}, so no client could connect"
            )
        found = ServedCertificate(key + "".join(map(text_of, chain)), "".join(map(text_of, trusted)))
        _check_loads(found, key)
    except CertificateError as error:
        raise UnusableError("ListenerCertificateNotValid", str(error)) from None
    leaf = chain[0]
    if leaf.not_valid_after_utc <= now:
        ended = f"{leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        raise UnusableError("ListenerCertificateExpired", f"the certificate has expired at {ended}")
    if leaf.not_valid_before_utc > now:
        begins = f"{leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
        raise UnusableError("ListenerCertificateNotValid", f"the certificate is not valid before {begins}")
    return found


def _check_usage(leaf: x509.Certificate) -> None:
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usages):
        raise CertificateError("the certificate is not a server certificate (its extended key usage lacks serverAuth)")


def _leads_to(chain: list[x509.Certificate], trusted: list[x509.Certificate]) -> bool:
    """Whether a client that trusts `trusted` can verify the first certificate of `chain`."""
    one, seen = chain[0], set[x509.Certificate]()
    while one not in trusted:
        seen.add(one)
        issuers = [other for other in (*trusted, *chain[1:]) if is_issued_by(text_of(one), text_of(other))]
        issuer = next((other for other in issuers if other not in seen), None)
        if issuer is None:
            return False
        one = issuer
    return True


def _check_loads(found: ServedCertificate, key: str) -> None:
    """Load the key and the certificate as a node does: what a node refuses would stop its next start."""
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": found.chain,
        # Any trust will do: without it, all certificates of the system are loaded, which takes long.
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": found.chain,
    }
    try:
        client_context(SslSettings.parse(texts))
    except TlsConfigError as error:
        raise CertificateError(f"a node cannot load it: {error}") from None


def uncovered(chain: str, needed: NamesNeeded) -> list[str]:
    """Names of `needed` for which a certificate is not valid. Raises CertificateError."""
    names = names_in(chain)
    return sorted(min(one) for one in needed if one and not any(_covers(names, as_named(host)) for host in one))


def _covers(names: Collection[str], host: str) -> bool:
    """Whether a certificate with these names is valid for a host. `*` stands for one label."""
    host = host.lower()
    _, dot, parent = host.partition(".")
    return any(name.lower() in {host, f"*.{parent}" if dot else host} for name in names)


@dataclass(frozen=True, slots=True)
class Presented:
    """The files of the listeners of one node."""

    files: dict[str, str] = field(repr=False)
    taken: frozenset[str] = frozenset()
    """Listeners whose present certificate is in the files."""
    lacking: Mapping[str, list[str]] = field(default_factory=dict)
    """By listener: names for which its certificate is not valid."""


def files_for(
    before: Files | None,
    node_pem: str,
    certificates: Mapping[str, ServedCertificate | None],
    needed: Mapping[str, NamesNeeded],
    retained: Collection[str],
    now: datetime,
) -> Presented:
    """The files of the listeners of a node.

    `certificates` has each listener with a certificate of its own, None if it cannot be used now. `retained` are
    listeners whose file a running process may still read.
    """
    before, files, taken, lacking = before or {}, {}, set[str](), {}
    for name in sorted({*certificates, *retained}):
        there = before.get(listener_file(name), "")
        former = "" if there == before.get(KEYS) else there
        certificate = certificates.get(name)
        if not there and name not in certificates:
            continue  # no process can read it
        if certificate is None:
            files[listener_file(name)] = former or node_pem
            continue
        wanted = needed.get(name, ())
        missing = uncovered(certificate.chain, wanted)
        if missing:
            lacking[name] = missing
        if missing and former != certificate.pem and _still_good(former, wanted, now):
            files[listener_file(name)] = former
        else:
            files[listener_file(name)] = certificate.pem
            taken.add(name)
    return Presented(files, frozenset(taken), lacking)


def _still_good(pem: str, needed: NamesNeeded, now: datetime) -> bool:
    """Whether a former certificate serves clients better than one that lacks a name."""
    if not pem:
        return False
    try:
        chain = chain_of(pem)
        return ends_at(chain) > now and not uncovered(chain, needed)
    except CertificateError:
        return False


def trust_for(
    before: Files | None,
    certificates: Mapping[str, ServedCertificate | None],
    taken: Collection[str],
    retained: Collection[str],
) -> dict[str, str]:
    """What clients of these listeners trust, by entry. Without an entry, they trust the cluster's authority."""
    found: dict[str, str] = {}
    for name in sorted({*certificates, *retained}):
        certificate, file = certificates.get(name), trusted_by_clients_of(name)
        if certificate is not None and name in taken:
            found[file] = certificate.trusted
        elif before is not None and file in before:
            found[file] = before[file]
    return found
