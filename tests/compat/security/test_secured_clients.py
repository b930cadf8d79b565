"""Foreign clients by each security protocol and mechanism, on one secured node of ours and on Apache Kafka's.

Everyday runs take two ways for each client in Python and Java; `make matrix` runs all ways and the other languages.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_protocol.sasl.oauthbearer import OAUTHBEARER
from tests.compat.clients.test_other_clients import go_tour, js_folder
from tests.compat.security import foreign_clients as foreign
from tests.compat.security.all_ways import PLAIN, REAUTH_MS, SCRAM_256, SCRAM_512, WAYS, AllWays, Way

__all__ = ["go_tour", "js_folder"]

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # kafka-python forgets sockets of refused connections
)
CLIENT = "Every mechanism over TLS and plain"
XDIST_GROUP = "secured"
IN_GO = ("franz-go", "sarama", "kafka-go")
CLIENTS = ("confluent_kafka", "kcat", "kafka_python", "aiokafka", "java", *IN_GO, "kafkajs")
EVERYDAY = (Way("SASL_SSL", SCRAM_512), Way("SASL_SSL", OAUTHBEARER))


def ways(*left_out: Way, everyday: tuple[Way, ...] = EVERYDAY) -> pytest.MarkDecorator:
    """All ways but some; the ways that are not for every day are slow."""
    chosen = [way for way in WAYS if way not in left_out]
    marks = {way: () if way in everyday else (pytest.mark.slow,) for way in chosen}
    return pytest.mark.parametrize("way", [pytest.param(way, id=str(way), marks=marks[way]) for way in chosen])


def of(*mechanisms: str) -> tuple[Way, ...]:
    return tuple(way for way in WAYS if way.mechanism in mechanisms)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AllWays]]:
    """The nodes that tests have started, by the name of their kind."""
    started: dict[str, AllWays] = {}
    yield started
    for found in started.values():
        found.target.stop()


@pytest.fixture
def node(server_name: str, nodes: dict[str, AllWays], tmp_path_factory: pytest.TempPathFactory) -> AllWays:
    if server_name not in nodes:
        nodes[server_name] = AllWays(server_name, tmp_path_factory.mktemp("secured"))
        nodes[server_name].target.start()
    return nodes[server_name]


def check(node: AllWays, name: str, way: Way, tour: foreign.Tour) -> None:
    created(node, name)
    access = node.access(way)
    assert tour(access, name) == (access.Count, access.Count)


def created(node: AllWays, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": node.target.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


@ways()
def test_confluent_kafka_produces_and_consumes(node: AllWays, name: str, way: Way) -> None:
    check(node, name, way, foreign.confluent_kafka)


# librdkafka 2.0 of kcat repeats the nonce of SCRAM wrongly, and cannot take a token from outside.
@ways(*of(SCRAM_256, SCRAM_512), Way("SASL_SSL", OAUTHBEARER), everyday=(Way("SASL_SSL", PLAIN),))
def test_kcat_produces_and_consumes(node: AllWays, name: str, way: Way) -> None:
    check(node, name, way, foreign.kcat)


@ways()
def test_kafka_python_produces_and_consumes(node: AllWays, name: str, way: Way) -> None:
    check(node, name, way, foreign.kafka_python)


@ways()
def test_aiokafka_produces_and_consumes(node: AllWays, name: str, way: Way) -> None:
    check(node, name, way, foreign.aiokafka)


@ways(everyday=(Way("SASL_SSL", OAUTHBEARER),))
def test_java_produces_and_consumes(node: AllWays, name: str, way: Way) -> None:
    check(node, name, way, foreign.java)


@pytest.mark.slow
@ways()
def test_franz_go_produces_and_consumes(node: AllWays, name: str, way: Way, go_tour: Path) -> None:
    check(node, name, way, foreign.program(str(go_tour), "secured franz-go", folder=go_tour.parent))


@pytest.mark.slow
@ways()
def test_sarama_produces_and_consumes(node: AllWays, name: str, way: Way, go_tour: Path) -> None:
    check(node, name, way, foreign.program(str(go_tour), "secured sarama", folder=go_tour.parent))


@pytest.mark.slow
@ways(*of(OAUTHBEARER))  # kafka-go has no OAUTHBEARER
def test_kafka_go_produces_and_consumes(node: AllWays, name: str, way: Way, go_tour: Path) -> None:
    check(node, name, way, foreign.program(str(go_tour), "secured kafka-go", folder=go_tour.parent))


@pytest.mark.slow
@ways()
def test_kafkajs_produces_and_consumes(node: AllWays, name: str, way: Way, js_folder: Path) -> None:
    check(node, name, way, javascript(js_folder))


def javascript(folder: Path) -> foreign.Tour:
    return foreign.program(shutil.which("node") or pytest.skip("needs node"), "secured.js", folder=folder)


def clients(*everyday: str, without: str = "") -> pytest.MarkDecorator:
    """All clients but one; those that are not for every day are slow."""
    marks = {name: () if name in everyday else (pytest.mark.slow,) for name in CLIENTS}
    params = [pytest.param(name, id=name, marks=marks[name]) for name in CLIENTS if name != without]
    return pytest.mark.parametrize("tour", params, indirect=True)


@pytest.fixture
def tour(request: pytest.FixtureRequest) -> foreign.Tour:
    if request.param == "kafkajs":
        return javascript(request.getfixturevalue("js_folder"))
    if request.param in IN_GO:
        binary: Path = request.getfixturevalue("go_tour")
        return foreign.program(str(binary), f"secured {request.param}", folder=binary.parent)
    found: foreign.Tour = getattr(foreign, request.param)
    return found


@clients("confluent_kafka", "aiokafka")
def test_clients_are_refused_with_a_wrong_password(node: AllWays, name: str, tour: foreign.Tour) -> None:
    with pytest.raises(foreign.RefusedError):
        tour(node.access(Way("SASL_SSL", PLAIN), Password="wrong"), name)


@clients("confluent_kafka", without="kcat")  # its librdkafka 2.0 does not authenticate again, and kcat then gives up
def test_outlives_session_and_certificate(node: AllWays, name: str, tour: foreign.Tour) -> None:
    """Produce for two and a half sessions, with an exchange of the certificate on the way; no record is missing."""
    created(node, name)
    access = node.access(Way("SASL_SSL", PLAIN), Count=25, PauseMs=REAUTH_MS // 10)
    exchange = threading.Timer(REAUTH_MS / 2000, node.exchange_certificate)
    exchange.start()
    try:
        distinct, total = tour(access, name)
    finally:
        exchange.join()
    assert distinct == access.Count
    assert total == distinct


@pytest.mark.slow
def test_java_and_franz_go_authenticate_by_a_delegation_token(node: AllWays, name: str, go_tour: Path) -> None:
    token_id, hmac = delegation_token(node)
    created(node, name)
    franz = foreign.program(str(go_tour), "secured franz-go", folder=go_tour.parent)
    way = Way("SASL_SSL", SCRAM_256)
    access = node.access(way, Username=token_id, Password=hmac, Delegated=True)
    assert franz(access, name) == (access.Count, access.Count)
    created(node, f"{name}-java")
    assert foreign.java(access, f"{name}-java") == (access.Count, access.Count)


def delegation_token(node: AllWays) -> tuple[str, str]:
    """The id and the secret of a new token of the user `ann`."""
    from tests.compat.members import wait_for
    from tests.compat.tools import SERVER as TOOLS

    access = node.access(Way("SASL_SSL", PLAIN))
    config = node.folder / "ann.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in access.java().items()))
    created = TOOLS.run(
        "org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", access.Bootstrap, "--command-config",
        str(config), "--create", "--max-life-time-period", "-1",
    )  # fmt: skip
    assert created.code == 0, created.text
    words = created.out.split()
    at = words.index("User:ann") - 2
    described = (
        "--bootstrap-server",
        access.Bootstrap,
        "--command-config",
        str(config),
        "--describe",
        "--owner-principal",
        "User:ann",
    )
    tool = "org.apache.kafka.tools.DelegationTokenCommand"
    wait_for("the broker knows the token", lambda: words[at] in TOOLS.run(tool, *described).out, 60)
    return words[at], words[at + 1]
