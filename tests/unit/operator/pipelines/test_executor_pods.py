"""Pipelines with Spark's executors as pods: the driver's rights, the executors' template, and their state."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from kraft_operator.pipelines import executors, grants
from kraft_operator.pipelines.kinds import KINDS
from kraft_operator.pipelines.manifests import FILE
from kraft_pipeline.tables.specs import table_spec
from tests.unit.operator.pipelines.test_pipelines import PULL, World, _avro
from tests.unit.operator.sample import TABLE

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


def test_the_driver_has_a_service_account_and_executors_have_none() -> None:
    world = World("KafkaTable", **CREW)
    world.run()
    assert world.driver["spec"]["serviceAccountName"] == executors.ACCOUNT
    assert world.driver["spec"]["automountServiceAccountToken"] is True
    template = _template(world)
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["serviceAccountName"] == grants.ACCOUNT, "of no rights, unlike the driver's"
    assert template["metadata"]["labels"] == {**world.selector, **template["metadata"]["labels"]}


def test_executors_pass_the_restricted_standard_and_mount_the_drivers_volumes() -> None:
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


def test_spark_is_configured_for_its_executors() -> None:
    world = World("KafkaTable", **CREW)
    world.run()
    data = world.made("ConfigMap")[0]["data"]
    reported = dict(line.split("=", 1) for line in data[executors.DEFAULTS].splitlines())
    assert reported["spark.kubernetes.namespace"] == "demo"
    assert reported["spark.kubernetes.container.image"] == "i:1"
    assert reported["spark.authenticate"] == "true"
    names = {one["name"] for one in world.driver["spec"]["containers"][0]["env"]}
    assert {f"${{env:{name}}}" for name in names} >= {value for value in reported.values() if "${" in value}
    found = table_spec.parse(yaml.safe_load(data[FILE])).engine
    assert (found.mode, found.executors, found.memory) == ("kubernetes", 3, 1 << 30)


@pytest.mark.parametrize("kind", ["KafkaScrub", "KafkaMetadataArchive"])
def test_archives_and_scrubs_have_executors(kind: str) -> None:
    table = {"table": CREW["table"]} if kind == "KafkaMetadataArchive" else {}
    world = World(kind, **{"engine": CREW["engine"], "driver": {}, **table})
    world.run()
    (job,) = world.made("Job")
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == executors.ACCOUNT
    data = world.made("ConfigMap")[0]["data"]
    assert "spark.master=k8s://https://kubernetes.default.svc\n" in data[executors.DEFAULTS]
    assert "restartPolicy" not in _template(world)["spec"], "Spark sets it"
    document = yaml.safe_load(data[FILE])
    assert document["spec"]["engine"] == {**CREW["engine"], "cores": 1, "spark": {}}
    with pytest.raises(ValidationError, match="mode"):
        KINDS[kind].spec.model_validate({**document["spec"], "engine": {"mode": "inline"}})


def test_executors_are_not_taken_for_the_driver_and_ended_ones_are_deleted() -> None:
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


def test_executors_that_cannot_start_are_reported() -> None:
    world = World("KafkaTable", **CREW)
    world.run()
    world.pod(ready=True)
    world.answer = {"name": "one", "rows": 0, "deadLetters": 0, "lag": 3}
    _executor(world, "one", containerStatuses=[PULL])
    world.run()
    assert world.conditions()["Degraded"] == ("True", "ErrImagePull", "ErrImagePull: no such image")


@pytest.mark.parametrize(("mode", "reason"), [("ReadWriteOnce", "ClaimNotShared"), ("ReadWriteMany", "Starting")])
def test_a_claim_bound_to_a_machine_is_refused(mode: str, reason: str) -> None:
    lake = {"name": "lake", "mountPath": "/lake", "claimName": "mine"}
    world = World("KafkaTable", **{**CREW, "driver": {"volumes": [lake]}})
    world.put("PersistentVolumeClaim", "mine", labels={grants.ALLOWED: "allowed"}, spec={"accessModes": [mode]})
    world.run()
    assert world.conditions()["Ready"][1] == reason


def test_a_claim_of_a_local_driver_cannot_become_shared() -> None:
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
