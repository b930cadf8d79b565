"""Kafka's client properties to the security of a client (`kraft_protocol.client.properties`)."""

from __future__ import annotations

import base64
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest

from kraft_protocol.client.properties import (
    KEYS,
    ClientConfigError,
    client_security,
    read_properties,
    security_of_file,
)
from kraft_protocol.sasl.jaas import written
from kraft_protocol.sasl.properties import MODULES
from kraft_protocol.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest, SaslHandshakeResponse
from tests.certificates import PASSWORD, Authority, Issued
from tests.peer import require_peer

SECRET = "planted-secret"


def jaas(mechanism: str, **options: str) -> str:
    return written(MODULES[mechanism], options)


PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": jaas("PLAIN", username="ann", password=SECRET),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def issued(authority: Authority) -> Issued:
    return authority.issue("CN=client,O=Example")


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ClientConfigError) as caught:
        client_security(properties, "admin.properties")
    assert str(caught.value).startswith("admin.properties: ")
    assert SECRET not in str(caught.value) and SECRET not in repr(caught.value.__context__)
    return str(caught.value).removeprefix("admin.properties: ")


def test_without_keys_of_security_a_client_is_plain() -> None:
    found = client_security({"bootstrap.servers": "a:1", "client.id": "x", "acks": "all"})
    assert (found.protocol, found.tls, found.new_login("h")) == ("PLAINTEXT", None, None)


def test_a_user_with_a_password_logs_in() -> None:
    security = client_security({**PLAIN, "security.protocol": "sasl_plaintext "})
    assert security.tls is None
    login = security.new_login("host")
    assert login is not None
    assert login.request() == SaslHandshakeRequest("PLAIN")
    login.answered(SaslHandshakeResponse(0, ["PLAIN"]))
    request = login.request()
    assert isinstance(request, SaslAuthenticateRequest) and request.auth_bytes == f"\0ann\0{SECRET}".encode()
    assert SECRET not in repr(security)


def test_all_mechanisms_are_made_from_their_keys() -> None:
    for mechanism, more, options in (
        ("SCRAM-SHA-256", {}, {"username": "ann", "password": SECRET}),
        ("SCRAM-SHA-512", {}, {"username": "id", "password": SECRET, "tokenauth": "true"}),
        ("OAUTHBEARER", {}, {"unsecuredLoginStringClaim_sub": "ann"}),
        (
            "OAUTHBEARER",
            {
                "sasl.oauthbearer.token.endpoint.url": "https://localhost:1/token",
                "sasl.oauthbearer.client.credentials.client.id": "ann",
                "sasl.oauthbearer.client.credentials.client.secret": SECRET,
                "sasl.login.callback.handler.class": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
            },
            {},
        ),
    ):
        properties = {**PLAIN, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, **options), **more}
        assert client_security(properties).new_login("host") is not None


def test_stores_are_read_from_files_and_texts(issued: Issued, authority: Authority) -> None:
    files = client_security({"security.protocol": "SSL", **issued.stores()})
    texts = client_security(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": issued.key_text,
            "ssl.keystore.certificate.chain": issued.chain_text,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.path.read_text(),
        }
    )
    binary = client_security(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(issued.p12),
            "ssl.keystore.password": PASSWORD,
        }
    )
    for security in (files, texts, binary):
        assert security.tls is not None and security.tls.client_context.check_hostname
    assert files.tls is not None
    assert files.tls.client_context is files.tls.client_context


