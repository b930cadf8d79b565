"""Listeners with certificates of their own: exchanged under load, and requested from cert-manager.

cert-manager is not installed. Its definition of Certificates comes from its Go module (E2E_CERT_MANAGER_CRD names the
file), and the test signs in its place.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from e2e.kube import Cluster, Object, Workload, get, kubectl, needs_kubernetes, until
from kraft_operator.security.certificates import Authority, issue, new_authority
from kraft_operator.security.nodes import chain_of

pytestmark = needs_kubernetes

NAME = "listeners"
DEFINITION = Path(
    os.environ.get("E2E_CERT_MANAGER_CRD")
    or Path.home() / "go/pkg/mod/github.com/cert-manager/cert-manager@v1.16.3/deploy/crds/crd-certificates.yaml"
)
needs_definition = pytest.mark.skipif(
    not DEFINITION.exists(),
    reason="go mod download github.com/cert-manager/cert-manager@v1.16.3, or E2E_CERT_MANAGER_CRD",
)
LISTENER = {"name": "clients", "port": 9092}
KUBELET_S = 200
"""The kubelet needs up to two minutes until a node has the files of a changed Secret."""


@pytest.fixture(scope="module")
def cluster(operator: None) -> Iterator[Cluster]:
    one = Cluster(NAME, security={"superUsers": ["ann"]}, listeners=[LISTENER])
    _forget(one)
    one.apply()
    one.settle()
    yield one
    _forget(one)


def _forget(cluster: Cluster) -> None:
    cluster.forget()
    kubectl("delete", "secret", "-n", cluster.namespace, "company", "listeners-ann", "--ignore-not-found", check=True)


def _data(name: str) -> dict[str, str]:
    found: Object = get("secret", name)
    return {key: base64.b64decode(text).decode() for key, text in found["data"].items()}


def _authority(name: str) -> Authority:
    data = _data(f"{NAME}-{name}-ca")
    return Authority(data["ca.crt"], data["ca.key"])


def _put(cluster: Cluster, name: str, data: dict[str, str], **metadata: object) -> None:
    named = {"name": name, "namespace": cluster.namespace, **metadata}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": named, "stringData": data}
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=secret, check=True)


def _issued(authority: Authority, user: str) -> dict[str, str]:
    """A certificate for all names of the listener."""
    names = [f"{NAME}-bootstrap.kraft-operator.svc", f"{NAME}-bootstrap", f"*.{NAME}-nodes.kraft-operator.svc"]
    leaf = issue(authority, {"CN": user}, datetime.now(UTC), 90, names=names, server=True)
    return {"tls.crt": leaf.chain, "tls.key": leaf.key, "ca.crt": authority.certificate}


def _presented(cluster: Cluster) -> set[str]:
    """The certificates that the brokers present at the listener, as PEM texts."""
    code = "import ssl; print(ssl.get_server_certificate(('localhost', 9092)))"
    brokers = [i for i in cluster.pods() if i > 100]
    found = (kubectl("exec", f"{NAME}-{i}", "-n", cluster.namespace, "--", "python", "-c", code) for i in brokers)
    return {one.stdout.strip() for one in found}


def _leaf(data: dict[str, str]) -> str:
    end = "-----END CERTIFICATE-----"
    return chain_of(data["tls.crt"]).partition(end)[0] + end


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> str:
    """The Secret of a client's certificate."""
    leaf = issue(_authority("clients"), {"CN": "ann"}, datetime.now(UTC), 10)
    _put(cluster, "listeners-ann", {"user.crt": leaf.chain, "user.key": leaf.key})
    return "listeners-ann"


