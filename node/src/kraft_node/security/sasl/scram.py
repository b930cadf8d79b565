"""SCRAM (RFC 5802, RFC 7677) with the users of the metadata log, and with delegation tokens (KIP-48).

A user's record has the keys, so the server computes a few HMACs only. A token's password is its HMAC; its keys are
derived in a thread when its first client proves that it has the password, and kept.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.security.sasl.exchange import USER, InvalidCredentials, SaslIdentity, SaslRefused, ServerExchange
from kraft_protocol.sasl.scram import (
    ALGORITHMS,
    ITERATIONS_MIN,
    NONCE_BYTES,
    NUMBERS,
    TOKEN_EXTENSION,
    attributes,
    base64_of,
    digest,
    keyed,
    keys,
    salted_password,
    unbase64,
    unescaped,
    xor,
)

if TYPE_CHECKING:
    from kraft_node.metadata.image import MetadataView

SALT_BYTES: Final = 20
TOKENS_KEPT: Final = 10_000
"""Tokens whose keys are kept; the least recently used make room."""

_NAME: Final = r"(?:[^\x00=,]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m=[^\x00,]+,)?n=(?P<name>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*))"
)
_INVALID: Final = "Authentication failed: Invalid user credentials"


class Credential(NamedTuple):
    """What a server knows of a user."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class KnownToken(NamedTuple):
    """What a server knows of a delegation token."""

    owner: str
    """The owner's principal."""
    hmac: bytes
    expires_ms: int


class ScramUsers:
    """SCRAM with one hash function.

    `find_token` returns a token that is valid now, by its id. `random_bytes` makes nonces and the salt of tokens.
    """

    def __init__(
        self,
        mechanism: str,
        image: MetadataView,
        find_token: Callable[[str], KnownToken | None],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.mechanism = mechanism
        self.algorithm = ALGORITHMS[mechanism]
        self.find_token = find_token
        self.random_bytes = random_bytes
        self.token_salt = random_bytes(SALT_BYTES)
        self._number = NUMBERS[mechanism]
        self._image = image
        self._token_keys: OrderedDict[bytes, tuple[bytes, bytes]] = OrderedDict()

    def exchange(self) -> ServerExchange:
        """An exchange of two messages."""
        return _ScramExchange(self)

    def credential(self, username: str) -> Credential | None:
        """The user's credential in the metadata that this node has."""
        record = self._image.scram.get((self._number, username))
        if record is None:
            return None
        return Credential(bytes(record.salt), record.iterations, bytes(record.stored_key), bytes(record.server_key))

    def token_keys(self, hmac: bytes) -> tuple[bytes, bytes] | None:
        """The keys of a token, if they are known."""
        found = self._token_keys.get(hmac)
        if found is not None:
            self._token_keys.move_to_end(hmac)
        return found

    def derive_token_keys(self, hmac: bytes) -> tuple[bytes, bytes]:
        """Derive the keys of a token, in a thread."""
        return keys(self.algorithm, salted_password(self.algorithm, base64_of(hmac), self.token_salt, ITERATIONS_MIN))

    def keep_token_keys(self, hmac: bytes, derived: tuple[bytes, bytes]) -> None:
        """Keep derived keys."""
        self._token_keys[hmac] = derived
        if len(self._token_keys) > TOKENS_KEPT:
            self._token_keys.popitem(last=False)


class _ScramExchange:
    __slots__ = ("_bare", "_credential", "_nonce", "_pending", "_server_first", "_token", "_users", "identity")

    def __init__(self, users: ScramUsers) -> None:
        self._users = users
        self.identity: SaslIdentity | None = None
        self._bare = self._nonce = self._server_first = ""
        self._credential: Credential | None = None
        self._token: KnownToken | None = None
        self._pending: SaslIdentity | None = None

    @property
    def is_slow(self) -> bool:
        return self._token is not None and self._users.token_keys(self._token.hmac) is None

    def respond(self, token: bytes) -> bytes:
        try:
            message = token.decode()
            return self._begin(message) if self._pending is None else self._prove(message, self._pending)
        except ValueError as error:
            raise InvalidCredentials(f"a malformed message ({type(error).__name__})") from None

    def _begin(self, message: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise InvalidCredentials("Invalid SCRAM client first message format")
        username = unescaped(match["name"])
        extensions = attributes(match["extensions"][1:]) if match["extensions"] else {}
        if extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            credential = self._begin_token(username)
        else:
            found = self._users.credential(username)
            if found is None:
                raise InvalidCredentials(_INVALID)
            credential = found
            self._pending = SaslIdentity(USER + username)
        if match["authzid"] and unescaped(match["authzid"]) != username:
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < ITERATIONS_MIN:
            raise InvalidCredentials(f"Iterations {credential.iterations} is less than the minimum {ITERATIONS_MIN}")
        self._credential = credential
        self._bare = match["bare"]
        self._nonce = match["nonce"] + base64_of(self._users.random_bytes(NONCE_BYTES))
        self._server_first = f"r={self._nonce},s={base64_of(credential.salt)},i={credential.iterations}"
        return self._server_first.encode()

    def _begin_token(self, token_id: str) -> Credential:
        token = self._users.find_token(token_id)
        if token is None:
            raise InvalidCredentials("Token Authentication failed: Invalid tokenId")
        self._token = token
        self._pending = SaslIdentity(token.owner, token.expires_ms, is_token=True)
        return Credential(self._users.token_salt, ITERATIONS_MIN, b"", b"")

    def _prove(self, message: str, identity: SaslIdentity) -> bytes:
        import hmac  # noqa: PLC0415

        credential = self._credential
        assert credential is not None
        stored_key, server_key = credential.stored_key, credential.server_key
        if self._token is not None:
            known = self._users.token_keys(self._token.hmac)
            if known is None:
                known = self._users.derive_token_keys(self._token.hmac)
                self._users.keep_token_keys(self._token.hmac, known)
            stored_key, server_key = known
        without_proof, _, encoded = message.rpartition(",p=")
        found = attributes(without_proof)
        if found.get("r") != self._nonce:
            raise InvalidCredentials("Invalid client nonce in the final client message.")
        if "c" not in found:
            raise InvalidCredentials("Invalid SCRAM client final message format")
        algorithm = self._users.algorithm
        signed = f"{self._bare},{self._server_first},{without_proof}".encode()
        proof = unbase64(encoded)
        signature = keyed(algorithm, stored_key, signed)
        if len(proof) != len(signature):
            raise InvalidCredentials("Invalid client credentials")
        if not hmac.compare_digest(digest(algorithm, xor(proof, signature)), stored_key):
            raise InvalidCredentials("Invalid client credentials")
        self.identity = identity
        return f"v={base64_of(keyed(algorithm, server_key, signed))}".encode()
