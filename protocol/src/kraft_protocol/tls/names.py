"""Names in certificates: the subject as Java writes it, principals by `ssl.principal.mapping.rules`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from cryptography import x509

from kraft_protocol.tls.errors import TlsConfigError

RULES_KEY: Final = "ssl.principal.mapping.rules"

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attribute types that RFC 2253 names; Java prints others as numbers, with the value in hexadecimal."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_of(der: bytes) -> str:
    """The subject of a certificate as RFC 2253 text, exactly as Java's `X500Principal.getName()` writes it."""
    return distinguished_name(x509.load_der_x509_certificate(der).subject)


def distinguished_name(name: x509.Name) -> str:
    """A name as RFC 2253 text: the most specific part first."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{oid}=#{_encoded_value(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _encoded_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """The value in DER: the last element of Name, RDN and attribute."""
    data = x509.Name([x509.RelativeDistinguishedName([attribute])]).public_bytes()
    for _ in range(3):  # Name, RDN, attribute
        data = data[_header_size(data) :]
    identifier = _header_size(data) + data[1]
    return data[identifier:]


def _header_size(der: bytes) -> int:
    return 2 if der[1] < 0x80 else 2 + (der[1] & 0x7F)


def _escaped(value: str) -> str:
    first = len(value) - len(value.lstrip(" \r"))
    last = len(value.rstrip(" \r"))
    return "".join(
        "\\00" if c == "\0" else "\\" + c if c in _ESCAPED or not first <= i < last else c for i, c in enumerate(value)
    )


def alternative_names(certificate: x509.Certificate) -> frozenset[tuple[str, str]]:
    """Kind and value of each subject alternative name."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset((type(name).__name__, str(getattr(name, "value", name))) for name in names)


# Principals

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)

Rule = Callable[[str], "str | None"]


def _default(name: str) -> str | None:
    return name


class PrincipalMapper:
    """The rules of `ssl.principal.mapping.rules`: the first rule that matches the whole name applies."""

    __slots__ = ("_rules",)

    def __init__(self, text: str) -> None:
        """Raises TlsConfigError for a rule that cannot be parsed."""
        self._rules: list[Rule] = []
        text, position = text.strip(), 0
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise TlsConfigError(RULES_KEY, f"cannot parse {text[position:]!r}; RULE:pattern/replacement/[L|U]")
            self._rules.append(_default if match[1] else _rule(match[2], match[3], match[4]))
            position = match.end()
        if not self._rules:
            self._rules.append(_default)

    def name(self, subject: str) -> str | None:
        """The name of the principal for a subject; None if no rule matches."""
        for rule in self._rules:
            found = rule(subject)
            if found is not None:
                return found
        return None


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern))
    except re.error as error:
        text = f"the pattern {pattern!r} is not supported: {error}; Python's regular expressions differ from Java's"
        raise TlsConfigError(RULES_KEY, text) from None

    def replaced(match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: reference[1] or _group(match, reference[2]), replacement)

    def apply(subject: str) -> str | None:
        if compiled.fullmatch(subject) is None:
            return None
        found = compiled.sub(replaced, subject)
        return found.lower() if case == "L" else found.upper() if case == "U" else found

    return apply


def _group(match: re.Match[str], digits: str) -> str:
    """The value of `$digits`. As in Java, it names the longest group that exists; an unknown group is literal."""
    count = match.re.groups
    for size in range(len(digits), 0, -1):
        if int(digits[:size]) <= count:
            return (match[int(digits[:size])] or "") + digits[size:]
    return f"${digits}"
