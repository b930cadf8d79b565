"""What `spec.security` means for nodes, and which specifications are refused."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_local.resource_file import BadResourceError, parsed
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.plan.model.record import Node
from kraft_operator.specs import network, pods
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.properties import advertised, properties
from kraft_protocol.tls.names import PrincipalMapper
from tests.unit.operator.sample import pool_aspects, pool_aspects_of_before, sample

LISTENERS = [
    {"name": "tls", "port": 9093},
    {"name": "scram", "port": 9094, "authentication": "ScramSha512"},
    {"name": "open", "port": 9095, "tls": False},
    {"name": "outside", "port": 9096, "type": "LoadBalancer"},
]


def of(cluster: NamedCluster) -> dict[str, str]:
    return properties(cluster, cluster.spec.node_pools[1], 101, ["broker"], [1, 2, 3])


def document(security: dict[str, Any] | None = None, **changes: Any) -> str:
    import yaml

    spec = sample(**changes).spec.model_dump(by_alias=True, exclude_none=True)
    if security is not None:
        spec["security"] = security
    head = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": "KRaftCluster", "metadata": {"name": "sample"}}
    return yaml.safe_dump({**head, "spec": spec})


def problems(text: str, before: dict[str, Any] | None = None, mode: str = "") -> str:
    try:
        parsed(text, "f", before, mode=mode)
    except BadResourceError as error:
        return str(error)
    return ""


def test_each_listener_has_its_protocol() -> None:
    found = of(sample(security={}, listeners=LISTENERS))

    assert found["listener.security.protocol.map"] == (
        "REPLICATION:SSL,TLS:SSL,SCRAM:SASL_SSL,OPEN:PLAINTEXT,OUTSIDE:SSL,CONTROLLER:SSL"
    )
    assert found["inter.broker.listener.name"] == "REPLICATION"
    assert found["listener.name.scram.sasl.enabled.mechanisms"] == "SCRAM-SHA-512,SCRAM-SHA-256"
    assert found["listener.name.scram.ssl.client.auth"] == "none"


def test_only_listeners_for_clients_trust_the_authority_of_clients() -> None:
    found = of(sample(security={}, listeners=LISTENERS))

    trust = {key: value.rpartition("/")[2] for key, value in found.items() if key.endswith("ssl.truststore.location")}
    assert trust.pop("ssl.truststore.location") == "cluster-ca.pem"
    assert set(trust) == {f"listener.name.{name}.ssl.truststore.location" for name in ("tls", "scram", "outside")}
    assert set(trust.values()) == {"clients-ca.pem"}
    assert found["ssl.client.auth"] == "required"


def test_nodes_and_operator_are_super_users_beside_the_named_ones() -> None:
    found = of(sample(security={"superUsers": ["admin"]}))

    assert found["super.users"] == ("User:CN=node,OU=sample,O=demo;User:CN=operator,OU=sample,O=demo;User:admin")
    assert "super.users" not in of(sample(security={"authorization": "Everything"}))


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        ("CN=ann", "ann"),
        ("CN=ann,OU=Sales,O=Example", "ann"),
        ("CN=node,OU=sample,O=demo", "node"),
        (r"CN=CN\=node\,OU\=sample\,O\=demo", "CN\\=node\\"),
        ("OU=Sales,CN=ann", None),
    ],
)
def test_no_certificate_of_a_client_makes_a_super_user(subject: str, user: str | None) -> None:
    found = of(sample(security={}))
    rules = PrincipalMapper(found["listener.name.plain.ssl.principal.mapping.rules"])

    assert rules.name(subject) == user
    assert f"User:{user}" not in found["super.users"].split(";")


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        ("CN=ann,OU=kraftuser.sample,O=demo", "ann"),
        ("CN=node,OU=kraftuser.sample,O=demo", "node"),
        ("CN=node,OU=sample,O=demo", "CN=node,OU=sample,O=demo"),
        ("CN=ann", "CN=ann"),
        ("CN=ann,OU=kraftuser.sample,O=other", "CN=ann,OU=kraftuser.sample,O=other"),
        ("CN=ann,OU=kraftuserXsample,O=demo", "CN=ann,OU=kraftuserXsample,O=demo"),
        ("CN=ann,OU=kraftuser.sample,O=demo,C=DE", "CN=ann,OU=kraftuser.sample,O=demo,C=DE"),
        (r"CN=x\,OU\=kraftuser.sample\,O\=demo", r"CN=x\,OU\=kraftuser.sample\,O\=demo"),
    ],
)
def test_only_certificates_of_users_have_short_names_at_the_controllers(subject: str, user: str) -> None:
    cluster = sample(security={})
    key = "listener.name.controller.ssl.principal.mapping.rules"
    found = properties(cluster, cluster.spec.node_pools[0], 1, ["controller"], [1, 2, 3])
    assert PrincipalMapper(found[key]).name(subject) == user
    assert f"User:{user}" not in found["super.users"].split(";") or subject == user
    assert key not in of(cluster), "a broker has no such listener"


def test_a_cluster_without_security_has_the_same_pods_as_before() -> None:
    cluster = sample()
    pool = cluster.spec.node_pools[1]

    assert not any(key.startswith(("ssl.", "super.", "authorizer")) for key in of(cluster))
    assert "tls" not in str(pods.pod(cluster, pool, Node(101, "brokers", False, True), {"roles": "broker"}, {}))
    # The digests of operators without these fields; they must never change.
    assert pool_aspects(cluster, pool)["config"] == "c4cbdccc2f70"
    assert pool_aspects_of_before(cluster, pool)["config"] == {"7e40227d136c", "c4cbdccc2f70"}


def test_pods_mount_the_secret_of_their_node_and_serve_the_nodes_listener_first() -> None:
    cluster = sample(security={})
    pod = pods.pod(cluster, cluster.spec.node_pools[1], Node(101, "brokers", False, True), {"roles": "broker"}, {})

    (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == "tls")
    assert volume["secret"]["secretName"] == "sample-101-tls"
    assert pod["spec"]["containers"][0]["ports"][0]["containerPort"] == 9091
    assert advertised(cluster, 101, {}).startswith("REPLICATION://sample-101.sample-nodes.demo.svc:9091,")
    policy = next(one for one in network.network_policies(cluster) if one["metadata"]["name"] == "sample-clients")
    assert {"port": 9091} not in policy["spec"]["ingress"][0]["ports"], "clients do not reach the nodes' listener"


def test_a_listener_outside_without_authentication_is_refused_unless_it_is_named() -> None:
    listeners = [
        {"name": "plain", "port": 9092},
        {"name": "web", "port": 9096, "type": "NodePort", "authentication": "Anonymous"},
    ]

    assert "open to everybody" in problems(document({}, listeners=listeners))
    assert problems(document({"openListeners": ["web"]}, listeners=listeners)) == ""
    plain = [listeners[0], {"name": "web", "port": 9096, "type": "NodePort"}]
    assert "open to everybody" in problems(document({"tls": "Disabled"}, listeners=plain))
    assert problems(document({}, listeners=plain)) == ""
    assert problems(document(None, listeners=plain)) == "", "a cluster of before stays as it is"


@pytest.mark.parametrize(
    ("security", "changes", "word"),
    [
        ({}, {"listeners": [{"name": "plain", "port": 9091}]}, "9091"),
        ({}, {"config": {"super.users": "User:x"}}, "spec.security"),
        (
            {},
            {"listeners": [{"name": "plain", "port": 9092, "tls": False, "authentication": "MutualTls"}]},
            "MutualTls",
        ),
        (
            None,
            {
                "listeners": [
                    {"name": "plain", "port": 9092},
                    {"name": "web", "port": 9094, "type": "NodePort", "authentication": "Anonymous"},
                ]
            },
            "open to everybody",
        ),
        ({"tls": "Disabled"}, {"listeners": [{"name": "plain", "port": 9092, "tls": True}]}, "security.tls"),
        ({"clusterAuthority": {"validityDays": 10, "renewBeforeDays": 10}}, {}, "renewBeforeDays"),
    ],
)
def test_a_contradiction_is_refused_with_its_field(security: Any, changes: dict[str, Any], word: str) -> None:
    assert word in problems(document(security, **changes))


def test_tls_changes_only_while_all_nodes_are_stopped() -> None:
    before = sample().spec.model_dump(by_alias=True, exclude_none=True)

    assert "hibernated" in problems(document({}), before, "Plaintext")
    assert problems(document({}), before, "Tls") == ""
    assert problems(document({}, hibernated=True), {**before, "hibernated": True}, "Plaintext") == ""
    plain = document({"tls": "Disabled"}, listeners=[{"name": "plain", "port": 9092}])
    assert problems(plain, before, "Plaintext") == ""
    assert "hibernated" in problems(plain, before, "Tls")
    assert "hibernated" in problems(plain, {**before, "security": {"tls": "Enabled"}})


def test_a_cluster_of_before_gets_no_further_open_listener_unless_it_is_named() -> None:
    before = sample().spec.model_dump(by_alias=True, exclude_none=True)
    more = [*before["listeners"], {"name": "web", "port": 9096, "type": "LoadBalancer"}]

    assert "open to everybody" in problems(document(None, listeners=more), before, "Plaintext")
    assert problems(document(None, listeners=more), before, "Tls") == "", "it authenticates clients"
    assert problems(document(None, replicas=4), before, "Plaintext") == "", "the one that it has stays"
    accepted = {"tls": "Disabled", "openListeners": ["external", "web"]}
    assert problems(document(accepted, listeners=more), before, "Plaintext") == ""


def test_a_specification_of_before_is_read_without_security() -> None:
    assert KRaftClusterSpec.model_validate(sample().spec.model_dump()).security is None


def test_services_of_a_load_balancer_have_its_networks_class_and_annotations() -> None:
    one = {"name": "outside", "port": 9096, "type": "LoadBalancer", "sourceRanges": ["10.0.0.0/8"]}
    one |= {"annotations": {"dns.example/name": "kafka"}, "loadBalancerClass": "example.com/internal"}
    cluster = sample(security={}, listeners=[{"name": "plain", "port": 9092}, one])
    (listener,) = cluster.external

    for service in (network.external_bootstrap(cluster, listener), network.external_broker(cluster, listener, 101, 0)):
        assert service["metadata"]["annotations"] == {"dns.example/name": "kafka"}
        assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
        assert service["spec"]["loadBalancerClass"] == "example.com/internal"
    assert "LoadBalancer" in problems(
        document({}, listeners=[{"name": "p", "port": 9092, "sourceRanges": ["10.0.0.0/8"]}])
    )


def test_a_listener_with_its_own_certificate_has_a_file_on_brokers_only() -> None:
    own = {"name": "tls", "port": 9093, "certificate": {"secretName": "corporate"}}
    cluster = sample(security={}, listeners=[own])
    found = of(cluster)
    assert found["listener.name.tls.ssl.keystore.location"] == "/etc/kraft-tls/listener-tls.pem"
    assert found["listener.name.tls.ssl.allow.dn.changes"] == "true"
    controllers = properties(cluster, cluster.spec.node_pools[0], 1, ["controller"], [1, 2, 3])
    assert "listener.name.tls.ssl.keystore.location" not in controllers


def test_brokers_restart_for_the_first_own_certificate_of_a_listener_but_not_for_another_source_of_it() -> None:
    plain, own = {"name": "tls", "port": 9093}, {"name": "tls", "port": 9093, "certificate": {"secretName": "a"}}
    issuer = {**own, "certificate": {"issuerRef": {"name": "b"}}}
    without, first, other = (sample(security={}, listeners=[one]) for one in (plain, own, issuer))
    controllers, brokers = first.spec.node_pools
    assert pool_aspects(first, brokers) == pool_aspects(other, brokers)
    assert pool_aspects(first, brokers) != pool_aspects(without, brokers)
    assert pool_aspects(first, controllers) == pool_aspects(without, controllers)


@pytest.mark.parametrize(
    ("listener", "text"),
    [
        ({"certificate": {}}, "give secretName or issuerRef"),
        ({"certificate": {"secretName": "a", "issuerRef": {"name": "b"}}}, "give secretName or issuerRef"),
        ({"tls": False, "authentication": "ScramSha512", "certificate": {"secretName": "a"}}, "leave certificate out"),
    ],
)
def test_a_certificate_has_one_source_and_needs_tls(listener: dict[str, Any], text: str) -> None:
    listeners = [{"name": "one", "port": 9093, **listener}]
    assert text in problems(document({"tls": "Enabled"}, listeners=listeners))
    without = problems(document({"tls": "Disabled"}, listeners=[{"name": "one", "port": 9093, **listener}]))
    assert "security.tls to Enabled" in without or "secretName" in without
