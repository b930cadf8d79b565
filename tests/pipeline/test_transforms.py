"""SQL and user functions over the decoded rows: the table's content, and refusals at the start."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.engine import InlineEngine, SparkEngine
from kraft_pipeline.tables.errors import TaskError
from kraft_pipeline.tables.specs import table_spec
from tests.compat.pipeline.test_pipeline_client import create
from tests.compat.pipeline.test_pipeline_table import FORMATS, document, rows, send, written_files
from tests.compat.pipeline.test_pipeline_table_life import keyed
from tests.compat.targets import Ours
from tests.spark import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark-kraftcluster")]
VALUE = {"format": "json", "schema": {"id": "long", "name": "string", "tags": "array<string>", "at": "timestamp"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    target = Ours("kraftcluster", tmp_path_factory.mktemp("server"))
    yield target.start()
    target.kill()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "_" for c in str(request.node.name).removeprefix("test_"))


def transformed(target: Ours, topic: str, path: Path, kind: str, transform: str, **more: Any) -> dict[str, Any]:
    given = document(target, topic, path, kind, value=VALUE, transform=transform, **more)
    given["spec"]["engine"] = {"mode": "local"}
    return given


def run(given: dict[str, Any], engine: SparkEngine, folder: Path | None = None) -> list[runner.Progress]:
    reported: list[runner.Progress] = []
    runner.Runner(table_spec.parse(given, folder), engine, report=reported.append).run(once=True)
    return reported


@pytest.mark.parametrize("kind", FORMATS)
def test_a_select_defines_the_rows_of_a_table(spark: Any, cluster: Ours, name: str, tmp_path: Path, kind: str) -> None:
    """Rows filtered, exploded and computed. Dead letters are those of the records; no file is left over."""
    create(cluster, name, 2)
    sent = [b'{"id": %d, "name": "N%d", "tags": ["a", "b"], "at": "2024-02-29T10:00:00Z"}' % (n, n) for n in range(40)]
    send(cluster, name, [*sent, b"no object", b'{"id": "text"}'])
    transform = """
        SELECT id * 10 AS n, lower(name) AS name, tag, CAST(name AS INT) AS no_number, at, _topic, _offset
        FROM records LATERAL VIEW explode(tags) t AS tag
        WHERE id % 2 = 0;
    """
    given = transformed(cluster, name, tmp_path / "t", kind, transform, table={"partitionBy": ["tag"]})
    assert [(done.rows, done.dead) for done in run(given, SparkEngine(spark))] == [(40, 2)]
    send(cluster, name, [b'{"id": 100, "tags": ["c"]}', b'{"id": 101, "tags": ["c"]}', b'{"id": 102}'])
    assert [(done.rows, done.dead) for done in run(given, SparkEngine(spark))] == [(1, 0)]
    assert run(given, SparkEngine(spark)) == []
    found = rows(tmp_path / "t", kind)
    expected = Counter((10 * n, f"n{n}", tag) for n in range(0, 40, 2) for tag in "ab")
    assert Counter((row["n"], row["name"], row["tag"]) for row in found) == expected + Counter([(1000, None, "c")])
    assert {row["no_number"] for row in found} == {None}, "an expression that fails on a record is null"
    assert {row["at"].isoformat() for row in found if row["at"]} == {"2024-02-29T10:00:00+00:00"}
    parsed = table_spec.parse(given)
    assert written_files(parsed) == runner.open_table(parsed).files()
    assert maintenance.compact(parsed)[0] > 0
    assert len(rows(tmp_path / "t", kind)) == 41


def test_a_user_function_is_called_in_a_select(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    (tmp_path / "my_masks.py").write_text("def hide(text):\n    return None if text is None else text[0] + '***'\n")
    create(cluster, name)
    send(cluster, name, [b'{"name": "ada"}', b'{"id": 1}'])
    functions = {"hide": {"python": "my_masks:hide", "returns": "string"}}
    given = transformed(cluster, name, tmp_path / "t", "delta", "SELECT hide(name) AS who FROM records")
    given["spec"]["functions"] = functions
    run(given, SparkEngine(spark), tmp_path)
    assert sorted(str(row["who"]) for row in rows(tmp_path / "t", "delta")) == ["None", "a***"]
    functions["hide"]["python"] = "my_masks:other"
    with pytest.raises(table_spec.SpecError, match=r"^spec.functions.hide: my_masks:other: AttributeError"):
        run(given, SparkEngine(spark), tmp_path)
    functions["mask"] = {"python": "my_masks:hide", "returns": "string"}
    del functions["hide"]
    with pytest.raises(table_spec.SpecError, match=r"^spec.functions.mask: Spark has a function of this name"):
        run(given, SparkEngine(spark), tmp_path)


def test_a_value_on_which_a_transform_fails_ends_the_run(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    """Waiting does not help: before, the run retried for ever."""
    (tmp_path / "my_checks.py").write_text("def check(number):\n    raise ValueError(f'{number} is wrong')\n")
    create(cluster, name)
    send(cluster, name, [b'{"id": 7, "name": "x"}'])
    given = transformed(cluster, name, tmp_path / "t", "parquet", "SELECT check(id) AS n FROM records")
    given["spec"]["functions"] = {"check": {"python": "my_checks:check", "returns": "long"}}
    with pytest.raises(TaskError, match=r"^spec.transform: ValueError: 7 is wrong$") as reported:
        run(given, SparkEngine(spark), tmp_path)
    assert not reported.value.failure.retriable


def test_an_expression_that_fails_under_ansi_ends_the_run(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    """Without ANSI it is null, independent of the session of other queries."""
    create(cluster, name)
    send(cluster, name, [b'{"id": 0, "name": "x"}'])
    for text in ("1 div id", "CAST(name AS BIGINT)"):
        given = transformed(cluster, name, tmp_path / "t", "delta", f"SELECT {text} AS n FROM records")
        given["spec"]["engine"]["spark"] = {"spark.sql.ansi.enabled": "true"}
        with pytest.raises(TaskError, match=r"^spec.transform: .*(CAST_INVALID_INPUT|DIVIDE_BY_ZERO)") as reported:
            run(given, SparkEngine(spark))
        assert not reported.value.failure.retriable
    given["spec"]["engine"]["spark"] = {"spark.sql.ansi.enabled": "false"}
    run(given, SparkEngine(spark))
    assert [row["n"] for row in rows(tmp_path / "t", "delta")] == [None]


BY_KEY = """
    SELECT CAST(_key AS STRING) AS id, upper(name) AS name, size(tags) AS tags, _deleted,
           _topic, _partition_id, _offset, _timestamp
    FROM records WHERE _deleted OR name <> 'left out'
