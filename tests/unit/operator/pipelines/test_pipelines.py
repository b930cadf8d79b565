"""Pipelines on Kubernetes: the objects of a specification, and the status."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from kraft_operator.events import Events
from kraft_operator.kube.client import ApiError
from kraft_operator.metrics import Metrics
from kraft_operator.pipelines import grants
from kraft_operator.pipelines.kinds import KINDS
from kraft_operator.pipelines.manifests import FILE
from kraft_operator.pipelines.reconcile import Pipelines, every, key_of
from kraft_operator.reconcile import Key
from kraft_pipeline.archive import spec as archive_spec
from kraft_pipeline.scrub import spec as scrub_spec
from kraft_pipeline.tables.specs import table_spec
from tests.unit.operator.fake_kubernetes import FakeApi, watched
from tests.unit.operator.sample import OPERATORS, ROOT, SPECS, TABLE


class World:
    """An API server in memory with a cluster and a pipeline; `answer` is the driver's report."""

    def __init__(self, kind: str, **changes: Any) -> None:
        self.kind, self.api = kind, FakeApi()
        self.answer: dict[str, Any] | None = None
        self.before = b""
        self.pipelines = Pipelines(self.api, Events(self.api, "test"), Metrics(), image="i:1", query_driver=self._ask)  # type: ignore[arg-type]
        self.put("ServiceAccount", grants.ACCOUNT, secrets=[{"name": "registry"}, {"name": "a"}])
        sample = yaml.safe_load((ROOT / "deploy/samples/kraftcluster.yaml").read_text())
        self.put("KRaftCluster", "sample", spec=sample["spec"], status={"security": "Plaintext"})
        self.put(kind, "one", spec={**SPECS[kind], **changes})

    async def _ask(self, host: str) -> dict[str, Any] | None:
        assert host == "10.0.0.1"
        return self.answer

    def put(self, kind: str, name: str, *, labels: Mapping[str, str] | None = None, **parts: Any) -> None:
        metadata = {"name": name, "namespace": "demo", "uid": f"{kind}-{name}", "generation": 1, "resourceVersion": "1"}
        self.api.objects[kind, "demo", name] = {"metadata": {**metadata, "labels": dict(labels or {})}, **parts}

    def run(self, passes: int = 1) -> float | None:
        """Run a pass; returns the seconds until the next one."""
        after = None
        for _ in range(passes):
            now = watched(self.api.objects)
            if now != self.before:
                self.before = now
                self.pipelines.touched(key_of("demo", self.kind, "one"))
            after = asyncio.run(self.pipelines.reconcile(key_of("demo", self.kind, "one")))
        return after

    def pod(self, *, ready: bool = False, job: str = "", **status: Any) -> None:
        labels = {**self.selector, **({"batch.kubernetes.io/job-name": job} if job else {})}
        conditions = [{"type": "Ready", "status": "True"}] if ready else []
        self.put("Pod", "pod", labels=labels, status={"podIP": "10.0.0.1", "conditions": conditions, **status})

    @property
    def selector(self) -> dict[str, str]:
        marks = {"app.kubernetes.io/name": "kraft-pipeline", "app.kubernetes.io/instance": "one"}
        return {**marks, "kraftcluster.io/kind": self.kind}

    @property
    def resource(self) -> dict[str, Any]:
        return self.api.objects[self.kind, "demo", "one"]

    @property
    def driver(self) -> dict[str, Any]:
        """The pod of a table, as its Deployment defines it."""
        found: dict[str, Any] = self.made("Deployment")[0]["spec"]["template"]
        return found

    @property
    def pod_template(self) -> dict[str, Any]:
        """The pod of any pipeline, as its workload defines it."""
        (found,) = [one for kind in ("Deployment", "CronJob", "Job") for one in self.made(kind)]
        spec = found["spec"]["jobTemplate"]["spec"] if found["kind"] == "CronJob" else found["spec"]
        template: dict[str, Any] = spec["template"]
        return template

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        found = self.resource["status"]["conditions"]
        return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}

    def made(self, kind: str) -> list[dict[str, Any]]:
        return [one for (other, _, _), one in sorted(self.api.objects.items()) if other == kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_accepts_the_generated_file(kind: str, tmp_path: Any) -> None:
    world = World(kind)
    world.run()
    (config,) = world.made("ConfigMap")
    text = config["data"][FILE]
    document = yaml.safe_load(text)
    assert document["spec"]["bootstrapServers"] == "sample-bootstrap.demo.svc:9092"
    assert not OPERATORS & set(document["spec"])
    if kind == "KafkaTable":
        found = table_spec.parse(document)
        assert (found.name, found.bootstrap) == ("one", "sample-bootstrap.demo.svc:9092")
    elif kind == "KafkaMetadataArchive":
        assert archive_spec.parse(document).brokers == "sample-bootstrap.demo.svc:9092"
    else:
        (tmp_path / FILE).write_text(text)
        assert scrub_spec.load(tmp_path / FILE).topics == ("orders*",)


@pytest.mark.parametrize("kind", KINDS)
def test_a_settled_pipeline_is_not_written_to(kind: str) -> None:
    world = World(kind)
    world.run(3)
    world.api.writes.clear()
    assert world.run(3) is not None
    assert world.api.writes == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", [None, "0 3 * * *"])
def test_pods_pass_the_restricted_standard_and_have_no_token(kind: str, schedule: str | None) -> None:
    world = World(kind, **({"schedule": schedule} if kind != "KafkaTable" else {}))
    world.run()
    (made,) = [one for one in ("Deployment", "Job", "CronJob") for one in world.made(one)]
    spec = made["spec"]["jobTemplate"]["spec"] if made["kind"] == "CronJob" else made["spec"]
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]