def test_a_secret_gives_a_listener_its_certificate_and_renewals_lose_no_connection(cluster: Cluster, user: str) -> None:
    # Of the cluster's own authority, so that the workload trusts it from the beginning.
    authority = _authority("cluster")
    cluster.change(listeners=[{**LISTENER, "certificate": {"secretName": "company"}}])
    until("it is missing", lambda: cluster.condition("Degraded").get("reason") == "ListenerCertificateMissing", 60)
    first, second = _issued(authority, "first"), _issued(authority, "second")
    _put(cluster, "company", first)
    until("no label", lambda: cluster.condition("Degraded").get("reason") == "ListenerCertificateNotAllowed", 60)
    kubectl("label", "secret", "company", "-n", cluster.namespace, "kraftcluster.io/certificate=allowed", check=True)
    cluster.settle()
    until("brokers present it", lambda: _presented(cluster) == {_leaf(first)}, KUBELET_S, 5)
    uids = cluster.uids()
    with Workload(cluster, secret=user) as work:
        _put(cluster, "company", second, labels={"kraftcluster.io/certificate": "allowed"})
        until("brokers present the renewed one", lambda: _presented(cluster) == {_leaf(second)}, KUBELET_S, 5)
    work.assert_nothing_lost()
    assert cluster.uids() == uids, "no pod was restarted"
    trust = get("configmap", f"{NAME}-trust")["data"]
    assert trust["clients.ca.crt"] == authority.certificate


def test_brokers_keep_the_certificate_of_a_deleted_secret(cluster: Cluster) -> None:
    before = _presented(cluster)
    kubectl("delete", "secret", "company", "-n", cluster.namespace, check=True)
    until("it is reported", lambda: cluster.condition("Degraded").get("reason") == "ListenerCertificateMissing", 120)
    assert _presented(cluster) == before


def test_a_removed_certificate_gives_way_to_those_of_the_nodes(cluster: Cluster, user: str) -> None:
    with Workload(cluster, secret=user) as work:
        cluster.change(listeners=[LISTENER])
        cluster.settle()
    work.assert_nothing_lost()
    assert not any("listener-clients.pem" in _data(f"{NAME}-{i}-tls") for i in cluster.pods())


@pytest.fixture
def cert_manager(cluster: Cluster) -> Iterator[None]:
    """cert-manager's definition, without its controller, and the right that the chart gives by rbac.certificates."""
    lines = [line for line in DEFINITION.read_text().splitlines() if "{{" not in line]
    definition = yaml.safe_load("\n".join(lines))
    kubectl("apply", "--server-side", "-f", "-", stdin=definition, check=True)
    kubectl("wait", "--for=condition=Established", "crd/certificates.cert-manager.io", "--timeout=60s", check=True)
    account = get("deploy", "kraftcluster-operator")["spec"]["template"]["spec"]["serviceAccountName"]
    space = ("-n", cluster.namespace)
    verbs = "--verb=get,list,create,patch,delete"
    kubectl("delete", "role,rolebinding", "certificates", *space, "--ignore-not-found", check=True)
    kubectl("create", "role", "certificates", *space, verbs, "--resource=certificates.cert-manager.io", check=True)
    bound = f"--serviceaccount={cluster.namespace}:{account}"
    kubectl("create", "rolebinding", "certificates", *space, "--role=certificates", bound, check=True)
    yield
    kubectl("delete", "role,rolebinding", "certificates", *space, check=True)
    kubectl("delete", "crd", "certificates.cert-manager.io", check=True)


@needs_definition
def test_a_certificate_is_requested_from_an_issuer_and_used(cluster: Cluster, cert_manager: None) -> None:
    name = f"{NAME}-clients-listener-tls"
    cluster.change(listeners=[{**LISTENER, "certificate": {"issuerRef": {"name": "company"}}}])
    request = until("it is requested", lambda: get("certificates.cert-manager.io", name), 120)["spec"]
    assert f"{NAME}-bootstrap.kraft-operator.svc" in request["dnsNames"]
    assert request["issuerRef"]["name"] == "company"
    authority = new_authority("company", datetime.now(UTC), 3650)
    leaf = issue(authority, {"CN": "x"}, datetime.now(UTC), 90, names=request["dnsNames"], server=True)
    data = {"tls.crt": leaf.chain, "tls.key": leaf.key, "ca.crt": authority.certificate}
    _put(cluster, request["secretName"], data, annotations={"cert-manager.io/certificate-name": name})
    cluster.settle()
    until("brokers present it", lambda: _presented(cluster) == {_leaf(data)}, KUBELET_S, 5)
    assert get("configmap", f"{NAME}-trust")["data"]["clients.ca.crt"] == authority.certificate
    cluster.change(listeners=[LISTENER])
    until("the request is withdrawn", lambda: not get("certificates.cert-manager.io", name), 120)
    cluster.settle()
