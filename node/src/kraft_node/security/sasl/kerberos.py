"""The server's side of GSSAPI (RFC 4752), and the short names of Kerberos principals.

The JAAS entry has the options of Java's Krb5LoginModule: `principal` (`service/host@REALM`) and `keyTab`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kraft_node.security.sasl.exchange import USER, InvalidCredentials, SaslIdentity, ServerExchange
from kraft_protocol.sasl.client import SaslError
from kraft_protocol.sasl.gssapi import NO_SECURITY_LAYER, is_on, library

_RULE: Final = re.compile(
    r"(?:DEFAULT|RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?)"
)
_PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PLACE: Final = re.compile(r"\$(\d+)")


class _Rule(NamedTuple):
    parts: int
    shape: str
    match: re.Pattern[str] | None
    old: re.Pattern[str] | None
    new: str
    is_global: bool
    case: str

    def apply(self, parts: list[str]) -> str | None:
        """The short name of a principal's realm and components; None if the rule does not match."""
        if len(parts) - 1 != self.parts:
            return None

        def part(place: re.Match[str]) -> str:
            number = int(place[1])
            return parts[number] if number < len(parts) else ""

        base = _PLACE.sub(part, self.shape)
        if self.match is not None and not self.match.fullmatch(base):
            return None
        name = base
        if self.old is not None:
            new = re.sub(r"\$(\d+)", r"\\\1", self.new)
            name = self.old.sub(new, base, count=0 if self.is_global else 1)
        if "/" in name or "@" in name:
            raise InvalidCredentials("a rule leaves / or @ in the name of the principal")
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class PrincipalRules:
    """`sasl.kerberos.principal.to.local.rules`: the first rule that matches gives the name."""

    def __init__(self, rules: Iterable[str], realm: str = "") -> None:
        """`realm`: for the rule DEFAULT; empty: the realm of the node's own principal. Raises ValueError."""
        self.realm = realm
        self._rules: list[_Rule | None] = []
        for text in rules:
            found = _RULE.fullmatch(text.strip())
            if found is None:
                raise ValueError(f"{text!r} is not DEFAULT or RULE:[n:string](regexp)s/pattern/replacement/g/L")
            if found["format"] is None:
                self._rules.append(None)
                continue
            try:
                match = None if found["match"] is None else re.compile(found["match"])
                old = None if found["old"] is None else re.compile(found["old"])
            except re.error as error:
                raise ValueError(f"{text!r} has an invalid regular expression: {error}") from None
            self._rules.append(
                _Rule(
                    int(found["parts"] or 0),
                    found["format"],
                    match,
                    old,
                    found["new"] or "",
                    found["all"] is not None,
                    found["case"] or "",
                )
            )

    def short(self, principal: str) -> str:
        """The name of a principal. Raises InvalidCredentials if no rule matches."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise InvalidCredentials("the client's name is not a Kerberos principal")
        service, host, realm = found[1], found[2], found[3]
        parts = [realm, service] if host is None else [realm, service, host]
        for rule in self._rules:
            if rule is None:
                if realm == self.realm:
                    return service
                continue
            name = rule.apply(parts)
            if name is not None:
                return name
        raise InvalidCredentials("no rule of sasl.kerberos.principal.to.local.rules matches the principal")


class Kerberos:
    """The mechanism of a listener. Raises SaslError if its keytab cannot be used."""

    def __init__(self, options: Mapping[str, str], rules: PrincipalRules) -> None:
        self.gssapi = gssapi = library()
        principal, keytab = options.get("principal", ""), options.get("keyTab", "")
        if not principal or not keytab or not is_on(options, "useKeyTab"):
            raise SaslError("GSSAPI: the JAAS entry of a listener needs principal, useKeyTab=true and keyTab")
        rules.realm = rules.realm or principal.rpartition("@")[2]
        self.rules = rules
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            self.credentials = gssapi.Credentials(name=name, usage="accept", store={"keytab": keytab})
        except gssapi.exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: the keytab {keytab} has no key of {principal}: {error}") from None

    def exchange(self) -> ServerExchange:
        """An exchange of the ticket, and of the choice of no security layer."""
        return _KerberosExchange(self)


class _KerberosExchange:
    __slots__ = ("_context", "_is_offered", "_kerberos", "identity")

    is_slow = True
    """Kerberos reads and writes a file of earlier messages, against replays."""

    def __init__(self, kerberos: Kerberos) -> None:
        self._kerberos = kerberos
        self._context: Any = kerberos.gssapi.SecurityContext(creds=kerberos.credentials, usage="accept")
        self._is_offered = False
        self.identity: SaslIdentity | None = None

    def respond(self, token: bytes) -> bytes | None:
        try:
            if not self._context.complete:
                answer: bytes = self._context.step(token) or b""
                return answer or (self._offer() if self._context.complete else b"")
            if not self._is_offered:
                return self._offer()
            self.identity = self._identify(self._context.unwrap(token).message)
        except self._kerberos.gssapi.exceptions.GSSError as error:
            raise InvalidCredentials(f"GSSAPI: {error}") from None
        return None

    def _offer(self) -> bytes:
        self._is_offered = True
        offer: bytes = self._context.wrap(NO_SECURITY_LAYER, False).message
        return offer

    def _identify(self, chosen: bytes) -> SaslIdentity:
        if len(chosen) < 4 or chosen[0] != NO_SECURITY_LAYER[0]:
            raise InvalidCredentials("the client chooses a security layer")
        client = str(self._context.initiator_name)
        authzid = chosen[4:].decode(errors="replace")
        if authzid not in ("", client):
            raise InvalidCredentials("the client requests another authorization id than its principal")
        return SaslIdentity(USER + self._kerberos.rules.short(client))
