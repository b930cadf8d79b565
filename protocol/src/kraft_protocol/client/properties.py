"""Kafka's client properties to the security of connections: `security.protocol`, `sasl.*` and `ssl.*`.

Files of `--command-config`, options of Spark and Secrets have these keys. Keys of other parts of a client, for example
`client.id`, are ignored. A key of security that is unknown, not supported here, or of no effect with the given
`security.protocol` is an error: a client must never connect in the clear because of a typing error.
"""

from __future__ import annotations

import difflib
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraft_protocol.client.security import NO_SECURITY, PLAINTEXT, ClientSecurity, ClientTls
from kraft_protocol.configs.properties import decode_properties, parse_properties
from kraft_protocol.configs.providers import resolved
from kraft_protocol.tls import settings as tls_settings

if TYPE_CHECKING:
    import ssl

    from kraft_protocol.client.session import Login

log = logging.getLogger(__name__)

PROTOCOL_KEY: Final = "security.protocol"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_KEYS: Final = (
    "sasl.client.callback.handler.class",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.mechanism",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
)
SSL_KEYS: Final = tuple(key for key in tls_settings.KEYS if key not in tls_settings.SERVER_KEYS)
KEYS: Final = frozenset({PROTOCOL_KEY, *SASL_KEYS, *SSL_KEYS})
"""The keys of security that Apache Kafka's clients know."""

_PREFIXES: Final = ("security.", "sasl.", "ssl.")
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_ABSENT: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.client.callback.handler.class": (),
    "sasl.login.class": (),
    "sasl.login.callback.handler.class": (
        f"{_OAUTH}OAuthBearerLoginCallbackHandler",
        f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler",
        f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    ),
    "sasl.oauthbearer.jwt.retriever.class": tuple(
        f"{_OAUTH}{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File", "JwtBearer")
    ),
    "sasl.oauthbearer.jwt.validator.class": (f"{_OAUTH}DefaultJwtValidator", f"{_OAUTH}ClientJwtValidator"),
    "sasl.oauthbearer.assertion.template.file": (),
}
"""Keys that need a JVM, and their values whose effect we have."""


class ClientConfigError(ValueError):
    """Client properties cannot be used. The message names the file, or other source, and the key; it has no values
    of secrets."""


def security_of_file(path: str | Path) -> ClientSecurity:
    """The security in a file of client properties (`--command-config`). Raises ClientConfigError, OSError."""
    return client_security(read_properties(path), str(path))


def read_properties(path: str | Path) -> dict[str, str]:
    """The entries of a file of client properties. Raises ClientConfigError, OSError."""
    try:
        return parse_properties(decode_properties(Path(path).read_bytes()))
    except ValueError as error:
        raise ClientConfigError(f"{path}: {error}") from None


def client_security(properties: Mapping[str, str], where: str = "client properties") -> ClientSecurity:
    """The security that `properties` describe; key stores are read now. `where` begins the messages of errors.

    The result can be pickled. Raises ClientConfigError.
    """
    try:
        texts = {key: value.strip() for key, value in resolved(properties).items()}
        protocol = texts.get(PROTOCOL_KEY, PLAINTEXT).upper()
        _check(texts, protocol)
        if protocol == PLAINTEXT:
            return NO_SECURITY
        tls = _tls(texts) if protocol.endswith("SSL") else None
        login = _login(texts) if protocol.startswith("SASL") else None
    except ValueError as error:
        raise ClientConfigError(f"{where}: {error}") from None
    return _OfProperties(protocol, properties, where, tls, login)


def shared_security(properties: Mapping[str, str], where: str = "client properties") -> ClientSecurity:
    """As `client_security`, but the same object for equal properties: tasks of a process share a token and stores."""
    return _shared(tuple(sorted(properties.items())), where)


@functools.lru_cache(maxsize=16)
def _shared(properties: tuple[tuple[str, str], ...], where: str) -> ClientSecurity:
    return client_security(dict(properties), where)


class _OfProperties(ClientSecurity):
    """The security of client properties. Another process makes it from the properties, and reads its own files."""

    __slots__ = ("_texts", "_where")

    def __init__(
        self,
        protocol: str,
        texts: Mapping[str, str],
        where: str,
        tls: ClientTls | None,
        login: Callable[[str], Login] | None,
    ) -> None:
        super().__init__(protocol, tls=tls, login=login)
        self._texts, self._where = texts, where

    def __reduce__(self) -> tuple[Callable[..., ClientSecurity], tuple[Mapping[str, str], str]]:
        return shared_security, (self._texts, self._where)


