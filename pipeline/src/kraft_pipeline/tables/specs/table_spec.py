"""Parses the YAML of a KafkaTable: its fields and defaults, checked, with errors that name the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraft_pipeline import pod
from kraft_pipeline.tables.formats.valuespec import HeaderSpec, KeySpec, ValueSpec, read_headers, read_key, read_value
from kraft_pipeline.tables.specs.sections import Section, SpecError, read_document
from kraft_protocol.client.cluster import Settings

__all__ = ["SpecError", "TableSpec", "ValueSpec", "load", "parse"]

API_VERSION: Final = "kraftcluster.io/v1alpha1"
KIND: Final = "KafkaTable"
FORMATS: Final = ("delta", "iceberg", "parquet")
MODES: Final = ("append", "upsert")
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
ENGINES: Final = ("local", "inline", "kubernetes")
SPARKS: Final = ("local", "kubernetes")
"""Engines of archives and scrubs."""
POSITION: Final = "_source_position"
"""The column by which rows of change events are ordered unless `orderBy` names another."""
DEAD_LETTERS: Final = "_dead_letters"
"""Suffix of the path and the catalog name of the table of dead letters."""
OPERATORS: Final = ("driver", "paused")
"""Fields that only the operator reads: how the writer runs as a pod."""
NAME_MAX: Final = 180
"""Maximum characters of a name. File names begin with it and have about seventy more characters."""
_SIZES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_TIMES: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


TOPIC: Final = "{topic}"
"""Placeholder for a topic's name in `table.path` and in a catalog's name: each topic has its own table."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Where tasks run, and their resources. `executors`, `cores` and `memory` apply to mode `kubernetes` only."""

    mode: str = "local"
    executors: int = 2
    """Number of executors."""
    cores: int = 1
    """Concurrent tasks of an executor."""
    memory: int = 1 << 31
    """Bytes of an executor, for Java and Python together."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Additional Spark settings."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A Python function that a transform may call."""

    name: str
    module: str
    attribute: str
    returns: str
    """Type of the result, in Spark's DDL."""
    file: Path | None
    """File of the module if it is beside the specification; None if the module is installed."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The specification of one table. Durations are in seconds, sizes in bytes."""

    name: str
    bootstrap: str
    topics: tuple[str, ...]
    pattern: str | None
    value: ValueSpec
    format: str
    path: str
    partition_by: tuple[str, ...]
    mode: str
    keys: tuple[str, ...]
    """For `upsert`: the columns that identify a row."""
    order_by: str
    """For `upsert`: the column by which the newer of two rows is chosen; "": by time and offset."""
    tombstones_s: float
    """For `upsert`: how long a tombstone keeps older rows from reappearing."""
    max_delay_s: float
    max_rows: int
    max_bytes: int
    """Limit of a batch: uncompressed bytes of keys, values and headers, estimated from the batch before."""
    dead_letters: bool
    """Whether records that cannot be decoded go to a table; otherwise they stop the run."""
    group: str | None
    compact_to: int
    vacuum_after_s: float
    care_every_s: float
    """Interval of maintenance of a running table; 0: never."""
    engine: EngineSpec
    starting: str
    fail_on_data_loss: bool
    committed: bool
    storage: Mapping[str, str]
    """Options of the object store, with delta-rs' names: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …"""
    catalog: Mapping[str, str]
    """PyIceberg's options of the catalog, and `name`, the table's name in it; empty for a table at a path."""
    kafka: Mapping[str, str]
    """Additional options of the client."""
    properties: str = ""
    """The file of Kafka's client properties that secure the connections; "": only `kafka` has them."""
    transform: str = ""
    """A SELECT from `records` that returns the table's rows; "" writes the records themselves."""
    functions: tuple[FunctionSpec, ...] = ()
    key: KeySpec = field(default_factory=KeySpec)
    headers: HeaderSpec = field(default_factory=HeaderSpec)
    label: str = ""
    """Name of the table in messages and metrics; `name/route` or `name/topic` if the specification has many tables."""

    @property
    def is_for_each_topic(self) -> bool:
        """Whether the spec describes one table per topic."""
        return TOPIC in self.path

    @property
    def dead_letter_path(self) -> str:
        """Path of the table of dead letters, beside the table."""
        return self.path.rstrip("/") + DEAD_LETTERS

    @property
    def app_id(self) -> str:
        """Id of the stream's writer in transactions and file names."""
        return f"kafkatable-{self.name}"

    @property
    def backfill_id(self) -> str:
        """Id of the backfill's writer. No id is a prefix of another, so file names stay distinct."""
        return f"kafkatablebackfill-{self.name}"

    @property
    def replay_id(self) -> str:
        """Id of the writer that replays dead letters."""
        return f"kafkatablereplay-{self.name}"


