"""A cluster with TLS: nobody unknown gets in, and its authority is replaced under load without a lost record."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from e2e.kube import Cluster, Object, Workload, get, kubectl, needs_kubernetes, until
from kraft_operator.security.certificates import Authority, issue, key_of

pytestmark = needs_kubernetes

PROBE = """
import socket, ssl
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
tls = context.wrap_socket(socket.create_connection(("secure-bootstrap", 9092), 5))
tls.sendall(bytes.fromhex("0000000d00120000000000010003616e6e"))
print("answered", tls.recv(4))
"""
"""Asks for ApiVersions over TLS without a certificate of its own."""


@pytest.fixture(scope="module")
def cluster(operator: None) -> Iterator[Cluster]:
    security = {"tls": "Enabled", "superUsers": ["ann"], "clusterAuthority": {"overlapMinutes": 0}}
    one = Cluster("secure", security=security)
    one.forget()
    one.apply()
    one.settle()
    yield one
    one.forget()


def _data(name: str) -> dict[str, str]:
    found: Object = get("secret", name)
    return {key: base64.b64decode(text).decode() for key, text in found["data"].items()}


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> str:
    """The name of the Secret of a user."""
    authority = _data("secure-clients-ca")
    leaf = issue(Authority(authority["ca.crt"], authority["ca.key"]), {"CN": "ann"}, datetime.now(UTC), 10)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "secure-ann", "namespace": cluster.namespace},
        "stringData": {"user.crt": leaf.chain, "user.key": leaf.key},
    }
    kubectl("apply", "-f", "-", stdin=secret, check=True)
    return "secure-ann"


def test_a_client_with_a_certificate_works_and_one_without_does_not_get_in(cluster: Cluster, user: str) -> None:
    with Workload(cluster, secret=user) as work:
        pass
    work.assert_nothing_lost(at_least=20)
    answer = kubectl("exec", "secure-101", "-n", cluster.namespace, "--", "python", "-c", PROBE)
    assert "answered" not in answer.stdout, answer
    assert "CERTIFICATE_REQUIRED" in answer.stderr, answer


def test_an_authority_is_replaced_under_load_without_a_lost_record_or_a_restart(cluster: Cluster, user: str) -> None:
    before, uids = key_of(_data("secure-cluster-ca")["ca.crt"]), cluster.uids()
    with Workload(cluster, secret=user) as work:
        cluster.annotate("replace-authority", "cluster=one")
        until("the new authority issues", lambda: key_of(_data("secure-cluster-ca")["ca.crt"]) != before, 400)
        until("the former authority is gone", lambda: "former.crt" not in _data("secure-cluster-ca"), 400)
        cluster.settle()
    work.assert_nothing_lost()
    assert cluster.uids() == uids, "no pod was restarted"
    assert [one["key"] for one in cluster.status["authorities"] if one["name"] == "cluster"] == [
        key_of(_data("secure-cluster-ca")["ca.crt"])
    ]


def test_a_deleted_authority_is_reported_and_not_made_again(cluster: Cluster) -> None:
    kept = get("secret", "secure-cluster-ca")
    kubectl("delete", "secret", "secure-cluster-ca", "-n", cluster.namespace, check=True)
    cluster.annotate("roll", "")  # a pass looks at everything
    until("it is reported", lambda: cluster.condition("Degraded").get("reason") == "AuthorityMissing", 60)
    assert get("secret", "secure-cluster-ca") is None
    kept["metadata"] = {key: kept["metadata"][key] for key in ("name", "namespace", "labels")}
    kubectl("create", "-f", "-", stdin=kept, check=True)
    cluster.annotate("roll", "x")
    cluster.settle()
