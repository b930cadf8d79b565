"""`KafkaTable`, `KafkaMetadataArchive` and `KafkaScrub`: pipelines that the operator runs.

Their specifications are the YAML files of `kraft-pipeline`, field by field (a test compares them). Three more fields
are for the operator only: `clusterRef`, `driver` (its pod), `paused`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Free, Model, Rule
from kraft_operator.api.pipeline_driver import Driver

PIPELINE_NAME_CHARS_MAX: Final = 40
"""Limit of the resource's name: a CronJob is `NAME-archive`; its jobs add 11 characters, their pods 6, of at most
63."""
TOPICS_MAX: Final = 1000
EXECUTORS_MAX: Final = 1000
OPERATORS_OWN: Final = frozenset({"clusterRef", "driver", "paused", "schedule"})
"""Fields that `kraft-pipeline` does not get."""
IN_PLAIN: Final = (
    "every reader of the resource can read this password: put it into a Secret, and name the Secret in passwordSecret"
)
OPTION_IN_PLAIN: Final = (
    "every reader of the resource can read this secret: put it into a Secret, and name the Secret in security.secret"
)
HIDDEN_OPTION: Final = re.compile("(?i)sasl.jaas|password|passphrase|secret|keystore.key")
SECURITY_FOLDER: Final = "/etc/kraft-security"
PROPERTIES: Final = "client.properties"
"""Where the Secret of `spec.security` is mounted, and the key that it must have."""
REGISTRY_VARIABLE: Final = "KRAFT_REGISTRY_PASSWORD"
KEY_REGISTRY_VARIABLE: Final = "KRAFT_KEY_REGISTRY_PASSWORD"
"""The driver's environment variables."""

Duration = Annotated[str, Field(pattern=r"^[0-9]+(ms|s|m|h|d)$", max_length=16)]
Size = Annotated[str, Field(pattern=r"^[0-9]+([kKmMgG]i?)?$", max_length=16)]
Words = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=128)]
Secret = Annotated[str, Field(min_length=1, max_length=253)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
ClusterRef = Annotated[str, Field(min_length=1, max_length=63, description="a KRaftCluster in the same namespace")]
Servers = Annotated[str, Field(min_length=1, max_length=4096, description="host:port; several are separated by commas")]
Schedule = Annotated[
    str, Field(min_length=1, max_length=100, description="a cron expression, in UTC; default: one run for each change")
]


# KafkaTable


class TopicSelection(Model):
    """The topics of the table."""

    RULES: ClassVar = (
        Rule("has(self.names) != has(self.pattern)", "topics are named or matched: give either names or pattern"),
    )
    names: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=249)]], Field(min_length=1, max_length=TOPICS_MAX)]
        | None
    ) = None
    pattern: Annotated[str, Field(min_length=1, max_length=1024, description="a regular expression")] | None = None


class SecretValue(Model):
    """A value of a Secret in the same namespace."""

    name: Secret
    key: Secret


class RegistryTls(Model):
    """Certificates in PEM, as files on the driver's volumes."""

    ca_file: Annotated[Text, Field(description="CA certificates of the registry; default: the system's")] | None = None
    certificate_file: Annotated[Text, Field(description="the client's certificate; needs keyFile")] | None = None
    key_file: Text | None = None


class RegistryOAuth(Model):
    """Client credentials for the registry."""

    token_url: Annotated[str, Field(pattern=r"^https?://[^/]", max_length=4096)]
    client_id: Text
    client_secret_env: Annotated[Text, Field(description="the variable of driver.env that has the secret")]
    scope: Annotated[str, Field(max_length=1024)] | None = None
    logical_cluster: Annotated[str, Field(max_length=253, description="for Confluent Cloud")] | None = None
    identity_pool: Annotated[str, Field(max_length=253, description="for Confluent Cloud")] | None = None


class Registry(Model):
    """A schema registry with Confluent's API."""

    RULES: ClassVar = (Rule("!has(self.password) && !self.url.contains('@')", IN_PLAIN),)
    url: Annotated[str, Field(pattern=r"^https?://[^/]", max_length=4096, description="URLs, separated by commas")]
    user: Annotated[str, Field(max_length=253)] | None = None
    password_secret: SecretValue | None = None
    password: Annotated[str, Field(max_length=1024, description="refused: use passwordSecret")] | None = None
    token_env: Annotated[Text, Field(description="the variable of driver.env that has a bearer token")] | None = None
    tls: RegistryTls | None = None
    oauth: RegistryOAuth | None = None