def test_all_objects_but_the_claim_are_owned_by_the_resource() -> None:
    world = World("KafkaTable")
    world.run()
    owners = {
        one["kind"]: [o["uid"] for o in one["metadata"].get("ownerReferences", ())]
        for one in world.api.objects.values()
        if "kind" in one
    }
    assert owners.pop("PersistentVolumeClaim") == []
    assert owners == {kind: ["KafkaTable-one"] for kind in ("ConfigMap", "NetworkPolicy", "Deployment")}
    mounted = world.driver["spec"]["volumes"]
    claims = [v["persistentVolumeClaim"]["claimName"] for v in mounted if "persistentVolumeClaim" in v]
    assert claims == [one["metadata"]["name"] for one in world.made("PersistentVolumeClaim")]


def test_a_new_specification_restarts_the_driver() -> None:
    world = World("KafkaTable")
    world.run()
    before = world.driver["metadata"]["annotations"]
    world.resource["spec"]["commit"] = {"maxRows": 7}
    world.run()
    (deployment,) = world.made("Deployment")
    assert deployment["spec"]["template"]["metadata"]["annotations"] != before
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_a_scrub_without_a_schedule_is_a_job_for_each_specification() -> None:
    world = World("KafkaScrub")
    world.run()
    (first,) = world.made("Job")
    world.resource["spec"]["topics"] = ["*"]
    world.run()
    (second,) = world.made("Job")
    assert first["metadata"]["name"] != second["metadata"]["name"]
    world.resource["spec"]["schedule"] = "@daily"
    world.run()
    assert not world.made("Job")
    assert len(world.made("CronJob")) == 1


def test_the_drivers_report_becomes_the_status() -> None:
    world = World("KafkaTable")
    assert world.run() == 1.0
    assert world.conditions()["Progressing"] == ("True", "Starting", "the driver's pod is not created yet")
    world.pod(ready=True)
    world.answer = {"name": "one", "rows": 5, "deadLetters": 1, "lag": 3}
    world.run()
    status = world.resource["status"]
    assert (status["lag"], status["deadLetters"], status["topics"]) == (3, 1, "orders")
    world.answer |= {"batch": 2, "lastBatchRows": 5, "lastBatchTime": "2026-01-01T00:00:00Z", "lastBatchSeconds": 0.5}
    world.run()
    assert world.conditions()["Ready"] == ("True", "Running", "batch 2, 3 records behind")
    batch = {"number": 2, "rows": 5, "seconds": 0.5, "time": "2026-01-01T00:00:00Z"}
    assert world.resource["status"]["lastBatch"] == batch
    world.answer = None
    world.run()
    assert world.resource["status"]["lastBatch"] == batch, "what was known stays"
    assert world.conditions()["Ready"][2] == "the driver has not answered the operator"


