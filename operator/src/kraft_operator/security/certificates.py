"""Certificates and keys as PEM texts: an authority, what it issues, and what a certificate says.

Keys are of the curve P-256: every client of Kafka knows it, and a handshake costs half of that with RSA.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW: Final = timedelta(minutes=5)
"""Certificates begin this long ago, for machines whose clocks are late."""
SHOWN: Final = 16
"""Characters of a fingerprint in names and messages."""
_PARTS: Final = {"CN": NameOID.COMMON_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "O": NameOID.ORGANIZATION_NAME}


class CertificateError(Exception):
    """A text is not the certificate or the key that it should be."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority: its certificate, followed by those of its own authorities if it has any, and its key."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate with the chain to its authority, and its key (PKCS#8)."""

    chain: str
    key: str = field(repr=False)

    @property
    def pem(self) -> str:
        """Key and chain in one text, as `ssl.keystore.location` takes them."""
        return self.key + self.chain


def new_authority(name: str, now: datetime, days: int) -> Authority:
    """Make an authority with a key of its own. Its subject has a part of the fingerprint, so no two are alike."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject({"CN": f"{name} {_fingerprint(key.public_key())[:SHOWN]}", "O": "kraftcluster"})
    return Authority(_authority(subject, key, now, days), _key_text(key))


def renewed(authority: Authority, now: datetime, days: int) -> Authority:
    """The same authority with a longer life: its key and its subject stay, so its certificates stay valid."""
    subject = _first(authority.certificate).subject
    return Authority(_authority(subject, _loaded_key(authority.key), now, days), authority.key)


def issue(
    authority: Authority,
    subject: Mapping[str, str],
    now: datetime,
    days: int,
    *,
    names: Collection[str] = (),
    server: bool = False,
) -> Leaf:
    """Issue a certificate. `subject` is by `CN`, `OU`, `O`; `names` are hosts and addresses that it is valid for.

    All certificates authenticate clients, with `server` also servers. None outlives its authority. Raises
    CertificateError if that has expired.
    """
    issuer, signer = _first(authority.certificate), _loaded_key(authority.key)
    if issuer.not_valid_after_utc <= now:
        raise CertificateError(f"the authority has expired at {issuer.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}")
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if server else [])]
    builder = (
        _builder(_subject(subject), key, now, min(now + timedelta(days=days), issuer.not_valid_after_utc))
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(_issuer_id(issuer), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(one) for one in sorted(names)]), False)
    made = builder.sign(signer, _hash_for(signer))
    # `bundle` leaves out all but certificates: a key beside them would reach everybody who has the chain.
    above = "" if issuer.issuer == issuer.subject else bundle(authority.certificate)
    return Leaf(_text(made) + above, _key_text(key))


# What a certificate says


def check_authority(authority: Authority) -> None:
    """Raise CertificateError unless this is an authority with the key of its certificate."""
    found = _first(authority.certificate)
    try:
        is_authority = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    if not is_authority:
        raise CertificateError("the certificate is not a CA certificate (basicConstraints CA:TRUE is missing)")
    if _fingerprint(_loaded_key(authority.key).public_key()) != key_of(authority.certificate):
        raise CertificateError("the key does not belong to the certificate")


def key_of(certificate: str) -> str:
    """The SHA-256 fingerprint of the public key of the first certificate in a text. Raises CertificateError."""
    return _fingerprint(_first(certificate).public_key())


def public_key_of(key: str) -> str:
    """The fingerprint of the public key of a private key, as `key_of` of its certificate. Raises CertificateError."""
    return _fingerprint(_loaded_key(key).public_key())


def key_in_pkcs8(key: str) -> str:
    """A private key in the form that a node reads. Raises CertificateError."""
    form = serialization.PrivateFormat.PKCS8
    return _loaded_key(key).private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def certificates_in(text: str) -> list[x509.Certificate]:
    """All certificates of a PEM text, at least one. Raises CertificateError."""
    return _all(text)


def text_of(certificate: x509.Certificate) -> str:
    """A certificate as a PEM text."""
    return _text(certificate)


def ends_at(certificate: str) -> datetime:
    """When the first certificate in a text ends. Raises CertificateError."""
    return _first(certificate).not_valid_after_utc


def names_in(certificate: str) -> frozenset[str]:
    """The hosts and addresses that the first certificate in a text is valid for. Raises CertificateError."""
    try:
        found = _first(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return frozenset({*found.get_values_for_type(x509.DNSName), *addresses})


def as_named(host: str) -> str:
    """A host or an address as a certificate names it: `FD00:0::1` is `fd00::1` there."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host if host.isascii() else host.encode("idna").decode()


def is_issued_by(certificate: str, authority: str) -> bool:
    """Whether the first certificate in a text was issued by the first one of `authority`. Raises CertificateError."""
    try:
        _first(certificate).verify_directly_issued_by(_first(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def bundle(*certificates: str) -> str:
    """All certificates of these texts, each once."""
    found = [_text(one) for text in certificates if text for one in _all(text)]
    return "".join(dict.fromkeys(found))


# Parts


def _authority(subject: x509.Name, key: CertificateIssuerPrivateKeyTypes, now: datetime, days: int) -> str:
    builder = (
        _builder(subject, key, now, now + timedelta(days=days))
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=False), critical=True)
    )
    return _text(builder.sign(key, _hash_for(key)))


def _builder(
    subject: x509.Name, key: CertificateIssuerPrivateKeyTypes, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """The usage of a leaf that `signs` handshakes, or of an authority, which signs certificates."""
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not signs,
        crl_sign=not signs,
        encipher_only=False,
        decipher_only=False,
    )


def _issuer_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _hash_for(key: CertificateIssuerPrivateKeyTypes) -> hashes.SHA256 | None:
    """The hash for signatures by this key; None for Edwards curves, which hash by themselves."""
    return hashes.SHA256() if hasattr(key, "key_size") else None


def _subject(parts: Mapping[str, str]) -> x509.Name:
    """The name with its most general part first, so that RFC 2253 prints `CN=…,OU=…,O=…`."""
    return x509.Name([x509.NameAttribute(_PARTS[key], parts[key]) for key in ("O", "OU", "CN") if key in parts])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(as_named(host))


def _fingerprint(key: object) -> str:
    der = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _loaded_key(text: str) -> CertificateIssuerPrivateKeyTypes:
    try:
        found = serialization.load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError):
        raise CertificateError("the key is not an unencrypted private key in PEM") from None
    if not hasattr(found, "sign"):
        raise CertificateError("the key cannot sign certificates")
    return found  # type: ignore[return-value]


def _all(text: str) -> list[x509.Certificate]:
    """All certificates of a PEM text. Raises CertificateError."""
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise CertificateError("the certificate is not PEM") from None


def _first(text: str) -> x509.Certificate:
    return _all(text)[0]
