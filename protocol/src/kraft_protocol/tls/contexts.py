"""OpenSSL contexts by `SslSettings`, for a server and for a client, and the checks that Kafka makes of them."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable
from typing import Final, NamedTuple

from cryptography import x509

from kraft_protocol.tls.errors import TlsConfigError, TlsError
from kraft_protocol.tls.names import alternative_names, distinguished_name
from kraft_protocol.tls.session import TlsSession
from kraft_protocol.tls.settings import SslSettings
from kraft_protocol.tls.stores import KeyEntry, Store, load_keystore, load_truststore

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites of TLS 1.2 without `ssl.cipher.suites`: forward secret and authenticated, known to every client."""

TLS13_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The suites of TLS 1.3 that OpenSSL enables."""

CIPHERS_KEY: Final = "ssl.cipher.suites"

_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class Contexts(NamedTuple):
    """The contexts of one listener, and the settings and files that they were made from."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    settings: SslSettings
    keys: Store | None
    trust: Store | None

    def server_session(self) -> TlsSession:
        """The state of an accepted connection."""
        return TlsSession(self.server, is_server=True)

    def client_session(self, host: str) -> TlsSession:
        """The state of a connection to `host`."""
        return TlsSession(self.client, is_server=False, host=host)


def make_contexts(settings: SslSettings) -> Contexts:
    """Read the stores and make both contexts. Raises TlsConfigError."""
    keys = load_keystore(settings.keystore) if settings.keystore.is_given else None
    trust = load_truststore(settings.truststore) if settings.truststore.is_given else None
    server = _context(ssl.PROTOCOL_TLS_SERVER, settings, keys, trust)
    server.verify_mode = _AUTH[settings.client_auth]
    # A client that writes and closes without reading tickets would lose its data to a reset.
    server.num_tickets = 0
    server.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    client = _context(ssl.PROTOCOL_TLS_CLIENT, settings, keys, trust)
    client.check_hostname = settings.verifies_host
    return Contexts(server, client, settings, keys, trust)


def client_context(settings: SslSettings) -> ssl.SSLContext:
    """The context of a client. Raises TlsConfigError."""
    return make_contexts(settings).client


def _context(protocol: int, settings: SslSettings, keys: Store | None, trust: Store | None) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[settings.protocols[0]]
    context.maximum_version = _VERSIONS[settings.protocols[-1]]
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, any certificate of the store is an anchor
    _set_ciphers(context, settings.cipher_suites)
    if trust is None:
        context.load_default_certs(
            ssl.Purpose.SERVER_AUTH if protocol == ssl.PROTOCOL_TLS_CLIENT else ssl.Purpose.CLIENT_AUTH
        )
    else:
        context.load_verify_locations(cadata=b"".join(trust.trusted))
    for entry in () if keys is None else keys.keys:
        _load(context, entry, settings.keystore.prefix)
    return context


def _load(context: ssl.SSLContext, entry: KeyEntry, prefix: str) -> None:
    """Give a key to OpenSSL, which reads files only. The file is in memory and has no name, if the system allows it."""
    pem = entry.key + b"".join(ssl.DER_cert_to_PEM_cert(der).encode() for der in entry.chain)
    descriptor, path = _key_file()
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}" if path is None else path)
    except (ssl.SSLError, OSError) as error:
        raise TlsConfigError(prefix, f"the key {entry.alias} and its certificate cannot be used: {error}") from None
    finally:
        os.close(descriptor)
        if path is not None:
            os.unlink(path)


def _key_file() -> tuple[int, str | None]:
    """A descriptor for a key, and its path; without a path the file is in memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("key"), None
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"key-{os.urandom(16).hex()}")  # noqa: S108
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), path


# Cipher suites

_SUITE: Final = re.compile(r"TLS_(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_(.*)")
_OPENSSL_SUITE: Final = re.compile(r"(ECDHE-RSA-|ECDHE-ECDSA-|DHE-RSA-|)((?:AES|CHACHA20).*)")


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2. Raises TlsConfigError for names that are not IANA's."""
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise TlsConfigError(CIPHERS_KEY, f"{suite} is unknown; name suites as IANA does")
    exchange = "" if match[1] == "RSA" else match[1].replace("_", "-") + "-"
    cipher = re.sub(r"^(AES)_(128|256)", r"\1\2", match[2]).replace("_CBC", "").replace("CCM_8", "CCM8")
    cipher = re.sub(r"^CHACHA20_POLY1305_SHA256$", "CHACHA20-POLY1305", cipher)
    return exchange + cipher.replace("_", "-")


