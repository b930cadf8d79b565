"""Tables in a REST catalog with Apache Iceberg's own handlers; Spark reads and writes them there, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.errors import FencedError
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.opening import open_table
from tests.catalog import apache_catalog
from tests.documents import table_document
from tests.feed import Feed
from tests.lake import Lake

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("lake"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apache_catalog(tmp_path_factory.mktemp("warehouse")) as found:
        yield found


def spec(path: Path, url: str, name: str, **table: Any) -> table_spec.TableSpec:
    catalog = {"type": "rest", "uri": url, "name": f"lake.{name}"}
    sections: Any = {"value": {"format": "json", "evolve": "additive"}, "engine": {"mode": "inline"}}
    sections["table"] = {"path": str(path / name), "format": "iceberg", "catalog": catalog, **table}
    return table_spec.parse(table_document(name=name, **sections))


def rows(url: str, name: str) -> list[dict[str, Any]]:
    catalog = RestCatalog("reader", uri=url)
    found = catalog.load_table(f"lake.{name}").scan().to_arrow().to_pylist()
    catalog.close()
    return sorted(found, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_batches_are_commits_of_the_catalog(tmp_path: Path, url: str, mode: str) -> None:
    more: dict[str, Any] = {"mode": "upsert", "key": ["id"]} if mode == "upsert" else {}
    given = spec(tmp_path, url, mode, partitionBy=["bucket(2, id)", "date"], **more)
    feed = Feed(given)
    feed.values(b'{"id": 1}', b'{"id": 2}', b"no json")
    feed.values(b'{"id": 3, "new": "x"}')
    feed.values(b'{"id": 3, "new": "y"}')
    expected = [(1, None), (2, None), (3, "x"), (3, "y")]
    expected = [row for row in expected if mode == "append" or row != (3, "x")]
    assert sorted((row["id"], row["new"] or "") for row in rows(url, mode)) == [(n, text or "") for n, text in expected]
    assert open_table(given).state().batch == 2
    Feed(given).begin()
    with pytest.raises(FencedError, match="has taken over"):
        feed.values(b'{"id": 4}')
    maintenance.compact(given)
    maintenance.vacuum(given)
    assert len(rows(url, mode)) == len(expected)
    assert [file.rows for file in open_table(given, dead_letters=True).live()] == [1]
    maintenance.reset(given)
    assert open_table(given).schema() is None


def test_spark_reads_and_writes_the_table_meanwhile(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, url: str
) -> None:
    given = spec(tmp_path, url, "shared")
    feed = Feed(given)
    feed.values(b'{"id": 1}')
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        for name, value in (("", "org.apache.iceberg.spark.SparkCatalog"), (".type", "rest"), (".uri", url)):
            lake.sql(f"SET spark.sql.catalog.served{name}={value}")
        assert [row["id"] for row in lake.sql("SELECT id FROM served.lake.shared")] == [1]
        lake.sql("INSERT INTO served.lake.shared (id) VALUES (100)")
        feed.values(b'{"id": 2}')
        lake.sql("DELETE FROM served.lake.shared WHERE id = 100")
        feed.values(b'{"id": 3}')
        lake.sql("REFRESH TABLE served.lake.shared")
        found = lake.sql("SELECT id FROM served.lake.shared WHERE id >= 2 ORDER BY id")
        assert [row["id"] for row in found] == [2, 3]
    assert [row["id"] for row in rows(url, "shared")] == [1, 2, 3]
