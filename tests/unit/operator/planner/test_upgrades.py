"""An upgrade of the operator restarts nodes deliberately: digests without defaults, a revision of manifests, a preview.

The tests also cover definitions and operator that are one version apart, in both directions.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import itertools
from typing import Any

import pytest
import yaml

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.plan.model.observed import Kube, Pod
from kraft_operator.plan.model.record import Node, Record
from kraft_operator.plan.model.situation import Situation
from kraft_operator.report.preview import Preview, preview
from kraft_operator.specs import pods
from kraft_operator.specs import properties as specs
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.planner_input import wanted_of
from tests.unit.operator.reconciling import KEY, new_api, new_operator, settle
from tests.unit.operator.sample import ROOT, pool_aspects, pool_aspects_of_before, sample

NODE = Node(101, "brokers", False, True)


def _lacks(has: dict[str, str], cluster: NamedCluster | None = None) -> list[str]:
    """The reasons why a broker's pod with these aspects would be restarted."""
    cluster = cluster or sample()
    record = Record(nodes=(NODE,), voters=(1, 2, 3))
    pod = Pod(True, True, {**has, "roles": "broker", "voters": "1,2,3"})
    return Situation(record, wanted_of(cluster, {}), Kube({101: pod}, {}, {}, {}), None, None).lacks(NODE)


def _broker(cluster: NamedCluster) -> Any:
    return cluster.spec.node_pools[1]


# Digests


def test_older_digests_of_pods_cause_no_restart() -> None:
    cluster = sample()
    before = pool_aspects_of_before(cluster, _broker(cluster))
    assert before[specs.MANIFESTS] == {""}
    for config, template in itertools.product(before["config"], before["template"]):
        has = {**pool_aspects(cluster, _broker(cluster)), "config": config, "template": template}
        del has[specs.MANIFESTS]  # it lacked this aspect
        assert _lacks(has) == []
    has["template"] = "another"
    assert _lacks(has) == ["template"]


