"""The client's side of GSSAPI (RFC 4752) with the package `gssapi`, which needs the system's Kerberos library.

The JAAS entry has the options of Java's Krb5LoginModule: `principal`, `keyTab` with `useKeyTab=true`; without a keytab
the ticket cache of the process is used (`useTicketCache=true`, `ticketCache`). Kerberos renews tickets as needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft_protocol.sasl.client import Exchange, SaslError

NO_SECURITY_LAYER: Final = b"\x01\x00\x00\x00"
"""After authentication, messages are neither signed nor encrypted; TLS does that."""


def library() -> Any:
    """The package `gssapi`. Raises SaslError if it is missing."""
    try:
        import gssapi  # noqa: PLC0415
    except (ImportError, OSError) as error:
        raise SaslError(f"GSSAPI needs the package gssapi: install kraftcluster[gssapi] ({error})") from None
    return gssapi


def is_on(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is `true`."""
    return options.get(name, "").lower() == "true"


class _GssapiExchange:
    __slots__ = ("_authzid", "_context", "_first", "_is_last")

    def __init__(self, context: Any, first: bytes, authzid: str) -> None:
        self._context, self._first, self._authzid = context, first, authzid
        self._is_last = False

    def first(self) -> bytes:
        return self._first

    def step(self, challenge: bytes) -> bytes | None:
        if self._is_last:
            return None
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            return self._layers(challenge)
        except library().exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: {error}") from None

    def _layers(self, challenge: bytes) -> bytes:
        """Choose no security layer."""
        offered = self._context.unwrap(challenge).message
        if len(offered) != 4 or not offered[0] & NO_SECURITY_LAYER[0]:
            raise SaslError("GSSAPI: the server requires a security layer")
        self._is_last = True
        answer: bytes = self._context.wrap(NO_SECURITY_LAYER + self._authzid.encode(), False).message
        return answer


class GssapiCredentials:
    """A Kerberos principal."""

    mechanism = "GSSAPI"
    is_slow = True

    def __init__(self, service: str, options: Mapping[str, str]) -> None:
        """`service`: the first part of the servers' principals (`sasl.kerberos.service.name`)."""
        self._gssapi = library()
        self._service = service
        self._principal = options.get("principal", "")
        self._keytab = options.get("keyTab", "") if is_on(options, "useKeyTab") else ""
        self._cache = options.get("ticketCache", "") if is_on(options, "useTicketCache") else ""
        if self._keytab and not self._principal:
            raise SaslError("GSSAPI: the JAAS entry has useKeyTab, but no principal")

    @property
    def user(self) -> str:
        """The first part of the principal, which the default rule makes of it."""
        name = self._principal or str(self._credentials().name)
        return name.partition("@")[0].partition("/")[0]

    def _credentials(self) -> Any:
        store = {}
        if self._keytab:
            store = {"client_keytab": self._keytab, "ccache": f"MEMORY:{self._principal}"}
        elif self._cache:
            store = {"ccache": self._cache}
        kind = self._gssapi.NameType.kerberos_principal
        name = self._gssapi.Name(self._principal, kind) if self._principal else None
        try:
            return self._gssapi.Credentials(name=name, usage="initiate", store=store or None)
        except self._gssapi.exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: no ticket for {self._principal or 'the default principal'}: {error}") from None

    def exchange(self, host: str) -> Exchange:
        """Begin an authentication with the service at `host`; gets tickets if needed."""
        gssapi = self._gssapi
        credentials = self._credentials()
        target = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
        flag = gssapi.RequirementFlag
        flags = flag.mutual_authentication | flag.replay_detection | flag.out_of_sequence_detection | flag.integrity
        context = gssapi.SecurityContext(
            name=target,
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=flags,
        )
        try:
            return _GssapiExchange(context, context.step() or b"", str(credentials.name))
        except gssapi.exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: no ticket for {target}: {error}") from None
