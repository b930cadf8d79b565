"""Java key stores in Sun's format JKS, read.

The layout, big-endian: magic, version, number of entries; each entry has a kind (1 key with chain, 2 trusted
certificate), an alias and a time. The end is SHA-1 over the password (UTF-16), a fixed phrase and the content. Keys are
protected by a stream of SHA-1 digests, which is weak: protect the file.
"""

from __future__ import annotations

import hmac
from hashlib import sha1
from typing import Final, NamedTuple

MAGIC: Final = b"\xfe\xed\xfe\xed"
_PHRASE: Final = b"Mighty Aphrodite"
_DIGEST_SIZE: Final = 20
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier 1.3.6.1.4.1.42.2.17.1.1 in DER."""
_KEY, _TRUSTED = 1, 2
ENTRIES_MAX: Final = 100_000


class JksError(ValueError):
    """The store is damaged, or the password is wrong."""


class JksEntry(NamedTuple):
    """A key with its chain (leaf first), or a trusted certificate with `key` None. All in DER."""

    alias: str
    key: bytes | None
    certificates: list[bytes]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise JksError("the file is truncated or damaged")
        found = self._data[self._position : end]
        self._position = end
        return found

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        return self.take(self.number(2)).decode("utf-8", "replace")

    def blob(self) -> bytes:
        return self.take(self.number())


def read_jks(data: bytes, password: str | None, key_password: str | None) -> list[JksEntry]:
    """The entries of a store. Without a password its integrity is not checked, and keys cannot be read.

    Raises JksError.
    """
    if len(data) < len(MAGIC) + _DIGEST_SIZE or not data.startswith(MAGIC):
        raise JksError("the file is not a JKS key store")
    content, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None:
        expected = sha1(_utf16(password) + _PHRASE + content, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("the password is wrong, or the file is damaged")
    reader = _Reader(content)
    reader.take(len(MAGIC))
    version = reader.number()
    if version not in (1, 2):
        raise JksError(f"version {version} is unknown")
    count = reader.number()
    if count > ENTRIES_MAX:
        raise JksError(f"the file has {count} entries, at most {ENTRIES_MAX} are allowed")
    return [_entry(reader, version, key_password) for _ in range(count)]


def _entry(reader: _Reader, version: int, key_password: str | None) -> JksEntry:
    kind, alias, _ = reader.number(), reader.text(), reader.number(8)
    if kind == _TRUSTED:
        return JksEntry(alias, None, [_certificate(reader, version)])
    if kind != _KEY:
        raise JksError(f"entry {alias} has the unknown kind {kind}")
    protected = reader.blob()
    certificates = [_certificate(reader, version) for _ in range(reader.number())]
    if key_password is None:
        raise JksError(f"the key {alias} needs a password")
    return JksEntry(alias, _unprotected(alias, protected, _utf16(key_password)), certificates)


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2 and (kind := reader.text()) != "X.509":
        raise JksError(f"a certificate has the unknown type {kind}")
    return reader.blob()


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _unprotected(alias: str, protected: bytes, password: bytes) -> bytes:
    """The key (PKCS#8) inside an EncryptedPrivateKeyInfo of Sun's own protection."""
    at = protected.find(_PROTECTION)
    if not 0 <= at < 16:
        raise JksError(f"the key {alias} has an unknown protection")
    # After the algorithm (perhaps with NULL parameters) an OCTET STRING holds salt, ciphertext and digest.
    at += len(_PROTECTION)
    if protected[at : at + 2] == b"\x05\x00":
        at += 2
    sealed = _octets(alias, protected, at)
    salt, cipher, digest = sealed[:_DIGEST_SIZE], sealed[_DIGEST_SIZE:-_DIGEST_SIZE], sealed[-_DIGEST_SIZE:]
    stream, block = bytearray(), salt
    while len(stream) < len(cipher):
        block = sha1(password + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(sha1(password + key, usedforsecurity=False).digest(), digest):
        raise JksError(f"the password of the key {alias} is wrong")
    return key


def _octets(alias: str, data: bytes, at: int) -> bytes:
    if len(data) < at + 2 or data[at] != 0x04:
        raise JksError(f"the key {alias} is damaged")
    length, at = data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
    if len(data) < at + length or length < 2 * _DIGEST_SIZE:
        raise JksError(f"the key {alias} is damaged")
    return data[at : at + length]
