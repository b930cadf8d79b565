"""Clients log in, fail and log in again at both servers; /metrics counts them as Apache Kafka's JMX beans do."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.errors import AuthenticationError
from kraft_protocol.client.properties import client_security
from kraft_protocol.client.session import Software
from kraft_protocol.wire.messages import MetadataRequest
from tests.certificates import Authority
from tests.compat.rough.test_rough_metrics import JMX_NAMES, Metrics, by_rules, printed
from tests.compat.security.secured import PASSWORDS, Secured, jaas, lone
from tests.compat.targets import free_ports
from tests.peer import run_java

CLIENT = "Metrics of authentication"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("authentication-metrics")]

PREFIX = "kafka_server_socket_server_metrics_"
SOFTWARE = Software("metrics", "metrics-test", "1.5")


def connection(server: Secured, authority: Authority, password: str) -> BlockingConnection:
    security = client_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas("PLAIN", username="ann", password=password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.path),
        }
    )
    return BlockingConnection(
        "127.0.0.1", server.sasl_port, software=SOFTWARE, versions=None, connect_s=30, request_s=30, security=security
    )


def figures(folder: Path, kind: str, authority: Authority) -> Metrics:
    """What the server reports after two logins, a failed one, a repeated one, and a session that is over."""
    (port,) = free_ports(1)
    overrides = {
        **authority.issue("CN=node,O=Example").stores(),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "connections.max.reauth.ms": "2500",
        **({"http.listener": f"127.0.0.1:{port}"} if kind == "kraftcluster" else {}),
    }
    server = lone(kind, folder, ["PLAIN"], overrides)
    used = ExitStack()
    server.target.start()
    try:
        kept = used.enter_context(closing(connection(server, authority, PASSWORDS["ann"])))
        lost = used.enter_context(closing(connection(server, authority, PASSWORDS["ann"])))
        with pytest.raises(AuthenticationError):
            connection(server, authority, "wrong")
        lost._renews_s = None
        kept._renews_s = time.monotonic() + 1.2  # servers refuse to authenticate again within a second
        time.sleep(1.3)
        kept.request(MetadataRequest(topics=[]))
        time.sleep(1.5)
        with pytest.raises(OSError):
            lost.request(MetadataRequest(topics=[]))
        if kind == "kraftcluster":
            return printed(port)
        assert server.target.process is not None
        return by_rules(run_java(str(JMX_NAMES), str(server.target.process.pid)).stdout.decode())
    finally:
        used.close()
        server.target.stop()


def test_logins_are_counted_as_apache_kafka_counts_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    ours, kafka = (figures(tmp_path / kind, kind, authority) for kind in ("kraftcluster", "apache"))
    at = frozenset({("listener", "SASL"), ("networkProcessor", "0")})

    def of_sasl(metrics: Metrics, name: str) -> float:
        """All processors of Apache Kafka together."""
        return sum(
            value
            for (found, labels), value in metrics.items()
            if found == PREFIX + name and ("listener", "SASL") in labels
        )

    expected = {
        "successful_authentication_total": 2,
        "failed_authentication_total": 1,
        "successful_reauthentication_total": 1,
        "failed_reauthentication_total": 0,
        "successful_authentication_no_reauth_total": 0,
        "expired_connections_killed_count": 1,
    }
    for metrics in (ours, kafka):
        assert {name: of_sasl(metrics, name) for name in expected} == expected
        for name in ("successful_authentication", "failed_authentication", "successful_reauthentication"):
            assert of_sasl(metrics, f"{name}_rate") > 0
    assert (PREFIX + "reauthentication_latency_max", at) in ours
    names = {name for name, labels in ours if name.startswith(PREFIX) and ("listener", "SASL") in labels}
    assert names <= {name for name, _ in kafka}
    ciphers = [
        {
            (of["cipher"], of["protocol"])
            for name, labels in metrics
            if name == PREFIX + "connections_tls_info" and (of := dict(labels))["listener"] == "SASL"
        }
        for metrics in (ours, kafka)
    ]
    assert ciphers[0] == ciphers[1] == {("TLS_AES_256_GCM_SHA384", "TLSv1.3")}
    for metrics in (ours, kafka):
        software = [dict(labels) for name, labels in metrics if name == PREFIX + "connections_software"]
        assert ("metrics-test", "1.5") in {(s["clientSoftwareName"], s["clientSoftwareVersion"]) for s in software}
