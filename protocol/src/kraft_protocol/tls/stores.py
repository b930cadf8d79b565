"""Key stores and trust stores as Kafka reads them: PEM (KIP-651, files and inline), PKCS12, JKS.

As in Java, a file that is named JKS may be PKCS12, and the reverse. Messages never contain passwords or keys.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kraft_protocol.tls.errors import TlsConfigError
from kraft_protocol.tls.jks import MAGIC, JksError, read_jks
from kraft_protocol.tls.settings import StoreSettings

STORE_BYTES_MAX: Final = 16 << 20
"""A larger file is not a store; the trust store of a platform has less than 1 MiB."""

_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----")
_KEY: Final = "PRIVATE KEY"
_ENCRYPTED_KEY: Final = "ENCRYPTED PRIVATE KEY"
_CERTIFICATE: Final = "CERTIFICATE"


class KeyEntry(NamedTuple):
    """A private key (PKCS#8 PEM, not encrypted) with its chain in DER, leaf first."""

    alias: str
    key: bytes
    chain: tuple[bytes, ...]


class Store(NamedTuple):
    """The content of a key store or trust store."""

    keys: tuple[KeyEntry, ...]
    trusted: tuple[bytes, ...]
    """Trusted certificates in DER."""


def load_keystore(settings: StoreSettings) -> Store:
    """The keys of `ssl.keystore.*`. Raises TlsConfigError, also without a key."""
    if settings.key:
        return _pem_keys(settings, f"{settings.prefix}.key", settings.key + "\n" + settings.certificates)
    where, data = _file(settings)
    if settings.kind == "PEM":
        return _pem_keys(settings, where, _text(where, data))
    key_password = settings.password if settings.key_password is None else settings.key_password
    store = _binary(settings, where, data, key_password)
    if not store.keys:
        raise TlsConfigError(where, f"{settings.location} holds no private key")
    return store


def load_truststore(settings: StoreSettings) -> Store:
    """The certificates of `ssl.truststore.*`. Raises TlsConfigError, also without a certificate."""
    if settings.certificates:
        where = f"{settings.prefix}.certificates"
        store = Store((), _pem_certificates(where, settings.certificates))
    else:
        where, data = _file(settings)
        if settings.kind == "PEM":
            store = Store((), _pem_certificates(where, _text(where, data)))
        else:
            store = _binary(settings, where, data, None)
    if not store.trusted:
        raise TlsConfigError(where, f"{settings.location or 'the value'} holds no trusted certificate")
    return store


def _file(settings: StoreSettings) -> tuple[str, bytes]:
    where = f"{settings.prefix}.location"
    try:
        with Path(settings.location).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise TlsConfigError(where, f"cannot read {settings.location}: {error.strerror}") from None
    if len(data) > STORE_BYTES_MAX:
        raise TlsConfigError(where, f"{settings.location} has more than {STORE_BYTES_MAX} bytes")
    return where, data


def _text(where: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise TlsConfigError(where, "the file is not PEM; set the type to PKCS12 or JKS if it is") from None


# PEM


def _blocks(where: str, text: str) -> list[tuple[str, bytes]]:
    """The labelled blocks of a PEM text; other text is ignored."""
    found = []
    for match in _PEM.finditer(text):
        try:
            found.append((match[1], base64.b64decode("".join(match[2].split()), validate=True)))
        except binascii.Error as error:
            raise TlsConfigError(where, f"the PEM block {match[1]} is damaged: {error}") from None
    return found


def _pem_certificates(where: str, text: str) -> tuple[bytes, ...]:
    found = tuple(der for label, der in _blocks(where, text) if label == _CERTIFICATE)
    for der in found:
        _certificate(where, der)
    return found


def _pem_keys(settings: StoreSettings, where: str, text: str) -> Store:
    blocks = _blocks(where, text)
    keys = [(label, der) for label, der in blocks if label.endswith(_KEY)]
    if len(keys) != 1:
        raise TlsConfigError(where, f"PEM must hold exactly one private key, not {len(keys)}")
    label, der = keys[0]
    if label not in (_KEY, _ENCRYPTED_KEY):
        raise TlsConfigError(where, f"{label} is not PKCS#8; convert it with `openssl pkcs8 -topk8`")
    encrypted = label == _ENCRYPTED_KEY
    if encrypted and settings.key_password is None:
        raise TlsConfigError("ssl.key.password", f"is missing, but the key in {where} is encrypted")
    if not encrypted and settings.key_password is not None:
        raise TlsConfigError("ssl.key.password", f"is given, but the key in {where} is not encrypted")
    chain = _pem_certificates(where, text)
    if not chain:
        raise TlsConfigError(where, "PEM holds no certificate for the private key")
    load = partial(serialization.load_der_private_key, der, _bytes(settings.key_password) if encrypted else None)
    return Store((KeyEntry("kafka", _plain_key("ssl.key.password" if encrypted else where, load), chain),), ())


# Binary stores


def _binary(settings: StoreSettings, where: str, data: bytes, key_password: str | None) -> Store:
    if data.startswith(MAGIC):
        try:
            entries = read_jks(data, settings.password, key_password if settings.prefix == "ssl.keystore" else "")
        except JksError as error:
            raise TlsConfigError(where, f"{settings.location}: {error}") from None
        keys = [
            KeyEntry(
                entry.alias,
                _plain_key(where, partial(serialization.load_der_private_key, entry.key, None)),
                tuple(entry.certificates),
            )
            for entry in entries
            if entry.key is not None
        ]
        trusted = [entry.certificates[0] for entry in entries if entry.key is None]
    else:
        keys, trusted = _pkcs12(settings, where, data)
    for der in (*trusted, *(der for key in keys for der in key.chain)):
        _certificate(where, der)
    return Store(tuple(keys), tuple(trusted))


def _pkcs12(settings: StoreSettings, where: str, data: bytes) -> tuple[list[KeyEntry], list[bytes]]:
    try:
        found = pkcs12.load_pkcs12(data, _bytes(settings.password))
    except (ValueError, TypeError) as error:
        text = f"{settings.location} cannot be read as PKCS12 or JKS: {error}; check the password"
        raise TlsConfigError(where, f"{text}, and export stores with RC2 again") from None
    others = [other.certificate for other in found.additional_certs]
    if found.key is None or found.cert is None:
        named = [found.cert.certificate] if found.cert is not None else []
        return [], [_der(certificate) for certificate in (*named, *others)]
    leaf = found.cert.certificate
    key = found.key
    alias = (found.cert.friendly_name or b"kafka").decode("utf-8", "replace")
    chain = _ordered(leaf, others)
    entry = KeyEntry(alias, _plain_key(where, lambda: key), tuple(_der(certificate) for certificate in chain))
    return [entry], [_der(certificate) for certificate in others if certificate not in chain]


def _ordered(leaf: x509.Certificate, others: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    """The chain from `leaf` upwards: PKCS12 keeps no order."""
    chain, left = [leaf], list(others)
    while issuer := next((one for one in left if one.subject == chain[-1].issuer and one not in chain), None):
        chain.append(issuer)
        left.remove(issuer)
    return chain


def _plain_key(where: str, load: Callable[[], object]) -> bytes:
    try:
        key = load()
    except (ValueError, TypeError) as error:
        raise TlsConfigError(where, f"the private key cannot be read: {error}") from None
    except Exception as error:  # cryptography's UnsupportedAlgorithm derives from Exception
        raise TlsConfigError(where, f"the private key is not supported: {error}") from None
    plain: bytes = key.private_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain


def _certificate(where: str, der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise TlsConfigError(where, f"a certificate cannot be read: {error}") from None


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _bytes(password: str | None) -> bytes | None:
    return None if password is None else password.encode()