def test_a_field_at_its_default_does_not_change_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later operator has more fields; the API server fills in their defaults."""
    document = yaml.safe_load((ROOT / "deploy/samples/kraftcluster.yaml").read_text())["spec"]
    short = KRaftClusterSpec.model_validate(document)
    full = KRaftClusterSpec.model_validate(short.model_dump(by_alias=True, exclude_none=True))
    digests = [pool_aspects(dataclasses.replace(sample(), spec=spec), spec.node_pools[1]) for spec in (short, full)]
    assert digests[0] == digests[1]

    class Later(type(short.node_pools[1].pod)):  # type: ignore[misc]
        runtime_class_name: str = ""

    later = Later.model_validate(short.node_pools[1].pod.model_dump(by_alias=True))
    pool = short.node_pools[1].model_copy(update={"pod": later})
    assert pool_aspects(dataclasses.replace(sample(), spec=short), pool) == digests[0]


def test_a_new_revision_of_manifests_restarts_running_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    has = pool_aspects(sample(), _broker(sample()))
    assert _lacks(has) == []
    monkeypatch.setattr(specs, "REVISION", "2")
    assert _lacks(has) == [specs.MANIFESTS]
    del has[specs.MANIFESTS]
    assert _lacks(has) == [specs.MANIFESTS]


def test_changed_manifests_require_a_new_revision() -> None:
    """If this fails, a change of manifests would not reach running pods: increase REVISION, and update the digest."""
    from tests.unit.operator.sample import manifests

    made = [one for one in manifests(sample()) if one["kind"] == "Pod"]
    for one in made:
        one["metadata"] = {}
        one["spec"].pop("volumes")
        one["spec"].pop("affinity")  # it places pods that start; running pods need no restart for it
        one["spec"]["containers"][0] |= {"image": "", "command": [], "env": []}
    from kraft_operator.specs.cluster import digest

    assert (specs.REVISION, digest(made)) == ("1", "1005edc38b75")


LISTENERS = {
    "another port": [{"name": "plain", "port": 9192}],
    "another name": [{"name": "other", "port": 9092}],
    "one more": [{"name": "plain", "port": 9092}, {"name": "more", "port": 9095}],
    "outside": [{"name": "plain", "port": 9092}, {"name": "web", "port": 9095, "type": "NodePort"}],
    "annotations": [{"name": "plain", "port": 9092, "annotations": {"a/b": "c"}}],
}
SECURE = {
    "passwords": [{"name": "plain", "port": 9092, "authentication": "ScramSha512"}],
    "plaintext": [{"name": "plain", "port": 9092, "tls": False}],
    "a certificate": [{"name": "plain", "port": 9092, "certificate": {"secretName": "own"}}],
}


@pytest.mark.parametrize("change", [*LISTENERS, *SECURE])
def test_a_listener_of_brokers_changes_nothing_of_controllers(change: str) -> None:
    """Digest, file and pod of controllers included the listeners of brokers: all nodes restarted for any change."""
    more: dict[str, Any] = {"security": {}} if change in SECURE else {}
    plain = [{"name": "plain", "port": 9092}]
    before = sample(listeners=plain, **more)
    after = sample(listeners={**LISTENERS, **SECURE}[change], **more)

    def made(cluster: NamedCluster, number: int, node: Node) -> list[Any]:
        pool, has = cluster.spec.node_pools[number], {"roles": ",".join(node_roles(node)), "voters": "1,2,3"}
        pod = pods.pod(cluster, pool, node, has, {"web": ("h", 31000)})
        return [pool_aspects(cluster, pool), pods.config_map(cluster, pool, node, has), pod]

    controller = Node(1, "controllers", True, False)
    assert made(before, 0, controller) == made(after, 0, controller)
    digests, *objects = zip(made(before, 1, NODE), made(after, 1, NODE), strict=True)
    assert digests[0] != digests[1]
    assert change == "annotations" or any(one != other for one, other in objects)


def node_roles(node: Node) -> list[str]:
    return ["controller"] * node.controller + ["broker"] * node.broker


def test_a_combined_node_restarts_for_a_listener() -> None:
    document = sample().spec.model_dump(by_alias=True, exclude_none=True)["nodePools"][:1]
    document[0] |= {"roles": ["controller", "broker"], "replicas": None}
    found = [
        pool_aspects(cluster, cluster.spec.node_pools[0])["config"]
        for name in ("another port", "one more")
        for cluster in [sample(listeners=LISTENERS[name], nodePools=document)]
    ]
    assert found[0] != found[1]


def test_a_node_is_compared_by_its_own_roles() -> None:
    """It gives up the role that its pool lost once its replicas have moved, and restarts then."""
    pools = sample().spec.model_dump(by_alias=True, exclude_none=True)["nodePools"][:1]
    listeners = [*LISTENERS["one more"], {"name": "web", "port": 9096, "type": "NodePort", "host": "a.example.com"}]

    def cluster(roles: list[str], listeners: Any) -> NamedCluster:
        return sample(listeners=listeners, nodePools=[{**pools[0], "roles": roles}])

    node = Node(1, "controllers", True, True)
    both = cluster(["controller", "broker"], listeners)
    has = {**pool_aspects(both, both.spec.node_pools[0]), "roles": "broker,controller", "voters": "1"}

    def lacks(changed: NamedCluster, node: Node = node) -> list[str]:
        record = Record(nodes=(node,), voters=(1,))
        return Situation(record, wanted_of(changed, {}), Kube({1: Pod(True, True, has)}), None, None).lacks(node)

    assert lacks(cluster(["controller"], listeners)) == []
    assert lacks(cluster(["controller"], listeners[1:])) == ["config"]
    assert lacks(cluster(["controller"], listeners), dataclasses.replace(node, broker=False)) == ["config", "roles"]


def test_a_controller_that_migrates_restarts_for_the_internal_listener_alone() -> None:
    """It connects to brokers by this listener. Without TLS, its name is the specification's."""
    migration = {"zookeeper": {"connect": "zk:2181"}, "brokers": [0]}

    def marks(listeners: Any, **more: Any) -> tuple[str, str]:
        cluster = sample(listeners=listeners, migration=migration, **more)
        pool = cluster.spec.node_pools[0]
        values = specs.properties(cluster, pool, 1, ["controller"], [1], migrates=True)
        return wanted_of(cluster, {}).zookeeper, values["listener.security.protocol.map"]

    plain, more, other = (marks(LISTENERS[name]) for name in ("another port", "one more", "another name"))
    assert plain == more and plain[1] == "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert plain[0] != other[0] and other[1] == "OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert marks(LISTENERS["one more"], security={}) == marks(LISTENERS["another name"], security={})


OLDER = ("first operators", "listeners of brokers in the digests of controllers")


