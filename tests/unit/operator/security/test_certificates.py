"""Certificates of the cluster's own authorities, judged by openssl."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kraft_operator.security.authorities import State
from kraft_operator.security.certificates import (
    Authority,
    CertificateError,
    bundle,
    check_authority,
    ends_at,
    is_issued_by,
    issue,
    key_of,
    names_in,
    new_authority,
    renewed,
)
from kraft_operator.security.client import OperatorTls, context_of
from kraft_operator.security.nodes import CLUSTER_TRUST, KEYS, chain_of, files_of
from kraft_protocol.tls.contexts import make_contexts
from kraft_protocol.tls.settings import SslSettings
from tests.peer import require_program

NOW = datetime.now(UTC).replace(microsecond=0)
NAMES = {"demo-1.demo-nodes.ns.svc", "localhost", "10.0.0.7", "::1"}


def openssl(*arguments: str, text: str = "") -> str:
    require_program("openssl")
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def verified(folder: Path, authority: str, chain: str, *more: str) -> str:
    (folder / "ca.pem").write_text(authority)
    (folder / "leaf.pem").write_text(chain)
    return openssl("verify", "-x509_strict", *more, "-CAfile", str(folder / "ca.pem"), str(folder / "leaf.pem"))


@pytest.mark.parametrize("purpose", ["sslserver", "sslclient"])
def test_openssl_accepts_a_node_by_each_of_its_names(tmp_path: Path, purpose: str) -> None:
    authority = new_authority("demo cluster CA", NOW, 30)
    leaf = issue(authority, {"CN": "node"}, NOW, 10, names=NAMES, server=True)

    for name in NAMES:
        by = "-verify_ip" if name in {"10.0.0.7", "::1"} else "-verify_hostname"
        assert "leaf.pem: OK" in verified(tmp_path, authority.certificate, leaf.chain, "-purpose", purpose, by, name)
    assert "mismatch" in verified(tmp_path, authority.certificate, leaf.chain, "-verify_hostname", "other.svc")


def test_openssl_refuses_a_user_as_a_server(tmp_path: Path) -> None:
    authority = new_authority("clients CA", NOW, 30)
    leaf = issue(authority, {"CN": "ann"}, NOW, 10)

    assert "OK" in verified(tmp_path, authority.certificate, leaf.chain, "-purpose", "sslclient")
    assert "OK" not in verified(tmp_path, authority.certificate, leaf.chain, "-purpose", "sslserver")


def test_openssl_refuses_a_leaf_as_an_authority(tmp_path: Path) -> None:
    authority = new_authority("clients CA", NOW, 30)
    leaf = issue(authority, {"CN": "ann"}, NOW, 10)
    forged = issue(Authority(leaf.chain, leaf.key), {"CN": "bob"}, NOW, 10)

    (tmp_path / "between.pem").write_text(leaf.chain)
    more = ("-untrusted", str(tmp_path / "between.pem"))
    assert "OK" not in verified(tmp_path, authority.certificate, forged.chain, *more)
    with pytest.raises(CertificateError, match="CA:TRUE"):
        check_authority(Authority(leaf.chain, leaf.key))


def test_the_subject_begins_with_the_common_name_as_kafka_prints_it() -> None:
    leaf = issue(new_authority("x", NOW, 30), {"CN": "node", "OU": "demo", "O": "ns"}, NOW, 10)

    assert "subject=CN=node,OU=demo,O=ns" in openssl(
        "x509", "-noout", "-subject", "-nameopt", "rfc2253", text=leaf.chain
    )


def test_certificates_of_a_renewed_authority_stay_valid_in_both_directions(tmp_path: Path) -> None:
    old = new_authority("x", NOW - timedelta(days=9), 10)
    new = renewed(old, NOW, 100)

    before, after = (issue(one, {"CN": "node"}, NOW, 10, server=True) for one in (old, new))
    assert key_of(old.certificate) == key_of(new.certificate)
    assert ends_at(new.certificate) == NOW + timedelta(days=100)
    assert "OK" in verified(tmp_path, new.certificate, before.chain)
    assert "OK" in verified(tmp_path, old.certificate, after.chain)


def test_a_leaf_does_not_outlive_its_authority() -> None:
    authority = new_authority("x", NOW, 3)

    assert ends_at(issue(authority, {"CN": "node"}, NOW, 365).chain) == ends_at(authority.certificate)


def test_two_authorities_of_one_name_differ_in_key_and_subject(tmp_path: Path) -> None:
    one, other = (new_authority("x", NOW, 30) for _ in range(2))
    leaf = issue(one, {"CN": "node"}, NOW, 10)

    assert is_issued_by(leaf.chain, one.certificate)
    assert not is_issued_by(leaf.chain, other.certificate)
    assert "OK" not in verified(tmp_path, other.certificate, leaf.chain)
    assert "OK" in verified(tmp_path, bundle(other.certificate, one.certificate), leaf.chain)


@pytest.mark.parametrize("kind", ["rsa:2048", "ec", "ed25519"])
def test_an_authority_of_the_user_issues_with_its_own_kind_of_key(tmp_path: Path, kind: str) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "own.pem"
    how = ["-newkey", kind, *(["-pkeyopt", "ec_paramgen_curve:P-384"] if kind == "ec" else [])]
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "keyUsage=critical,keyCertSign"]
    openssl("req", "-x509", *how, "-nodes", *files, "-subj", "/CN=Corp", "-days", "9")
    own = Authority(certificate.read_text(), key.read_text())

    check_authority(own)
    leaf = issue(own, {"CN": "node"}, NOW, 30, names={"a.example"}, server=True)
    assert "OK" in verified(tmp_path, own.certificate, leaf.chain, "-purpose", "sslserver")
    assert leaf.key.startswith("-----BEGIN PRIVATE KEY-----")


def test_a_certificate_with_the_key_of_another_is_refused() -> None:
    one, other = (new_authority("x", NOW, 30) for _ in range(2))

    with pytest.raises(CertificateError, match="does not belong"):
        check_authority(Authority(one.certificate, other.key))


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_damaged_text_is_named(text: str) -> None:
    with pytest.raises(CertificateError, match="PEM"):
        key_of(text)


def test_names_are_read_as_they_were_given() -> None:
    leaf = issue(new_authority("x", NOW, 30), {"CN": "node"}, NOW, 10, names=NAMES)

    assert names_in(leaf.chain) == NAMES
    assert names_in(issue(new_authority("x", NOW, 30), {"CN": "ann"}, NOW, 10).chain) == frozenset()


def test_a_node_with_names_in_any_notation_keeps_its_certificate() -> None:
    cluster, clients = (State(new_authority(name, NOW, 1000)) for name in ("cluster CA", "clients CA"))
    names = {"2001:DB8:0:0::1", "Broker.example", "b\u00fccher.example"}
    files, why = files_of(None, {"CN": "node"}, names, cluster, clients, NOW)
    assert why
    assert names_in(chain_of(files["node.pem"])) == {"2001:db8::1", "Broker.example", "xn--bcher-kva.example"}
    assert files_of(files, {"CN": "node"}, names, cluster, clients, NOW) == (files, ""), "not issued in each pass"


def test_keys_do_not_appear_in_texts_of_objects() -> None:
    authority = new_authority("x", NOW, 30)

    assert "PRIVATE" not in repr(authority) + repr(issue(authority, {"CN": "ann"}, NOW, 1))


def test_an_expired_authority_issues_nothing() -> None:
    with pytest.raises(CertificateError, match="has expired"):
        issue(new_authority("x", NOW - timedelta(days=5), 3), {"CN": "node"}, NOW, 10)


def foreign(name: str, root: Authority | None = None) -> Authority:
    """An authority of others: a root, or one that `root` has issued. Its text has its key and `root`'s, too."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, issuer = key, subject
    if root is not None:
        signer = serialization.load_pem_private_key(root.key.encode(), None)  # type: ignore[assignment]
        issuer = x509.load_pem_x509_certificate(root.certificate.encode()).subject
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=100))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, form, none).decode()
    text = made.public_bytes(serialization.Encoding.PEM).decode()
    return Authority(text + secret + ("" if root is None else root.certificate), secret)


