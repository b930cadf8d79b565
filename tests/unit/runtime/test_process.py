"""process_* metrics, compared with those of Prometheus' own client for the same process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from kraft_node.runtime.process import ProcessMetrics


@pytest.mark.skipif(sys.platform != "linux", reason="the client reads /proc too")
def test_the_process_is_described_as_prometheus_clients_describe_theirs() -> None:
    theirs = {
        sample.name: sample.value
        for family in ProcessCollector(registry=CollectorRegistry()).collect()
        for sample in family.samples
    }
    ours = {name: next(iter(samples))[1] for name, _, samples in ProcessMetrics().collect()}
    assert set(ours) == set(theirs)
    for name in ("process_virtual_memory_bytes", "process_resident_memory_bytes", "process_open_fds"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.2, abs=4)
    assert ours["process_max_fds"] == theirs["process_max_fds"]
    assert ours["process_cpu_seconds_total"] == pytest.approx(theirs["process_cpu_seconds_total"], abs=1)


def test_without_proc_fewer_metrics_are_reported(tmp_path: Path) -> None:
    names = {name for name, _, _ in ProcessMetrics(str(tmp_path)).collect()}
    assert names == {"process_cpu_seconds_total", "process_start_time_seconds", "process_max_fds"}