def load(path: Path) -> TableSpec:
    """Load the spec of one table from a file. Raises SpecError, and OSError if the file cannot be read."""
    return parse(read_document(path), path.parent)


def parse(document: Any, folder: Path | None = None) -> TableSpec:
    """Parse a document with one table; files that it names are relative to `folder`. Raises SpecError."""
    top = Section("KafkaTable", document)
    if top.text("apiVersion") != API_VERSION or top.text("kind") != KIND:
        raise SpecError(f"apiVersion and kind must be {API_VERSION} and {KIND}")
    meta, spec = top.section("metadata"), top.section("spec")
    top.get("status")
    name = _name(meta)
    _check_fields_of_operators(spec)
    topics, value, key, headers, security = map(spec.section, ("topics", "value", "key", "headers", "security"))
    table, commit = spec.section("table"), spec.section("commit")
    letters, care, engine = spec.section("deadLetter"), spec.section("maintenance"), spec.section("engine")
    names, pattern = topics.texts("names"), _pattern(topics)
    if bool(names) == bool(pattern):
        raise SpecError("spec.topics: give either names or pattern")
    mode, read = table.one_of("mode", MODES, "append"), read_value(value, folder or Path())
    by_position = mode == "upsert" and read.envelope == "debezium"
    found = TableSpec(
        name=name,
        bootstrap=spec.text("bootstrapServers"),
        topics=names,
        pattern=pattern,
        value=read,
        format=table.one_of("format", FORMATS, "delta"),
        path=table.text("path"),
        partition_by=table.texts("partitionBy"),
        mode=mode,
        keys=table.texts("key"),
        order_by=str(table.get("orderBy", POSITION if by_position else "")),
        tombstones_s=table.quantity("tombstones", "7d", _TIMES),
        max_delay_s=commit.quantity("maxDelay", "60s", _TIMES),
        max_rows=commit.count("maxRows", 5_000_000),
        max_bytes=int(commit.quantity("maxBytes", str(pod.batch_bytes()), _SIZES)),
        dead_letters=letters.flag("table", default=True),
        group=None if spec.get("groupId") is None else spec.text("groupId"),
        compact_to=int(care.quantity("compactTo", "128Mi", _SIZES)),
        vacuum_after_s=care.quantity("vacuumAfter", "7d", _TIMES),
        care_every_s=care.quantity("every", "1h", _TIMES),
        engine=read_engine(engine),
        starting=spec.one_of("startingOffsets", ("earliest", "latest"), "earliest"),
        fail_on_data_loss=spec.flag("failOnDataLoss", default=True),
        committed=spec.one_of("isolationLevel", ISOLATIONS, ISOLATIONS[0]) == ISOLATIONS[0],
        storage=table.mapping("storageOptions"),
        catalog=table.mapping("catalog"),
        kafka=spec.mapping("kafka"),
        properties=read_properties_file(security, folder),
        transform=str(spec.get("transform", "")).strip().rstrip(";"),
        functions=_functions(spec.section("functions"), folder or Path()),
        label=name,
        key=read_key(key, read, folder or Path()),
        headers=read_headers(headers),
    )
    _check(found)
    for section in (topics, value, key, headers, table, commit, letters, care, engine, security, spec, top):
        section.done()
    return found


def _name(metadata: Section) -> str:
    """The name of the resource."""
    name = metadata.text("name")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
        raise SpecError(f"metadata.name: {name!r} is not a valid resource name")
    if len(name) > NAME_MAX:
        raise SpecError(f"metadata.name: {name!r} has more than {NAME_MAX} characters")
    return name


