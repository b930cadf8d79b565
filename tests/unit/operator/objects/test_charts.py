"""The charts produce what the models and the plain manifests define. Without Helm only files are read."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_operator.api import generate
from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.pipelines.executors import ACCOUNT
from kraft_operator.specs.network import MANAGER_APP
from tests.peer import IS_MISSING
from tools.manifests import CHART, EXECUTORS, FILES, FOLDER, executors, helm, plain, rendered

ROOT = Path(__file__).parents[4]
CLUSTER_CHART = ROOT / "charts" / "kraftcluster"

needs_helm = pytest.mark.skipif(helm() is None, reason=f"helm{IS_MISSING}install it from https://helm.sh")


def _of(documents: list[Any], kind: str) -> list[Any]:
    return [one for one in documents if one["kind"] == kind]


def _rules(documents: list[Any]) -> list[dict[str, Any]]:
    return [rule for one in documents if one["kind"] in {"Role", "ClusterRole"} for rule in one["rules"]]


def test_versions_match_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for folder in (CHART, CLUSTER_CHART):
        chart = yaml.safe_load((folder / "Chart.yaml").read_text())
        assert chart["version"] == chart["appVersion"] == version
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for image in ("image", "nodeImage", "pipelineImage"):
        assert values[image].endswith(f":{version}")


def test_the_values_schema_of_a_cluster_matches_the_model() -> None:
    there = json.loads((ROOT / generate.VALUES).read_text())
    assert there == generate.values_schema(), "run python -m kraft_operator.api.generate"


@needs_helm
@pytest.mark.parametrize("folder", [CHART, CLUSTER_CHART], ids=lambda folder: folder.name)
def test_helm_lint_finds_no_fault(folder: Path) -> None:
    done = subprocess.run([str(helm()), "lint", "--strict", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@needs_helm
@pytest.mark.parametrize("name", FILES)
def test_the_plain_manifests_match_the_chart(name: str) -> None:
    assert (FOLDER / name).read_text() == plain(name), "run python -m tools.manifests"


@needs_helm
def test_rights_to_make_executors_are_granted_only_on_request() -> None:
    text = executors()
    assert (FOLDER / EXECUTORS).read_text() == text, "run python -m tools.manifests"
    documents = list(yaml.safe_load_all(text))
    assert {one["metadata"]["name"] for one in documents} == {ACCOUNT}
    assert [rule["resources"] for rule in _rules(documents)] == [["pods"]]
    assert ACCOUNT not in {one["metadata"]["name"] for one in rendered()}


@needs_helm
def test_the_charts_cluster_matches_the_sample() -> None:
    (made,) = rendered(chart=CLUSTER_CHART, release="sample", namespace="demo")
    sample = yaml.safe_load((FOLDER / "samples" / "kraftcluster.yaml").read_text())
    ours, theirs = (KRaftClusterSpec.model_validate(one["spec"]) for one in (made, sample))
    theirs.image = None
    for spec in (ours, theirs):
        spec.node_pools.sort(key=lambda pool: pool.name)
        spec.listeners.sort(key=lambda listener: listener.name)
    assert ours == theirs
    assert made["metadata"]["name"] == sample["metadata"]["name"]


@needs_helm
def test_values_of_a_cluster_reach_its_resource() -> None:
    words = ("nodePools.brokers.replicas=5", "nodePools.brokers.storage.volumes.more.size=1Ti", "name=other")
    words += ("topics.orders.partitions=12", r"topics.orders.config.retention\.ms=5", "listeners.external=null")
    sets = [word for one in words for word in ("--set-string" if "retention" in one else "--set", one)]
    documents = rendered(*sets, chart=CLUSTER_CHART)
    (cluster,) = _of(documents, "KRaftCluster")
    spec = KRaftClusterSpec.model_validate(cluster["spec"])
    brokers = next(pool for pool in spec.node_pools if pool.name == "brokers")
    assert brokers.replicas == 5
    assert [volume.name for volume in brokers.storage.volumes] == ["data", "more"]
    assert [listener.name for listener in spec.listeners] == ["plain"]
    (topic,) = _of(documents, "KRaftTopic")
    assert KRaftTopicSpec.model_validate(topic["spec"]) == KRaftTopicSpec(
        cluster="other", partitions=12, config={"retention.ms": "5"}
    )


@needs_helm
@pytest.mark.parametrize(
    ("chart", "word", "said"),
    [
        (CLUSTER_CHART, "replicaz=3", "replicaz"),
        (CLUSTER_CHART, "nodePools.brokers.roles={king}", "roles"),
        (CLUSTER_CHART, "config.a=1", "config"),
        (CHART, "image=kraftcluster", "/image"),
        (CHART, "replicas=0", "/replicas"),
        (CHART, "watch.namespace=x", "namespace"),
    ],
)
def test_wrong_values_are_refused_and_named(chart: Path, word: str, said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered("--set", word, chart=chart)
    assert said in refused.value.stderr


@needs_helm
@pytest.mark.parametrize("ports", [[], [9090, 9095]])
def test_the_operators_network_policy_has_the_ports_of_nodes(ports: list[int]) -> None:
    words = f"networkPolicy.nodePorts={{{','.join(map(str, ports))}}}"
    (policy,) = _of(rendered(*(("--set", words) if ports else ())), "NetworkPolicy")
    nodes = {"app.kubernetes.io/name": "kraftcluster"}
    (rule,) = [
        one
        for one in policy["spec"]["egress"]
        if any(peer.get("podSelector", {}).get("matchLabels") == nodes for peer in one.get("to", ()))
    ]
    assert [port["port"] for port in rule.get("ports", ())] == ports


@needs_helm
@pytest.mark.parametrize("what", ["localhost:5000/a/b:1", "ghcr.io/a@sha256:DIGEST", "ghcr.io/a:1.0@sha256:DIGEST"])
def test_an_image_is_named_by_tag_digest_or_both(what: str) -> None:
    image = what.replace("DIGEST", "0123456789abcdef" * 4)
    (deployment,) = _of(rendered("--set", f"image={image}"), "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image


@needs_helm
@pytest.mark.parametrize("words", [(), ("--set", "watch.allNamespaces=true"), ("--set", "watch.namespaces={a,b}")])
def test_rights_contain_no_wildcard(words: tuple[str, ...]) -> None:
    for rule in _rules(rendered(*words)):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        if "secrets" in rule["resources"]:
            assert (rule["resources"], set(rule["verbs"])) == (
                ["secrets"],
                {"get", "list", "create", "patch", "delete"},
            )
        if "nodes" in rule["resources"]:
            assert rule["verbs"] == ["get", "list", "watch"]


@needs_helm
def test_the_right_to_secrets_can_be_taken_away() -> None:
    assert any("secrets" in rule["resources"] for rule in _rules(rendered()))
    assert not any("secrets" in rule["resources"] for rule in _rules(rendered("--set", "rbac.secrets=false")))


@needs_helm
def test_without_node_watches_only_namespaced_rights_are_granted() -> None:
    documents = rendered("--set", "watch.nodes=false")
    assert not _of(documents, "ClusterRole")
    assert {one["metadata"]["namespace"] for one in _of(documents, "Role")} == {"kraft-operator"}
    two = rendered("--set", "watch.nodes=false", "--set", "watch.namespaces={a,b}")
    roles = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in _of(two, "Role")]
    name = "kraftcluster-operator"
    assert sorted(roles) == [("a", name), ("b", name), ("kraft-operator", f"{name}-lease")]
    (deployment,) = _of(two, "Deployment")
    env = {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["KRAFT_NAMESPACES"] == "a,b"


@needs_helm
def test_pods_pass_the_restricted_standard() -> None:
    documents = rendered()
    pods = [one["spec"]["template"]["spec"] for one in _of(documents, "Deployment")]
    pods += [one["spec"] for one in _of(documents, "Pod")]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


@needs_helm
def test_one_of_two_replicas_may_be_evicted() -> None:
    documents = rendered()
    (deployment,) = _of(documents, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for kind, path in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        (one,) = _of(documents, kind)
        assert one["spec"][path]["matchLabels"].items() <= labels.items()
    (service,) = _of(documents, "Service")
    assert service["spec"]["selector"].items() <= labels.items()
    assert labels["app.kubernetes.io/name"] == MANAGER_APP, "nodes' network policies let it in by this"
    assert not _of(rendered("--set", "replicas=1"), "PodDisruptionBudget")


@needs_helm
def test_monitors_rules_and_dashboards_match_their_sources() -> None:
    switches = ("monitors", "rules", "dashboards")
    documents = rendered(*(word for one in switches for word in ("--set", f"metrics.{one}.enabled=true")))
    assert len(_of(documents, "ServiceMonitor")) == 1
    (nodes,) = _of(documents, "PodMonitor")
    labels = {one["sourceLabels"][0] for one in nodes["spec"]["podMetricsEndpoints"][0]["relabelings"]}
    assert f"__meta_kubernetes_pod_label_{GROUP.replace('.', '_')}_pool" in labels
    (rules,) = _of(documents, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((CHART / "rules" / "alerts.yaml").read_text())
    boards = {key: json.loads(text) for one in _of(documents, "ConfigMap") for key, text in one["data"].items()}
    assert sorted(boards) == ["kraft-brokers.json", "kraft-operator.json", "kraft-partitions.json", "kraft-quorum.json"]
    plain_rules = rendered("--set", "metrics.rules.enabled=true", "--set", "metrics.rules.kind=ConfigMap")
    (one,) = _of(plain_rules, "ConfigMap")
    assert yaml.safe_load(one["data"]["alerts.yaml"]) == rules["spec"]
