"""Listeners outside Kubernetes: names by template, overrides, Ingresses, Routes, certificates, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kraft_local.resource_file import BadResourceError, parsed
from kraft_operator.admission import refusals_of_cluster
from kraft_operator.api.user import KRaftUserSpec
from kraft_operator.observe import addresses
from kraft_operator.specs import fronts, network, security, user_access
from tests.unit.operator.sample import pool_aspects, pool_aspects_of_before, sample

INTERNAL = {"name": "tls", "port": 9093}
INGRESS = {
    "name": "out",
    "port": 9096,
    "type": "Ingress",
    "hostTemplate": "broker-{node.id}.{cluster.name}.example.com",
    "bootstrap": {"host": "{listener.name}.{cluster.namespace}.example.com"},
}
ROUTE = {"name": "out", "port": 9096, "type": "Route"}
Object = dict[str, Any]


def cluster_with(listener: Object, **more: Any) -> Any:
    return sample(security={}, listeners=[INTERNAL, {**listener, **more}])


def refusal(*listeners: Object, security: Object | None = None) -> str:
    spec = sample().spec.model_dump(by_alias=True, exclude_none=True)
    spec |= {"listeners": [INTERNAL, *listeners], "security": {} if security is None else security}
    head = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": "KRaftCluster", "metadata": {"name": "sample"}}
    try:
        parsed(yaml.safe_dump({**head, "spec": spec}), "f")
    except BadResourceError as error:
        return str(error)
    return "; ".join(refusals_of_cluster(spec))


def test_an_ingress_passes_each_broker_through_by_its_name() -> None:
    cluster = cluster_with(INGRESS, ingressClass="nginx", annotations={"example.com/a": "listener"})
    (listener,) = cluster.external

    made = fronts.broker_front(cluster, listener, 101)
    assert made is not None
    assert made["spec"]["rules"][0]["host"] == "broker-101.sample.example.com"
    assert made["spec"]["tls"] == [{"hosts": ["broker-101.sample.example.com"]}]
    assert made["spec"]["ingressClassName"] == "nginx"
    (path,) = made["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "sample-101-out", "port": {"number": 9096}}
    assert made["metadata"]["annotations"]["nginx.ingress.kubernetes.io/ssl-passthrough"] == "true"
    assert made["metadata"]["annotations"]["example.com/a"] == "listener"
    first = fronts.bootstrap_front(cluster, listener)
    assert first is not None
    assert (first["metadata"]["name"], first["spec"]["rules"][0]["host"]) == ("sample-out", "out.demo.example.com")


def test_services_behind_a_router_are_internal_and_name_their_front() -> None:
    cluster = cluster_with(INGRESS, annotations={"example.com/a": "listener"})
    (listener,) = cluster.external

    for service in (
        network.external_broker(cluster, listener, 101, 0),
        network.external_bootstrap(cluster, listener),
    ):
        assert service["spec"]["type"] == "ClusterIP"
        assert service["metadata"]["annotations"] == {fronts.FRONT: "Ingress"}


def test_a_route_without_template_has_the_assigned_name() -> None:
    cluster = cluster_with(ROUTE)
    (listener,) = cluster.external
    route = fronts.broker_front(cluster, listener, 101)
    assert route is not None
    assert route["spec"]["tls"] == {"termination": "passthrough"}
    assert "host" not in route["spec"]

    service = network.external_broker(cluster, listener, 101, 0)
    assert addresses.of_broker(cluster, listener, 101, service, route) is None
    route["spec"]["host"] = "sample-101-out-demo.apps.example.com"
    assert addresses.of_broker(cluster, listener, 101, service, route) == (
        "sample-101-out-demo.apps.example.com",
        443,
    )


def test_an_override_takes_precedence_for_its_broker_alone() -> None:
    override = {"node": 102, "host": "two.example.com", "advertisedPort": 8443, "annotations": {"example.com/a": "own"}}
    cluster = cluster_with(INGRESS, annotations={"example.com/a": "all"}, brokers=[override])
    (listener,) = cluster.external

    outside = {i: addresses.of_broker(cluster, listener, i, {}) for i in (101, 102)}
    assert outside == {101: ("broker-101.sample.example.com", 443), 102: ("two.example.com", 8443)}
    made = {i: fronts.broker_front(cluster, listener, i) for i in (101, 102)}
    assert {i: one and one["metadata"]["annotations"]["example.com/a"] for i, one in made.items()} == {
        101: "all",
        102: "own",
    }


def test_load_balancers_and_node_ports_take_overrides() -> None:
    balancer = {"name": "out", "port": 9096, "type": "LoadBalancer"}
    cluster = cluster_with(
        balancer,
        bootstrap={"loadBalancerIP": "192.0.2.9", "host": "kafka.example.com"},
        brokers=[{"node": 101, "loadBalancerIP": "192.0.2.1", "annotations": {"a/b": "c"}, "nodePort": 30001}],
    )
    (listener,) = cluster.external
    service = network.external_broker(cluster, listener, 101, 0)
    assert service["spec"]["loadBalancerIP"] == "192.0.2.1"
    assert service["spec"]["ports"] == [{"name": "out", "port": 9096, "nodePort": 30001}]
    assert service["metadata"]["annotations"] == {"a/b": "c"}
    assert network.external_bootstrap(cluster, listener)["spec"]["loadBalancerIP"] == "192.0.2.9"

    ports = {"name": "out", "port": 9096, "type": "NodePort", "firstNodePort": 31000}
    cluster = cluster_with(
        ports, hostTemplate="machine-{node.id}.example.com", brokers=[{"node": 102, "nodePort": 30777}]
    )
    (listener,) = cluster.external
    found = {
        i: addresses.of_broker(cluster, listener, i, network.external_broker(cluster, listener, i, i - 101))
        for i in (101, 102)
    }
    assert found == {101: ("machine-101.example.com", 31000), 102: ("machine-102.example.com", 30777)}


def test_certificates_are_valid_for_all_names_of_a_broker() -> None:
    bootstrap = {"host": "kafka.example.com", "alternativeNames": ["alias.example.com"]}
    cluster = cluster_with(INGRESS, bootstrap=bootstrap, brokers=[{"node": 102, "host": "two.example.com"}])

    names = security.names(cluster, 101, True)
    assert {"kafka.example.com", "alias.example.com", "broker-101.sample.example.com"} <= names
    assert "two.example.com" not in names
    assert "two.example.com" in security.names(cluster, 102, True)
    assert "kafka.example.com" not in security.names(cluster, 1, False), "controllers have no listener outside"


def test_only_brokers_whose_address_changes_restart() -> None:
    def digests(**more: Any) -> tuple[str, str]:
        cluster = cluster_with(INGRESS, **more)
        return tuple(pool_aspects(cluster, pool)["config"] for pool in cluster.spec.node_pools)  # type: ignore[return-value]

    controllers, brokers = digests()
    # Names and ports are compared by broker; what belongs to bootstrap alone concerns no broker.
    for change in (
        {"hostTemplate": "b{node.id}.example.com"},
        {"advertisedPort": 8443},
        {"brokers": [{"node": 101, "host": "one.example.com"}]},
        {"bootstrap": {"host": "other.example.com", "annotations": {"a/b": "c"}}},
    ):
        assert digests(**change) == (controllers, brokers), change
    for change in ({"ingressClass": "haproxy"}, {"brokers": [{"node": 101, "annotations": {"a/b": "c"}}]}):
        changed = digests(**change)
        assert changed[0] == controllers, change
        assert changed[1] != brokers, change


def test_clusters_without_the_new_fields_restart_no_node() -> None:
    listener = {"name": "out", "port": 9096, "type": "NodePort", "host": "h.example.com", "firstNodePort": 31000}
    cluster = sample(listeners=[{"name": "plain", "port": 9092}, listener])
    found = [pool_aspects(cluster, pool)["config"] for pool in cluster.spec.node_pools]
    older = pool_aspects_of_before(cluster, cluster.spec.node_pools[0])["config"]
    assert "f2d6dcdf4af0" in older and found[1] == "e907db25b968", "digests of the operator before these fields"


def test_a_user_gets_the_name_for_the_first_connection() -> None:
    cluster = cluster_with(INGRESS)
    spec = KRaftUserSpec.model_validate(
        {"cluster": "sample", "authentication": {"type": "MutualTls"}, "listener": "out"}
    )
    listener = user_access.fitting_listener(cluster, spec)
    assert listener is not None
    assert user_access.bootstrap(cluster, listener) == "out.demo.example.com:443"


def test_the_status_shows_all_known_addresses() -> None:
    cluster = sample(security={}, listeners=[INTERNAL, INGRESS, {"name": "ports", "port": 9097, "type": "NodePort"}])
    services = []
    for listener in cluster.external:
        services.append(network.external_bootstrap(cluster, listener))
        services += [network.external_broker(cluster, listener, i, i - 101) for i in (101, 102)]
    for place, service in enumerate(one for one in services if one["spec"]["type"] == "NodePort"):
        service["spec"]["ports"][0]["nodePort"] = 30000 + place

    seen = {one.name: one for one in addresses.listeners(cluster, services, (), {101: "192.0.2.1"})}
    assert seen["tls"].bootstrap == "sample-bootstrap.demo.svc:9093"
    assert seen["out"].bootstrap == "out.demo.example.com:443"
    assert seen["out"].brokers == {101: "broker-101.sample.example.com:443", 102: "broker-102.sample.example.com:443"}
    assert seen["ports"].bootstrap == "192.0.2.1:30000"
    assert seen["ports"].brokers == {101: "192.0.2.1:30001"}, "the machine of 102 is not known"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hostTemplate": None}, "set hostTemplate (with {node.id}) and bootstrap.host"),
        ({"bootstrap": {}}, "set hostTemplate (with {node.id}) and bootstrap.host"),
        ({"hostTemplate": "same.example.com"}, "put {node.id} into hostTemplate"),
        ({"hostTemplate": "b-{node.ids}.example.com"}, "hostTemplate"),
        ({"hostTemplate": "B-{node.id}.example.com"}, "hostTemplate"),
        ({"bootstrap": {"host": "b-{node.id}.example.com"}}, "bootstrap.host cannot contain {node.id}"),
        ({"tls": False, "authentication": "ScramSha512"}, "in the TLS handshake"),
        ({"type": "LoadBalancer", "ingressClass": "nginx"}, "ingressClass is of listeners of type Ingress"),
        ({"brokers": [{"node": 101, "nodePort": 30000}]}, "nodePort is of listeners of type NodePort or LoadBalancer"),
        ({"brokers": [{"node": 101, "loadBalancerIP": "192.0.2.1"}]}, "loadBalancerIP is of listeners"),
        ({"brokers": [{"node": 1, "host": "a.example.com"}]}, "no pool of brokers has this node id"),
        ({"host": "all.example.com"}, "host is the host of all brokers"),
        ({"brokers": [{"node": 101, "host": "out.{cluster.namespace}.example.com"}]}, "host"),
        (
            {"brokers": [{"node": 101, "host": "a.example.com"}, {"node": 102, "host": "a.example.com"}]},
            "already leads to spec.listeners out brokers 101 host",
        ),
        (
            {"hostTemplate": "b{node.id}.example.com", "brokers": [{"node": 101, "host": "b102.example.com"}]},
            "out brokers 101 host: the name b102.example.com is that of broker 102 by spec.listeners out hostTemplate",
        ),
        (
            {"hostTemplate": "b{node.id}.example.com", "bootstrap": {"host": "b101.example.com"}},
            "out bootstrap.host: the name b101.example.com is that of broker 101 by spec.listeners out hostTemplate",
        ),
        (
            {"hostTemplate": "b{node.id}-{node.id}.example.com", "bootstrap": {"host": "b7-7.example.com"}},
            "out bootstrap.host: the name b7-7.example.com is that of broker 7",
        ),
        ({"type": "Internal"}, "are of listeners outside of Kubernetes"),
    ],
)
def test_a_listener_that_cannot_work_is_refused(change: Object, text: str) -> None:
    listener = {key: value for key, value in {**INGRESS, **change}.items() if value is not None}
    assert text in refusal(listener)


def test_two_listeners_cannot_have_the_same_names() -> None:
    other = {**INGRESS, "name": "two", "port": 9097, "bootstrap": {"host": "two.example.com"}}
    assert "two hostTemplate: spec.listeners out hostTemplate has the same name" in refusal(INGRESS, other)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"brokers": [{"node": 101, "host": "b102.example.com"}]},
            "two brokers 101 host: the name b102.example.com is that of broker 102 by spec.listeners out hostTemplate",
        ),
        (
            {"bootstrap": {"host": "b102.example.com"}},
            "two bootstrap.host: the name b102.example.com is that of broker 102 by spec.listeners out hostTemplate",
        ),
        (
            {"bootstrap": {"host": "first.example.com"}},
            "two bootstrap.host: the name first.example.com already leads to spec.listeners out bootstrap.host",
        ),
        (
            {"hostTemplate": "b10{node.id}.example.com"},
            "",
        ),
        (
            {"hostTemplate": "{listener.name}{node.id}.example.com", "name": "b"},
            "b hostTemplate: spec.listeners out hostTemplate has the same name",
        ),
        ({"brokers": [{"node": 101, "host": "b0102.example.com"}]}, ""),
    ],
)
def test_brokers_of_two_listeners_cannot_have_one_name(change: Object, text: str) -> None:
    """Two Ingresses had one host, so clients of a broker reached another broker."""
    first = {**INGRESS, "hostTemplate": "b{node.id}.example.com", "bootstrap": {"host": "first.example.com"}}
    second = {"name": "two", "port": 9097, "hostTemplate": "c{node.id}.example.com"}
    found = refusal(first, {**INGRESS, **second, "bootstrap": {"host": "two.example.com"}, **change})
    assert text in found and bool(text) == bool(found)


def test_a_broker_with_a_host_of_its_own_frees_its_name_by_the_template() -> None:
    own = [{"node": 101, "host": "own.example.com"}, {"node": 102, "host": "b101.example.com"}]
    assert refusal({**INGRESS, "hostTemplate": "b{node.id}.example.com", "brokers": own}) == ""


def test_the_names_of_the_cluster_fill_its_templates() -> None:
    own = [{"node": 101, "host": "sample-102.example.com"}]
    listener = {**INGRESS, "hostTemplate": "{cluster.name}-{node.id}.example.com", "brokers": own}
    spec = cluster_with(listener).spec
    assert fronts.listener_problems(spec, "other", "demo") == []
    (text,) = fronts.listener_problems(spec, "sample", "demo")
    assert "sample-102.example.com is that of broker 102" in text


def test_a_router_by_name_needs_tls() -> None:
    listener = {**INGRESS, "authentication": None}
    text = refusal({key: value for key, value in listener.items() if value}, security={"tls": "Disabled"})
    assert "an Ingress or Route finds a broker by the name in the TLS handshake" in text


def test_the_ingress_itself_is_accepted() -> None:
    assert refusal(INGRESS) == ""
    assert refusal(ROUTE) == ""


def test_policies_let_the_router_in() -> None:
    cluster = cluster_with(INGRESS)
    (policy,) = [one for one in network.network_policies(cluster) if one["metadata"]["name"] == "sample-clients"]
    assert {"port": 9096} in policy["spec"]["ingress"][0]["ports"]