def _check_fields_of_operators(spec: Section) -> None:
    """Ignore fields that only the operator needs, and refuse those that only it can resolve."""
    for name in OPERATORS:
        spec.get(name)
    if spec.get("clusterRef") and not spec.get("bootstrapServers"):
        raise SpecError("spec.clusterRef: only the operator knows clusters by name; give bootstrapServers here")
    if spec.get("routes"):
        raise SpecError("spec.routes: there are several tables; a single table is needed")


def read_engine(given: Section, modes: tuple[str, ...] = ENGINES) -> EngineSpec:
    """Read a section `engine` with one of `modes`. Raises SpecError."""
    return EngineSpec(
        given.one_of("mode", modes, "local"),
        given.count("executors", 2),
        given.count("cores", 1),
        int(given.quantity("memory", "2Gi", _SIZES)),
        given.mapping("spark"),
    )


def read_properties_file(security: Section, folder: Path | None, name: str = "propertiesFile") -> str:
    """The path in a section `security`, which may be relative to `folder`; "" without. Raises SpecError."""
    if security.get(name) is None:
        return ""
    found = (folder or Path()).absolute() / security.text(name)
    if not found.is_file():
        raise SpecError(f"{security.path}.{name}: {found} is not a file")
    return str(found)


def _pattern(topics: Section) -> str | None:
    if topics.get("pattern") is None:
        return None
    found = topics.text("pattern")
    try:
        re.compile(found)
    except re.error as e:
        raise SpecError(f"{topics.path}.pattern: {found!r} is not a regular expression: {e}") from None
    return found


def _functions(given: Section, folder: Path) -> tuple[FunctionSpec, ...]:
    found = []
    for name in given.names():
        section = given.section(name)
        python = section.text("python")
        module, _, attribute = python.partition(":")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SpecError(f"{section.path}: {name!r} is not a valid function name")
        if not (re.fullmatch(r"\w+(\.\w+)*", module) and attribute.isidentifier()):
            raise SpecError(f"{section.path}.python: {python!r} is not of the form module:function")
        file = (folder / f"{module}.py").absolute()
        found.append(FunctionSpec(name, module, attribute, section.text("returns"), file if file.is_file() else None))
        section.done()
    return tuple(found)


def _check(found: TableSpec) -> None:
    """Check combinations of fields. Raises SpecError."""
    try:
        Settings(found.bootstrap).servers()
    except ValueError as e:
        raise SpecError(f"spec.bootstrapServers: {str(e).partition(': ')[2]}") from None
    if len(set(found.partition_by)) < len(found.partition_by):
        raise SpecError(f"spec.table.partitionBy: {', '.join(found.partition_by)} names a partition column twice")
    for entry in found.partition_by:
        if re.match(r"(bucket|truncate)\(", entry) and found.format != "iceberg":
            raise SpecError(
                f"spec.table.partitionBy: {entry!r} is a transform of Iceberg; readers of {found.format} tables skip "
                f"no files by it"
            )
    if found.catalog and found.format != "iceberg":
        raise SpecError(f"spec.table.catalog: a table of format {found.format} has no catalog")
    _check_transform(found)
    if found.mode == "append" and found.keys:
        raise SpecError("spec.table.key: only mode upsert has keys")
    if found.mode == "append" and found.order_by:
        raise SpecError("spec.table.orderBy: only mode upsert has an order")
    if found.mode == "upsert" and not found.keys:
        raise SpecError("spec.table.key: mode upsert needs the columns that identify a row")
    if found.mode == "upsert" and found.format == "parquet":
        raise SpecError(
            "spec.table.mode: parquet has no upsert, because its readers also see replaced files; use delta or iceberg"
        )


def _check_transform(found: TableSpec) -> None:
    if found.functions and not found.transform:
        raise SpecError("spec.functions: only a transform calls functions; give spec.transform")
    if not found.transform:
        return
    if found.engine.mode == "inline":
        raise SpecError("spec.transform: SQL needs Spark; engine.mode inline runs without Spark")
    if found.mode == "upsert" and found.value.envelope == "debezium":
        raise SpecError(
            "spec.transform: change events by key cannot be transformed; write the rows to a table, and transform that"
        )
    if found.value.evolve != "none":
        raise SpecError("spec.transform: the columns of records must be known; spec.value.evolve cannot be additive")