CRASHED = {"terminated": {"exitCode": 1, "message": "one line\nkraft-pipeline: no broker\n"}}
LOOPS = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "lastState": CRASHED}
PULL = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        ({"containerStatuses": [LOOPS]}, ("True", "CrashLoopBackOff", "kraft-pipeline: no broker")),
        ({"containerStatuses": [PULL]}, ("True", "ErrImagePull", "ErrImagePull: no such image")),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, ("True", "Evicted", "Evicted: disk")),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, None),
    ],
    ids=["crashes", "no image", "evicted", "being made"],
)
def test_a_failing_driver_is_reported_once(status: dict[str, Any], reported: tuple[str, str, str] | None) -> None:
    world = World("KafkaTable")
    world.run()
    world.pod(**status)
    world.run(2)
    conditions = world.conditions()
    if reported is None:
        assert conditions["Degraded"][0] == "False"
        assert conditions["Progressing"][0] == "True"
        return
    assert conditions["Degraded"] == reported
    assert conditions["Ready"][0] == conditions["Progressing"][0] == "False"
    assert len(world.made("Event")) == 1


def test_a_paused_pipeline_has_no_pod() -> None:
    world = World("KafkaTable", paused=True)
    world.run()
    assert world.made("Deployment")[0]["spec"]["replicas"] == 0
    assert {value[:2] for value in world.conditions().values()} == {("False", "Paused")}
    world.resource["spec"]["paused"] = False
    world.run()
    assert world.made("Deployment")[0]["spec"]["replicas"] == 1


def _job(world: World, *conditions: dict[str, Any], **status: Any) -> str:
    (job,) = world.made("Job")
    job["status"] = {"startTime": "2026-01-01T00:00:00Z", "conditions": list(conditions), **status}
    return str(job["metadata"]["name"])


