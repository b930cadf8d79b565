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
from kraft_operator.pipelines import executors, grants
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
        self.pipelines = Pipelines(self.api, Events(self.api, "test"), Metrics(), image="i:1", ask=self._ask)  # type: ignore[arg-type]
        self.put("ServiceAccount", grants.ACCOUNT, secrets=[{"name": "registry"}, {"name": "a"}])
        sample = yaml.safe_load((ROOT / "deploy/samples/kraftcluster.yaml").read_text())
        self.put("KRaftCluster", "sample", spec=sample["spec"])
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

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        found = self.resource["status"]["conditions"]
        return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}

    def made(self, kind: str) -> list[dict[str, Any]]:
        return [one for (other, _, _), one in sorted(self.api.objects.items()) if other == kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_takes_the_file_that_is_made(kind: str, tmp_path: Any) -> None:
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
def test_what_is_settled_is_not_written_to(kind: str) -> None:
    world = World(kind)
    world.run(3)
    world.api.writes.clear()
    assert world.run(3) is not None
    assert world.api.writes == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", [None, "0 3 * * *"])
def test_pods_pass_the_restricted_standard_and_know_no_token(kind: str, schedule: str | None) -> None:
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


def test_all_is_the_resources_but_the_claim_which_outlives_it() -> None:
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


def test_a_scrub_without_a_schedule_is_one_job_for_each_specification() -> None:
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


def test_a_drivers_answer_is_the_status() -> None:
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
    ("status", "told"),
    [
        ({"containerStatuses": [LOOPS]}, ("True", "CrashLoopBackOff", "kraft-pipeline: no broker")),
        ({"containerStatuses": [PULL]}, ("True", "ErrImagePull", "ErrImagePull: no such image")),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, ("True", "Evicted", "Evicted: disk")),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, None),
    ],
    ids=["crashes", "no image", "evicted", "being made"],
)
def test_what_is_wrong_with_a_driver_is_told_once(status: dict[str, Any], told: tuple[str, str, str] | None) -> None:
    world = World("KafkaTable")
    world.run()
    world.pod(**status)
    world.run(2)
    conditions = world.conditions()
    if told is None:
        assert conditions["Degraded"][0] == "False"
        assert conditions["Progressing"][0] == "True"
        return
    assert conditions["Degraded"] == told
    assert conditions["Ready"][0] == conditions["Progressing"][0] == "False"
    assert len(world.made("Event")) == 1


def test_paused_is_no_pod() -> None:
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


