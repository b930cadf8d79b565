"""Tables in Azure's store (Azurite) and in Google's (a server of our own), and the addresses of stores."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.errors import FencedError
from kraft_pipeline.tables.specs.table_spec import SpecError, TableSpec
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.storage import ObjectStore, open_storage, store_options
from tests.azurite import azure_store
from tests.feed import Feed
from tests.googlestore import google_store
from tests.unit.pipeline.crashes.test_table_replay import table

pytestmark = pytest.mark.xdist_group("clouds")
Options = dict[str, str]


@pytest.fixture(scope="module", params=["az", "gs"])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Options]]:
    """The scheme of a store, and its options."""
    store = google_store() if request.param == "gs" else azure_store(tmp_path_factory.mktemp("azurite"), "lake")
    with store as options:
        yield request.param, options


def rows(given: TableSpec, options: dict[str, str]) -> list[int]:
    if given.format == "delta":
        found = pa.table(DeltaTable(given.path, storage_options=store_options(options)).to_pyarrow_table())
        return sorted(found.column("id").to_pylist())
    storage = open_storage(given.path, options)
    files = [pq.read_table(io.BytesIO(storage.read(file.path))) for file in open_table(given).live()]
    return sorted(number for file in files for number in file.column("id").to_pylist())


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("delta", {}),
        ("iceberg", {"partitionBy": ["bucket(2, id)"]}),
        ("parquet", {"partitionBy": ["date"]}),
        ("delta", {"mode": "upsert", "key": ["id"]}),
        ("iceberg", {"mode": "upsert", "key": ["id"]}),
    ],
)
def test_tables_in_a_store(cloud: tuple[str, Options], kind: str, more: dict[str, Any]) -> None:
    scheme, options = cloud
    uri: Any = f"{scheme}://lake/{kind}-{'-'.join(more)}"
    given = table(uri, {"schema": {"id": "long"}}, format=kind, storageOptions=options, **more)
    old = Feed(given)
    old.values(b'{"id": 1}', b'{"id": 2}', b"no json")
    old.values(b'{"id": 3}')
    assert rows(given, options) == [1, 2, 3]
    Feed(given).begin()
    with pytest.raises(FencedError):
        old.values(b'{"id": 4}')
    maintenance.compact(given)
    assert rows(given, options) == [1, 2, 3]
    maintenance.reset(given)
    assert list(open_storage(given.path, options).list()) == []


def test_objects_are_created_once_and_replaced_by_the_newest_writer(cloud: tuple[str, Options]) -> None:
    scheme, options = cloud
    uri = {"az": "abfss://lake@devstoreaccount1.dfs.core.windows.net/plain", "gs": "gs://lake/plain"}
    store = open_storage(uri[scheme], options)
    assert store.create("a/1.json", b"x")
    assert store.create("a/1.json", b"x"), "a repeated put"
    assert not store.create("a/1.json", b"y")
    assert store.read("a/1.json") == b"x"
    checks = []

    def check() -> None:
        checks.append(1)
        if len(checks) == 1:  # another writer replaces the object between the check and the put
            store.write("state", b"other")

    store.write("state", b"first")
    store.replace("state", b"mine", check)
    assert (len(checks), store.read("state")) == (2, b"mine")
    with store.open("state") as source:
        source.seek(2)
        assert source.read() == b"ne"
    assert sorted(file.path for file in store.list()) == ["a/1.json", "state"]
    assert pickle.loads(pickle.dumps(store)).exists("state")
    store.delete("state")
    store.delete("state")
    assert not store.exists("state")


@pytest.mark.parametrize(
    ("uri", "known"),
    [
        ("s3a://b/t/", "s3://b/t"),
        ("gs://b/t", "gs://b/t"),
        ("gcs://b/t", "gs://b/t"),
        ("az://c/t", "az://c/t"),
        ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
    ],
)
def test_a_scheme_selects_its_store(uri: str, known: str) -> None:
    key = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
    options = {"gs": {"GOOGLE_SERVICE_ACCOUNT_KEY": key}, "az": {"AZURE_STORAGE_ACCOUNT_NAME": "a"}}
    found = open_storage(uri, options.get(known[:2], {}))
    assert isinstance(found, ObjectStore)
    assert found.uri == known


@pytest.mark.parametrize("uri", ["ftp://x/t", "s3:///t", "gs://"])
def test_other_schemes_are_refused(uri: str) -> None:
    with pytest.raises(SpecError, match=r"is neither a folder nor s3://bucket/…, gs://bucket/…"):
        open_storage(uri, {})


@pytest.mark.parametrize(
    ("uri", "options"), [("abfss://x@y/t", {}), ("s3://b/t", {"COLOUR": "red"}), ("az://c/t", {"AZURE_CONTAINER": ""})]
)
def test_what_the_library_refuses_is_an_error_of_the_specification(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(SpecError, match=f"spec.table.path: {uri}: "):
        open_storage(uri, options)


def test_an_address_without_tls_allows_http() -> None:
    for name in ("AWS_ENDPOINT_URL", "azure_storage_endpoint", "GOOGLE_BASE_URL"):
        assert store_options({name: "http://x"})["ALLOW_HTTP"] == "true"
        assert "ALLOW_HTTP" not in store_options({name: "https://x"})
    assert store_options({"AWS_ENDPOINT_URL": "http://x", "ALLOW_HTTP": "false"})["ALLOW_HTTP"] == "false"
