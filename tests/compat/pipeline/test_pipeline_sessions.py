"""The pipeline's client while its session ends, its token expires, and its credentials are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kraft_pipeline.codec import Decoder
from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sinks.rows import RowWriter
from kraft_pipeline.sources.options import parse
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import AuthenticationError
from kraft_protocol.client.fetch import fetch_range
from tests.certificates import Authority
from tests.compat.pipeline.test_pipeline_client import whole
from tests.compat.security.all_ways import PLAIN, SCRAM_512, AllWays, Way
from tests.compat.security.sessions import TokenEndpoint
from tests.compat.security.test_secured_clients import created

CLIENT = "pipeline while sessions end"
REAUTH_MS = 1_500
ROUNDS_S = 2.5 * REAUTH_MS / 1000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllWays]:
    folder = tmp_path_factory.mktemp("sessions")
    found = AllWays("kraftcluster", folder, {"connections.max.reauth.ms": str(REAUTH_MS)})
    found.target.start()
    yield found
    found.target.stop()


def options(node: AllWays, properties: dict[str, str], way: Way, **more: str) -> dict[str, str]:
    given = {f"kafka.{key}": value for key, value in properties.items()}
    return {"kafka.bootstrap.servers": node.access(way).Bootstrap, **given, **more}


def write(cluster: Cluster, given: dict[str, str], numbers: range) -> None:
    """Write rows and wait for their acknowledgement."""
    writer = RowWriter(cluster, parse_sink(given, ["value"]))
    writer.write(pa.RecordBatch.from_pydict({"value": pa.array([str(number).encode() for number in numbers])}))
    writer.close()


def read(cluster: Cluster, topic: str) -> list[int]:
    decoder = Decoder(topic, 0, ("value",))
    found: list[int] = []
    for chunk in fetch_range(cluster, whole(cluster, topic), max_bytes=2_000):
        for batch in decoder.decode(chunk.records, chunk.offset, chunk.end, chunk.aborted):
            found += [int(value) for value in batch.column("value").to_pylist()]
    return found


def test_a_connection_authenticates_again_without_a_gap(node: AllWays, name: str) -> None:
    way = Way("SASL_SSL", SCRAM_512)
    created(node, name)
    given = options(node, node.access(way).java(), way, topic=name)
    settings = parse_sink(given, ["value"]).settings
    count, end = 0, time.monotonic() + ROUNDS_S
    with Cluster(settings) as cluster:
        while time.monotonic() < end:
            write(cluster, given, range(count, count + 20))
            count += 20
            assert read(cluster, name) == list(range(count))


def test_tokens_are_fetched_again_until_the_endpoint_refuses(node: AllWays, name: str) -> None:
    created(node, name)
    with TokenEndpoint(node.signer, 3) as endpoint:
        way = Way("SASL_SSL", "OAUTHBEARER")
        given = options(node, endpoint.properties(node), way, topic=name)
        settings = parse(given | {"subscribe": name}, streaming=False).settings
        count = 0
        with Cluster(settings) as cluster:
            while endpoint.issued < 3:
                write(cluster, given, range(count, count + 20))
                count += 20
                time.sleep(0.1)
            assert read(cluster, name) == list(range(count))
            endpoint.is_refusing = True
            with pytest.raises(AuthenticationError, match=r"/token answers 401: invalid_client") as refused:
                while True:
                    write(cluster, given, range(count, count + 1))
                    count += 1
                    time.sleep(0.1)
        assert "planted-client-secret" not in str(refused.value)
        endpoint.is_refusing = False
        with Cluster(settings) as cluster:
            found = read(cluster, name)
    assert found == list(range(count))


def test_a_wrong_password_ends_at_once(node: AllWays, name: str) -> None:
    way = Way("SASL_SSL", PLAIN)
    given = options(node, node.access(way, Password="planted-wrong").java(), way, subscribe=name)
    with Cluster(parse(given, streaming=False).settings) as cluster, pytest.raises(AuthenticationError) as refused:
        cluster.topics()
    assert "Authentication failed" in str(refused.value) and "planted-wrong" not in str(refused.value)


def test_a_certificate_of_another_authority_ends_at_once(node: AllWays, name: str, tmp_path: Path) -> None:
    way = Way("SASL_SSL", PLAIN)
    stranger = Authority(tmp_path / "stranger")
    properties = node.access(way).java() | {"ssl.truststore.location": str(stranger.path)}
    with (
        Cluster(parse(options(node, properties, way, subscribe=name), streaming=False).settings) as cluster,
        pytest.raises(AuthenticationError, match=r"TLS: .*certificate verify failed"),
    ):
        cluster.topics()


def test_a_client_without_a_certificate_is_refused_at_once(node: AllWays, name: str) -> None:
    way = Way("SSL")
    properties = {key: value for key, value in node.access(way).java().items() if "keystore" not in key}
    with (
        Cluster(parse(options(node, properties, way, subscribe=name), streaming=False).settings) as cluster,
        pytest.raises(AuthenticationError, match=r"TLS: .*certificate required"),
    ):
        cluster.topics()
