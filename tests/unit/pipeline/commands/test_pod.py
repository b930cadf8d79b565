"""Spark's settings fit the limits of the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_pipeline import pod
from kraft_pipeline.pod import Limits, limits, spark_settings
from kraft_pipeline.tables.engines import engine
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.specs.table_spec import EngineSpec
from tests.documents import table_document

GIB = 1 << 30


def cgroup(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_OF_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_limits_of_both_versions_of_cgroups(tmp_path: Path) -> None:
    found = cgroup(tmp_path / "a", cpu_OF_max="150000 100000\n", memory_OF_max="2147483648\n")
    assert limits(found) == Limits(1.5, 2 * GIB)
    assert limits(cgroup(tmp_path / "b", cpu_OF_max="max 100000\n", memory_OF_max="max\n")) == Limits(None, None)
    one = {"cpu__cpu_OF_cfs_quota_us": "50000\n", "cpu__cpu_OF_cfs_period_us": "100000\n"}
    found = cgroup(tmp_path / "c", **one, memory__memory_OF_limit_in_bytes="1073741824\n")
    assert limits(found) == Limits(0.5, GIB)
    one = {"cpu__cpu_OF_cfs_quota_us": "-1\n", "cpu__cpu_OF_cfs_period_us": "100000\n"}
    found = cgroup(tmp_path / "d", **one, memory__memory_OF_limit_in_bytes="9223372036854771712\n")
    assert limits(found) == Limits(None, None)
    assert limits(tmp_path / "none") == Limits(None, None)


@pytest.mark.parametrize(
    ("processors", "memory", "tasks", "java"),
    [
        (None, 2 * GIB, 2, 512),  # the default of a driver on a machine of 64 cores
        (None, GIB, 1, 512),
        (None, GIB // 2, 1, 512),
        (1.5, 8 * GIB, 2, 2048),
        (None, 64 * GIB, 64, 4096),
        (0.5, 64 * GIB, 1, 4096),
    ],
)
def test_tasks_fit_into_the_memory(processors: float | None, memory: int, tasks: int, java: int) -> None:
    found = spark_settings(Limits(processors, memory), 64)
    assert found == {"spark.master": f"local[{tasks},4]", "spark.driver.memory": f"{java}m"}
    if tasks > 1:
        assert (java + pod.BESIDE_MIB + tasks * pod.TASK_MIB) << 20 <= memory


@pytest.mark.parametrize(("memory", "most"), [(None, GIB), (64 * GIB, GIB), (2 * GIB, GIB // 2), (GIB // 8, GIB // 32)])
def test_a_batch_fits_into_the_memory(memory: int | None, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches had 1 GiB: a merge of a change data feed holds one in the driver."""
    monkeypatch.setattr(pod, "limits", lambda: Limits(None, memory))
    assert table_spec.parse(table_document()).max_bytes == most
    assert table_spec.parse(table_document(commit={"maxBytes": "3Gi"})).max_bytes == 3 * GIB


def test_without_a_limit_of_memory_all_cores_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark_settings(Limits(2.0, None), 64) == {"spark.master": "local[*,4]"}
    monkeypatch.setattr(pod, "limits", lambda: Limits(None, 4 * GIB))
    found = engine.settings(EngineSpec())
    assert found["spark.driver.memory"] == "1024m"
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
