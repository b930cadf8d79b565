"""`spec.transform`: one SELECT over the decoded rows of each batch, run by Spark between decoding and writing.

Tasks decode their ranges and stage the rows (`changes.STAGED`). Spark reads them as the view `records` and writes the
result of the SELECT as the batch's files. Dead letters, counts and repeated batches still refer to the records, and
the table's transaction is unchanged. Each batch is transformed alone and may end anywhere, so only operators that look
at one row at a time are allowed. The columns of the records must be known before the first batch. So a wrong SELECT
fails at the start of the run, and the table's columns do not depend on the first values. In a table by key the result
has the columns of the records' order, and `_deleted`, which is true for tombstones. So the result is merged like
records.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kraft_pipeline.tables import values
from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.bykey.ordering import GENERATION
from kraft_pipeline.tables.engines.tasks import Job, Result, RowFiles
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.specs.table_spec import FunctionSpec, SpecError, TableSpec
from kraft_pipeline.tables.stores.committer import DELETED, Added, Part
from kraft_pipeline.tables.stores.storage import open_storage
from kraft_protocol.client.fetch import Range

VIEW: Final = "records"
ROW_BY_ROW: Final = frozenset(
    {"Project", "Filter", "SubqueryAlias", "View", "Generate", "Union", "WithCTE", "CTERelationDef", "CTERelationRef"}
    | {"LogicalRDD", "MapInArrow", "Range", "LocalRelation", "OneRowRelation", "LateralJoin", "ArrowEvalPython"}
    | {"BatchEvalPython", "ResolvedHint", "UnresolvedSubqueryColumnAliases"}
)
"""Spark's operators that make a row from a single row only."""


class SelectEngine(Protocol):
    """What a SELECT needs of its engine, which is `engine.SparkEngine`."""

    session: Any
    """The Spark session."""

    def written(self, frame: Any, call: Callable[[Iterator[pa.RecordBatch]], Result]) -> list[Result]:
        """Call `call` with the rows of each partition of a DataFrame, and return the results. Raises TaskError."""
        ...


