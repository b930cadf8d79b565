"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): keys and messages for both sides, and the client's side.

Kafka neither prepares texts (SASLprep) nor binds channels. Its extension `tokenauth=true` announces that the user is a
delegation token (KIP-48).

`hashlib` is imported on first use: a node without SCRAM does without OpenSSL.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from kraft_protocol.sasl.client import Exchange, RandomBytes, SaslError

ALGORITHMS: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism -> name of its hash function."""
NUMBERS: Final[Mapping[str, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism -> its number in records and requests."""
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""The most that Kafka stores."""
SERVER_ITERATIONS_MAX: Final = 1 << 20
"""More iterations are refused by clients: a hostile server must not make them compute for minutes."""
TOKEN_EXTENSION: Final = "tokenauth"  # noqa: S105
NONCE_BYTES: Final = 24
_GS2: Final = "n,"


def salted_password(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword: takes milliseconds, so an event loop must not call it."""
    import hashlib  # noqa: PLC0415

    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


def keys(algorithm: str, salted: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey."""
    client_key = keyed(algorithm, salted, b"Client Key")
    return digest(algorithm, client_key), keyed(algorithm, salted, b"Server Key")


def keyed(algorithm: str, key: bytes, text: bytes) -> bytes:
    """HMAC(key, text)."""
    import hmac  # noqa: PLC0415

    return hmac.digest(key, text, algorithm)


def digest(algorithm: str, text: bytes) -> bytes:
    """H(text)."""
    import hashlib  # noqa: PLC0415

    return hashlib.new(algorithm, text).digest()


def xor(one: bytes, other: bytes) -> bytes:
    """The exclusive or of two texts of the same length."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def escaped(name: str) -> str:
    """A user's name as a saslname."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """The user's name of a saslname. Raises ValueError."""
    plain = name.replace("=2C", ",").replace("=3D", "\0")
    if "=" in plain or "\0" in name:
        raise ValueError("a saslname has a bare equals sign")
    return plain.replace("\0", "=")


class ServerFirst(NamedTuple):
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


def attributes(message: str) -> dict[str, str]:
    """The attributes `a=…` of a message by their names. Raises ValueError, also for an attribute that comes twice."""
    found: dict[str, str] = {}
    for part in message.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.isascii() or not name.isalpha() or name in found:
            raise ValueError("a malformed attribute")
        found[name] = value
    return found


def parse_server_first(message: bytes) -> ServerFirst:
    """Parse the server's first message. Raises ValueError."""
    found = attributes(message.decode())
    if "r" not in found or "s" not in found or "i" not in found or "m" in found or not found["i"].isdecimal():
        raise ValueError("attributes are missing")
    return ServerFirst(found["r"], unbase64(found["s"]), int(found["i"]))


def base64_of(data: bytes) -> str:
    """Base64 as text."""
    return base64.b64encode(data).decode()


def unbase64(text: str) -> bytes:
    """The bytes of a base64 text. Raises ValueError."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


class _ScramExchange:
    __slots__ = ("_algorithm", "_bare", "_credentials", "_nonce", "_signature")

    def __init__(self, credentials: ScramCredentials, nonce: str) -> None:
        self._credentials = credentials
        self._algorithm = ALGORITHMS[credentials.mechanism]
        self._nonce = nonce
        extension = f",{TOKEN_EXTENSION}=true" if credentials.is_token else ""
        self._bare = f"n={escaped(credentials.user)},r={nonce}{extension}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"{_GS2},{self._bare}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        try:
            if self._signature is None:
                return self._final(challenge)
            self._verify(challenge)
        except ValueError as error:
            raise SaslError(f"{self._credentials.mechanism}: the server's message is malformed: {error}") from None
        return None

    def _final(self, challenge: bytes) -> bytes:
        server = parse_server_first(challenge)
        mechanism = self._credentials.mechanism
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise SaslError(f"{mechanism}: the server's nonce does not continue the client's")
        if not ITERATIONS_MIN <= server.iterations <= SERVER_ITERATIONS_MAX:
            raise SaslError(
                f"{mechanism}: {server.iterations} iterations, not {ITERATIONS_MIN} to {SERVER_ITERATIONS_MAX}"
            )
        salted = self._credentials.salted(server.salt, server.iterations)
        client_key = keyed(self._algorithm, salted, b"Client Key")
        stored_key, server_key = keys(self._algorithm, salted)
        without_proof = f"c={base64_of((_GS2 + ',').encode())},r={server.nonce}"
        message = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        proof = xor(client_key, keyed(self._algorithm, stored_key, message))
        self._signature = keyed(self._algorithm, server_key, message)
        return f"{without_proof},p={base64_of(proof)}".encode()

    def _verify(self, challenge: bytes) -> None:
        import hmac  # noqa: PLC0415

        found = attributes(challenge.decode())
        mechanism = self._credentials.mechanism
        if "e" in found:
            raise SaslError(f"{mechanism}: the server refuses: {found['e']}")
        if not hmac.compare_digest(unbase64(found.get("v", "")), self._signature or b""):
            raise SaslError(f"{mechanism}: the server does not know the password of the user")


class ScramCredentials:
    """A user with a password, or a delegation token with its HMAC (`is_token`)."""

    is_slow = True

    def __init__(
        self, mechanism: str, username: str, password: str, random_bytes: RandomBytes, *, is_token: bool = False
    ) -> None:
        if mechanism not in ALGORITHMS:
            raise SaslError(f"{mechanism} is not one of {', '.join(ALGORITHMS)}")
        if not username or not password:
            raise SaslError(f"{mechanism}: username and password must not be empty")
        self.mechanism = mechanism
        self.user = username
        self.is_token = is_token
        self._password = password
        self._random_bytes = random_bytes
        self._salted: tuple[bytes, int, bytes] | None = None

    def salted(self, salt: bytes, iterations: int) -> bytes:
        """SaltedPassword; the last one is kept, because servers mostly send the same salt again."""
        if self._salted is None or self._salted[:2] != (salt, iterations):
            algorithm = ALGORITHMS[self.mechanism]
            self._salted = (salt, iterations, salted_password(algorithm, self._password, salt, iterations))
        return self._salted[2]

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002
        """An exchange with a nonce of its own."""
        return _ScramExchange(self, base64.urlsafe_b64encode(self._random_bytes(NONCE_BYTES)).decode().rstrip("="))
