"""Executors of Spark: their size, and the start of one in its pod."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_pipeline.cli import executor
from kraft_pipeline.scrub import run
from kraft_pipeline.tables.engines import engine
from kraft_pipeline.tables.specs.table_spec import EngineSpec, SpecError, parse

SPARKS = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "one-exec-7",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(11)},
    "PATH": "/bin",
}


def test_an_executor_is_started_with_the_arguments_of_spark() -> None:
    words = executor.command(SPARKS, Path("/spark"))
    assert words[:12] == ["java", *(f"-Dn={number}" for number in range(11))], "in their order, not that of texts"
    assert words[12:16] == ["-Xms512m", "-Xmx512m", "-cp", "/spark/jars/*"]
    given = dict(zip(words[17::2], words[18::2], strict=True))
    assert given["--driver-url"] == SPARKS["SPARK_DRIVER_URL"]
    assert (given["--hostname"], given["--podName"], given["--cores"]) == ("10.0.0.2", "one-exec-7", "2")


def test_an_executors_memory_is_javas_and_pythons() -> None:
    found = engine.settings(EngineSpec("kubernetes", executors=3, cores=2, memory=2 << 30))
    sizes = [int(found[f"spark.executor.{name}"].removesuffix("m")) for name in ("memory", "memoryOverhead")]
    assert sum(sizes) == 2048
    assert found["spark.executor.instances"] == "3"
    assert found["spark.default.parallelism"] == "6"


def test_executors_without_room_for_python_are_refused() -> None:
    with pytest.raises(SpecError, match=r"spec\.engine\.memory: executors of 2 cores need at least 1024Mi"):
        engine.settings(EngineSpec("kubernetes", cores=2, memory=1 << 29))


def _parsed(**registry: str) -> Any:
    spec = {
        "bootstrapServers": "a:1",
        "topics": {"names": ["t"]},
        "table": {"path": "/t"},
        "value": {"format": "avro", "registry": {"url": "http://r", "user": "u", **registry}},
    }
    top = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": "KafkaTable", "metadata": {"name": "t"}, "spec": spec}
    return parse(top)


def test_the_password_of_a_registry_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "p")
    assert _parsed(passwordEnv="WORD").value.registry_auth == "u:p"
    assert _parsed(password="q").value.registry_auth == "u:q"
    with pytest.raises(SpecError, match="either password or passwordEnv"):
        _parsed(passwordEnv="WORD", password="q")
    with pytest.raises(SpecError, match="environment variable NONE does not exist"):
        _parsed(passwordEnv="NONE")


def test_a_single_run_spends_little_on_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM of a small scrub took 32 s of processor time, so on a busy machine nothing happened for minutes."""
    given = []
    monkeypatch.setattr(run.SparkEngine, "start", lambda _, spec: given.append(spec) or SimpleNamespace(session=None))
    for spark in ({}, {"spark.driver.extraJavaOptions": "-Xint", "spark.x": "1"}):
        run.session("", engine=EngineSpec("kubernetes", spark=spark))
    names = [f"spark.{side}.extraJavaOptions" for side in ("driver", "executor")]
    assert ["TieredStopAtLevel=1" in given[0].spark[name] for name in names] == [True, True]
    assert given[1].spark == {**run.SHORT, "spark.driver.extraJavaOptions": "-Xint", "spark.x": "1"}
    found = run.settings("spark://a:7077", given[0], progress=False)
    assert [name in found for name in names] == [False, True], "Spark refuses the driver's options after its start"
