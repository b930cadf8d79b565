"""Both halves of the mechanisms: vectors of the RFCs, our client against our server, and refusals."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.security.sasl.exchange import InvalidCredentials, PlainUsers, SaslRefused, ServerExchange
from kraft_node.security.sasl.oauthbearer import OauthBearer, UnsecuredTokens
from kraft_node.security.sasl.scram import KnownToken, ScramUsers
from kraft_protocol.sasl.client import Exchange, PlainCredentials, SaslError
from kraft_protocol.sasl.oauthbearer import OAuthToken as Bearer
from kraft_protocol.sasl.oauthbearer import unsecured_token
from kraft_protocol.sasl.scram import ALGORITHMS, NUMBERS, ScramCredentials, keys, salted_password
from kraft_protocol.sasl.token_endpoint import OauthCredentials, from_file, read_answer

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE_OF_SERVER = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r=rOprNGfwEbeRWgbNEkqO{NONCE_OF_SERVER},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{NONCE_OF_SERVER},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
"""The example of RFC 7677."""


def image_of(mechanism: str, password: str = "pencil", iterations: int = 4096, name: str = "user") -> Any:
    algorithm = ALGORITHMS[mechanism]
    stored, server = keys(algorithm, salted_password(algorithm, password, SALT, iterations))
    record = SimpleNamespace(salt=SALT, iterations=iterations, stored_key=stored, server_key=server)
    return SimpleNamespace(scram={(NUMBERS[mechanism], name): record}, tokens={})


def scram(mechanism: str = "SCRAM-SHA-256", **user: Any) -> ScramUsers:
    return ScramUsers(mechanism, image_of(mechanism, **user), lambda _: None, lambda count: bytes(range(count)))


def converse(client: Exchange, server: ServerExchange) -> None:
    """Exchange messages until the client is satisfied."""
    message: bytes | None = client.first()
    while message is not None:
        message = client.step(server.respond(message) or b"")


def test_the_client_computes_the_example_of_rfc_7677() -> None:
    nonce = base64.urlsafe_b64decode("rOprNGfwEbeRWgbNEkqO")
    exchange = ScramCredentials("SCRAM-SHA-256", "user", "pencil", lambda _: nonce).exchange("h")
    assert exchange.first() == FIRST
    assert exchange.step(SERVER_FIRST) == FINAL
    assert exchange.step(SERVER_FINAL) is None


def test_the_server_computes_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_node.security.sasl.scram.base64_of", _nonce_of_the_example())
    exchange = scram().exchange()
    assert exchange.respond(FIRST) == SERVER_FIRST
    assert exchange.respond(FINAL) == SERVER_FINAL
    assert exchange.identity == ("User:user", None, False)


def _nonce_of_the_example() -> Any:
    def encode(data: bytes) -> str:
        return NONCE_OF_SERVER if data == bytes(range(24)) else base64.b64encode(data).decode()

    return encode


@pytest.mark.parametrize("mechanism", sorted(ALGORITHMS))
@pytest.mark.parametrize("name", ["user", "a,b=c", "=2C", "ünï"])
def test_scram_admits_the_user_with_the_password(mechanism: str, name: str) -> None:
    server = scram(mechanism, name=name).exchange()
    converse(ScramCredentials(mechanism, name, "pencil", lambda n: b"7" * n).exchange("h"), server)
    assert server.identity == (f"User:{name}", None, False)


@pytest.mark.parametrize(
    ("username", "password", "user"),
    [("user", "pencils", {}), ("nobody", "pencil", {}), ("user", "pencil", {"iterations": 4095})],
)
def test_scram_refuses_without_saying_why(username: str, password: str, user: dict[str, Any]) -> None:
    server = scram(**user).exchange()
    client = ScramCredentials("SCRAM-SHA-256", username, password, lambda n: b"7" * n).exchange("h")
    with pytest.raises(InvalidCredentials):
        converse(client, server)
    assert server.identity is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"p=tls-unique,,n=user,r=x",
        b"y,,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,r=x",
        b"n,,n=user",
        b"\xff",
        b"n,,n=u,r=a b",
    ],
)
def test_malformed_first_messages_are_invalid_credentials(first: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        scram().exchange().respond(first)


@pytest.mark.parametrize(
    "final", [b"", b"c=biws", b"c=biws,r=%s,p=AAAA", b"c=biws,r=other,p=" + b"A" * 43 + b"=", b"p="]
)
def test_malformed_proofs_are_invalid_credentials(final: bytes) -> None:
    exchange = scram().exchange()
    first = exchange.respond(FIRST) or b""
    with pytest.raises(InvalidCredentials):
        exchange.respond(final.replace(b"%s", first.split(b",")[0][2:]))
    assert exchange.identity is None


def test_a_server_without_the_password_is_refused_by_the_client() -> None:
    exchange = ScramCredentials("SCRAM-SHA-256", "user", "pencil", lambda n: b"7" * n).exchange("h")
    server = scram().exchange()
    exchange.step(server.respond(exchange.first()) or b"")
    with pytest.raises(SaslError, match="does not know the password"):
        exchange.step(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    "challenge", [b"r=other,s=AAAA,i=4096", b"x", b"r=%s1,s=AAAA,i=9999999999", b"r=%s1,s=AAAA,i=1"]
)
def test_hostile_challenges_are_refused_by_the_client(challenge: bytes) -> None:
    exchange = ScramCredentials("SCRAM-SHA-256", "user", "pencil", lambda n: b"7" * n).exchange("h")
    nonce = exchange.first().split(b"r=")[1]
    with pytest.raises(SaslError):
        exchange.step(challenge.replace(b"%s", nonce))


def test_a_token_authenticates_its_owner_until_it_expires() -> None:
    hmac = b"0123456789"
    users = ScramUsers(
        "SCRAM-SHA-512",
        SimpleNamespace(scram={}),  # type: ignore[arg-type]
        {"id": KnownToken("User:owner", hmac, 5000)}.get,
        lambda count: b"7" * count,
    )
    for _ in range(2):
        server = users.exchange()
        password = base64.b64encode(hmac).decode()
        client = ScramCredentials("SCRAM-SHA-512", "id", password, lambda n: b"8" * n, is_token=True)
        converse(client.exchange("h"), server)
        assert server.identity == ("User:owner", 5000, True)
    wrong = ScramCredentials("SCRAM-SHA-512", "id", "x", lambda n: b"8" * n, is_token=True)
    with pytest.raises(InvalidCredentials):
        converse(wrong.exchange("h"), users.exchange())


def test_only_the_first_login_by_a_token_is_slow() -> None:
    users = ScramUsers(
        "SCRAM-SHA-256",
        SimpleNamespace(scram={}),  # type: ignore[arg-type]
        {"id": KnownToken("User:owner", b"x", 5000)}.get,
        lambda count: b"7" * count,
    )
    first = users.exchange()
    assert not first.is_slow
    client = ScramCredentials("SCRAM-SHA-256", "id", "eA==", lambda n: b"8" * n, is_token=True).exchange("h")
    final = client.step(first.respond(client.first()) or b"")
    assert first.is_slow
    assert final is not None
    first.respond(final)
    second = users.exchange()
    second.respond(client.first())
    assert not second.is_slow


USERS = PlainUsers.of({"user_ann": "secret", "username": "me", "user_ünï": "pässwörd"})


@pytest.mark.parametrize(("name", "password"), [("ann", "secret"), ("ünï", "pässwörd")])
def test_plain_admits_the_user_with_the_password(name: str, password: str) -> None:
    server = USERS.exchange()
    converse(PlainCredentials(name, password).exchange("h"), server)
    assert server.identity == (f"User:{name}", None, False)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\0ann\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0me\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"bob\0ann\0secret", "Client requested an authorization id that is different from username"),
        (b"ann\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0ann\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_plain_refuses_in_kafkas_words(message: bytes, text: str) -> None:
    server = USERS.exchange()
    with pytest.raises(SaslRefused, match=text):
        server.respond(message)
    assert server.identity is None


def bearer(now_ms: int = 1_000_000, **options: str) -> OauthBearer:
    return OauthBearer(UnsecuredTokens(options, lambda: now_ms))


def sent(claims: dict[str, Any], authzid: str = "") -> bytes:
    who = f"a={authzid}" if authzid else ""
    return f"n,{who},\x01auth=Bearer {unsecured_token(claims)}\x01traceId=5\x01\x01".encode()


def test_oauthbearer_admits_an_unsecured_token_until_it_expires() -> None:
    server = bearer().exchange()
    client = OauthCredentials(lambda: Bearer(unsecured_token({"sub": "eve", "exp": 2000}), 2000), lambda: 1000)
    assert client.user == "eve"
    converse(client.exchange("h"), server)
    assert server.identity == ("User:eve", 2_000_000, False)
    assert bearer().exchange().respond(sent({"sub": "eve", "exp": 2000}, "eve")) == b""


@pytest.mark.parametrize(
    ("claims", "options", "answer"),
    [
        ({"sub": "eve", "exp": 999}, {}, {"status": "invalid_token"}),
        ({"sub": "eve", "exp": 999}, {"unsecuredValidatorAllowableClockSkewMs": "2000"}, None),
        ({"sub": "eve"}, {}, {"status": "invalid_token"}),
        ({"exp": 2000}, {}, {"status": "invalid_token"}),
        (
            {"sub": "eve", "exp": 2000, "scope": "a"},
            {"unsecuredValidatorRequiredScope": "a b"},
            {"status": "insufficient_scope", "scope": "a b"},
        ),
        ({"sub": "eve", "exp": 2000, "scope": ["a", "b"]}, {"unsecuredValidatorRequiredScope": "a b"}, None),
    ],
)
def test_a_token_that_is_not_valid_is_refused_in_two_steps(
    claims: dict[str, Any], options: dict[str, str], answer: dict[str, str] | None
) -> None:
    server = bearer(**options).exchange()
    challenge = server.respond(sent(claims)) or b""
    if answer is None:
        assert server.identity is not None
        return
    assert json.loads(challenge) == answer
    with pytest.raises(SaslRefused, match="status"):
        server.respond(b"\x01")
    assert server.identity is None


IMPOSSIBLE = (10**20, 10**400, float("inf"), float("nan"), True, "2000", [2000])
"""Claims that are no times; the numbers are more than a session or a float can hold."""


@pytest.mark.parametrize("expires", IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_a_token_with_an_impossible_expiry_is_refused(expires: Any) -> None:
    """Its session would end at no time that the answer can hold."""
    server = bearer().exchange()
    assert json.loads(server.respond(sent({"sub": "eve", "exp": expires})) or b"") == {"status": "invalid_token"}
    assert server.identity is None


@pytest.mark.parametrize("issued", [3000, *IMPOSSIBLE], ids=range(len(IMPOSSIBLE) + 1))
def test_a_token_that_is_not_issued_in_the_past_is_refused(issued: Any) -> None:
    server = bearer().exchange()
    challenge = server.respond(sent({"sub": "eve", "exp": 2000, "iat": issued}))
    assert json.loads(challenge or b"") == {"status": "invalid_token"}


@pytest.mark.parametrize("expires", [None, *IMPOSSIBLE], ids=range(len(IMPOSSIBLE) + 1))
def test_a_client_refuses_a_token_with_an_impossible_expiry(expires: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(unsecured_token({"sub": "eve", "exp": expires}))
    with pytest.raises(SaslError, match="exp"):
        from_file(str(tmp_path / "token"))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"access_token": "opaque", "expires_in": 10**400}, "expires_in"),
        ({"access_token": "opaque", "expires_in": True}, "expires_in"),
        ({"access_token": "opaque"}, "expires_in"),
        ({"access_token": 7}, "access_token"),
        ([], "access_token"),
        (b"[" * 100_000, "access_token"),
    ],
    ids=["large", "boolean", "without", "number", "list", "deep"],
)
def test_a_client_refuses_a_malformed_answer_of_a_token_endpoint(answer: Any, text: str) -> None:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    with pytest.raises(SaslError, match=text):
        read_answer("https://tokens", body)


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer a b\x01\x01", b"\xff"],
)
def test_malformed_oauthbearer_messages_are_invalid_credentials(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        bearer().exchange().respond(message)


def test_another_authorization_id_than_the_tokens_subject_is_refused() -> None:
    with pytest.raises(SaslRefused, match="different from the token's principal name"):
        bearer().exchange().respond(sent({"sub": "eve", "exp": 2000}, "bob"))


def test_a_client_fetches_a_token_again_after_most_of_its_time() -> None:
    now = [1000.0]
    fetched: list[float] = []

    def fetch() -> Bearer:
        fetched.append(now[0])
        return Bearer(unsecured_token({"sub": "eve", "exp": now[0] + 100}), now[0] + 100)

    credentials = OauthCredentials(fetch, lambda: now[0])
    for moment in (1000, 1079, 1081):
        now[0] = moment
        credentials.token()
    assert fetched == [1000, 1081]


def test_a_client_keeps_its_token_while_the_endpoint_fails() -> None:
    now = [1000.0]
    answers: list[Any] = [Bearer("t", 1100), OSError("down"), OSError("down")]

    def fetch() -> Bearer:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return Bearer(*answer)

    credentials = OauthCredentials(fetch, lambda: now[0])
    assert credentials.token() == "t"
    now[0] = 1090
    assert credentials.token() == "t"
    now[0] = 1101
    with pytest.raises(OSError, match="down"):
        credentials.token()