class Value(Model):
    """How a record's value becomes columns."""

    RULES: ClassVar = (
        Rule(
            "self.format == 'avro' || !has(self.schemaFile)",
            "only avro values have a schemaFile: set format to avro",
        ),
        Rule(
            "self.format != 'protobuf' || has(self.registry)",
            "protobuf values name their schema by a registry's id: set registry",
        ),
        Rule(
            "self.envelope == 'none' || self.format == 'avro' || (self.format == 'json' && !has(self.registry))",
            "change events are json without a registry, or avro: set format",
        ),
    )
    format: Literal["raw", "json", "avro", "protobuf"] = "raw"
    envelope: Annotated[
        Literal["none", "debezium"],
        Field(description="debezium: values are change events, and rows are the rows of the database"),
    ] = "none"
    evolve: Annotated[
        Literal["none", "additive"],
        Field(description="additive: new fields become columns; none: a record with a new field is a dead letter"),
    ] = "none"
    fields: Annotated[
        Free,
        Field(
            alias="schema", description="json: types by field; default: the types of the first batch. avro: the schema"
        ),
    ] = {}
    numbers: Annotated[
        Literal["exact", "double"],
        Field(
            description="json: a number that its inferred column would round makes a dead letter (exact), or "
            "is rounded (double)"
        ),
    ] = "exact"
    schema_file: Annotated[Text, Field(description="avro: the schema, on one of the driver's volumes")] | None = None
    registry: Registry | None = None


class KeyColumn(Model):
    """How a record's key becomes its column."""

    RULES: ClassVar = (
        Rule("self.format == 'avro' || !has(self.schemaFile)", "only avro keys have a schemaFile: set format to avro"),
        Rule(
            "self.format in ['avro', 'protobuf', 'jsonschema'] || !has(self.registry)",
            "only avro, protobuf and jsonschema keys have a registry: set format",
        ),
        Rule(
            "self.format in ['json', 'jsonschema'] || !has(self.type)",
            "only json and jsonschema keys have a type: set format",
        ),
    )
    format: Annotated[
        Literal["raw", "string", "int", "long", "json", "avro", "protobuf", "jsonschema"],
        Field(
            description="raw: bytes; string, int, long: as Kafka's serializers write them; others: a struct, or a "
            "single value; protobuf, jsonschema: by registry, or else by value.registry"
        ),
    ] = "raw"
    fields: Annotated[Free, Field(alias="schema", description="types by field; avro: the schema")] = {}
    type: Annotated[Text, Field(description="json, jsonschema: the type of a key without fields")] | None = None
    schema_file: Annotated[Text, Field(description="avro: the schema, on one of the driver's volumes")] | None = None
    registry: Registry | None = None


class Headers(Model):
    """How a record's headers become their column."""

    RULES: ClassVar = (Rule("self.format == 'map' || self.values == 'raw'", "only a map has texts: set format to map"),)
    format: Annotated[
        Literal["list", "map"],
        Field(description="list: key and value of each header, in order; map: the last value of each key"),
    ] = "list"
    values: Annotated[Literal["raw", "string"], Field(description="map: raw (bytes) or string (UTF-8)")] = "raw"


class Table(Model):
    """The table that rows are written to."""

    RULES: ClassVar = (
        Rule(
            "self.path != oldSelf.path || self.format == oldSelf.format",
            "a table keeps its format: give another path together with another format",
        ),
        Rule(
            "(self.mode == 'upsert') == (size(self.key) > 0)",
            "mode upsert needs key, the columns that identify a row; other modes must not set it",
        ),
    )
    format: Literal["delta", "iceberg", "parquet"] = "delta"
    path: Annotated[
        Text, Field(description="a folder on one of the driver's volumes, or s3://…, gs://…, az://…, abfss://…")
    ]
    partition_by: Annotated[
        list[Text],
        Field(
            max_length=16,
            description="columns; year, month, date or hour of time or of a column; iceberg: bucket(n, column) and "
            "truncate(width, column)",
        ),
    ] = []
    mode: Literal["append", "upsert"] = "append"
    key: Annotated[list[Text], Field(max_length=16, description="upsert: the columns that identify a row")] = []
    order_by: (
        Annotated[
            Text,
            Field(
                description="upsert: the column that orders the rows of a key; the greatest value is the newest row; "
                "default: time, for debezium _source_position"
            ),
        ]
        | None
    ) = None
    tombstones: Annotated[Duration, Field(description="upsert: how long tombstones keep older rows from returning")] = (
        "7d"
    )
    catalog: Annotated[
        Words, Field(description="PyIceberg's options of a catalog; default: the table is at its path")
    ] = {}
    storage_options: Annotated[
        Words,
        Field(description="AWS_ENDPOINT_URL, AZURE_STORAGE_ACCOUNT_NAME, …; put access keys into driver.env instead"),
    ] = {}


