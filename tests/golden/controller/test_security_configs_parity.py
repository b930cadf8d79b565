"""Dynamic `ssl.*` and `sasl.*` keys of listeners, alone and together with other keys, beside Apache Kafka.

Each alteration is validated by both requests, made, described and taken back. Both nodes have the same certificates, so
paths and contents of stores are equal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kraft_protocol.wire import messages as m
from tests.certificates import PASSWORD, Authority
from tests.compat.security.secured import jaas, lone
from tests.compat.targets import all_running, free_ports
from tests.golden.broker.pair import Pair, Side
from tests.tiers import seeds

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("security-configs")]

BROKER = 4
INVALID_REQUEST = 42
DYNAMIC = (2, 3)
"""Sources of values in DescribeConfigs."""
APPLIED_IN_S = 3
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN, ALL = "1", ""
SASL, TLS = "listener.name.sasl.", "listener.name.secure."
OTHER, CONTROLLER, UNKNOWN = "listener.name.plaintext.", "listener.name.controller.", "listener.name.nowhere."
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,SECURE:SSL,CONTROLLER:SASL_PLAINTEXT"
PLANTED = "planted-secret"
NEW_ENTRY = jaas("PLAIN", username="broker", password=PLANTED, user_broker=PLANTED)
GOOD = ("log.cleaner.threads", "2")

Rows = dict[str, str]
SASL_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "plain.sasl.jaas.config": (NEW_ENTRY, "", "no.such.Module;", "half an entry"),
    "sasl.jaas.config": (NEW_ENTRY,),
    "nothing.sasl.jaas.config": (NEW_ENTRY,),
    "sasl.enabled.mechanisms": ("PLAIN,SCRAM-SHA-512", "SCRAM-SHA-512", "NOTHING", "", "PLAIN,,PLAIN"),
    "sasl.mechanism.inter.broker.protocol": ("PLAIN", "SCRAM-SHA-256", "NOTHING", ""),
    "sasl.mechanism.controller.protocol": ("PLAIN",),
    "sasl.kerberos.service.name": ("kafka",),
    "sasl.kerberos.kinit.cmd": ("/bin/true",),
    "sasl.kerberos.principal.to.local.rules": ("DEFAULT", "RULE:[1:$1]", "nonsense", ""),
    "sasl.kerberos.min.time.before.relogin": ("1000", "soon"),
    "sasl.kerberos.ticket.renew.jitter": ("0.1", "much"),
    "sasl.kerberos.ticket.renew.window.factor": ("0.5", "9"),
    "sasl.login.refresh.window.factor": ("0.6", "2.0"),
    "sasl.login.refresh.window.jitter": ("0.1", "1.0"),
    "sasl.login.refresh.min.period.seconds": ("10", "-1"),
    "sasl.login.refresh.buffer.seconds": ("10", "99999"),
    "sasl.login.class": ("x.Y",),
    "sasl.login.callback.handler.class": ("x.Y",),
    "plain.sasl.login.class": ("x.Y",),
    "plain.sasl.server.callback.handler.class": ("x.Y",),
    "sasl.server.callback.handler.class": ("x.Y",),
    "sasl.client.callback.handler.class": ("x.Y",),
    "sasl.server.max.receive.size": ("10000",),
    "sasl.oauthbearer.jwks.endpoint.url": ("file:///x",),
    "sasl.oauthbearer.expected.audience": ("a,b",),
    "sasl.oauthbearer.clock.skew.seconds": ("1", "x"),
    "connections.max.reauth.ms": ("1000", "x"),
    "plain.connections.max.reauth.ms": ("1000",),
    "principal.builder.class": ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", "x.Y"),
}
"""Keys without a prefix, and values, valid and wrong."""


SSL_KEYS: Final = (
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password",
    "ssl.truststore.certificates", "ssl.client.auth", "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.protocol",
    "ssl.endpoint.identification.algorithm", "ssl.principal.mapping.rules", "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
)  # fmt: skip
UNUSABLE: Final = {
    "ssl.cipher.suites": ("TLS_NOTHING",),
    "ssl.enabled.protocols": ("TLSv9", ""),
    "ssl.protocol": ("TLSv9",),
    "ssl.endpoint.identification.algorithm": ("nothing",),
}
"""Values that Kafka stores, and that keep it from the next start. See docs/differences.md, TLS and SASL."""


PREFIXES: Final = {"own": ("", SASL), "others": (TLS, OTHER, CONTROLLER, UNKNOWN)}
"""Prefixes that are tried every day, and the others."""
EACH_PREFIX = pytest.mark.parametrize("prefixes", ["own", pytest.param("others", marks=pytest.mark.slow)])


def ssl_keys(authority: Authority) -> dict[str, tuple[str, ...]]:
    """Keys of stores and protocols, and values, valid and wrong."""
    new, other = (authority.issue(f"CN={name}", file=name) for name in ("node", "other"))
    damaged = authority.folder / "damaged.pem"
    damaged.write_text("-----BEGIN NOTHING-----\n")
    return {
        "ssl.keystore.location": (str(new.pem), str(other.pem), str(damaged), "/missing", ""),
        "ssl.keystore.type": ("PEM", "JKS", "PKCS12", "NOTHING", ""),
        "ssl.keystore.password": (PLANTED, ""),
        "ssl.key.password": (PLANTED,),
        "ssl.keystore.key": (new.key_text.replace("\n", " "), PLANTED),
        "ssl.keystore.certificate.chain": (PLANTED,),
        "ssl.truststore.location": (str(authority.path), str(damaged), "/missing"),
        "ssl.truststore.type": ("PEM", "PKCS12", "NOTHING"),
        "ssl.truststore.password": (PLANTED,),
        "ssl.truststore.certificates": (PLANTED,),
        "ssl.client.auth": ("none", "requested", "required", "perhaps", ""),
        "ssl.cipher.suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ""),
        "ssl.enabled.protocols": ("TLSv1.3,TLSv1.2", "TLSv1.2"),
        "ssl.protocol": ("TLSv1.2",),
        "ssl.endpoint.identification.algorithm": ("", "https"),
        "ssl.principal.mapping.rules": ("DEFAULT", "nonsense"),
        "ssl.allow.dn.changes": ("true", "perhaps"),
        "ssl.allow.san.changes": ("true",),
    }


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("security-configs"))


@pytest.fixture(scope="module")
def servers(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Nodes with a listener for SASL over TLS and one for TLS; the test asks on the plain one."""
    folder = tmp_path_factory.mktemp("nodes")
    stores = authority.issue("CN=node", file="first").stores()
    targets = []
    for kind in ("apache", "kraftcluster"):
        (port,) = free_ports(1)
        made = lone(
            kind,
            folder / kind,
            ["PLAIN", "SCRAM-SHA-512"],
            {
                "listener.security.protocol.map": PROTOCOLS,
                **{f"{prefix}{key}": value for prefix in (SASL, TLS) for key, value in stores.items()},
            },
        )
        values = made.target.overrides
        for key in ("listeners", "advertised.listeners"):
            values[key] += f",SECURE://127.0.0.1:{port}"
        targets.append(made.target)
    with all_running(targets):
        yield Side("Kafka", targets[0]), Side("ours", targets[1])