class Transform:
    """The checked SELECT of a specification. The constructor raises SpecError."""

    def __init__(self, spec: TableSpec, engine: SelectEngine) -> None:
        self._spec, self._engine = spec, engine
        fields = values.first_fields(spec)
        if spec.value.format != "raw" and not len(fields):
            raise SpecError("spec.transform: the columns of records must be known; give spec.value.schema")
        self._given = values.records_of(spec, fields)
        # A new session has its own views, functions and settings, and uses the same executors.
        self._session = engine.session.newSession()
        self._session.conf.set("spark.sql.session.timeZone", "UTC")
        self._session.conf.set("spark.sql.ansi.enabled", spec.engine.spark.get("spark.sql.ansi.enabled", "false"))
        for function in spec.functions:
            if self._session.catalog.functionExists(function.name):
                raise SpecError(f"spec.functions.{function.name}: Spark has a function of this name; give it another")
            self._session.udf.register(function.name, loaded(function, engine.session), function.returns)
        self.schema = self._checked()
        """The columns of the result."""

    def _checked(self) -> pa.Schema:
        try:
            frame = self._frame([])
            found = to_arrow_schema(frame.schema, timezone="UTC")
            operators = _operators(frame._jdf.queryExecution().analyzed())
        except PySparkException as e:
            raise SpecError(f"spec.transform: {' '.join(str(e).partition(';')[0].split())}") from None
        except TypeError as e:
            raise SpecError(f"spec.transform: {e}") from None
        wrong = sorted(operators - ROW_BY_ROW)
        if wrong:
            raise SpecError(
                f"spec.transform: {', '.join(wrong)} needs several rows. A table is written batch by batch, so the"
                " result would depend on the ends of batches: select, filter and explode single rows"
            )
        names = [name.lower() for name in found.names]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(f"spec.transform: two columns are called {name!r}; name them with AS")
        for field in found:
            if pa.types.is_null(field.type) or pa.types.is_duration(field.type) or pa.types.is_int8(field.type):
                raise SpecError(f"spec.transform: column {field.name!r} is {field.type}, which tables lack; CAST it")
        if self._spec.mode == "upsert":
            found = self._keyed(found)
        partitions.parse(self._spec.partition_by, found)
        return found

    def _keyed(self, found: pa.Schema) -> pa.Schema:
        """The table's columns of a result by key, which has the order of the records, and GONE. Raises SpecError."""
        order = changes.order_of(self._given)
        for name in (*order.columns, values.GONE):
            if name not in found.names:
                raise SpecError(f"spec.transform: rows by key are merged by the column {name!r}; select it, too")
            if found.field(name).type != self._given.field(name).type:
                raise SpecError(f"spec.transform: rows by key are merged by {name!r}; do not change its type")
        if GENERATION in found.names:
            raise SpecError(
                f"spec.transform: a table by key makes the column {GENERATION!r} itself; name yours with AS"
            )
        rest = found.remove(found.get_field_index(values.GONE))
        changes.check(self._spec.keys, rest)
        changes.order_of(rest, self._spec.order_by)
        return rest

    def columns(self, there: pa.Schema | None) -> pa.Schema:
        """The columns of the result. `there`: the table's columns, or None. Raises SpecError if a type differs."""
        for field in self.schema:
            if there is not None and field.name in there.names and there.field(field.name).type != field.type:
                raise SpecError(
                    f"spec.transform: column {field.name!r} is {field.type}, but {there.field(field.name).type} in the "
                    f"table; CAST it, or write to another path"
                )
        return self.schema

    def run(self, job: Job, staged: Sequence[Added]) -> list[Result]:
        """Write the result of the SELECT over files that tasks have put aside. Raises TaskError."""
        if not staged:
            return []
        schema = self.schema

        def write(batches: Iterator[pa.RecordBatch]) -> Result:
            return _write(job, schema, batches)

        return self._engine.written(self._frame([file.path for file in staged]), write)

    def _frame(self, paths: Sequence[str]) -> Any:
        """The result of the SQL text over the rows in these files, as a DataFrame: one task reads each file."""
        schema, storage = self._given, open_storage(self._spec.path, self._spec.storage)

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place in batch.column("id").to_pylist():
                    yield from aligned(Part(None, paths[place]).read(storage), schema).to_batches()

        count = max(1, len(paths))
        places = self._session.range(0, len(paths), 1, count)
        places.mapInArrow(read, from_arrow_schema(schema)).createOrReplaceTempView(VIEW)
        return self._session.sql(self._spec.transform)


def _write(job: Job, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Result:
    """Write the rows of one Spark partition to files. Runs on an executor."""
    spec = job.spec
    storage = open_storage(spec.path, spec.storage)
    writer = RowFiles(storage, replace(job, staged=False), Range("", b"", 0, 0, 0), spec.partition_by, spec.keys)
    for batch in batches:
        made = pa.table(batch)
        rows = made.select(schema.names).cast(schema)
        bad = partitions.unfiled(rows, spec.partition_by)
        if spec.keys:
            rows = rows.append_column(DELETED, made.column(values.GONE).fill_null(False))
            bad |= values.keyless(rows, spec)
        if bad:
            place, why = next(iter(bad.items()))
            raise SpecError(f"spec.transform: {why.reason}; the row is {rows.slice(place, 1).to_pylist()[0]}")
        writer.add(rows)
    writer.close()
    return Result(writer.rows, files=writer.files)


def loaded(function: FunctionSpec, session: Any) -> Any:
    """Import a user's function and send its file to executors. Raises SpecError if this fails."""
    if function.file is not None:
        folder = str(function.file.parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        session.sparkContext.addPyFile(str(function.file))
    path = f"spec.functions.{function.name}"
    try:
        found = getattr(importlib.import_module(function.module), function.attribute)
    except Exception as e:  # the user's module may raise any exception
        raise SpecError(f"{path}: {function.module}:{function.attribute}: {type(e).__name__}: {e}") from e
    if not callable(found):
        raise SpecError(f"{path}: {function.module}:{function.attribute} is not a function")
    return found


def _operators(plan: Any) -> set[str]:
    """Names of the operators in a Spark plan, including subqueries."""
    found: set[str] = {plan.nodeName()}
    for kind in (plan.children(), plan.innerChildren()):
        for place in range(kind.size()):
            found |= _operators(kind.apply(place))
    return found
