"""Messages of commands: one line, the cause last, a traceback with `--debug`, the nearest name for a typo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.cli import table
from kraft_pipeline.cli.errors import LINE_CHARACTERS, line, nearest
from kraft_pipeline.cli.main import main
from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sources.options import parse
from kraft_pipeline.tables.errors import ConflictError, FencedError, TaskError, error_of, failure_of
from kraft_pipeline.tables.specs import table_spec
from tests.unit.pipeline.tables.test_tables import document


def test_a_message_is_a_line_that_ends_with_the_cause() -> None:
    try:
        try:
            raise ConnectionRefusedError("localhost:9092 refuses\n  to connect")
        except OSError as e:
            raise RuntimeError("\x1b[31mtable /t\x1b[0m: " + "x" * 1000) from e
    except RuntimeError as e:
        found = line(e)
    assert len(found) <= LINE_CHARACTERS + 2
    assert found.startswith("table /t: xxx")
    assert found.endswith("localhost:9092 refuses to connect")
    assert line(ValueError()) == "ValueError"


def test_a_message_about_a_file_begins_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(OSError) as found:
        (tmp_path / "none").read_text()
    assert line(found.value) == f"{tmp_path}/none: No such file or directory"
    with pytest.raises(OSError) as moved:
        (tmp_path / "none").rename(tmp_path / "other")
    assert line(moved.value) == f"{tmp_path}/none: No such file or directory"
    assert line(OSError(28, "No space left on device")) == "[Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FencedError("gone"), FencedError),
        (ConflictError("first"), ConflictError),
        (table_spec.SpecError("spec.x"), table_spec.SpecError),
        (OSError("disk"), TaskError),
    ],
)
def test_failures_of_other_processes_keep_their_meaning(error: Exception, kind: type[Exception]) -> None:
    found = error_of(failure_of(error))
    assert (type(found), str(found)) == (kind, str(error))


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError("no store"), 1),
        (TaskError(failure_of(OSError("no store"))), 1),
        (table_spec.SpecError("spec.x: no store"), 2),
        (ZeroDivisionError("no store"), 1),
    ],
)
def test_a_traceback_is_printed_on_request(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, debug: bool
) -> None:
    def fail(*_: Any) -> int:
        raise error

    (tmp_path / "t.yaml").write_text(
        "{apiVersion: kraftcluster.io/v1alpha1, kind: KafkaTable, metadata: {name: t}, "
        "spec: {bootstrapServers: 'a:1', topics: {names: [t]}, table: {path: /t}}}"
    )
    monkeypatch.setattr(table, "_status", fail)
    assert main(["table", "status", str(tmp_path / "t.yaml"), *(["--debug"] if debug else [])]) == code
    found = capsys.readouterr().err
    assert "no store" in found
    reported = [one for one in found.splitlines() if one.startswith("kraft-pipeline: ")]
    assert reported[0].endswith("no store")
    assert ("defect" in found) == (isinstance(error, ZeroDivisionError) and not debug)
    shown = found.splitlines()[: -len(reported)]
    assert any("Error: " in one for one in shown) if debug else not shown


def test_a_misspelt_option_of_a_command_is_refused_with_the_nearest(capsys: Any) -> None:
    for given, meant in (("--onec", "--once"), ("--onc", "--once"), ("--sinse", "--since")):
        with pytest.raises(SystemExit) as ended:
            main(["table", "run" if "on" in given else "backfill", "t.yaml", given])
        assert ended.value.code == 2
        assert f"did you mean {meant}?" in capsys.readouterr().err
    assert nearest("quite-different", ["--once"]) == ""


def test_a_misspelt_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(table_spec.SpecError, match=r"spec\.comit: unknown field; did you mean commit\?"):
        table_spec.parse(document(comit={"maxDelay": "2s"}))
    with pytest.raises(table_spec.SpecError, match=r"partitionby: unknown field; did you mean partitionBy\?"):
        table_spec.parse(document(table={"path": "/t", "partitionby": ["date"]}))


def test_a_misspelt_option_of_the_data_source_is_refused_with_the_nearest() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    for wrong, meant in (("startingOffset", "startingOffsets"), ("failondatalos", "failOnDataLoss")):
        with pytest.raises(ValueError, match=rf"option {wrong}: unknown option; did you mean {meant}\?"):
            parse({**given, wrong: "x"}, streaming=True)
    with pytest.raises(ValueError, match=r"kafka.compresion.type: .* did you mean kafka.compression.type\?"):
        parse_sink({"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.compresion.type": "zstd"}, ["value"])
    for harmless in ("kafka.max.poll.records", "kafka.fetch.min.bytes", "fetchOffset.numRetries", "kafka.linger.ms"):
        parse({**given, harmless: "5"}, streaming=True)
