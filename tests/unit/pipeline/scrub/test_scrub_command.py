"""`kraft-pipeline scrub`: options and refusals; tests/compat runs it on Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft_pipeline.cli.main import main
from kraft_pipeline.scrub import history
from kraft_pipeline.scrub.spec import ScrubSpec, SpecError, load

FINDING = {
    "topic": "orders",
    "partition": 3,
    "broker": 2,
    "directory": "/disk",
    "segment": "00000000000000000020.log",
    "position": 194,
    "base_offset": 24,
    "last_offset": 25,
    "kind": "crc",
    "detail": "CRC 1, stored 2",
    "bits": [{"byte": 200, "bit": 4}],
}
TOTALS = {"partitions": 1, "replicas": 3, "not_compared": 0, "batches": 1200, "bytes": 5_000_000, "seconds": 1.5}
TOTALS |= {"cut_short": False}


def kept(path: Path, *findings: object) -> Path:
    path.write_text(json.dumps({"totals": TOTALS, "findings": findings}))
    return path


def test_a_report_names_the_place_and_sets_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scrub", "report", str(kept(tmp_path / "bad", FINDING))]) == 1
    shown = capsys.readouterr().out
    for part in ("orders-3", "/disk/orders-3/00000000000000000020.log", "194", "200.4", "1 damaged places"):
        assert part in shown
    assert main(["scrub", "report", str(kept(tmp_path / "good"))]) == 0
    assert "no damage" in capsys.readouterr().out
    assert main(["scrub", "report", "--json", str(kept(tmp_path / "bad", FINDING))]) == 1
    assert json.loads(capsys.readouterr().out)["findings"] == [FINDING]


def test_a_report_lists_replicas_outside_of_the_isr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, row = tmp_path / "report", {"topic": "orders", "partition": 3, "broker": 2, "behind": 17}
    path.write_text(json.dumps({"totals": TOTALS, "findings": [], "behind": [row]}))
    assert main(["scrub", "report", str(path)]) == 0
    assert "orders-3 on broker 2 lacks records from offset 17 on: it is not in the ISR" in capsys.readouterr().out


def test_a_kept_report_contains_earlier_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    monkeypatch.setattr(history, "SCRUBS_MAX", 3)
    for day in range(1, 6):
        kinds = {"crc": day, "gap": 1} if day == 4 else {}
        report = {"time": f"2026-11-0{day}T00:00:00Z", "totals": TOTALS, "kinds": kinds, "findings": []}
        assert history.keep(report, path) == json.loads(path.read_text())
    assert main(["scrub", "report", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [f"2026-11-0{day}T00:00:00Z" for day in (3, 4, 5)]
    assert [line.split("1.5")[-1].strip() for line in lines[1:4]] == ["none", "crc 4, gap 1", "none"]
    assert "1,200 batches, 5.0 MB" in lines[4]
    path.write_text("no report")
    assert len(history.keep(report, path)["history"]) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give log directories, or a bootstrap server"),
        (["{tmp}", "--bootstrap-server", "x:1"], "give log directories, or a bootstrap server"),
        (["{tmp}"], "is not a log directory: it has no meta.properties"),
        (["-f", "{tmp}/absent.yaml"], "No such file"),
        (["--bootstrap-server", "localhost"], "'localhost' is not host:port"),
        (["-f", "{tmp}/absent.yaml", "--command-config", "x"], "a KafkaScrub has spec.security.propertiesFile"),
        (["{tmp}", "--command-config", "x"], "--command-config has no effect here: it secures --bootstrap-server"),
        (["-f", "{tmp}/absent.yaml", "--bootstrap-server", "x:1"], "give either -f FILE, or directories"),
        (["-f", "{tmp}/absent.yaml", "{tmp}"], "give either -f FILE, or directories"),
        (["-f", "{tmp}/absent.yaml", "--topic", "t"], "give either -f FILE, or directories"),
    ],
)
def test_an_impossible_scrub_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["scrub", "run", *(a.format(tmp=tmp_path) for a in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_the_resource_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "scrub.yaml"
    head = "apiVersion: kraftcluster.io/v1alpha1\nkind: KafkaScrub\nmetadata: {name: nightly}\n"
    path.write_text(head + "spec: {directories: [/a, /b], topics: ['orders.*']}\n")
    assert load(path) == ScrubSpec(("/a", "/b"), "", ("orders.*",), "nightly")
    path.write_text(head + "spec: {directories: [/a], engine: {mode: kubernetes, executors: 5}}\n")
    assert (load(path).engine.mode, load(path).engine.executors) == ("kubernetes", 5)
    for spec, message in [
        ("spec: {directories: [/a], engine: {mode: inline}}", r"spec\.engine\.mode: 'inline' is not one of local, kub"),
        ("spec: {directories: [/a], engine: {cpus: 1}}", r"spec\.engine\.cpus"),
        ("spec: {directory: /a}", r"spec\.directory is not known"),
        ("spec: {directories: /a}", r"spec\.directories is '/a', not a list"),
        ("spec: {clusterRef: prod}", r"only the operator resolves spec\.clusterRef"),
        ("spec: 3", r"spec is missing"),
        ("spec: {7: a, b: c}", r"spec\.7 is not known"),
        ("spec: [", r"scrub\.yaml: while parsing"),
    ]:
        path.write_text(head + spec)
        with pytest.raises(SpecError, match=message):
            load(path)
    path.write_text(head + "speed: 1\nspec: {directories: [/a]}")
    with pytest.raises(SpecError, match="speed: unknown field"):
        load(path)
    path.write_text(head.replace("metadata: {name: nightly}", "metadata: {}") + "spec: {directories: [/a]}")
    with pytest.raises(SpecError, match=r"metadata\.name is missing"):
        load(path)
    path.write_text("kind: Pod")
    with pytest.raises(SpecError, match="not a KafkaScrub"):
        load(path)