@pytest.fixture
def pair(servers: tuple[Side, Side]) -> Iterator[Pair]:
    made = Pair(*servers)
    yield made
    for side in servers:
        side.close()
    made.verdict()


def incremental(broker: str, rows: Rows, operation: int = SET, *others: Any, **fields: Any) -> Any:
    request = m.IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(key, operation, value) for key, value in rows.items()]
    return request([request.AlterConfigsResource(BROKER, broker, configs), *others], **fields)


def whole(broker: str, rows: Rows, **fields: Any) -> Any:
    request = m.AlterConfigsRequest
    configs = [request.AlterableConfig(key, value) for key, value in rows.items()]
    return request([request.AlterConfigsResource(BROKER, broker, configs)], **fields)


def described(broker: str, keys: list[str] | None, **fields: Any) -> Any:
    request = m.DescribeConfigsRequest
    return request([request.DescribeConfigsResource(BROKER, broker, keys)], **fields)


def tried(pair: Pair, broker: str, rows: Rows) -> None:
    """Validate, make, describe and take back an alteration."""
    label = f"{broker or 'all'} {rows}"[:300]
    pair.same(incremental(broker, rows, validate_only=True), 1, label=f"validate {label}", mask=sense)
    pair.same(whole(broker, rows, validate_only=True), 2, label=f"validate whole {label}", mask=sense)
    done = pair.same(incremental(broker, rows), 1, label=f"make {label}", mask=sense)
    for side, answer in zip(pair.sides, done, strict=True):
        if not isinstance(answer, str) and not answer.responses[0].error_code:
            _wait_until_applied(side, broker, rows, set(rows))
    for synonyms in (False, True):
        keys = described(broker, list(rows), include_synonyms=synonyms)
        pair.same(keys, 4, label=f"describe {label}", mask=without_documentation)
    for side, answer in zip(pair.sides, done, strict=True):
        if not isinstance(answer, str) and not answer.responses[0].error_code:
            taken = side.ask(incremental(broker, rows, DELETE), 1)
            if taken.responses[0].error_code:
                pair.differences.append(f"{label}: {side} does not take it back: {taken}")
            _wait_until_applied(side, broker, rows, set())


