"""Tables in catalogs: exactly once whatever a REST catalog answers, and Glue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyiceberg.catalog.rest import RestCatalog
from sqlalchemy.exc import OperationalError

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.errors import FencedError, RefusedError, failure_of
from kraft_pipeline.tables.iceberg import catalogs
from kraft_pipeline.tables.specs.table_spec import SpecError, TableSpec
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.storage import Folder
from tests.catalog import TOKEN, TOKENS, Answer, CatalogServer, failure
from tests.feed import Feed
from tests.unit.pipeline.crashes.test_table_replay import table


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CatalogServer]:
    with CatalogServer(tmp_path).serving() as found:
        yield found


def spec(path: Path, server: CatalogServer, **more: Any) -> TableSpec:
    catalog = {"type": "rest", "uri": server.url, "name": "lake.orders"}
    return table(path / "t", {"schema": {"id": "long"}}, format="iceberg", catalog=catalog, **more)


def rows(server: CatalogServer) -> list[int]:
    """The ids, read by PyIceberg through the catalog."""
    catalog = RestCatalog("reader", uri=server.url)
    found = sorted(catalog.load_table("lake.orders").scan().to_arrow().column("id").to_pylist())
    catalog.close()
    return found


def test_a_table_in_a_rest_catalog(tmp_path: Path, server: CatalogServer) -> None:
    given = spec(tmp_path, server, mode="upsert", key=["id"], partitionBy=["bucket(2, id)"])
    feed = Feed(given)
    feed.values(b'{"id": 1}', b'{"id": 2}')
    feed.values(b'{"id": 1}', b"no json")
    assert rows(server) == [1, 2]
    letters = open_table(given, dead_letters=True)
    assert (letters.state().batch, [file.rows for file in letters.live()]) == (1, [1])
    assert open_table(given).state().batch == 1
    maintenance.compact(given)
    assert rows(server) == [1, 2]
    maintenance.reset(given)
    assert open_table(given).schema() is None
    assert "DELETE /v1/namespaces/lake/tables/orders" in " ".join(server.asked)


def lost(commit: Callable[[], Answer]) -> Answer:
    """The catalog commits, and a proxy in front of it answers."""
    commit()
    return 504, failure(504, "GatewayTimeout")


def broken(commit: Callable[[], Answer]) -> Answer:
    """The catalog commits, and the connection breaks before its answer."""
    commit()
    return 0, None


def away(_: Callable[[], Answer]) -> Answer:
    return 503, failure(503, "Unavailable")


@pytest.mark.parametrize(("fault", "batch"), [(lost, 1), (broken, 1), (away, 0)])
def test_a_commit_without_an_answer_counts_once(
    tmp_path: Path, server: CatalogServer, fault: Callable[..., Answer], batch: int
) -> None:
    given = spec(tmp_path, server)
    feed = Feed(given)
    feed.values(b'{"id": 0}')
    server.commits.append(fault)
    with pytest.raises(OSError) as raised:
        feed.values(b'{"id": 1}')
    assert failure_of(raised.value).retriable
    feed.begin()
    assert open_table(given).state().batch == batch
    assert rows(server) == list(range(batch + 1))
    feed.values(b'{"id": 2}')
    assert rows(server) == [*range(batch + 1), 2]


def test_a_commit_that_arrives_after_a_new_claim_has_no_effect(tmp_path: Path, server: CatalogServer) -> None:
    given, late = spec(tmp_path, server), list[Callable[[], Answer]]()
    feed = Feed(given)
    feed.values(b'{"id": 0}')

    def held(commit: Callable[[], Answer]) -> Answer:
        late.append(commit)
        return 504, failure(504, "GatewayTimeout")

    server.commits.append(held)
    with pytest.raises(OSError, match=r"catalog of lake.orders: CommitStateUnknownException"):
        feed.values(b'{"id": 1}')
    feed.begin()
    assert late[0]()[0] == 409
    assert rows(server) == [0]


def test_an_earlier_writer_cannot_commit_any_more(tmp_path: Path, server: CatalogServer) -> None:
    given = spec(tmp_path, server)
    old = Feed(given)
    old.values(b'{"id": 0}')
    Feed(given).begin()
    with pytest.raises(FencedError, match="has taken over"):
        old.values(b'{"id": 1}')
    assert rows(server) == [0]


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_catalog_that_refuses_stops_the_run(tmp_path: Path, server: CatalogServer, status: int) -> None:
    given = spec(tmp_path, server)
    Feed(given).values(b'{"id": 0}')
    server.refuse = status
    with pytest.raises(RefusedError, match=r"catalog of lake.orders"):
        open_table(given)


def test_a_catalog_that_hangs_is_left_after_a_time(
    tmp_path: Path, server: CatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg waited without end."""
    given, go_on = spec(tmp_path, server), threading.Event()
    feed = Feed(given)
    feed.values(b'{"id": 0}')
    monkeypatch.setattr(catalogs, "REQUEST_S", 0.2)

    def hangs(_: Callable[[], Answer]) -> Answer:
        go_on.wait(60)
        return 0, None

    server.commits.append(hangs)
    with pytest.raises(OSError, match="timed out"):
        feed.values(b'{"id": 1}')
    go_on.set()
    monkeypatch.setattr(catalogs, "REQUEST_S", 60.0)
    feed.begin()
    feed.values(b'{"id": 1}')
    assert rows(server) == [0, 1]