class Commit(Model):
    """When a batch is committed: at the first limit that is reached."""

    max_delay: Annotated[Duration, Field(description="time after the first waiting record")] = "60s"
    max_rows: Annotated[int, Field(ge=1)] = 5_000_000
    max_bytes: Annotated[
        Size | None,
        Field(
            description="size of keys, values and headers, uncompressed; default: 1Gi, or a quarter of the memory of "
            "the writer's pod if that is less"
        ),
    ] = None


class DeadLetter(Model):
    """How to handle records that cannot become rows."""

    table: Annotated[bool, Field(description="true: write them to PATH_dead_letters; false: stop the run")] = True


class Maintenance(Model):
    """Maintenance of the table's files."""

    every: Annotated[Duration, Field(description="interval while the table runs; 0s: never")] = "1h"
    compact_to: Size = "128Mi"
    vacuum_after: Duration = "7d"


class Engine(Model):
    """The engine that runs tasks."""

    mode: Annotated[
        Literal["local", "inline", "kubernetes"],
        Field(
            description="local: Spark in the driver's pod. inline: one process without Spark, for little data."
            " kubernetes: Spark with executors as pods"
        ),
    ] = "local"
    executors: Annotated[int, Field(ge=1, le=EXECUTORS_MAX)] = 2
    cores: Annotated[int, Field(ge=1, le=256, description="parallel tasks of an executor")] = 1
    memory: Annotated[Size, Field(description="memory of an executor's pod")] = "2Gi"
    spark: Annotated[Words, Field(description="further settings of Spark")] = {}


class RunEngine(Engine):
    """The engine of an archive or a scrub, which always need Spark."""

    mode: Annotated[
        Literal["local", "kubernetes"],
        Field(description="local: Spark in the driver's pod. kubernetes: Spark with executors as pods"),
    ] = "local"


class PipelineSecurity(Model):
    """How a pipeline connects to a secured cluster: as a KRaftUser, or by Kafka's client properties."""

    RULES: ClassVar = (
        Rule(
            "[has(self.user), has(self.secret), has(self.propertiesFile)].filter(x, x).size() == 1",
            "a pipeline connects as a KRaftUser or by client properties: give one of user, secret and propertiesFile",
        ),
    )
    user: Annotated[Secret, Field(description="a KRaftUser of the cluster in clusterRef")] | None = None
    secret: (
        Annotated[Secret, Field(description="a Secret with client.properties, which may name its other keys")] | None
    ) = None
    properties_file: Annotated[Text, Field(description="client properties, on one of driver.volumes")] | None = None

    @property
    def mounted(self) -> str | None:
        """The Secret with client properties that the driver mounts: a user's Secret has the name of the KRaftUser."""
        return self.user or self.secret


class ArchiveSecurity(PipelineSecurity):
    """As for other pipelines; controllers may need other properties than brokers."""

    controller_properties_file: (
        Annotated[Text, Field(description="client properties for controllers, on a volume or in the Secret")] | None
    ) = None


class PipelineSpec(Model):
    """The common fields of all pipelines."""

    security: PipelineSecurity | None = None
    cluster_ref: ClusterRef | None = None
    bootstrap_servers: Servers | None = None
    driver: Driver = Driver()
    paused: Annotated[bool, Field(description="nothing runs; a batch in progress is finished")] = False


class RunSpec(PipelineSpec):
    """The specification of a pipeline that runs to an end."""

    schedule: Schedule | None = None
    engine: RunEngine = RunEngine()


_ONE_SOURCE: Final = Rule(
    "has(self.clusterRef) != has(self.bootstrapServers)",
    "a pipeline needs one cluster: give either clusterRef or bootstrapServers",
)


_USER_OF_CLUSTER: Final = Rule(
    "!has(self.security) || !has(self.security.user) || has(self.clusterRef)",
    "security.user is a KRaftUser of a KRaftCluster: name the cluster in clusterRef",
)


_KEPT: Final = Rule(
    "self.table.path.contains('://') || self.driver.volumes.exists(v, self.table.path.startsWith(v.mountPath + '/'))",
    "this path is lost with the driver's pod: put it below the mountPath of one of driver.volumes, or use an"
    " object store",
)


_SHARED: Final = Rule(
    "self.engine.mode != 'kubernetes' ||"
    " self.driver.volumes.all(v, has(v.claimName) || v.accessMode == 'ReadWriteMany')",
    "executors on any machine mount driver.volumes, too: these need accessMode ReadWriteMany; or use an object store",
)


