"""Principals of certificates: names as Java writes them, and mapping rules (`kraft_protocol.tls.names`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type

from kraft_protocol.tls.errors import TlsConfigError
from kraft_protocol.tls.names import PrincipalMapper, distinguished_name
from tests.certificates import Authority

JAVA = shutil.which("java")

EMAIL = x509.NameAttribute(x509.NameOID.EMAIL_ADDRESS, "a@example.com", _ASN1Type.IA5String)
NAMES = [
    x509.Name.from_rfc4514_string("CN=node"),
    x509.Name.from_rfc4514_string("CN=client,OU=Test,O=Example\\, Inc.,L=Bern,ST=BE,C=CH"),
    x509.Name.from_rfc4514_string("UID=jo,CN=Jo,DC=example,DC=com"),
    x509.Name.from_rfc4514_string("CN=a+OU=b,O=c"),
    x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, ' a=b "c" <d>; e#f\\+ ')]),
    x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "  two  ")]),
    x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Zürich 東京")]),
    x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x"), EMAIL]),
    x509.Name(
        [x509.NameAttribute(x509.NameOID.STREET_ADDRESS, "s"), x509.NameAttribute(x509.NameOID.TITLE, "t" * 200)]
    ),
    x509.Name([x509.NameAttribute(x509.NameOID.SERIAL_NUMBER, "42"), x509.NameAttribute(x509.NameOID.SURNAME, "s")]),
]

PROGRAM = """
import java.nio.file.*; import java.util.*; import javax.security.auth.x500.X500Principal;
public class Names { public static void main(String[] a) throws Exception {
  for (String file : a) { X500Principal name = new X500Principal(Files.readAllBytes(Paths.get(file)));
    byte[] out = name.getName().getBytes("UTF-8");
    System.out.write(out); System.out.write('\\n'); } System.out.flush(); } }
"""


@pytest.mark.skipif(JAVA is None, reason="needs Java")
def test_names_equal_those_of_java(tmp_path: Path) -> None:
    source = tmp_path / "Names.java"
    source.write_text(PROGRAM)
    files = []
    for number, name in enumerate(NAMES):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(name.public_bytes())
    done = subprocess.run([str(JAVA), str(source), *map(str, files)], capture_output=True, timeout=120, check=True)
    assert [distinguished_name(name) for name in NAMES] == done.stdout.decode().splitlines()


def test_the_most_specific_part_is_first() -> None:
    assert distinguished_name(NAMES[1]) == "CN=client,OU=Test,O=Example\\, Inc.,L=Bern,ST=BE,C=CH"


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),O=.*$/$1/", "CN=a,O=b", "a"),
        ("RULE:^CN=(.*?),O=.*$/$1/", "CN=a", None),
        ("RULE:^CN=(.*?),O=.*$/$1/,DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*?),O=(.*?)$/$1@$2/L", "CN=Ann,O=Example", "ann@example"),
        ("RULE:^CN=(.*?)$/$1/U", "CN=straße", "STRASSE"),
        ("RULE:^cn=(.*)$/$1/ , RULE:^CN=([a-z]+)$/x-$1/", "CN=ann", "x-ann"),
        (r"RULE:^CN=(a\/b)$/$1/", "CN=a/b", "a/b"),
        ("RULE:^CN=(.*)$/$2/", "CN=ann", "$2"),
        ("RULE:^CN=(.*)$/$10/", "CN=ann", "ann0"),
        (r"RULE:^CN=(?<name>.*)$/\$$1/", "CN=ann", "$ann"),
        ("RULE:CN=(.*)/$1/,DEFAULT", "CN=ann", "ann"),
        ("RULE:N=(.*)/$1/", "CN=ann", None),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_applies(rules: str, subject: str, expected: str | None) -> None:
    assert PrincipalMapper(rules).name(subject) == expected


@pytest.mark.parametrize(
    "rules", ["RULE", "RULE:a/b", "DEFAULT RULE:a/b/", "RULE:(/x/", r"RULE:\p{L}/x/", "RULE:a/b/X", "default"]
)
def test_unparsable_rules_are_refused_with_their_key(rules: str) -> None:
    with pytest.raises(TlsConfigError, match=r"^ssl.principal.mapping.rules: "):
        PrincipalMapper(rules)


def test_the_subject_of_a_certificate_is_its_name(tmp_path: Path) -> None:
    from kraft_protocol.tls.names import subject_of

    assert subject_of(Authority(tmp_path).issue("CN=jo,O=Example").der) == "CN=jo,O=Example"
