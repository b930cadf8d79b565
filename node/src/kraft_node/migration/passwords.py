"""Passwords in the dynamic configurations of brokers, as ZooKeeper has them: encrypted with `password.encoder.secret`.

In the metadata log they are plain text, as Kafka keeps them there. AES needs the package `cryptography`, which
comes with the extra `zookeeper`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any, Final

from kraft_node.base.config.definitions import BROKER, PER_BROKER
from kraft_node.base.env import Rng
from kraft_node.migration.tree.values import ZnodeError

MARK: Final = "encryptedPassword:"
KEY_BITS: Final = 128
ITERATIONS: Final = 4096
SALT_BYTES: Final = 256
BLOCK: Final = 16
GCM_TAG_BITS: Final = 128
HASHES: Final = {
    "PBKDF2WithHmacSHA512": "sha512",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA1": "sha1",
}


@cache
def _dynamic_passwords() -> tuple[str, ...]:
    """The keys with passwords that brokers change while they run."""
    return tuple(key.name for key in BROKER.values() if key.sensitive and key.update_mode == PER_BROKER)


def is_password(key: str) -> bool:
    """Whether ZooKeeper has the value of this broker configuration encrypted; a listener may stand before the key."""
    return key.endswith(_dynamic_passwords())


class PasswordEncoder:
    """Reads and writes encrypted values. Without a secret, values are plain text, as in Kafka."""

    def __init__(self, secret: str | None, rng: Rng) -> None:
        self._secret = secret
        self._rng = rng

    def decoded(self, path: str, key: str, text: str) -> str:
        """The password. Raises ZnodeError if the secret is missing or is another one."""
        if MARK not in text:
            return text
        if self._secret is None:
            raise ZnodeError(path, f"{key} is encrypted; set password.encoder.secret as the brokers have it")
        parts = dict(part.rpartition(":")[::2] for part in text.split(","))
        try:
            password = self._decrypt(parts)
        except (KeyError, ValueError) as e:
            fault = f"{key} cannot be decrypted ({e}); is password.encoder.secret the brokers' one?"
            raise ZnodeError(path, fault) from None
        if _java_length(password) != int(parts["passwordLength"]):
            raise ZnodeError(path, f"{key} cannot be decrypted; is password.encoder.secret the brokers' one?")
        return password

    def _decrypt(self, parts: dict[str, str]) -> str:
        cipher_name, mode_name = parts["cipherAlgorithm"].split("/")[:2]
        salt, vector, data = (
            base64.b64decode(parts[name]) for name in ("salt", "initializationVector", "encryptedPassword")
        )
        if cipher_name != "AES":
            raise ValueError(f"the cipher {cipher_name} is not supported, only AES")
        key = self._key(parts["keyFactoryAlgorithm"], salt, int(parts["iterations"]), int(parts["keyLength"]))
        if mode_name == "GCM":
            tag_bytes = int(parts["authenticationTagLength"]) // 8
            if tag_bytes * 8 != GCM_TAG_BITS:
                raise ValueError(f"tags of {tag_bytes} bytes are not supported")
            return bytes(_gcm(key).decrypt(vector, data, None)).decode()
        if mode_name != "CBC":
            raise ValueError(f"the mode {mode_name} is not supported, only CBC and GCM")
        decryptor = _cbc(key, vector).decryptor()
        padded = decryptor.update(data) + decryptor.finalize()
        if not padded or not 1 <= padded[-1] <= BLOCK:
            raise ValueError("the padding is wrong")
        return bytes(padded[: -padded[-1]]).decode()

    def encoded(self, password: str) -> str:
        """The text for ZooKeeper, with a random salt, in the form of Kafka's defaults (AES/CBC)."""
        if self._secret is None:
            return password
        salt, vector = self._rng.random_bytes(SALT_BYTES), self._rng.random_bytes(BLOCK)
        key = self._key("PBKDF2WithHmacSHA512", salt, ITERATIONS, KEY_BITS)
        plain = password.encode()
        padding = BLOCK - len(plain) % BLOCK
        encryptor = _cbc(key, vector).encryptor()
        data = encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()
        text = {name: base64.b64encode(value).decode() for name, value in (("s", salt), ("v", vector), ("d", data))}
        return (
            f"keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:{KEY_BITS},"
            f"salt:{text['s']},iterations:{ITERATIONS},passwordLength:{_java_length(password)},"
            f"initializationVector:{text['v']},encryptedPassword:{text['d']}"
        )

    def _key(self, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
        assert self._secret is not None
        return hashlib.pbkdf2_hmac(HASHES[factory], self._secret.encode(), salt, iterations, bits // 8)


def _java_length(text: str) -> int:
    """The length of a text in Java: units of UTF-16."""
    return len(text.encode("utf-16-le")) // 2


def _cbc(key: bytes, vector: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415  (the extra `zookeeper`)

    return Cipher(algorithms.AES(key), modes.CBC(vector))


def _gcm(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  (the extra `zookeeper`)

    return AESGCM(key)