def _check(texts: Mapping[str, str], protocol: str) -> None:
    if protocol not in PROTOCOLS:
        raise ValueError(f"{PROTOCOL_KEY}: {texts[PROTOCOL_KEY]!r} is not one of {', '.join(PROTOCOLS)}")
    for key, value in texts.items():
        if key not in KEYS:
            _check_foreign(key)
        allowed = _ABSENT.get(key)
        if allowed is not None and value and value not in allowed:
            remedy = f"set one of {', '.join(allowed)}" if allowed else "remove the key"
            raise ValueError(f"{key} is not supported, because there is no JVM; {remedy}")
        if value and key in SASL_KEYS:
            _check_value(key, value)
    for keys, word in ((SASL_KEYS, "SASL"), (SSL_KEYS, "SSL")):
        given = [key for key in keys if texts.get(key)]
        if given and word not in protocol.split("_"):
            other = f"SASL_{protocol}" if word == "SASL" else ("SSL" if protocol == PLAINTEXT else "SASL_SSL")
            raise ValueError(f"{given[0]} has no effect with {PROTOCOL_KEY}={protocol}; set {other}, or remove the key")


def _check_foreign(key: str) -> None:
    close = difflib.get_close_matches(key, KEYS, 1, 0.85)
    if close or key.startswith(_PREFIXES):
        raise ValueError(f"{key} is not a key of Kafka's clients{f'; is {close[0]} meant?' if close else ''}")


def _check_value(key: str, value: str) -> None:
    """Raise ValueError if a text is not the number or boolean that its key needs."""
    if key.endswith((".ms", ".seconds")) and not (value.isascii() and value.isdigit()):
        raise ValueError(f"{key}: {value!r} is not a number")
    if key.endswith((".factor", ".jitter")):
        try:
            float(value)
        except ValueError:
            raise ValueError(f"{key}: {value!r} is not a number") from None
    if key.endswith((".include", ".urlencode")) and value.lower() not in ("true", "false"):
        raise ValueError(f"{key}: {value!r} is neither true nor false")


def _login(texts: Mapping[str, str]) -> Callable[[str], Login]:
    from kraft_protocol.sasl.client import SaslError  # noqa: PLC0415  (only clients with SASL need them)
    from kraft_protocol.sasl.login import SaslLogin  # noqa: PLC0415
    from kraft_protocol.sasl.properties import GSSAPI, JAAS_KEY, MODULES, credentials_of, jaas_of  # noqa: PLC0415

    mechanism = texts.get("sasl.mechanism") or GSSAPI
    if mechanism not in MODULES:
        raise ValueError(f"sasl.mechanism: {mechanism!r} is not one of {', '.join(MODULES)}")
    jaas = texts.get(JAAS_KEY)
    if not jaas:
        raise ValueError(f"{JAAS_KEY} is missing; sasl.mechanism={mechanism} takes its credentials from it")
    entry = jaas_of(mechanism, JAAS_KEY, jaas)
    try:
        credentials = credentials_of(mechanism, entry, lambda key: texts.get(key) or None, os.urandom, time.time)
    except SaslError as error:
        raise ValueError(f"{JAAS_KEY}: {error}") from None
    return lambda host: SaslLogin(credentials, host)


def _tls(texts: Mapping[str, str]) -> StoresTls:
    return StoresTls(tls_settings.SslSettings.parse({key: texts[key] for key in SSL_KEYS if key in texts}))


class StoresTls:
    """TLS of a client. New connections use new certificates once the files of the stores have changed."""

    __slots__ = ("_context", "_settings", "_stamp")

    def __init__(self, settings: tls_settings.SslSettings) -> None:
        """Read the stores. Raises TlsConfigError."""
        self._settings = settings
        self._stamp = self._stamps()
        self._context = self._new_context()

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of new connections. If changed files cannot be used, the last good ones stay in use."""
        stamp = self._stamps()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._new_context()
            except ValueError as error:
                log.warning("changed stores are not used error=%s", error)
        return self._context

    def _new_context(self) -> ssl.SSLContext:
        from kraft_protocol.tls.contexts import client_context  # noqa: PLC0415  (several MiB)

        return client_context(self._settings)

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(store.location) for store in (self._settings.keystore, self._settings.truststore)]


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Changes when the file does; None without a file."""
    if not path:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
