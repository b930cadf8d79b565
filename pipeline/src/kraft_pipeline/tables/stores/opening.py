"""Opens the parts of a spec: the table, the table of dead letters, and the options to read the topics."""

from __future__ import annotations

from typing import Final

from kraft_pipeline.sources.options import Options, parse
from kraft_pipeline.sources.security import FILE
from kraft_pipeline.tables.specs.table_spec import DEAD_LETTERS, TableSpec
from kraft_pipeline.tables.stores.committer import Committer
from kraft_pipeline.tables.stores.parquet import LOG, ParquetTable
from kraft_pipeline.tables.stores.storage import open_storage

MARKS: Final = {"parquet": LOG, "delta": "_delta_log", "iceberg": "metadata"}
"""Path below a table's folder that identifies its format."""


def open_table(
    spec: TableSpec, *, dead_letters: bool = False, backfill: bool = False, replay: bool = False
) -> Committer:
    """Open a spec's table or its dead letters, for the writer of the stream, the backfill or the replay.

    The table need not exist. Raises ValueError if the path holds a table of another format.
    """
    app_id = spec.replay_id if replay else spec.backfill_id if backfill else spec.app_id
    table = _open(spec, app_id, dead_letters=dead_letters)
    if table.schema() is None:
        path = spec.dead_letter_path if dead_letters else spec.path
        storage = open_storage(path, spec.storage)
        for kind, mark in MARKS.items():
            if kind != spec.format and next(iter(storage.list(mark)), None) is not None:
                raise ValueError(f"spec.table.format: {path} holds a table of format {kind}, not {spec.format}")
    return table


def _open(spec: TableSpec, app_id: str, *, dead_letters: bool) -> Committer:
    path = spec.dead_letter_path if dead_letters else spec.path
    storage = open_storage(path, spec.storage)
    if spec.format == "parquet":
        return ParquetTable(storage, app_id)
    if spec.format == "iceberg":
        from kraft_pipeline.tables.iceberg import IcebergTable  # noqa: PLC0415 - only if needed

        catalog = dict(spec.catalog)
        if dead_letters and catalog:
            catalog["name"] = catalog.get("name", "") + DEAD_LETTERS
        return IcebergTable(storage, app_id, catalog, spec.storage)
    from kraft_pipeline.tables.stores.delta import DeltaTableOf  # noqa: PLC0415 - an extra that the others do without

    return DeltaTableOf(path, app_id, spec.storage)


def options_of(spec: TableSpec) -> Options:
    """The spec's options to read topics, in the form of the `kraft` data source."""
    given = {"kafka.bootstrap.servers": spec.bootstrap, "kafka.client.id": spec.app_id, **spec.kafka}
    if spec.properties:
        given[FILE] = spec.properties
    given |= {"subscribePattern": spec.pattern} if spec.pattern else {"subscribe": ",".join(spec.topics)}
    given["startingOffsets"] = spec.starting
    given["failOnDataLoss"] = str(spec.fail_on_data_loss).lower()
    given["kafka.isolation.level"] = "read_committed" if spec.committed else "read_uncommitted"
    return parse(given, streaming=True)