@pytest.mark.parametrize("form", range(len(OLDER)), ids=OLDER)
def test_an_upgrade_restarts_nothing_and_then_a_listener_restarts_brokers_alone(form: int) -> None:
    """After the upgrade, the older digests were compared at the next change, and controllers restarted in vain."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        await operator.reconcile(KEY)
        operator.close()
        resource = api.objects["KRaftCluster", *KEY]
        cluster = NamedCluster("sample", "demo", "u", KRaftClusterSpec.model_validate(resource["spec"]))
        older = {
            pool.name: specs._digests(
                cluster, pool, broker="broker" in pool.roles, defaults=not form, all_listeners=True
            )
            for pool in cluster.spec.node_pools
        }
        there = {name: one for (kind, _, name), one in api.objects.items() if kind == "Pod"}
        for one in there.values():
            marks = one["metadata"]["annotations"]
            marks |= {pods.ASPECT + k: v for k, v in older[one["metadata"]["labels"]["kraftcluster.io/pool"]].items()}
            if not form:
                del marks[pods.ASPECT + specs.MANIFESTS]
        uids = {name: one["metadata"]["uid"] for name, one in there.items()}
        operator = new_operator(api)
        for _ in range(4):
            await operator.reconcile(KEY)
            api.work()
        resource = api.objects["KRaftCluster", *KEY]
        assert all(not node["needsRestart"] for node in resource["status"]["nodes"])
        resource["spec"]["listeners"][0]["port"] = 9192
        resource["metadata"]["generation"] = 2
        await operator.reconcile(KEY)
        lacking = {one["id"]: one["needsRestart"] for one in api.objects["KRaftCluster", *KEY]["status"]["nodes"]}
        assert lacking == {1: [], 2: [], 3: [], **{key: ["config"] for key in (101, 102, 103)}}
        assert uids == {name: one["metadata"]["uid"] for (kind, _, name), one in api.objects.items() if kind == "Pod"}
        operator.close()

    asyncio.run(main())


# Preview


async def _running() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The resource and the pods of a settled cluster."""
    api = new_api()
    operator = new_operator(api)
    await settle(api, operator)
    await operator.reconcile(KEY)
    operator.close()
    pods = [copy.deepcopy(one) for (kind, *_), one in api.objects.items() if kind == "Pod"]
    return copy.deepcopy(api.objects["KRaftCluster", *KEY]), pods


def test_a_preview_names_restarts_and_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    resource, pods = asyncio.run(_running())
    quiet = preview(resource, pods)
    assert quiet.restarts == {}
    changed = copy.deepcopy(resource)
    changed["spec"]["config"] |= {"queued.max.requests": "900", "log.retention.ms": "1000"}
    changed["spec"]["replicas"] = 4
    found = preview(resource, pods, changed)
    assert found.restarts == {node: ["config"] for node in (1, 2, 3, 101, 102, 103)}
    assert found.put["log.retention.ms"] == "1000"
    assert found.replicas == {"brokers": (3, 4)}
    assert found.lines[:2] == ["pool brokers: 3 -> 4 nodes", "node 1 is restarted: config"]
    monkeypatch.setattr(specs, "REVISION", "2")
    assert set(map(tuple, preview(resource, pods).restarts.values())) == {("manifests",)}
    assert Preview().lines == ["nothing is restarted or changed"]


# Version skew


def test_later_definitions_change_nothing() -> None:
    """CRDs are upgraded first: the API server has fields that this operator does not know."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        await operator.reconcile(KEY)
        resource = api.objects["KRaftCluster", *KEY]
        resource["spec"] |= {"laterField": {"a": 1}}
        resource["spec"]["nodePools"][0]["laterField"] = True
        resource["spec"]["listeners"][0]["laterField"] = "x"
        resource["metadata"]["generation"] = 2
        uids = {name: one["metadata"]["uid"] for (kind, _, name), one in api.objects.items() if kind == "Pod"}
        for _ in range(4):
            await operator.reconcile(KEY)
            api.work()
        assert uids == {name: one["metadata"]["uid"] for (kind, _, name), one in api.objects.items() if kind == "Pod"}
        assert "laterField" in resource["spec"]
        operator.close()

    asyncio.run(main())


OPTIONAL = ("quorum", "updateStrategy", "drain", "rebalance", "metrics", "replacements", "podDisruptionBudget")


@pytest.mark.parametrize("field", OPTIONAL)
def test_older_definitions_change_nothing(field: str) -> None:
    """The operator is upgraded first: the API server prunes a field, and fills in no default."""

    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        resource = api.objects["KRaftCluster", *KEY]
        resource["spec"].pop(field, None)
        resource["metadata"]["generation"] = 2
        uids = {name: one["metadata"]["uid"] for (kind, _, name), one in api.objects.items() if kind == "Pod"}
        for _ in range(4):
            await operator.reconcile(KEY)
            api.work()
        assert uids == {name: one["metadata"]["uid"] for (kind, _, name), one in api.objects.items() if kind == "Pod"}
        operator.close()

    asyncio.run(main())
