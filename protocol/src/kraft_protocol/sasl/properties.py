"""Kafka's keys `sasl.*` of clients to `Credentials`; nodes use the same keys for their connections to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraft_protocol.sasl.client import PLAIN, Credentials, PlainCredentials, RandomBytes, Read, SaslError
from kraft_protocol.sasl.jaas import JaasEntry, JaasError, parse_jaas
from kraft_protocol.sasl.oauthbearer import OAUTHBEARER
from kraft_protocol.sasl.scram import ALGORITHMS, ScramCredentials

GSSAPI: Final = "GSSAPI"
JAAS_KEY: Final = "sasl.jaas.config"
_PACKAGE: Final = "org.apache.kafka.common.security."

MODULES: Final[Mapping[str, str]] = {
    PLAIN: f"{_PACKAGE}plain.PlainLoginModule",
    **dict.fromkeys(ALGORITHMS, f"{_PACKAGE}scram.ScramLoginModule"),
    OAUTHBEARER: f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
"""Mechanism -> the class that its JAAS entry must name."""


def jaas_of(mechanism: str, key: str, text: str) -> JaasEntry:
    """The JAAS entry that `key` holds for a mechanism. Raises SaslError, which names the key."""
    try:
        entry = parse_jaas(text)
    except JaasError as error:
        raise SaslError(f"{key}: {error}") from None
    expected = MODULES.get(mechanism)
    if expected is None:
        raise SaslError(f"{key}: mechanism {mechanism} is not one of {', '.join(MODULES)}")
    if entry.module_name != expected.rpartition(".")[2]:
        raise SaslError(f"{key}: the login module of {mechanism} is {expected}, not {entry.module}")
    return entry


def credentials_of(
    mechanism: str, entry: JaasEntry, read: Read, random_bytes: RandomBytes, now_s: Callable[[], float]
) -> Credentials:
    """The credentials of a JAAS entry and of the keys that `read` returns. Raises SaslError."""
    options = entry.options
    if mechanism == PLAIN:
        return PlainCredentials(_option(mechanism, options, "username"), _option(mechanism, options, "password"))
    if mechanism in ALGORITHMS:
        return ScramCredentials(
            mechanism,
            _option(mechanism, options, "username"),
            _option(mechanism, options, "password"),
            random_bytes,
            is_token=options.get("tokenauth", "").lower() == "true",
        )
    if mechanism == OAUTHBEARER:
        from kraft_protocol.sasl.oauth_properties import oauth_credentials  # noqa: PLC0415  (0.6 MiB)

        return oauth_credentials(options, read, now_s)
    if mechanism == GSSAPI:
        from kraft_protocol.sasl.gssapi import GssapiCredentials  # noqa: PLC0415  (needs an extra)

        service = read("sasl.kerberos.service.name") or options.get("serviceName")
        if not service:
            raise SaslError("GSSAPI: sasl.kerberos.service.name is not set")
        return GssapiCredentials(service, options)
    raise SaslError(f"mechanism {mechanism} is not one of {', '.join(MODULES)}")


def _option(mechanism: str, options: Mapping[str, str], name: str) -> str:
    value = options.get(name)
    if not value:
        raise SaslError(f"{mechanism}: the JAAS entry has no {name}")
    return value