def test_a_scrub_that_found_nothing_is_ready() -> None:
    world = World("KafkaScrub")
    world.run()
    _job(world, {"type": "Complete", "status": "True"}, completionTime="2026-01-01T00:02:00Z")
    world.run()
    assert world.conditions()["Ready"][:2] == ("True", "Succeeded")
    assert world.resource["status"]["lastSuccess"] == "2026-01-01T00:02:00Z"


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_that_is_not_there_is_named_and_nothing_is_made(kind: str) -> None:
    world = World(kind, clusterRef="other")
    world.run()
    assert world.conditions()["Degraded"] == ("True", "ClusterNotFound", "KRaftCluster other does not exist in demo")
    assert {one for one, *_ in world.api.objects} == {"KRaftCluster", "ServiceAccount", kind, "Event"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_kubernetes_refuses_for_good_is_in_the_status_until_it_is_taken(kind: str) -> None:
    """Before, only the operator's log had it."""
    world = World(kind)
    refusal = ApiError(403, "Forbidden", "exceeded quota: count/jobs.batch")
    world.api.before = lambda verb, other, _: refusal if (verb, other) == ("apply", "NetworkPolicy") else None
    world.run(2)
    assert world.conditions()["Degraded"] == ("True", "StepRefused", str(refusal))
    world.api.before = lambda *_: None
    world.run(2)
    assert world.conditions()["Degraded"][0] == "False"


def test_what_somebody_else_has_made_is_not_taken_over() -> None:
    world = World("KafkaTable")
    world.run()
    (policy,) = world.made("NetworkPolicy")
    name = policy["metadata"]["name"]
    world.put("NetworkPolicy", name, spec={"podSelector": {}})
    foreign = world.made("NetworkPolicy")[0]
    world.run(2)
    assert world.made("NetworkPolicy") == [foreign]
    assert f"NetworkPolicy {name} exists and belongs to another owner" in world.conditions()["Degraded"][2]


def test_what_is_not_understood_is_said() -> None:
    world = World("KafkaTable", topics=None)
    world.run()
    assert world.conditions()["Degraded"][1] == "NotUnderstood"


def test_what_is_gone_is_forgotten_and_what_is_there_is_found() -> None:
    world = World("KafkaTable")
    world.run()
    assert asyncio.run(every(world.api, None)) == [Key("demo", "KafkaTable/one")]  # type: ignore[arg-type]
    del world.api.objects["KafkaTable", "demo", "one"]
    assert world.run() is None


# Secrets and claims


def _env(**source: Any) -> dict[str, Any]:
    return {**TABLE, "driver": {"env": [{"name": "KEY", "valueFrom": source}]}}


def test_a_secret_that_no_administrator_has_allowed_is_refused() -> None:
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
def test_a_source_of_a_variable_that_is_not_known_is_refused(source: dict[str, Any]) -> None:
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
def test_a_claim_is_mounted_only_if_it_is_labelled_and_never_a_nodes(
    labels: dict[str, str] | None, reason: str
) -> None:
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


def test_a_registrys_password_comes_from_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_password_in_a_resource_is_refused_and_nothing_is_made() -> None:
    world = World("KafkaTable", value=_avro(password="p"))
    world.run()
    assert world.conditions()["Degraded"][:2] == ("True", "PlainPassword")
    assert not world.made("ConfigMap")


# Executors

CREW: dict[str, Any] = {
    "engine": {"mode": "kubernetes", "executors": 3, "memory": "1Gi"},
    "table": {"path": "s3://lake/orders"},
    "driver": {},
}


def _executor(world: World, name: str, **status: Any) -> None:
    world.put("Pod", name, labels={**world.selector, "spark-role": "executor"}, status=status)


def _template(world: World) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(world.made("ConfigMap")[0]["data"][executors.TEMPLATE])
    return found


def test_a_driver_of_executors_has_an_account_and_they_have_none() -> None:
    world = World("KafkaTable", **CREW)
    world.run()
    assert world.driver["spec"]["serviceAccountName"] == executors.ACCOUNT
    assert world.driver["spec"]["automountServiceAccountToken"] is True
    template = _template(world)
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["serviceAccountName"] == grants.ACCOUNT, "of no rights, unlike the driver's"
    assert template["metadata"]["labels"] == {**world.selector, **template["metadata"]["labels"]}


def test_executors_pass_the_restricted_standard_and_see_what_the_driver_sees() -> None:
    lake = {"name": "lake", "mountPath": "/lake", "size": "1Gi", "accessMode": "ReadWriteMany"}
    word = {"name": "AWS_REGION", "value": "x"}
    value = _avro(passwordSecret={"name": "a", "key": "b"})
    driver = {"volumes": [lake], "env": [word], "scratch": "3Gi", "nodeSelector": {"disk": "fast"}}
    world = World("KafkaTable", **{**CREW, "value": value, "driver": driver})
    world.run()
    pod = _template(world)["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == world.driver["spec"]["securityContext"]
    assert container["securityContext"] == world.driver["spec"]["containers"][0]["securityContext"]
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert container["env"] == [word], "the registry's password is the driver's"
    scratch = {"name": executors.SCRATCH, "emptyDir": {"sizeLimit": "3Gi"}}
    claim = {"name": "volume-lake", "persistentVolumeClaim": {"claimName": "one-table-lake"}}
    assert pod["volumes"] == [scratch, claim]
    assert [one["mountPath"] for one in container["volumeMounts"]] == ["/tmp", "/lake"]
    assert world.made("PersistentVolumeClaim")[0]["spec"]["accessModes"] == ["ReadWriteMany"]


def test_spark_is_told_where_its_executors_are() -> None:
    world = World("KafkaTable", **CREW)
    world.run()
    data = world.made("ConfigMap")[0]["data"]
    told = dict(line.split("=", 1) for line in data[executors.DEFAULTS].splitlines())
    assert told["spark.kubernetes.namespace"] == "demo"
    assert told["spark.kubernetes.container.image"] == "i:1"
    assert told["spark.authenticate"] == "true"
    names = {one["name"] for one in world.driver["spec"]["containers"][0]["env"]}
    assert {f"${{env:{name}}}" for name in names} >= {value for value in told.values() if "${" in value}
    found = table_spec.parse(yaml.safe_load(data[FILE])).engine
    assert (found.mode, found.executors, found.memory) == ("kubernetes", 3, 1 << 30)


def test_executors_are_not_the_driver_and_ended_ones_are_taken_away() -> None:
    world = World("KafkaTable", **CREW)
    world.run()
    world.pod(ready=True)
    world.answer = {"name": "one", "rows": 5, "deadLetters": 0, "lag": 3}
    _executor(world, "at-work", phase="Running")
    _executor(world, "of-a-driver-before", phase="Failed")
    world.run()
    assert world.conditions()["Ready"] == ("True", "Running", "3 records behind")
    gone = [one["metadata"]["name"] for one in world.made("Pod") if "deletionTimestamp" in one["metadata"]]
    assert gone == ["of-a-driver-before"]


def test_executors_that_cannot_be_are_told() -> None:
    world = World("KafkaTable", **CREW)
    world.run()
    world.pod(ready=True)
    world.answer = {"name": "one", "rows": 0, "deadLetters": 0, "lag": 3}
    _executor(world, "one", containerStatuses=[PULL])
    world.run()
    assert world.conditions()["Degraded"] == ("True", "ErrImagePull", "ErrImagePull: no such image")


@pytest.mark.parametrize(("mode", "reason"), [("ReadWriteOnce", "ClaimNotShared"), ("ReadWriteMany", "Starting")])
def test_a_claim_of_one_machine_is_refused(mode: str, reason: str) -> None:
    lake = {"name": "lake", "mountPath": "/lake", "claimName": "mine"}
    world = World("KafkaTable", **{**CREW, "driver": {"volumes": [lake]}})
    world.put("PersistentVolumeClaim", "mine", labels={grants.ALLOWED: "allowed"}, spec={"accessModes": [mode]})
    world.run()
    assert world.conditions()["Ready"][1] == reason


def test_a_claim_that_a_local_driver_has_had_is_not_shared_by_asking_for_it() -> None:
    world = World("KafkaTable")
    world.run()
    world.resource["spec"]["engine"] = {"mode": "kubernetes"}
    (lake,) = TABLE["driver"]["volumes"]
    world.resource["spec"]["driver"] = {"volumes": [{**lake, "accessMode": "ReadWriteMany"}]}
    world.run()
    assert world.conditions()["Degraded"][:2] == ("True", "ClaimNotShared")


def test_local_drivers_have_neither_files_nor_account() -> None:
    world = World("KafkaTable")
    world.run()
    assert set(world.made("ConfigMap")[0]["data"]) == {FILE}
    assert world.driver["spec"]["serviceAccountName"] == grants.ACCOUNT