"""


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_by_key_are_made_by_a_select(spark: Any, cluster: Ours, name: str, tmp_path: Path, kind: str) -> None:
    """The key is a column of the SELECT. Tombstones delete, and later records win, also across batches."""
    create(cluster, name)
    table = {"mode": "upsert", "key": ["id"], "partitionBy": ["name"]}
    given = transformed(cluster, name, tmp_path / "t", kind, BY_KEY, table=table)
    for sent in (
        [("a", b'{"name": "ada", "tags": ["x"]}'), ("b", b'{"name": "bob"}'), ("a", b'{"name": "eve"}'), ("c", b"{")],
        [("b", None), ("a", b'{"name": "left out"}'), ("d", None), ("e", b'{"name": "eve"}')],
        [("e", b'{"name": "mallory"}')],
    ):
        keyed(cluster, name, sent)
        run(given, SparkEngine(spark))
    found = rows(tmp_path / "t", kind)
    assert sorted((row["id"], row["name"]) for row in found) == [("a", "EVE"), ("e", "MALLORY")]
    assert "_deleted" not in found[0]
    parsed = table_spec.parse(given)
    assert not list((tmp_path / "t").rglob("_staged/*.parquet"))
    assert written_files(parsed) == runner.open_table(parsed).files()


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("SELECT id, _topic, _partition_id, _offset, _timestamp FROM records", "the column '_deleted'; select it, too"),
        ("SELECT id, _deleted, _topic, _partition_id, _timestamp FROM records", "the column '_offset'; select it, too"),
        ("SELECT * EXCEPT (id) FROM records", "^spec.table.key: column 'id' does not exist"),
        ("SELECT * EXCEPT (_offset), 'x' AS _offset FROM records", "merged by '_offset'; do not change its type"),
    ],
)
def test_a_select_by_key_has_the_columns_of_a_merge(
    spark: Any, cluster: Ours, tmp_path: Path, transform: str, message: str
) -> None:
    table = {"mode": "upsert", "key": ["id"]}
    given = transformed(cluster, "no topic is asked for", tmp_path / "t", "delta", transform, table=table)
    with pytest.raises(table_spec.SpecError, match=message):
        runner.Runner(table_spec.parse(given), SparkEngine(spark))


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("SELECT nothing FROM records", r"^spec.transform: .*nothing"),
        ("SELEC * FROM records", r"^spec.transform: .*SELEC"),
        ("SELECT * FROM orders", r"^spec.transform: .*orders"),
        ("SELECT count(*) AS n FROM records", "^spec.transform: Aggregate needs several rows"),
        ("SELECT id FROM records ORDER BY id", "^spec.transform: Sort needs several rows"),
        ("SELECT id, name AS ID FROM records", "^spec.transform: two columns are called 'id'"),
        ("SELECT NULL AS n FROM records", "^spec.transform: column 'n' is null, which tables lack; CAST it"),
        ("SELECT (SELECT max(id) FROM records) AS n FROM records", "^spec.transform: Aggregate needs several rows"),
    ],
)
def test_a_wrong_select_is_refused_at_the_start(
    spark: Any, cluster: Ours, tmp_path: Path, transform: str, message: str
) -> None:
    given = transformed(cluster, "no topic is asked for", tmp_path / "t", "delta", transform)
    with pytest.raises(table_spec.SpecError, match=message):
        runner.Runner(table_spec.parse(given), SparkEngine(spark))


def test_a_select_adds_columns_but_cannot_change_types(spark: Any, cluster: Ours, name: str, tmp_path: Path) -> None:
    """New columns are added; another type of a column is refused."""
    create(cluster, name)
    send(cluster, name, [b'{"id": 1}'])
    given = transformed(cluster, name, tmp_path / "t", "delta", "SELECT id FROM records")
    run(given, SparkEngine(spark))
    send(cluster, name, [b'{"id": 2, "name": "x"}'])
    given["spec"]["transform"] = "SELECT id, name FROM records"
    run(given, SparkEngine(spark))
    assert sorted((row["id"], row["name"]) for row in rows(tmp_path / "t", "delta")) == [(1, None), (2, "x")]
    send(cluster, name, [b'{"id": 3}'])
    given["spec"]["transform"] = "SELECT CAST(id AS STRING) AS id FROM records"
    with pytest.raises(table_spec.SpecError, match="column 'id' is string, but int64 in the table; CAST it"):
        run(given, SparkEngine(spark))


def test_wrong_specifications_with_a_select_are_refused() -> None:
    def given(**more: Any) -> Any:
        base = {"bootstrapServers": "a:1", "topics": {"names": ["t"]}, "table": {"path": "/t"}, "value": VALUE}
        document = {"apiVersion": table_spec.API_VERSION, "kind": table_spec.KIND, "metadata": {"name": "t"}}
        return table_spec.parse(json.loads(json.dumps({**document, "spec": {**base, "transform": "SELECT 1", **more}})))

    for more, message in (
        ({"engine": {"mode": "inline"}}, "SQL needs Spark"),
        (
            {
                "table": {"path": "/t", "mode": "upsert", "key": ["id"]},
                "value": {"format": "json", "envelope": "debezium", "schema": {"id": "long"}},
            },
            "change events by key cannot be transformed",
        ),
        ({"value": {"format": "json", "evolve": "additive"}}, "evolve cannot be additive"),
        ({"transform": "", "functions": {"f": {"python": "a:b", "returns": "int"}}}, "only a transform calls"),
        ({"functions": {"f": {"python": "a.b", "returns": "int"}}}, "is not of the form module:function"),
        ({"functions": {"f": {"python": "a:b"}}}, "spec.functions.f.returns: is missing"),
    ):
        with pytest.raises(table_spec.SpecError, match=message):
            given(**more)
    with pytest.raises(table_spec.SpecError, match="SQL needs Spark"):
        InlineEngine().transform(given())
