"""Many tables of one specification: the meaning of routes and `{topic}`, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import fleet, status_server
from kraft_pipeline.tables.maintenance import TIER, _groups
from kraft_pipeline.tables.specs import routes, table_spec
from kraft_pipeline.tables.stores.committer import Added


def given(*some: dict[str, Any], **more: Any) -> dict[str, Any]:
    table = {"format": "parquet", "storageOptions": {"AWS_REGION": "x"}}
    base = {"bootstrapServers": "a:1", "table": table, "value": {"format": "json"}, **more}
    routed = {"routes": list(some)} if some else {}
    return {
        "apiVersion": table_spec.API_VERSION,
        "kind": table_spec.KIND,
        "metadata": {"name": "shop"},
        "spec": {**base, **routed},
    }


ORDERS = {"topics": {"names": ["orders"]}, "table": {"path": "/data/orders"}}


def test_a_route_overrides_its_fields_and_keeps_the_others() -> None:
    logs = {"name": "raw-logs", "topics": {"pattern": "log.*"}, "value": {"format": "raw"}, "table": {"path": "/l"}}
    orders, other = routes.parse_all(given(ORDERS, logs))
    assert (orders.topics, orders.path, orders.format, orders.value.format) == (
        ("orders",),
        "/data/orders",
        "parquet",
        "json",
    )
    assert (other.pattern, other.path, other.value.format) == ("log.*", "/l", "raw")
    assert {table.storage["AWS_REGION"] for table in (orders, other)} == {"x"}
    assert [table.label for table in (orders, other)] == ["shop/orders", "shop/raw-logs"]
    assert {table.app_id for table in (orders, other)} == {"kafkatable-shop"}


def test_a_path_with_topic_is_a_table_for_each() -> None:
    (found,) = routes.parse_all(
        given(topics={"pattern": ".*"}, table={"path": "/data/{topic}/rows", "format": "delta"})
    )
    assert found.is_for_each_topic
    one = routes.of_topic(found, "eu.orders")
    assert (one.path, one.topics, one.pattern, one.label) == (
        "/data/eu.orders/rows",
        ("eu.orders",),
        None,
        "shop/eu.orders",
    )
    assert not one.is_for_each_topic


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (given(ORDERS, {**ORDERS, "name": "again"}), r"^spec.routes\[1\]: spec.table.path: '/data/orders' is within"),
        (given(ORDERS, {**ORDERS, "table": {"path": "/data/orders/x"}}), r"^spec.routes\[1\]: .* is within"),
        (given(ORDERS, {**ORDERS, "table": {"path": "/data/orders_dead_letters"}}), r"^spec.routes\[1\]: .* is within"),
        (given({**ORDERS, "engine": {}}), r"^spec.routes\[0\]: engine: unknown field; a route has name"),
        (given({"table": {"path": "/t"}}), r"^spec.routes\[0\]: spec.topics: give either names or pattern"),
        (given(ORDERS, topics={"names": ["t"]}), "^spec.topics: each of spec.routes has topics of its own"),
        (given("orders"), "^spec.routes: expected a list of mappings"),
    ],
)
def test_wrong_routes_are_refused(document: Any, message: str) -> None:
    with pytest.raises(table_spec.SpecError, match=message):
        routes.parse_all(document)


def test_names_of_topics_never_put_two_tables_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic named like another table's dead letters, and a topic whose table is that of another route."""
    topics = ["invoices", "orders", "orders_dead_letters"]
    expanded = {True: lambda spec: [routes.of_topic(spec, topic) for topic in topics], False: lambda spec: [spec]}
    monkeypatch.setattr(fleet, "_expanded", lambda spec: expanded[spec.is_for_each_topic](spec))
    some = {"name": "each", "topics": {"pattern": ".*"}, "table": {"path": "/data/{topic}"}}
    other = {"name": "paid", "topics": {"names": ["payments"]}, "table": {"path": "/data/invoices"}}
    specs = routes.parse_all(given(some, other))
    found = fleet.tables_of(specs)
    assert [(table.path, table.topics) for table in found.good] == [
        ("/data/invoices", ("payments",)),
        ("/data/orders", ("orders",)),
    ]
    assert sorted(found.refused) == ["shop/invoices", "shop/orders_dead_letters"]
    assert "'/data/invoices' is within '/data/invoices' of shop/paid" in str(found.refused["shop/invoices"])
    running = [routes.of_topic(specs[0], "orders_dead_letters")]
    found = fleet.tables_of(specs, running)
    assert found.good[0] == running[0]
    assert sorted(found.refused) == ["shop/invoices", "shop/orders"]


def test_a_specification_with_several_tables_is_refused_for_one() -> None:
    with pytest.raises(table_spec.SpecError, match=r"^spec.routes: there are several tables"):
        table_spec.parse(given(ORDERS))


def test_the_status_of_all_has_sums_and_each(tmp_path: Path) -> None:
    reported = status_server.FleetStatus("shop")
    for name, lag in (("a", 3), ("b", 4)):
        (table,) = routes.parse_all(given({**ORDERS, "name": name, "table": {"path": f"{tmp_path}/{name}"}}))
        one = reported.of(table)

        class Behind:
            care_failures, care_error, behind = 0, None, lag
            lags = {("t", 0): lag}

        one.watch(Behind())  # type: ignore[arg-type]
    found = reported.status()
    assert (found["lag"], found["rows"], [table["name"] for table in found["tables"]]) == (7, 0, ["shop/a", "shop/b"])
    assert 'kraft_table_lag_records{table="shop/b"} 4' in reported.metrics()
    assert reported.metrics().count("# TYPE kraft_table_lag_records") == 1
    assert 'kraft_table_partition_lag_records{table="shop/b",topic="t",partition="0"} 4' in reported.metrics()
    assert reported.metrics().count("# TYPE kraft_table_partition_lag_records") == 1


def test_a_running_table_rewrites_a_row_only_a_few_times() -> None:
    """A pass runs after each batch: before, it merged the table's largest small file with each new one."""
    wanted, size, written = 1000.0, 4, 0
    live: list[Added] = []
    for batch in range(500):
        live.append(Added(f"b{batch}", size, size))
        for group in list(_groups(live, int(wanted), tier=TIER)):
            whole = sum(file.size for file in group)
            written += whole
            live = [file for file in live if file not in group] + [Added(f"m{batch}-{written}", whole, whole)]
    assert len(live) < 20
    assert written < 12 * 500 * size