def test_a_key_beside_the_certificates_of_an_authority_is_in_no_chain() -> None:
    """The chain of a user's certificate had it: `ca.crt` of an intermediate authority was copied as it was."""
    leaf = issue(foreign("intermediate", foreign("root")), {"CN": "ann"}, NOW, 10)
    assert leaf.chain.count("BEGIN CERTIFICATE") == 3
    assert "PRIVATE" not in leaf.chain


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Raises ssl.SSLError if one side refuses the other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server, server_hostname="localhost")]
    sides.append(server.wrap_bio(to_server, to_client, server_side=True))
    for turn in range(8):
        with contextlib.suppress(ssl.SSLWantReadError):
            sides[turn % 2].do_handshake()
    with contextlib.suppress(ssl.SSLWantReadError):
        sides[0].read()


def test_nodes_and_the_operator_trust_no_other_authority_below_the_same_root() -> None:
    """They trusted the issuers in `ca.crt`, so any authority below the root could make a node or a super user."""
    root = foreign("root")
    ours, theirs = foreign("ours", root), foreign("theirs", root)
    files, _ = files_of(None, {"CN": "node"}, {"localhost"}, State(ours), State(new_authority("c", NOW, 9)), NOW)
    forged = issue(theirs, {"CN": "node"}, NOW, 10, names={"localhost"}, server=True)

    def server(pem: str) -> ssl.SSLContext:
        key, mark, chain = pem.partition("-----BEGIN CERTIFICATE-----")
        return make_contexts(
            SslSettings.parse(
                {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.key": key,
                    "ssl.keystore.certificate.chain": mark + chain,
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.certificates": files[CLUSTER_TRUST],
                    "ssl.client.auth": "required",
                }
            )
        ).server

    operator = OperatorTls("demo", "ns")
    operator.use(State(ours), NOW)
    handshake(operator.client_context, server(files[KEYS]))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(operator.client_context, server(forged.pem))
    with pytest.raises(ssl.SSLError):
        handshake(context_of(forged, files[CLUSTER_TRUST], verifies_host=True), server(files[KEYS]))