def iana_name(suite: str) -> str:
    """IANA's name of a suite, which Kafka's metrics have; the inverse of `openssl_name`."""
    match = _OPENSSL_SUITE.fullmatch(suite)
    if match is None:
        return suite
    cipher = match[2].replace("AES128", "AES_128").replace("AES256", "AES_256").replace("CCM8", "CCM_8")
    if cipher == "CHACHA20-POLY1305":
        cipher += "-SHA256"
    elif "GCM" not in cipher and "CCM" not in cipher:
        cipher = cipher.replace("-SHA", "-CBC-SHA")
    exchange = (match[1] or "RSA-").rstrip("-").replace("-", "_")
    return f"TLS_{exchange}_WITH_{cipher.replace('-', '_')}"


def _set_ciphers(context: ssl.SSLContext, suites: Iterable[str]) -> None:
    chosen = list(suites)
    if not chosen:
        context.set_ciphers(CIPHERS)
        return
    modern = [suite for suite in chosen if suite in TLS13_SUITES]
    older = [suite for suite in chosen if suite not in TLS13_SUITES]
    if modern and set(modern) != set(TLS13_SUITES) and context.maximum_version >= ssl.TLSVersion.TLSv1_3:
        text = "Python cannot choose among the suites of TLS 1.3; name all three of them or none"
        raise TlsConfigError(CIPHERS_KEY, f"{text}: {', '.join(TLS13_SUITES)}")
    if not modern:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        raise TlsConfigError(CIPHERS_KEY, f"{', '.join(chosen)}: none of ssl.enabled.protocols has these suites")
    if older:
        try:
            context.set_ciphers(":".join(openssl_name(suite) for suite in older))
        except ssl.SSLError:
            raise TlsConfigError(CIPHERS_KEY, f"OpenSSL supports none of {', '.join(older)}") from None


# Checks of a listener's stores


def check_self(contexts: Contexts, peer: Contexts | None = None) -> None:
    """Let a client with `contexts` shake hands with a server with `peer`, in memory and without host names.

    Nodes must be able to talk to one another with these stores. Raises TlsConfigError.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, contexts.settings, contexts.keys, contexts.trust)
    context.check_hostname = False
    client = TlsSession(context, is_server=False)
    server = (contexts if peer is None else peer).server_session()
    try:
        is_done = False
        while not is_done:
            is_done = client.handshake()
            server.feed(client.take())
            is_done = server.handshake() and is_done
            client.feed(server.take())
    except TlsError as error:
        text = f"nodes with this key store and trust store cannot connect to one another: {error}"
        raise TlsConfigError(contexts.settings.keystore.prefix, text) from None


def check_change(old: Contexts, new: Contexts) -> None:
    """Raise TlsConfigError unless a running listener may replace `old` by `new` (Kafka's SslFactory)."""
    if (old.keys is None) != (new.keys is None):
        raise TlsConfigError("ssl.keystore", "a key store cannot be added to or removed from an open listener")
    if old.trust is None and new.trust is not None:
        raise TlsConfigError("ssl.truststore", "a trust store cannot be added to an open listener")
    if old.keys is None or new.keys is None:
        return
    before, after = _leaves(old.keys), _leaves(new.keys)
    if len(before) != len(after):
        raise TlsConfigError(
            "ssl.keystore", f"the key store has {len(after)} entries; the present one has {len(before)}"
        )
    for former, now in zip(before, after, strict=True):
        if not new.settings.allows_dn_changes and former.subject != now.subject:
            former_name, name = distinguished_name(former.subject), distinguished_name(now.subject)
            text = f"the distinguished name changes from {former_name} to {name}; see ssl.allow.dn.changes"
            raise TlsConfigError("ssl.keystore", text)
        missing = alternative_names(former) - alternative_names(now)
        if not new.settings.allows_san_changes and missing:
            lost = ", ".join(sorted(value for _, value in missing))
            raise TlsConfigError("ssl.keystore", f"the alternative names {lost} are missing; see ssl.allow.san.changes")


def _leaves(store: Store) -> list[x509.Certificate]:
    return [x509.load_der_x509_certificate(entry.chain[0]) for entry in sorted(store.keys, key=lambda e: e.alias)]


__all__ = ["Contexts", "check_change", "check_self", "client_context", "iana_name", "make_contexts", "openssl_name"]
