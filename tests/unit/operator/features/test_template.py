"""A pool's pod template: its fields in the pod, reserved fields, and fields that need a grant."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import yaml

from kraft_local.cel import compiled
from kraft_operator.api.base import rules_of
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.template import LATER, ContainerSecurity, EnvVar, ExtraVolume, PodTemplate
from kraft_operator.apply.grants import ALLOWED, NotGrantedError, check_pool
from kraft_operator.kube.client import ApiError
from kraft_operator.observe.objects import pod as seen_pod
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.record import Node
from kraft_operator.specs import pods, storage
from kraft_operator.specs.cluster import NamedCluster, digest
from kraft_operator.specs.config_check import cluster_config_problems
from kraft_operator.specs.template import affinity
from kraft_operator.specs.windows import window_problems
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, condition, new_api, new_operator, pods_of, settle
from tests.unit.operator.sample import CLUSTER_ID, ROOT, pool_aspects, pool_aspects_of_before, sample

CONTROLLER = Node(1, "controllers", True, False)
BROKER = Node(101, "brokers", False, True)
EVERYTHING: dict[str, Any] = {
    "env": [
        {"name": "A", "value": "1"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ],
    "volumes": [
        {"name": "certs", "secret": {"secretName": "certs"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "spool", "emptyDir": {}},
        {"name": "labels", "downwardAPI": {"items": []}},
    ],
    "mounts": [{"name": "certs", "mountPath": "/certs", "readOnly": True}],
    "sidecars": [
        {
            "name": "shipper",
            "image": "shipper:1",
            "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "shipper", "key": "t"}}}],
            "mounts": [{"name": "spool", "mountPath": "/spool"}],
            "resources": {"limits": {"memory": "64Mi"}},
        }
    ],
    "probes": {"liveness": {"failureThreshold": 20}, "readiness": {"timeoutSeconds": 3}},
    "securityContext": {"runAsUser": 2000, "fsGroup": 2000},
    "containerSecurityContext": {"readOnlyRootFilesystem": False},
    "serviceAccountName": "brokers",
    "priorityClassName": "high",
}


def _with(template: dict[str, Any], pool: int = 1, **changes: Any) -> NamedCluster:
    document = sample().spec.model_dump(by_alias=True, exclude_none=True)
    document["nodePools"][pool]["pod"] = template
    return sample(nodePools=document["nodePools"], **changes)


def _pod(cluster: NamedCluster, node: Node = BROKER, **more: str) -> dict[str, Any]:
    pool = next(pool for pool in cluster.spec.node_pools if pool.name == node.pool)
    return pods.pod(cluster, pool, node, {"roles": ",".join(pool.roles), **more}, {})


def _refused(template: dict[str, Any], model: type = PodTemplate) -> list[str]:
    """The messages of the rules that refuse it."""
    value = model.model_validate(template).model_dump(by_alias=True, exclude_none=True)
    rules = rules_of(model.RULES)["x-kubernetes-validations"]
    return [rule["message"] for rule in rules if not compiled(rule["rule"])({"self": value})]


# What reaches the pod


def test_all_fields_of_the_template_reach_the_pod() -> None:
    spec = _pod(_with(EVERYTHING))["spec"]
    node, shipper = spec["containers"]
    env = {one["name"]: one for one in node["env"]}
    assert env["A"] == {"name": "A", "value": "1"}
    assert env["KEY"]["valueFrom"] == {"secretKeyRef": {"name": "keys", "key": "k", "optional": False}}
    assert env["HOST_IP"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
    volumes = {one.pop("name"): one for one in spec["volumes"]}
    assert volumes["certs"] == {"secret": {"secretName": "certs"}}
    assert volumes["labels"] == {"downwardAPI": {"items": []}}
    assert {"config", "tmp", "volume-data", "shared", "spool"} <= volumes.keys()
    assert {"name": "certs", "mountPath": "/certs", "readOnly": True} in node["volumeMounts"]
    assert node["livenessProbe"] == {
        "httpGet": {"path": "/livez", "port": 9404},
        "periodSeconds": 10,
        "failureThreshold": 20,
    }
    assert node["readinessProbe"]["timeoutSeconds"] == 3
    assert node["securityContext"]["readOnlyRootFilesystem"] is False
    assert node["securityContext"]["allowPrivilegeEscalation"] is False
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (2000, True)
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("brokers", False)
    assert shipper["volumeMounts"] == [{"name": "spool", "mountPath": "/spool", "readOnly": False}]
    assert shipper["resources"] == {"limits": {"memory": "64Mi"}}
    assert shipper["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_format_job_requests_the_resources_of_its_node() -> None:
    """With a tenth of a node's share of the processor it starved beside older nodes.

    It also decides on which machine the volume is, and the node has to fit there.
    """
    cluster = sample()
    for pool, node in zip(cluster.spec.node_pools, (Node(1, "controllers", True, False), BROKER), strict=True):
        job = storage.format_job(cluster, pool, node, CLUSTER_ID, "c")["spec"]["template"]["spec"]
        made = pods.pod(cluster, pool, node, {"roles": ",".join(pool.roles)}, {})["spec"]
        assert job["containers"][0]["resources"] == made["containers"][0]["resources"]


def test_a_format_job_has_the_pods_volumes_and_user_but_no_sidecars() -> None:
    cluster = _with({**EVERYTHING, "antiAffinity": "Required"})
    job = storage.format_job(cluster, cluster.spec.node_pools[1], BROKER, CLUSTER_ID, "c")["spec"]["template"]["spec"]
    assert len(job["containers"]) == 1
    assert job["securityContext"] == _pod(cluster)["spec"]["securityContext"]
    assert job["affinity"] == _pod(cluster)["spec"]["affinity"]
    assert "serviceAccountName" not in job


# Digests


def test_unused_new_fields_cause_no_restart() -> None:
    before = _with({"env": [{"name": "A", "value": "1"}]})
    pool = before.spec.node_pools[1]
    assert set(pool_aspects_of_before(before, pool)) >= {"template"}
    legacy = pool.pod.model_dump(exclude=set(LATER))
    legacy["env"] = [{"name": "A", "value": "1"}]
    assert digest([legacy, [], "IfNotPresent"]) in pool_aspects_of_before(before, pool)["template"]


@pytest.mark.parametrize("field", sorted(EVERYTHING))
def test_a_changed_template_field_causes_a_restart_even_after_an_upgrade(field: str) -> None:
    before, after = _with({}), _with({field: EVERYTHING[field]})
    pool = after.spec.node_pools[1]
    assert pool_aspects(after, pool)["template"] != pool_aspects(before, before.spec.node_pools[1])["template"]
    older = (pool_aspects_of_before(cluster, cluster.spec.node_pools[1])["template"] for cluster in (before, after))
    assert next(older).isdisjoint(next(older))


# What the operator reserves


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ({"env": [{"name": "HOST_IP", "value": "x"}]}, "HOST_IP"),
        ({"labels": {"kraftcluster.io/node": "7"}}, "kraftcluster.io/node"),
        ({"annotations": {"aspect.kraftcluster.io/image": "x"}}, "aspect.kraftcluster.io"),
        ({"mounts": [{"name": "x", "mountPath": "/data"}]}, "pod.volumes"),
        *(
            ({"volumes": [{"name": "x", "emptyDir": {}}], "mounts": [{"name": "x", "mountPath": path}]}, "/etc/kraft")
            for path in ("/", "/etc", "/etc/kraft", "/etc/kraft/x", "/var/lib/kraft/data", "/var/lib/", "/tmp/x")
        ),
        ({"sidecars": [{"name": "s", "image": "i", "mounts": [{"name": "data", "mountPath": "/x"}]}]}, "pod.volumes"),
    ],
)
def test_fields_that_the_operator_owns_are_refused_by_name(template: dict[str, Any], named: str) -> None:
    (message,) = _refused(template)
    assert named in message


@pytest.mark.parametrize("path", ["/certs", "/etc/ssl/mine", "/var/lib/kraftwerk", "/var/log", "/tmpfs"])
def test_other_paths_may_be_mounted(path: str) -> None:
    assert _refused({"volumes": [{"name": "x", "emptyDir": {}}], "mounts": [{"name": "x", "mountPath": path}]}) == []


def test_volumes_and_values_have_one_source() -> None:
    for name in ("config", "tmp", "volume-data"):
        assert any("choose another name" in one for one in _refused({"name": name, "emptyDir": {}}, ExtraVolume))
    assert any("one source" in one for one in _refused({"name": "x"}, ExtraVolume))
    two = {"name": "x", "emptyDir": {}, "configMap": {"name": "c"}}
    assert any("one source" in one for one in _refused(two, ExtraVolume))
    both = {"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}
    assert any("value or valueFrom" in one for one in _refused(both, EnvVar))
    assert not ContainerSecurity.model_fields.keys() & {"privileged", "capabilities", "allow_privilege_escalation"}


# Separate templates


def test_nodes_are_kept_apart_by_pool_and_controllers_among_all_their_pools() -> None:
    for node, pools in ((CONTROLLER, ["controllers"]), (BROKER, ["brokers"])):
        (term,) = _pod(sample(), node)["spec"]["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        selector = term["podAffinityTerm"]["labelSelector"]
        assert selector["matchExpressions"][0]["values"] == pools
        labels = _pod(sample(), node)["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()
    document = sample().spec.model_dump(by_alias=True, exclude_none=True)["nodePools"]
    more = {**document[0], "name": "more", "firstNodeId": 301}
    cluster = sample(nodePools=[*document, more], quorum={"allowVoterChanges": True})
    (term,) = _pod(cluster, CONTROLLER)["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"]["labelSelector"]["matchExpressions"][0]["values"] == ["controllers", "more"]


def test_anti_affinity_may_be_required_or_left_to_the_author() -> None:
    own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    assert _pod(_with({"affinity": own}))["spec"]["affinity"] == own
    assert "affinity" not in _pod(_with({"antiAffinity": "None"}))["spec"]
    both = _pod(_with({"affinity": own, "antiAffinity": "Required"}))["spec"]["affinity"]["podAntiAffinity"]
    keys = [one["topologyKey"] for one in both["requiredDuringSchedulingIgnoredDuringExecution"]]
    assert keys == ["zone", "kubernetes.io/hostname"]
    near = _pod(_with({}, rack={"nodeLabel": "zone"}), rack="a")["spec"]["affinity"]
    assert near.keys() == {"podAntiAffinity", "nodeAffinity"}


def test_the_sample_for_production_keeps_nodes_apart_and_has_no_mistake() -> None:
    document = yaml.safe_load((ROOT / "deploy/samples/production.yaml").read_text())["spec"]
    spec = KRaftClusterSpec.model_validate(document)
    assert [*cluster_config_problems(spec), *window_problems(spec)] == []
    for pool in spec.node_pools:
        apart = affinity(replace(sample(), spec=spec), pool)["podAntiAffinity"]
        assert apart.keys() == {"requiredDuringSchedulingIgnoredDuringExecution"}


# Sidecars and the node's process


def test_a_sidecar_that_runs_does_not_make_a_node_run() -> None:
    own = {"name": "node", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4}
    beside = {"name": "shipper", "state": {"running": {}}, "restartCount": 0}
    one = {"metadata": {"labels": {}}, "spec": {}, "status": {"phase": "Running", "containerStatuses": [beside, own]}}
    assert not seen_pod(one).running
    one["status"] = {"phase": "Running", "containerStatuses": [{**own, "state": {"running": {}}}, beside]}
    assert seen_pod(one).running


# Grants


async def check_templates(api: FakeApi, cluster: NamedCluster) -> None:
    """Check the grants of all pools."""
    for pool in cluster.spec.node_pools:
        await check_pool(api, cluster, pool)  # type: ignore[arg-type]


async def _error(api: FakeApi, template: dict[str, Any]) -> str:
    try:
        await check_templates(api, _with(template))
    except NotGrantedError as error:
        return f"{error.reason}: {error}"
    return ""


def _account(name: str, *secrets: str, allowed: bool = True) -> dict[str, Any]:
    labels = {ALLOWED: "allowed"} if allowed else {}
    return {"metadata": {"name": name, "labels": labels}, "secrets": [{"name": one} for one in secrets]}


def test_the_secrets_for_zookeeper_must_be_granted_to_controllers() -> None:
    secrets = {"tls": {"secretName": "zk-tls"}, "passwordEncoderSecret": "encoder", "saslSecret": "login"}
    zookeeper = {"connect": "zk:2182", **secrets}
    cluster = sample(migration={"zookeeper": zookeeper, "brokers": [5001]})

    async def main() -> None:
        api = FakeApi()
        with pytest.raises(NotGrantedError, match="names the Secret zk-tls"):
            await check_templates(api, cluster)
        api.objects["ServiceAccount", "demo", "kraft-node"] = _account("kraft-node", "zk-tls", allowed=False)
        with pytest.raises(NotGrantedError, match="names the Secret encoder"):
            await check_templates(api, cluster)
        granted = ["zk-tls", "encoder"]
        api.objects["ServiceAccount", "demo", "kraft-node"] = _account("kraft-node", *granted, allowed=False)
        with pytest.raises(NotGrantedError, match="names the Secret login"):
            await check_templates(api, cluster)
        api.objects["ServiceAccount", "demo", "kraft-node"] = _account("kraft-node", *granted, "login", allowed=False)
        await check_templates(api, cluster)

    asyncio.run(main())


def test_secrets_accounts_and_claims_must_be_granted() -> None:
    async def main() -> None:
        api = FakeApi()
        assert await _error(api, {"env": [{"name": "A", "value": "1"}]}) == ""
        assert api.reads == 0, "a template that names nothing costs no request"
        secret = {"env": EVERYTHING["env"]}
        assert "pod.env KEY names the Secret keys" in await _error(api, secret)
        api.objects["ServiceAccount", "demo", "kraft-node"] = _account("kraft-node", "keys", allowed=False)
        assert await _error(api, secret) == ""
        assert (await _error(api, {"serviceAccountName": "brokers"})).startswith("ServiceAccountNotAllowed")
        api.objects["ServiceAccount", "demo", "brokers"] = _account("brokers", "keys", "certs", allowed=False)
        assert (await _error(api, {"serviceAccountName": "brokers"})).startswith("ServiceAccountNotAllowed")
        api.objects["ServiceAccount", "demo", "brokers"] = _account("brokers", "keys", "certs")
        assert "pod.sidecars shipper env TOKEN names the Secret shipper" in await _error(api, EVERYTHING)
        api.objects["ServiceAccount", "demo", "brokers"] = _account("brokers", "keys", "certs", "shipper")
        assert (await _error(api, EVERYTHING)).startswith("ClaimNotAllowed")
        claim = {"metadata": {"name": "shared", "labels": {ALLOWED: "allowed"}}}
        api.objects["PersistentVolumeClaim", "demo", "shared"] = claim
        assert await _error(api, EVERYTHING) == ""
        claim["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "kraft-operator"
        assert "a node's or a pipeline's" in await _error(api, EVERYTHING)
        hidden = {"volumes": [{"name": "x", "projected": {"sources": [{"secret": {"name": "other"}}]}}]}
        assert "pod.volumes x names the Secret other" in await _error(api, hidden)

    asyncio.run(main())


def test_a_template_without_its_grant_starts_and_stops_nothing() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        api.objects["KRaftCluster", *KEY]["spec"]["nodePools"][1]["pod"]["env"] = EVERYTHING["env"]
        for _ in range(4):
            await operator.reconcile(KEY)
            api.work()
        assert pods_of(api) == []
        assert condition(api, "Degraded")["reason"] == "SecretNotAllowed"
        api.objects["ServiceAccount", "demo", "kraft-node"] = _account("kraft-node", "keys")
        await settle(api, operator)
        operator.close()

    asyncio.run(main())


def test_a_pod_that_kubernetes_refuses_is_rehearsed_before_a_node_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        resource = api.objects["KRaftCluster", *KEY]
        resource["spec"]["nodePools"][1]["pod"]["priorityClassName"] = "missing"
        resource["metadata"]["generation"] = 2
        answers = [ApiError(403, "Forbidden", "no PriorityClass with name missing was found")]
        restart = do.Plan(steps=[do.Restart((101,), "template")], good_ms=5000)
        monkeypatch.setattr("kraft_operator.reconcile.plan", lambda *_: do.Plan(list(restart.steps), good_ms=5000))
        api.before = lambda verb, kind, _: answers[0] if (verb, kind) == ("rehearse", "Pod") else None
        for _ in range(3):
            await operator.reconcile(KEY)
        assert "no PriorityClass" in condition(api, "Degraded")["message"]
        assert "deletionTimestamp" not in api.objects["Pod", "demo", "sample-101"]["metadata"]
        assert "until nodePools brokers is corrected" in condition(api, "Degraded")["message"]
        answers[0] = ApiError(403, "Forbidden", "exceeded quota: pods")
        await operator.reconcile(KEY)
        assert "deletionTimestamp" in api.objects["Pod", "demo", "sample-101"]["metadata"], "a quota counts this pod"
        operator.close()

    asyncio.run(main())
