"""What clients of a listener trust, in each form of their configuration."""

from __future__ import annotations

import json

import pytest

from kraft_operator.specs.client_config import ClientAccess, secret_data, trust_at

PUBLIC = {"ca.crt": "ours", "outside.ca.crt": "theirs", "public.ca.crt": ""}


@pytest.mark.parametrize(
    ("listener", "trusted"), [("inside", "ours"), ("outside", "theirs"), ("public", ""), ("side", "ours")]
)
def test_a_listener_with_its_own_certificate_has_its_own_trust(listener: str, trusted: str) -> None:
    found = trust_at(PUBLIC, listener)
    assert found.trusted == trusted
    assert found.trusts_system == (listener == "public")


@pytest.mark.parametrize("mechanism", ["", "SCRAM-SHA-512"])
def test_a_certificate_of_a_public_authority_needs_no_trusted_file(mechanism: str) -> None:
    data = secret_data(ClientAccess("h:1", "ann", mechanism, "secret", trusts_system=True), "/etc/user")
    protocol = "SASL_SSL" if mechanism else "SSL"
    assert "ca.crt" not in data
    assert f"security.protocol={protocol}\n" in data["client.properties"]
    assert f"security.protocol={protocol}\n" in data["librdkafka.properties"]
    assert json.loads(data["python.json"])["security.protocol"] == protocol
    for name in ("client.properties", "librdkafka.properties", "python.json"):
        assert "truststore" not in data[name] and "ssl.ca" not in data[name]
