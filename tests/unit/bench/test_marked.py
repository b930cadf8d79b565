"""Tables in pages that people write."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.report import marked


def test_the_text_between_marks_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- spark: begin -->\nold\n<!-- spark: end -->\nafter\n")
    marked.write(page, "spark", marked.grid(["row", "ours"], [["read", "1 s"]]))
    assert page.read_text() == (
        "before\n<!-- spark: begin -->\n| row | ours |\n| --- | --- |\n| read | 1 s |\n<!-- spark: end -->\nafter\n"
    )


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- spark: begin -->\n")
    with pytest.raises(ValueError, match="lacks the marks"):
        marked.write(page, "spark", "")
    assert page.read_text() == "<!-- spark: begin -->\n"


def test_the_bench_of_spark_writes_its_table_into_the_page_of_the_pipeline(tmp_path: Path) -> None:
    """Its module failed at import for a while: it used a module that had been removed."""
    pytest.importorskip("pyspark")
    from bench.measurements import pipeline_spark

    page = tmp_path / "pipeline.md"
    page.write_text((Path(__file__).parents[3] / "docs" / "pipeline.md").read_text())
    rows = [pipeline_spark.Comparison("read 100 B", "s/GB", 1.0, pairs=[(1.0, 2.0)])]
    marked.write(page, "spark", pipeline_spark.page(rows, 256))
    assert "| read 100 B |" in page.read_text()