def _wait_until_applied(side: Side, broker: str, rows: Rows, dynamic: set[str]) -> None:
    """Wait a while until these of the keys have dynamic values."""
    deadline = time.monotonic() + APPLIED_IN_S
    while time.monotonic() < deadline:
        found = side.ask(described(broker, list(rows)), 4).results[0].configs
        if {config.name for config in found if config.config_source in DYNAMIC} == dynamic:
            return
        time.sleep(0.02)


def sense(plain: Any) -> Any:
    """Messages without Scala's words, without the order of keys, and without how a check of stores failed."""
    for response in plain["responses"]:
        text = (response["error_message"] or "").removeprefix("requirement failed: ")
        if "SSLFactory failed" in text or re.search(r"ConfigException: listener (SASL|SECURE): ", text):
            text = "a check of stores failed"
        start, bracket, names = text.partition(": [")
        response["error_message"] = start + bracket + ", ".join(sorted(names.rstrip("]").split(", ")))
    return plain


def without_documentation(plain: Any) -> Any:
    for result in plain["results"]:
        for config in result["configs"]:
            config["documentation"] = None
    return plain


@EACH_PREFIX
@pytest.mark.parametrize("key", SASL_KEYS)
def test_sasl_keys_are_altered_as_with_kafka(pair: Pair, key: str, prefixes: str) -> None:
    for value in SASL_KEYS[key]:
        for prefix in PREFIXES[prefixes]:
            tried(pair, OWN, {prefix + key: value})
            tried(pair, ALL, {prefix + key: value})


@EACH_PREFIX
@pytest.mark.parametrize("key", SSL_KEYS)
def test_ssl_keys_are_altered_as_with_kafka(pair: Pair, authority: Authority, key: str, prefixes: str) -> None:
    for value in ssl_keys(authority)[key]:
        for prefix in PREFIXES[prefixes]:
            tried(pair, OWN, {prefix + key: value})
            tried(pair, ALL, {prefix + key: value})


@pytest.mark.parametrize("key", UNUSABLE)
def test_values_that_no_listener_could_use_are_refused_at_once(pair: Pair, key: str) -> None:
    for value in UNUSABLE[key]:
        request = incremental(OWN, {TLS + key: value}, validate_only=True)
        theirs, mine = (side.ask(request, 1).responses[0] for side in pair.sides)
        assert (theirs.error_code, mine.error_code) == (0, INVALID_REQUEST), value
        assert key in mine.error_message