def test_a_changed_file_counts_for_new_connections_unless_it_is_damaged(tmp_path: Path, authority: Authority) -> None:
    first, second = authority.issue("CN=a,O=Example"), authority.issue("CN=b,O=Example")
    path = tmp_path / "store.pem"
    path.write_text(first.key_text + first.chain_text)
    security = client_security(
        {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    )
    assert security.tls is not None
    before = security.tls.client_context
    path.write_text(second.key_text + second.chain_text + "\n")
    after = security.tls.client_context
    assert after is not before
    path.write_text("damaged")
    assert security.tls.client_context is after
    path.unlink()
    assert security.tls.client_context is after


def test_an_unsecured_token_is_not_issued_in_the_future_of_a_coarser_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from kraft_protocol.sasl.oauthbearer import read_segment

    monkeypatch.setattr("time.time", lambda: 1_000.9999)
    unsecured = jaas("OAUTHBEARER", unsecuredLoginStringClaim_sub="dora")
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": unsecured}
    login = client_security(given).new_login("host")
    assert login is not None
    login.request()
    login.answered(SaslHandshakeResponse(0, ["OAUTHBEARER"]))
    token = bytes(login.request().auth_bytes).split(b"Bearer ")[1].split(b"\x01")[0].decode()
    assert read_segment(token.split(".")[1])["iat"] <= 1_000.999


def test_another_process_makes_the_same_security(issued: Issued) -> None:
    security = client_security({**PLAIN, "security.protocol": "SASL_SSL", **issued.stores()})
    again = pickle.loads(pickle.dumps(security))
    assert (again.protocol, again.tls is None) == ("SASL_SSL", False)
    assert again.new_login("host").request() == SaslHandshakeRequest("PLAIN")
    assert pickle.loads(pickle.dumps(client_security({}))).protocol == "PLAINTEXT"
    assert pickle.loads(pickle.dumps(security)) is again  # so that tasks of a process share a token


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"security.protocol": "TLS"}, ["security.protocol", "'TLS'", "SASL_SSL"]),
        ({"security.protocol": "PLAINTEXT"}, ["has no effect with security.protocol=PLAINTEXT", "SASL_PLAINTEXT"]),
        ({"security.protocol": "SSL"}, ["sasl.jaas.config has no effect", "set SASL_SSL"]),
        ({"securty.protocol": "SSL"}, ["securty.protocol is not a key", "is security.protocol meant?"]),
        ({"sasl.jass.config": SECRET}, ["sasl.jass.config is not a key", "is sasl.jaas.config meant?"]),
        ({"ssl.client.auth": "none"}, ["ssl.client.auth is not a key of Kafka's clients"]),
        ({"ssl.truststore.location": "/x"}, ["ssl.truststore.location has no effect", "set SASL_SSL"]),
        ({"sasl.mechanism": "DIGEST-MD5"}, ["sasl.mechanism: 'DIGEST-MD5' is not one of PLAIN"]),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, ["sasl.jaas.config: the login module of SCRAM-SHA-256 is"]),
        ({"sasl.jaas.config": ""}, ["sasl.jaas.config is missing"]),
        ({"sasl.jaas.config": f"x required password={SECRET}"}, ["sasl.jaas.config: ", "semicolon"]),
        ({"sasl.jaas.config": jaas("PLAIN", username="ann")}, ["sasl.jaas.config: PLAIN", "no password"]),
        ({"sasl.login.class": "org.example.Mine"}, ["sasl.login.class is not supported", "remove the key"]),
        ({"sasl.login.read.timeout.ms": "soon"}, ["sasl.login.read.timeout.ms: 'soon' is not a number"]),
        ({"sasl.login.refresh.window.factor": "x"}, ["sasl.login.refresh.window.factor: 'x' is not a number"]),
        ({"config.providers": "file"}, ["config.providers.file.class is missing"]),
        (
            {"security.protocol": "SASL_SSL", "ssl.truststore.location": "/nowhere", "ssl.truststore.type": "PEM"},
            ["ssl.truststore.location: cannot read /nowhere"],
        ),
        (
            {"security.protocol": "SASL_SSL", "ssl.keystore.password": SECRET},
            ["ssl.keystore.location: is missing, but ssl.keystore.password is given"],
        ),
        ({"security.protocol": "SASL_SSL", "ssl.enabled.protocols": "TLSv1.1"}, ["ssl.enabled.protocols", "TLSv1.1"]),
    ],
)
def test_a_refusal_names_the_file_and_the_key_and_no_secret(change: dict[str, str], words: list[str]) -> None:
    message = refusal({**PLAIN, **change})
    for word in words:
        assert word in message


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(
        b"# a comment\n! another\n security.protocol : SASL_\\\n   PLAINTEXT\nsasl.mechanism=PLAIN\n"
        b"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        b'  username="\\u0061nn" \\\n  password="caf\xe9";\r\n'
    )
    assert read_properties(path)["security.protocol"] == "SASL_PLAINTEXT"
    login = security_of_file(path).new_login("h")
    assert login is not None
    login.request()
    login.answered(SaslHandshakeResponse(0, ["PLAIN"]))
    assert login.request().auth_bytes == "\0ann\0café".encode()
    path.write_text("a=\\u00zz")
    with pytest.raises(ClientConfigError, match=r"client.properties: line 1: "):
        security_of_file(path)


def test_the_keys_are_those_of_apache_kafkas_clients(tmp_path: Path) -> None:
    jars = require_peer()
    source = tmp_path / "Keys.java"
    source.write_text(
        "import org.apache.kafka.clients.admin.AdminClientConfig;\n"
        "public class Keys { public static void main(String[] a) {"
        " AdminClientConfig.configNames().forEach(System.out::println); } }\n"
    )
    java = shutil.which("java")
    assert java is not None
    done = subprocess.run([java, "-cp", f"{jars}/*", str(source)], capture_output=True, text=True, check=True)
    theirs = {key for key in done.stdout.split() if key.startswith(("security.", "sasl.", "ssl."))}
    assert theirs == KEYS


def test_basic_credentials_are_encoded_only_if_the_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from kraft_protocol.sasl import token_endpoint
    from kraft_protocol.sasl.oauthbearer import OAuthToken

    seen: list[tuple[str, str] | None] = []

    def fetch(url: str, form: object, *, basic: tuple[str, str] | None = None, **_: object) -> OAuthToken:
        seen.append(basic)
        return OAuthToken("h." + base64.urlsafe_b64encode(b'{"sub":"x"}').decode() + ".s", 1e12)

    monkeypatch.setattr(token_endpoint, "fetch", fetch)
    for encode in ("false", "true"):
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": jaas("OAUTHBEARER"),
            "sasl.oauthbearer.token.endpoint.url": "https://localhost:1/token",
            "sasl.oauthbearer.client.credentials.client.id": "ann",
            "sasl.oauthbearer.client.credentials.client.secret": "a:b+c",
            "sasl.oauthbearer.header.urlencode": encode,
        }
        login = client_security(properties).new_login("h")
        assert login is not None
        login.answered(SaslHandshakeResponse(0, ["OAUTHBEARER"]))
    assert seen == [("ann", "a:b+c"), ("ann", "a%3Ab%2Bc")]
