"""Signed tokens: signatures by an issuer's keys, claims, and the keys' rotation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from joserfc import jwk, jwt

from kraft_node.security.sasl.jwks import UNKNOWN_KID_PAUSE_MS, Jwks, JwksPeriods
from kraft_node.security.sasl.jwt import JwtRules, JwtValidator
from kraft_node.security.sasl.oauthbearer import TokenRefused

NOW_S = 1_000_000
KEYS = {
    "rsa": jwk.RSAKey.generate_key(2048, {"kid": "rsa"}),
    "ec": jwk.ECKey.generate_key("P-256", {"kid": "ec"}),
    "new": jwk.ECKey.generate_key("P-256", {"kid": "new"}),
}
RULES = JwtRules("https://issuer", ("kafka",), skew_s=30)
CLAIMS = {"sub": "eve", "iss": "https://issuer", "aud": ["x", "kafka"], "iat": NOW_S - 10, "exp": NOW_S + 100}


class World:
    """An environment whose background work and timers run on command."""

    def __init__(self) -> None:
        self.clock = self.scheduler = self.background = self
        self.now_ms = 0
        self.documents = ["rsa", "ec"]
        self.fetches = 0
        self.jobs: list[Any] = []
        self.timers: list[tuple[float, Any]] = []
        self.is_down = False

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_ms: float, function: Any, *args: Any) -> Any:
        self.timers.append((delay_ms, function))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def submit(self, lane: str, work: Any, done: Any) -> None:
        self.jobs.append((work, done))

    def work(self) -> None:
        jobs, self.jobs = self.jobs, []
        for work, done in jobs:
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

    def fetch(self, url: str) -> bytes:
        self.fetches += 1
        if self.is_down:
            raise OSError("down")
        return json.dumps({"keys": [KEYS[name].as_dict(private=False) for name in self.documents]}).encode()

    def keys(self) -> Jwks:
        env: Any = self
        keys = Jwks(env, "https://keys", self.fetch, JwksPeriods(1000, 10, 40))
        keys.start()
        return keys


def validator(world: World | None = None, rules: JwtRules = RULES) -> JwtValidator:
    return JwtValidator(rules, (world or World()).keys(), lambda: NOW_S * 1000)


def signed(key: str = "rsa", algorithm: str = "", header: dict[str, Any] | None = None, **claims: Any) -> str:
    algorithm = algorithm or ("RS256" if key == "rsa" else "ES256")
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode({"alg": algorithm, "kid": key, **(header or {})}, given, KEYS[key], algorithms=[algorithm])


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_a_token_of_the_issuer_names_its_subject_and_expiry(key: str) -> None:
    assert validator().validate(signed(key)) == ("eve", (NOW_S + 100) * 1000)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 30}, "exp is in the past"),
        ({"exp": None}, "exp or iat is missing"),
        ({"iat": None}, "exp or iat is missing"),
        ({"nbf": NOW_S + 31}, "nbf is in the future"),
        ({"iss": "https://other"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "aud"),
        ({"aud": None}, "aud"),
        ({"sub": " "}, "sub is missing"),
        ({"sub": None}, "sub is missing"),
        ({"exp": "tomorrow"}, "exp is not a time"),
        ({"exp": 10**20}, "exp is not a time"),
        ({"aud": [["kafka"]]}, "aud is malformed"),
        ({"aud": [{}]}, "aud is malformed"),
        ({"aud": 0}, "aud is malformed"),
    ],
)
def test_a_wrong_claim_is_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        validator().validate(signed(**claims))


@pytest.mark.parametrize("claims", [{"exp": NOW_S - 29}, {"nbf": NOW_S + 30}])
def test_times_count_with_the_skew(claims: dict[str, Any]) -> None:
    assert validator().validate(signed(**claims)).name == "eve"


def test_an_audience_is_refused_if_none_is_expected() -> None:
    rules = JwtRules()
    with pytest.raises(TokenRefused, match="aud exists"):
        validator(rules=rules).validate(signed())
    assert validator(rules=rules).validate(signed(aud=None)).name == "eve"


def test_a_signature_of_another_key_is_refused() -> None:
    forged = signed("new", header={"kid": "ec"})
    with pytest.raises(TokenRefused, match="signature"):
        validator().validate(forged)


def test_changed_claims_are_refused() -> None:
    header, _, signature = signed().split(".")
    other = signed(sub="mallory").split(".")[1]
    with pytest.raises(TokenRefused, match="signature"):
        validator().validate(f"{header}.{other}.{signature}")


def test_a_public_key_is_no_shared_secret() -> None:
    public = KEYS["rsa"].as_pem(private=False)
    with pytest.raises((TokenRefused, ValueError)):
        forged = jwt.encode({"alg": "HS256", "kid": "rsa"}, CLAIMS, jwk.OctKey.import_key(public), algorithms=["HS256"])
        validator().validate(forged)


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c", "....", "e30.e30.", "x" * 100_000])
def test_garbage_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        validator().validate(token)


def test_an_unsigned_token_is_refused() -> None:
    from kraft_protocol.sasl.oauthbearer import unsecured_token

    with pytest.raises(TokenRefused):
        validator().validate(unsecured_token(CLAIMS))


def test_a_new_key_is_fetched_after_its_first_token() -> None:
    world = World()
    judge = validator(world)
    world.documents = ["rsa", "new"]
    with pytest.raises(TokenRefused, match="no key"):
        judge.validate(signed("new"))
    world.work()
    assert judge.validate(signed("new")).name == "eve"
    with pytest.raises(TokenRefused, match="no key"):
        judge.validate(signed("ec"))


def test_an_unknown_key_id_does_not_fetch_again_and_again() -> None:
    world = World()
    judge = validator(world)
    for _ in range(5):
        with pytest.raises(TokenRefused):
            judge.validate(signed("new"))
        world.work()
    assert world.fetches == 2
    world.now_ms += UNKNOWN_KID_PAUSE_MS
    with pytest.raises(TokenRefused):
        judge.validate(signed("new"))
    world.work()
    assert world.fetches == 3


def test_old_keys_stay_while_the_issuer_is_down_and_pauses_grow() -> None:
    world = World()
    judge = validator(world)
    world.is_down = True
    pauses = []
    for _ in range(4):
        ((pause, fetch),) = world.timers
        pauses.append(pause)
        world.timers.clear()
        fetch()
        world.work()
    assert pauses == [1000, 10, 20, 40]
    assert judge.validate(signed()).name == "eve"


def test_a_start_without_keys_fails() -> None:
    world = World()
    world.is_down = True
    with pytest.raises(OSError, match="down"):
        world.keys()