def together(authority: Authority) -> list[Rows]:
    """Keys of several kinds in one alteration."""
    new, other = (authority.issue(f"CN={name}", file=f"{name}-2") for name in ("node", "other"))
    keystore = {f"{TLS}ssl.keystore.location": str(new.pem)}
    wrong = {f"{TLS}ssl.keystore.location": str(other.pem)}
    entry = {f"{SASL}plain.sasl.jaas.config": NEW_ENTRY}
    threads = dict([GOOD])
    pkcs12 = {
        f"{TLS}ssl.keystore.type": "PKCS12",
        f"{TLS}ssl.keystore.location": str(new.p12),
        f"{TLS}ssl.keystore.password": PASSWORD,
    }
    return [
        keystore | threads,
        wrong | threads,
        keystore | {"log.cleaner.threads": "99"},
        keystore | {"num.partitions": "3"},
        keystore | {"no.such.key": "x"},
        keystore | {"ssl.keystore.location": str(new.pem)},
        keystore | entry | threads,
        wrong | entry,
        entry | {f"{SASL}max.connections": "100"},
        entry | {f"{SASL}max.connections": "0"},
        entry | {f"{SASL}max.connection.creation.rate": "50", "max.connections": "1000"},
        entry | {"message.max.bytes": "many"},
        entry | {f"{SASL}sasl.enabled.mechanisms": "PLAIN"},
        entry | {f"{SASL}sasl.enabled.mechanisms": "SCRAM-SHA-512"},
        pkcs12,
        pkcs12 | threads | entry,
        pkcs12 | {f"{TLS}ssl.keystore.password": "wrong"},
        {f"{TLS}ssl.client.auth": "required", f"{SASL}ssl.client.auth": "required"} | threads,
        {f"{SASL}max.connections": "100", "log.retention.ms": "1000000"},
        {f"{SASL}num.network.threads": "4"},
        {f"{SASL}num.network.threads": "99"},
        {f"{UNKNOWN}num.network.threads": "3"},
        {f"{SASL}no.such.key": "x"},
        {f"{SASL}": "x"},
        {"listener.name.": "x"},
        {"listener.name.SASL.ssl.client.auth": "required"},
        {f"{SASL}log.retention.ms": "1000"},
        {f"{SASL}node.id": "4"},
    ]


@pytest.mark.parametrize("part", seeds(range(7), 2))
def test_security_keys_are_altered_together_with_others_as_with_kafka(
    pair: Pair, authority: Authority, part: int
) -> None:
    for rows in together(authority)[part::7]:
        for broker in (OWN, ALL):
            tried(pair, broker, rows)


def test_all_listener_keys_are_described_as_with_kafka(pair: Pair) -> None:
    secret = {f"{SASL}plain.sasl.jaas.config": NEW_ENTRY}
    secret |= {"no.such.password": PLANTED, f"{UNKNOWN}ssl.keystore.password": PLANTED}
    pair.same(incremental(OWN, secret), 1, mask=sense)
    for synonyms in (False, True):
        for broker in (OWN, ALL):
            pair.same(
                described(broker, None, include_synonyms=synonyms),
                label=f"all keys of {broker!r}",
                mask=only_security,
                settles=True,
            )
    for side in pair.sides:
        answer = side.ask(described(OWN, None, include_synonyms=True), 4)
        assert PLANTED not in repr(answer), side
    pair.same(incremental(OWN, dict.fromkeys(secret), DELETE), 1, mask=sense)


def only_security(plain: Any) -> Any:
    pattern = re.compile(r"listener\.name\.|ssl\.|sasl\.|no\.such|principal\.|reauth")
    for result in plain["results"]:
        result["configs"] = [c for c in result["configs"] if pattern.search(c["name"])]
    return without_documentation(plain)