def test_a_database_that_is_away_is_waited_for() -> None:
    with (
        pytest.raises(ConnectionError, match=r"catalog of lake.t: OperationalError") as raised,
        catalogs.reachable("lake.t"),
    ):
        raise OperationalError("SELECT 1", {}, Exception("could not connect"))
    assert failure_of(raised.value).retriable


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDeniedException", RefusedError), ("ThrottlingException", ConnectionError)]
)
def test_failures_of_glue_become_our_errors(code: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=rf"catalog of lake.t: ClientError: .*{code}"), catalogs.reachable("lake.t"):
        raise ClientError({"Error": {"Code": code, "Message": "m"}}, "GetTable")
    with pytest.raises(ConnectionError), catalogs.reachable("lake.t"):
        raise EndpointConnectionError(endpoint_url="http://x")


def test_a_table_in_glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moto = pytest.importorskip("moto")
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    catalog = {"type": "glue", "name": "lake.orders", "glue.region": "us-east-1"}
    with moto.mock_aws():
        given = table(tmp_path / "t", {"schema": {"id": "long"}}, format="iceberg", catalog=catalog)
        old = Feed(given)
        old.values(b'{"id": 0}')
        old.values(b'{"id": 1}', b"no json")
        Feed(given).begin()
        with pytest.raises(FencedError, match="has taken over"):
            old.values(b'{"id": 2}')
        found, name = catalogs.open_catalog(Folder(tmp_path / "t"), catalog)
        assert sorted(found.load_table(name).scan().to_arrow().column("id").to_pylist()) == [0, 1]
        maintenance.reset(given)
        assert not found.table_exists(name)


def test_options_of_the_store_reach_pyiceberg(tmp_path: Path, server: CatalogServer) -> None:
    given = {"type": "rest", "uri": server.url, "name": "a.b", "s3.region": "own"}
    store = {"AWS_ENDPOINT_URL": "http://store", "AWS_REGION": "other", "AWS_ALLOW_HTTP": "true"}
    catalog, _ = catalogs.open_catalog(Folder(tmp_path), given, store)
    assert (catalog.properties["s3.endpoint"], catalog.properties["s3.region"]) == ("http://store", "own")
    catalog.close()


def test_a_catalog_without_a_type_that_pyiceberg_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spec.table.catalog: "):
        catalogs.open_catalog(Folder(tmp_path), {"name": "a.b", "uri": "ftp://x"})


@pytest.mark.parametrize("by", ["token", "credential"])
def test_a_rest_catalog_that_asks_for_a_token(tmp_path: Path, server: CatalogServer, by: str) -> None:
    """A token, or OAuth's client credentials, as Polaris and Unity want them."""
    server.credential = "reader:secret"
    oauth = {"credential": "reader:secret", "oauth2-server-uri": f"{server.url}{TOKENS}", "scope": "PRINCIPAL_ROLE:ALL"}
    given = {"type": "rest", "uri": server.url, "name": "lake.orders"}
    options = {**given, **(oauth if by == "credential" else {"token": TOKEN})}
    Feed(table(tmp_path / "t", {"schema": {"id": "long"}}, format="iceberg", catalog=options)).values(b'{"id": 1}')
    assert ("token PRINCIPAL_ROLE:ALL" in server.asked) == (by == "credential")
    catalog, name = catalogs.open_catalog(Folder(tmp_path / "t"), options)
    assert catalog.load_table(name).scan().to_arrow().column("id").to_pylist() == [1]
    for wrong in ({"token": "old"}, {**oauth, "credential": "reader:wrong"}, {}):
        with pytest.raises(RefusedError, match=r"catalog of lake\.orders: "):
            catalogs.open_catalog(Folder(tmp_path / "t"), {**given, **wrong})


@pytest.mark.parametrize("options", [{"type": "hive", "uri": "a:9083"}, {"uri": "thrift://a:9083"}])
def test_the_catalog_type_hive_is_refused(tmp_path: Path, options: dict[str, str]) -> None:
    """PyIceberg replaces the metadata without a condition, so a paused writer could undo commits of other writers."""
    with pytest.raises(SpecError, match=r"spec\.table\.catalog\.type: hive has no conditional commit .* type: rest"):
        catalogs.open_catalog(Folder(tmp_path), {"name": "a.b", **options})