def test_damage_that_a_scrub_found_is_in_the_status() -> None:
    world = World("KafkaScrub")
    world.run()
    name = _job(world)
    world.run()
    assert world.conditions()["Progressing"] == ("True", "Running", name)
    _job(world, {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z", "message": "policy"})
    ended = {"terminated": {"exitCode": 1, "message": "orders-0 …\n3 replicas: 1 damaged places\n"}}
    world.pod(job=name, containerStatuses=[{"state": ended}])
    world.run()
    assert world.conditions()["Degraded"] == ("True", "Failed", "3 replicas: 1 damaged places")
    assert world.resource["status"]["lastRun"]["finished"] == "2026-01-01T00:01:00Z"


def test_a_scrub_without_damage_is_ready() -> None:
    world = World("KafkaScrub")
    world.run()
    _job(world, {"type": "Complete", "status": "True"}, completionTime="2026-01-01T00:02:00Z")
    world.run()
    assert world.conditions()["Ready"][:2] == ("True", "Succeeded")
    assert world.resource["status"]["lastSuccess"] == "2026-01-01T00:02:00Z"


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_cluster_is_named_and_nothing_is_made(kind: str) -> None:
    world = World(kind, clusterRef="other")
    world.run()
    assert world.conditions()["Degraded"] == ("True", "ClusterNotFound", "KRaftCluster other does not exist in demo")
    assert {one for one, *_ in world.api.objects} == {"KRaftCluster", "ServiceAccount", kind, "Event"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_of_kubernetes_is_in_the_status_until_it_ends(kind: str) -> None:
    """Before, only the operator's log had it."""
    world = World(kind)
    refusal = ApiError(403, "Forbidden", "exceeded quota: count/jobs.batch")
    world.api.before = lambda verb, other, _: refusal if (verb, other) == ("apply", "NetworkPolicy") else None
    world.run(2)
    assert world.conditions()["Degraded"] == ("True", "StepRefused", str(refusal))
    world.api.before = lambda *_: None
    world.run(2)
    assert world.conditions()["Degraded"][0] == "False"


def test_a_foreign_object_is_not_adopted() -> None:
    world = World("KafkaTable")
    world.run()
    (policy,) = world.made("NetworkPolicy")
    name = policy["metadata"]["name"]
    world.put("NetworkPolicy", name, spec={"podSelector": {}})
    foreign = world.made("NetworkPolicy")[0]
    world.run(2)
    assert world.made("NetworkPolicy") == [foreign]
    assert f"NetworkPolicy {name} exists and belongs to another owner" in world.conditions()["Degraded"][2]


def test_an_invalid_pipeline_is_degraded() -> None:
    world = World("KafkaTable", topics=None)
    world.run()
    assert world.conditions()["Degraded"][1] == "NotUnderstood"


def test_existing_pipelines_are_listed_and_deleted_ones_forgotten() -> None:
    world = World("KafkaTable")
    world.run()
    assert asyncio.run(every(world.api, None)) == [Key("demo", "KafkaTable/one")]  # type: ignore[arg-type]
    del world.api.objects["KafkaTable", "demo", "one"]
    assert world.run() is None


# Secrets and claims


def _env(**source: Any) -> dict[str, Any]:
    return {**TABLE, "driver": {"env": [{"name": "KEY", "valueFrom": source}]}}


def test_a_secret_without_permission_is_refused() -> None:
    """The author of a KafkaTable could read any Secret of the namespace by `driver.env`."""
    world = World("KafkaTable", **_env(secretKeyRef={"name": "admin", "key": "k"}))
    world.run()
    status, reason, message = world.conditions()["Degraded"]
    assert (status, reason) == ("True", "SecretNotAllowed")
    assert "driver.env KEY names the Secret admin" in message
    assert "kubectl patch serviceaccount kraft-pipeline -n demo" in message
    assert not world.made("Deployment")
    world.api.objects["ServiceAccount", "demo", grants.ACCOUNT]["secrets"].append({"name": "admin"})
    world.run()
    assert world.made("Deployment")
    world.resource["spec"]["value"] = _avro(passwordSecret={"name": "root", "key": "k"})
    world.run()
    assert "value.registry.passwordSecret names the Secret root" in world.conditions()["Degraded"][2]


@pytest.mark.parametrize("source", [{"fileKeyRef": {"volumeName": "v"}}, {"later": {}}])
def test_an_unknown_source_of_a_variable_is_refused(source: dict[str, Any]) -> None:
    world = World("KafkaTable", **_env(**source))
    world.run()
    assert world.conditions()["Degraded"][1] == "NotUnderstood"
    assert not world.made("Deployment")


def test_the_account_of_pipelines_is_made_without_rights_and_never_edited() -> None:
    world = World("KafkaTable")
    del world.api.objects["ServiceAccount", "demo", grants.ACCOUNT]
    world.run(2)
    (account,) = world.made("ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert "secrets" not in account
    assert [one for one in world.api.writes if one[1] == "ServiceAccount"] == [
        ("create", "ServiceAccount", "kraft-pipeline")
    ]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (None, "ClaimNotFound"),
        ({}, "ClaimNotAllowed"),
        (
            {
                "app.kubernetes.io/name": "kraftcluster",
                "app.kubernetes.io/managed-by": "kraft-operator",
                grants.ALLOWED: "allowed",
            },
            "ClaimNotAllowed",
        ),
        ({grants.ALLOWED: "allowed"}, "Starting"),
    ],
)
def test_a_claim_is_mounted_only_if_labelled_and_not_a_nodes(labels: dict[str, str] | None, reason: str) -> None:
    """A pipeline could mount the volume of a broker."""
    lake = {"name": "lake", "mountPath": "/lake", "claimName": "mine"}
    world = World("KafkaTable", driver={"volumes": [lake]})
    if labels is not None:
        world.put("PersistentVolumeClaim", "mine", labels=labels, spec={"accessModes": ["ReadWriteOnce"]})
    world.run()
    assert world.conditions()["Ready"][1] == reason
    assert bool(world.made("Deployment")) == (reason == "Starting")


def _avro(**registry: Any) -> dict[str, Any]:
    return {"format": "avro", "registry": {"url": "http://r", "user": "u", **registry}}


def test_the_password_of_a_registry_comes_from_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"name": "registry", "key": "word"}
    world = World("KafkaTable", value=_avro(passwordSecret=secret))
    world.run()
    (container,) = world.driver["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["valueFrom"] == {"secretKeyRef": secret}
    document = yaml.safe_load(world.made("ConfigMap")[0]["data"][FILE])
    with pytest.raises(table_spec.SpecError, match="environment variable KRAFT_REGISTRY_PASSWORD does not exist"):
        table_spec.parse(document)
    monkeypatch.setenv(variable["name"], "p")
    assert table_spec.parse(document).value.registry_auth == "u:p"


@pytest.mark.parametrize("kind", SPECS)
def test_a_secret_with_client_properties_is_mounted_into_the_driver(kind: str) -> None:
    world = World(kind, security={"secret": "reader"})
    world.run()
    assert world.conditions()["Degraded"][1] == "SecretNotAllowed"
    assert "security.secret names the Secret reader" in world.conditions()["Degraded"][2]
    world.api.objects["ServiceAccount", "demo", grants.ACCOUNT]["secrets"].append({"name": "reader"})
    world.run()
    document = yaml.safe_load(world.made("ConfigMap")[0]["data"][FILE])
    file = document["spec"]["security"]["propertiesFile"]
    pod = world.pod_template["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "security"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "security"]
    assert volume["secret"]["secretName"] == "reader"
    assert file == f"{mount['mountPath']}/client.properties"
    assert "secret" not in document["spec"]["security"]


def test_executors_mount_the_secret_where_the_driver_does() -> None:
    world = World("KafkaTable", security={"secret": "reader"}, engine={"mode": "kubernetes"})
    world.run()
    world.api.objects["ServiceAccount", "demo", grants.ACCOUNT]["secrets"].append({"name": "reader"})
    world.run()
    template = yaml.safe_load(world.made("ConfigMap")[0]["data"]["executor.yaml"])
    assert [one["secret"]["secretName"] for one in template["spec"]["volumes"] if "secret" in one] == ["reader"]
    mounts = [one["mountPath"] for one in template["spec"]["containers"][0]["volumeMounts"]]
    assert "/etc/kraft-security" in mounts


@pytest.mark.parametrize(
    "option", ["sasl.jaas.config", "kafka.SASL.jaas.config", "ssl.keystore.password", "ssl.keystore.key"]
)
def test_a_secret_among_the_options_of_the_client_is_refused(option: str) -> None:
    world = World("KafkaTable", kafka={option: "x"})
    world.run()
    assert world.conditions()["Degraded"][:2] == ("True", "PlainPassword")
    assert option in world.conditions()["Degraded"][2]
    assert not world.made("Deployment")


def test_the_password_of_a_registry_of_keys_comes_from_a_secret() -> None:
    registry = {"url": "http://r", "user": "u", "passwordSecret": {"name": "registry", "key": "word"}}
    world = World("KafkaTable", key={"format": "avro", "schema": {"type": "int"}, "registry": registry})
    world.run()
    (variable,) = world.driver["spec"]["containers"][0]["env"]
    document = yaml.safe_load(world.made("ConfigMap")[0]["data"][FILE])
    assert document["spec"]["key"]["registry"]["passwordEnv"] == variable["name"] == "KRAFT_KEY_REGISTRY_PASSWORD"
    assert variable["valueFrom"]["secretKeyRef"] == registry["passwordSecret"]


def test_a_plain_password_is_refused_and_nothing_is_made() -> None:
    world = World("KafkaTable", value=_avro(password="p"))
    world.run()
    assert world.conditions()["Degraded"][:2] == ("True", "PlainPassword")
    assert not world.made("ConfigMap")