class KafkaTableSpec(PipelineSpec):
    """Writes topics to a table, each record exactly once."""

    RULES: ClassVar = (
        _ONE_SOURCE,
        _USER_OF_CLUSTER,
        _KEPT,
        _SHARED,
        Rule(
            f"self.kafka.all(k, !k.matches('{HIDDEN_OPTION.pattern}'))",
            OPTION_IN_PLAIN,
        ),
        Rule(
            "self.value.format != 'raw' || !has(self.value.registry) ||"
            " self.key.format in ['avro', 'protobuf', 'jsonschema']",
            "raw values have no registry: set value.format or key.format to the format of the bytes",
        ),
        Rule(
            "!(self.key.format in ['protobuf', 'jsonschema']) || has(self.value.registry) || has(self.key.registry)",
            "protobuf and jsonschema keys name their schema by a registry's id: set value.registry or key.registry",
        ),
    )
    topics: TopicSelection
    key: KeyColumn = KeyColumn()
    headers: Headers = Headers()
    value: Value = Value()
    table: Table
    commit: Commit = Commit()
    dead_letter: DeadLetter = DeadLetter()
    group_id: (
        Annotated[
            str, Field(min_length=1, max_length=249, description="a consumer group that shows the table's progress")
        ]
        | None
    ) = None
    maintenance: Maintenance = Maintenance()
    engine: Engine = Engine()
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    fail_on_data_loss: bool = True
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    kafka: Annotated[Words, Field(description="further options of the client; secrets belong to security")] = {}
    transform: Annotated[
        str, Field(max_length=65536, description="a SELECT from records that returns the rows; default: the records")
    ] = ""
    functions: Annotated[
        Free, Field(description="functions for transform, by name: python (module:function, in the image), returns")
    ] = {}


# KafkaScrub


class KafkaScrubSpec(RunSpec):
    """Checks that all replicas are undamaged and equal."""

    RULES: ClassVar = (
        Rule(
            "[has(self.clusterRef), has(self.bootstrapServers), size(self.directories) > 0].filter(x, x).size() == 1",
            "a scrub reads a cluster or directories: give one of clusterRef, bootstrapServers and directories",
        ),
        _USER_OF_CLUSTER,
        _SHARED,
    )
    directories: Annotated[list[Text], Field(max_length=100, description="log directories, on driver.volumes")] = []
    topics: Annotated[list[Text], Field(max_length=TOPICS_MAX, description="names, with * and ?")] = ["*"]


# KafkaMetadataArchive


class ArchiveTable(Model):
    """The location of the archive."""

    format: Literal["parquet", "delta"] = "parquet"
    path: Annotated[
        Text, Field(description="a folder on one of the driver's volumes, or s3://…, gs://…, az://…, abfss://…")
    ]
    storage_options: Annotated[
        Words,
        Field(description="AWS_ENDPOINT_URL, AZURE_STORAGE_ACCOUNT_NAME, …; put access keys into driver.env instead"),
    ] = {}


class KafkaMetadataArchiveSpec(RunSpec):
    """The metadata log of a cluster as tables. Every change is kept, also when the log is trimmed."""

    RULES: ClassVar = (
        Rule(
            "[has(self.clusterRef), has(self.bootstrapServers), has(self.bootstrapControllers), has(self.directory)]"
            ".filter(x, x).size() == 1",
            "an archive has one source: give clusterRef, bootstrapServers, bootstrapControllers or directory",
        ),
        _USER_OF_CLUSTER,
        _KEPT,
        _SHARED,
    )
    security: ArchiveSecurity | None = None
    bootstrap_controllers: Servers | None = None
    directory: Annotated[Text, Field(description="__cluster_metadata-0, a folder on driver.volumes")] | None = None
    table: ArchiveTable


REGISTRIES: Final = {"value": REGISTRY_VARIABLE, "key": KEY_REGISTRY_VARIABLE}
"""The sections with a registry, and the variables with the passwords."""


def registries(spec: PipelineSpec) -> dict[str, Registry]:
    """The registries of a specification by the section that has it."""
    if not isinstance(spec, KafkaTableSpec):
        return {}
    found = {"value": spec.value.registry, "key": spec.key.registry}
    return {section: registry for section, registry in found.items() if registry is not None}


def given(spec: PipelineSpec) -> dict[str, Any]:
    """The part of a specification that `kraft-pipeline` gets."""
    document = spec.model_dump(by_alias=True, exclude_none=True)
    for section, variable in REGISTRIES.items():
        registry = document.get(section, {}).get("registry", {})
        if registry.pop("passwordSecret", None) is not None:
            registry["passwordEnv"] = variable
    security = document.get("security", {})
    user, secret = security.pop("user", None), security.pop("secret", None)
    if user is not None or secret is not None:
        security["propertiesFile"] = f"{SECURITY_FOLDER}/{PROPERTIES}"
    return {key: value for key, value in document.items() if key not in OPERATORS_OWN}
