"""Certificates of listeners from Secrets: what is taken, what brokers keep, and what clients trust. Pure."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization

from kraft_operator.security.certificates import key_of
from kraft_operator.security.listeners import UnusableError, files_for, parsed, trust_for, uncovered
from kraft_operator.security.names import KEYS, listener_file
from tests.unit.operator.security.listener_files import NOW, certificate, public_authority

AUTHORITY = public_authority()
HOSTS = ("*.kafka.example.com", "kafka.example.com")
NEEDED = [frozenset({"broker-1.kafka.example.com"}), frozenset({"kafka.example.com"})]
FILE = listener_file("outside")


def refused(data: dict[str, str]) -> tuple[str, str]:
    with pytest.raises(UnusableError) as found:
        parsed(data, NOW)
    assert "PRIVATE" not in str(found.value)
    return found.value.reason, str(found.value)


def test_a_certificate_is_read_with_its_chain_and_what_clients_trust() -> None:
    found = parsed(certificate(AUTHORITY, HOSTS), NOW)
    assert found.pem.startswith("-----BEGIN PRIVATE KEY-----"), "the form that nodes read"
    assert key_of(found.trusted) == key_of(AUTHORITY.certificate)
    assert parsed(certificate(AUTHORITY, HOSTS, trusted=""), NOW).trusted == ""


def test_a_key_in_another_form_is_converted_and_a_foreign_key_is_refused() -> None:
    data = certificate(AUTHORITY, HOSTS)
    key = serialization.load_pem_private_key(data["tls.key"].encode(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()
    assert "BEGIN EC PRIVATE KEY" in text
    assert "BEGIN PRIVATE KEY" in parsed({**data, "tls.key": text}, NOW).pem, "nodes read PKCS#8"
    assert "does not belong" in refused({**data, "tls.key": certificate(AUTHORITY, HOSTS)["tls.key"]})[1]


def test_a_key_among_certificates_never_reaches_what_clients_read() -> None:
    data = certificate(AUTHORITY, HOSTS, trusted=AUTHORITY.key + AUTHORITY.certificate)
    found = parsed({**data, "tls.crt": data["tls.crt"] + AUTHORITY.key}, NOW)
    assert "PRIVATE" not in found.trusted + found.chain
    assert found.pem.count("PRIVATE KEY") == 2, "begin and end of one key"


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
def test_a_missing_or_damaged_entry_is_named(key: str) -> None:
    data = certificate(AUTHORITY, HOSTS)
    assert key in refused({**data, key: ""})[1]
    assert refused({**data, key: "damaged"})[0] == "ListenerCertificateNotValid"


def test_a_certificate_that_no_client_could_verify_is_refused() -> None:
    other = public_authority("other")
    assert "ca.crt does not have the authority" in refused(certificate(AUTHORITY, HOSTS, trusted=other.certificate))[1]
    assert "serverAuth" in refused(certificate(AUTHORITY, HOSTS, server=False))[1]
    both = other.certificate + AUTHORITY.certificate
    assert parsed(certificate(AUTHORITY, HOSTS, trusted=both), NOW).trusted.count("BEGIN") == 2


def test_an_expired_certificate_and_one_of_the_future_are_refused() -> None:
    reason, why = refused(certificate(AUTHORITY, HOSTS, begins=NOW - timedelta(days=30), days=20))
    assert reason == "ListenerCertificateExpired"
    assert f"{NOW - timedelta(days=10):%Y-%m-%d}" in why
    reason, why = refused(certificate(AUTHORITY, HOSTS, begins=NOW + timedelta(days=1), days=20))
    assert (reason, "not valid before" in why) == ("ListenerCertificateNotValid", True)


def test_names_are_covered_by_wildcards_of_one_label_and_by_addresses() -> None:
    chain = parsed(certificate(AUTHORITY, [*HOSTS, "10.0.0.1"]), NOW).chain
    assert uncovered(chain, NEEDED) == []
    assert uncovered(chain, [frozenset({"Broker-7.KAFKA.example.com"})]) == []
    assert uncovered(chain, [frozenset({"10.0.0.1", "lb.example.com"})]) == []
    assert uncovered(chain, [frozenset({"a.b.kafka.example.com"}), frozenset({"10.0.0.2"})]) == [
        "10.0.0.2",
        "a.b.kafka.example.com",
    ]
    assert uncovered(chain, [frozenset()]) == [], "an address that is not known yet"


def test_a_listener_without_a_usable_certificate_has_that_of_the_node() -> None:
    found = files_for({}, "node", {"outside": None}, {"outside": NEEDED}, (), NOW)
    assert (found.files, found.taken) == ({FILE: "node"}, frozenset())
    before = {KEYS: "node", FILE: "node"}
    found = files_for(before, "node of a new authority", {"outside": None}, {}, (), NOW)
    assert found.files == {FILE: "node of a new authority"}, "it follows the node's certificate"


def test_the_last_good_certificate_stays_if_the_secret_is_lost() -> None:
    good = parsed(certificate(AUTHORITY, HOSTS), NOW)
    before = {KEYS: "node", FILE: good.pem}
    assert files_for(before, "node", {"outside": None}, {"outside": NEEDED}, (), NOW).files == {FILE: good.pem}
    trust = {"ca.crt": "ours", "outside.ca.crt": good.trusted}
    assert trust_for(trust, {"outside": None}, (), ()) == {"outside.ca.crt": good.trusted}
    assert trust_for({"ca.crt": "ours"}, {"outside": None}, (), ()) == {}, "clients trust the node's certificate"


def test_a_certificate_without_a_needed_name_never_replaces_one_that_has_all() -> None:
    good, poor = parsed(certificate(AUTHORITY, HOSTS), NOW), parsed(certificate(AUTHORITY, HOSTS[1:]), NOW)
    kept = files_for({KEYS: "node", FILE: good.pem}, "node", {"outside": poor}, {"outside": NEEDED}, (), NOW)
    assert (kept.files, kept.taken) == ({FILE: good.pem}, frozenset())
    assert kept.lacking == {"outside": ["broker-1.kafka.example.com"]}
    late = NOW + timedelta(days=91)
    assert files_for({FILE: good.pem}, "node", {"outside": poor}, {"outside": NEEDED}, (), late).files == {
        FILE: poor.pem
    }, "the former one has expired"
    assert files_for({FILE: "node", KEYS: "node"}, "node", {"outside": poor}, {"outside": NEEDED}, (), NOW).taken == {
        "outside"
    }, "better than that of the node"


def test_a_file_stays_while_a_process_may_read_it() -> None:
    good = parsed(certificate(AUTHORITY, HOSTS), NOW)
    before = {KEYS: "node", FILE: good.pem}
    assert files_for(before, "node", {}, {}, ("outside",), NOW).files == {FILE: good.pem}
    assert files_for(before, "node", {}, {}, (), NOW).files == {}
    assert files_for({KEYS: "node"}, "node", {}, {}, ("../never",), NOW).files == {}, "no process can read it"
    assert trust_for({"outside.ca.crt": "a"}, {}, (), ("outside",)) == {"outside.ca.crt": "a"}
    assert trust_for({"outside.ca.crt": "a"}, {}, (), ()) == {}
