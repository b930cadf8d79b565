"""The configuration of a user's clients: properties for Java, librdkafka and kcat, a dictionary for Python. Pure.

Java's file and Python's dictionary have certificates inside. Files of librdkafka cannot: they name files beside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kraft_operator.security.names import trusted_by_clients_of
from kraft_operator.specs.properties import text
from kraft_protocol.sasl.jaas import written
from kraft_protocol.sasl.properties import MODULES

TRUSTED_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "user.crt"
KEY_FILE: Final = "user.key"
CONTROLLERS_CERTIFICATE: Final = "controllers.crt"
CONTROLLERS_KEY: Final = "controllers.key"
CONTROLLERS_FILE: Final = "controllers.properties"
"""Certificate, key and properties of users that may connect to controllers."""


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """All that a client needs. Secrets do not show in `repr`."""

    bootstrap: str
    user: str
    mechanism: str = ""
    """The SCRAM mechanism; empty with a certificate."""
    password: str = field(default="", repr=False)
    trusted: str = ""
    """Certificates that the client trusts, as PEM."""
    certificate: str = ""
    """The certificate of the client and its chain, as PEM."""
    key: str = field(default="", repr=False)
    trusts_system: bool = False
    """TLS without `trusted`: the client trusts what its system trusts, such as public authorities."""

    @property
    def protocol(self) -> str:
        """The security protocol, by Kafka's name."""
        has_tls = bool(self.trusted) or self.trusts_system
        if self.mechanism:
            return "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
        return "SSL" if has_tls else "PLAINTEXT"

    @property
    def jaas(self) -> str:
        """The value of `sasl.jaas.config`."""
        return written(MODULES[self.mechanism], {"username": self.user, "password": self.password})


class Trust(NamedTuple):
    """What clients of a listener trust."""

    trusted: str = ""
    trusts_system: bool = False


def trust_at(public: Mapping[str, str], listener: str) -> Trust:
    """What clients of a listener with TLS trust, by the cluster's public object (`NAME-trust`)."""
    own = public.get(trusted_by_clients_of(listener))
    return Trust(public.get(TRUSTED_FILE, "")) if own is None else Trust(own, not own)


def password_problem(data: bytes) -> str:
    """Why a password cannot be written into all of the files; empty if it can. Does not name the password."""
    try:
        password = data.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if not password:
        return "it is empty"
    if password != password.strip():
        return "it begins or ends with a blank or a line break: write it without (printf, not echo)"
    if not password.isprintable():
        return "it has characters that cannot be printed"
    return ""


def java(access: ClientAccess) -> str:
    """`client.properties` for Java's clients and tools; without an address if `access` has none."""
    found = {"bootstrap.servers": access.bootstrap} if access.bootstrap else {}
    found["security.protocol"] = access.protocol
    if access.mechanism:
        found |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": access.jaas}
    if access.trusted:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": access.trusted}
    if access.certificate:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": access.certificate,
            "ssl.keystore.key": access.key,
        }
    return text(found)


def librdkafka(access: ClientAccess, folder: str) -> str:
    """A file for librdkafka and kcat (`kcat -F`). `folder` has the files of the Secret."""
    found = _librdkafka(access)
    if access.trusted:
        found["ssl.ca.location"] = f"{folder}/{TRUSTED_FILE}"
    if access.certificate:
        found["ssl.certificate.location"] = f"{folder}/{CERTIFICATE_FILE}"
        found["ssl.key.location"] = f"{folder}/{KEY_FILE}"
    return "".join(f"{key}={value}\n" for key, value in found.items())


def python(access: ClientAccess) -> dict[str, Any]:
    """The configuration of confluent-kafka."""
    found = _librdkafka(access)
    if access.trusted:
        found["ssl.ca.pem"] = access.trusted
    if access.certificate:
        found |= {"ssl.certificate.pem": access.certificate, "ssl.key.pem": access.key}
    return found


def _librdkafka(access: ClientAccess) -> dict[str, str]:
    found = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.mechanism:
        found |= {
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.user,
            "sasl.password": access.password,
        }
    return found


def secret_data(access: ClientAccess, folder: str) -> dict[str, str]:
    """The entries of a user's Secret, as texts. `folder` is where pods mount it."""
    found = {
        "username": access.user,
        "bootstrap.servers": access.bootstrap,
        "client.properties": java(access),
        "librdkafka.properties": librdkafka(access, folder),
        "python.json": json.dumps(python(access), indent=1) + "\n",
    }
    if access.mechanism:
        found |= {"password": access.password, "sasl.jaas.config": access.jaas}
    if access.trusted:
        found[TRUSTED_FILE] = access.trusted
    if access.certificate:
        found |= {CERTIFICATE_FILE: access.certificate, KEY_FILE: access.key}
    return found


def controllers_properties(user: str, trusted: str, issued: Mapping[str, bytes]) -> bytes:
    """`controllers.properties`: how a user connects to the controllers, with certificate and key that were `issued`."""
    certificate, key = (issued[name].decode() for name in (CONTROLLERS_CERTIFICATE, CONTROLLERS_KEY))
    return java(ClientAccess("", user, trusted=trusted, certificate=certificate, key=key)).encode()
