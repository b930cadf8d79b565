"""Key stores and trust stores in all formats of Kafka, and the errors of their keys (`kraft_protocol.tls`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kraft_protocol.tls.contexts import check_change, check_self, make_contexts, openssl_name
from kraft_protocol.tls.errors import TlsConfigError
from kraft_protocol.tls.jks import JksError, read_jks
from kraft_protocol.tls.settings import SslSettings
from tests.certificates import PASSWORD, Authority, Issued

KEYTOOL = shutil.which("keytool")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Issued:
    return authority.issue("CN=node,O=Example")


def accepted(texts: dict[str, str]) -> None:
    """The stores can be read, and a node with them can connect to itself, with its certificate."""
    contexts = make_contexts(SslSettings.parse({"ssl.client.auth": "required", **texts}))
    check_self(contexts)


def refusal(texts: dict[str, str]) -> str:
    with pytest.raises(TlsConfigError) as caught:
        make_contexts(SslSettings.parse(texts))
    return str(caught.value)


def test_pem_files_are_read(node: Issued) -> None:
    accepted(node.stores())


def test_inline_pem_is_read_also_on_one_line(node: Issued, authority: Authority) -> None:
    for join in ("\n", " ", ""):
        accepted(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": join.join(node.key_text.splitlines()),
                "ssl.keystore.certificate.chain": join.join(node.chain_text.splitlines()),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": join.join(authority.path.read_text().splitlines()),
            }
        )


def test_a_password_of_a_pem_key_that_is_not_encrypted_is_refused(node: Issued) -> None:
    texts = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(node.pem), "ssl.key.password": "hunter2"}
    wrong = refusal(texts)
    assert wrong.startswith("ssl.key.password: is given") and "hunter2" not in wrong


def test_an_encrypted_pem_key_needs_its_password(node: Issued, tmp_path: Path) -> None:
    path = tmp_path / "encrypted.pem"
    path.write_text(node.encrypted_key_text() + node.chain_text)
    texts = {**node.stores(), "ssl.keystore.location": str(path)}
    accepted({**texts, "ssl.key.password": PASSWORD})
    assert refusal(texts).startswith("ssl.key.password: is missing")
    wrong = refusal({**texts, "ssl.key.password": "hunter2"})
    assert wrong.startswith("ssl.key.password: ") and "hunter2" not in wrong


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_under_either_name(node: Issued, kind: str) -> None:
    texts = {
        **node.stores(),
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(node.p12),
        "ssl.keystore.password": PASSWORD,
    }
    accepted(texts)
    wrong = refusal({**texts, "ssl.keystore.password": "hunter2"})
    assert "check the password" in wrong and "hunter2" not in wrong


@pytest.mark.skipif(KEYTOOL is None, reason="needs keytool of Java")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_keytool_are_read(node: Issued, authority: Authority, tmp_path: Path, kind: str) -> None:
    keys, trust = tmp_path / "keys", tmp_path / "trust"

    def keytool(*arguments: str) -> None:
        subprocess.run([str(KEYTOOL), *arguments, "-noprompt"], check=True, capture_output=True, timeout=60)

    keytool(
        "-importkeystore", "-srckeystore", str(node.p12), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD,
        "-destkeystore", str(keys), "-deststoretype", kind, "-deststorepass", PASSWORD, "-destkeypass", PASSWORD,
    )  # fmt: skip
    keytool("-import", "-file", str(authority.path), "-alias", "a", "-keystore", str(trust), "-storetype", kind,
            "-storepass", PASSWORD)  # fmt: skip
    texts = {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
    }
    accepted(texts)
    assert "password" in refusal({**texts, "ssl.keystore.password": "hunter2"})
    if kind == "JKS":
        accepted({key: value for key, value in texts.items() if key != "ssl.truststore.password"})
        data = keys.read_bytes()
        for damaged in (data[:-1], data[: len(data) // 2], data[:30] + b"\xff" * 8 + data[38:], b"", data[:4]):
            with pytest.raises(JksError):
                read_jks(damaged, PASSWORD, PASSWORD)


def test_rejected_values_name_their_key(node: Issued, authority: Authority, tmp_path: Path) -> None:
    good = node.stores()
    other = authority.issue("CN=other")
    legacy = tmp_path / "legacy.pem"
    legacy.write_text(node.key_text.replace("PRIVATE KEY", "EC PRIVATE KEY") + node.chain_text)
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(node.key_text + other.chain_text)
    bare = tmp_path / "bare.pem"
    bare.write_text(node.key_text)
    cases = {
        "ssl.keystore.location: cannot read": {"ssl.keystore.location": str(tmp_path / "missing.pem")},
        "ssl.keystore.location: EC PRIVATE KEY is not PKCS#8": {"ssl.keystore.location": str(legacy)},
        "ssl.keystore: the key kafka": {"ssl.keystore.location": str(mixed)},
        "ssl.keystore.location: PEM holds no certificate": {"ssl.keystore.location": str(bare)},
        "ssl.keystore.location: PEM must hold exactly one private key, not 0": {
            "ssl.keystore.location": str(authority.path)
        },
        "ssl.keystore.password: must not be given": {"ssl.keystore.password": "x"},
        "ssl.keystore.location: must not be given together": {
            "ssl.keystore.key": node.key_text,
            "ssl.keystore.certificate.chain": node.chain_text,
        },
        "ssl.truststore.location: ": {"ssl.truststore.location": str(node.key)},
        "ssl.truststore.type: 'BKS'": {"ssl.truststore.type": "BKS"},
        "ssl.client.auth: 'maybe'": {"ssl.client.auth": "maybe"},
        "ssl.enabled.protocols: TLSv1.1 is broken": {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
        "ssl.protocol: SSLv3 is broken": {"ssl.protocol": "SSLv3"},
        "ssl.enabled.protocols: ['TLSv1.3']": {"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"},
        "ssl.cipher.suites: RC4 is unknown": {"ssl.cipher.suites": "RC4"},
        "ssl.cipher.suites: OpenSSL supports none": {"ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA_EXTRA"},
        "ssl.cipher.suites: Python cannot choose": {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"},
        "ssl.endpoint.identification.algorithm: 'ldaps'": {"ssl.endpoint.identification.algorithm": "ldaps"},
        "ssl.provider: SunJSSE needs a JVM": {"ssl.provider": "SunJSSE"},
        "ssl.engine.factory.class: my.Factory needs a JVM": {"ssl.engine.factory.class": "my.Factory"},
        "ssl.allow.dn.changes: 'perhaps'": {"ssl.allow.dn.changes": "perhaps"},
    }
    for expected, change in cases.items():
        assert refusal({**good, **change}).startswith(expected)


def test_values_that_equal_openssls_behaviour_are_accepted(node: Issued) -> None:
    accepted({**node.stores(), "ssl.keymanager.algorithm": "SunX509", "ssl.trustmanager.algorithm": "PKIX"})


def test_a_certificate_of_another_authority_fails_the_handshake_with_itself(node: Issued, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    contexts = make_contexts(SslSettings.parse(node.stores(trust=stranger)))
    with pytest.raises(TlsConfigError, match=r"^ssl.keystore: nodes with this key store .* not trusted"):
        check_self(contexts)


def test_suites_are_named_as_openssl_names_them() -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    lines = subprocess.run([openssl, "ciphers", "-stdname", "ALL"], capture_output=True, text=True, check=True).stdout
    checked = 0
    for line in lines.splitlines():
        iana, _, name, version, *_ = line.split()
        exchange = iana.partition("_WITH_")[0]
        if exchange in ("TLS_ECDHE_RSA", "TLS_ECDHE_ECDSA", "TLS_DHE_RSA", "TLS_RSA") and "TLSv1.2" in version:
            if any(word in iana for word in ("CAMELLIA", "ARIA")):
                continue
            assert openssl_name(iana) == name
            checked += 1
    assert checked > 20


def test_only_suites_of_one_version_limit_the_versions(node: Issued) -> None:
    older = {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    contexts = make_contexts(SslSettings.parse({**node.stores(), **older}))
    session = contexts.server_session()
    assert session is not None and contexts.server.maximum_version.name == "TLSv1_2"
    assert [c["name"] for c in contexts.server.get_ciphers() if c["protocol"] != "TLSv1.3"] == [
        "ECDHE-ECDSA-AES128-GCM-SHA256"
    ]


# Exchanges on a running node


def contexts_of(issued: Issued, **more: str) -> object:
    changes = {"ssl." + key.replace("_", "."): value for key, value in more.items()}
    return make_contexts(SslSettings.parse({**issued.stores(), **changes}))


def test_a_renewed_certificate_with_the_same_names_is_accepted(authority: Authority) -> None:
    old, new = authority.issue("CN=n", file="old"), authority.issue("CN=n", file="new")
    check_change(contexts_of(old), contexts_of(new))  # type: ignore[arg-type]


def test_another_distinguished_name_needs_permission(authority: Authority) -> None:
    old, new = authority.issue("CN=n", file="dn1"), authority.issue("CN=m", file="dn2")
    with pytest.raises(TlsConfigError, match=r"distinguished name changes from CN=n to CN=m"):
        check_change(contexts_of(old), contexts_of(new))  # type: ignore[arg-type]
    check_change(contexts_of(old), contexts_of(new, allow_dn_changes="true"))  # type: ignore[arg-type]


def test_missing_alternative_names_need_permission(authority: Authority) -> None:
    old = authority.issue("CN=n", ("localhost", "127.0.0.1"), file="san1")
    new = authority.issue("CN=n", ("localhost", "other"), file="san2")
    with pytest.raises(TlsConfigError, match=r"alternative names 127.0.0.1 are missing"):
        check_change(contexts_of(old), contexts_of(new))  # type: ignore[arg-type]
    check_change(contexts_of(old), contexts_of(new, allow_san_changes="true"))  # type: ignore[arg-type]


def test_stores_are_neither_added_nor_removed(authority: Authority) -> None:
    node = authority.issue("CN=n", file="both")
    whole = make_contexts(SslSettings.parse(node.stores()))
    no_keys = make_contexts(SslSettings.parse({k: v for k, v in node.stores().items() if "keystore" not in k}))
    no_trust = make_contexts(SslSettings.parse({k: v for k, v in node.stores().items() if "truststore" not in k}))
    for old, new in ((whole, no_keys), (no_keys, whole)):
        with pytest.raises(TlsConfigError, match=r"^ssl.keystore: a key store cannot be added"):
            check_change(old, new)
    with pytest.raises(TlsConfigError, match=r"^ssl.truststore: a trust store cannot be added"):
        check_change(no_trust, whole)
