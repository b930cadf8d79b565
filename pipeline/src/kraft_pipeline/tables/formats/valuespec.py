"""The section `value` of a KafkaTable: formats, schemas, and the schema registry with its credentials."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kraft_pipeline.tables.formats import singles
from kraft_pipeline.tables.specs.sections import Section, SpecError

FORMATS: Final = ("raw", "json", "avro", "protobuf")
KEY_FORMATS: Final = ("raw", "string", "int", "long", "json", "avro", "protobuf", "jsonschema")
BY_REGISTRY: Final = frozenset({"protobuf", "jsonschema"})
"""Formats of keys that name their schema by a registry's id."""
ENVELOPES: Final = ("none", "debezium")
NUMBERS: Final = ("exact", "double")


@dataclass(frozen=True, slots=True)
class OAuth:
    """Client credentials (RFC 6749, section 4.4) for a registry."""

    token_url: str
    client_id: str
    secret: str
    scope: str = ""
    cluster: str = ""
    """Of Confluent Cloud: the logical cluster of the registry."""
    pool: str = ""
    """Of Confluent Cloud: the identity pool."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a registry, besides a password.

    Fields hold the texts of files, which are read with the specification.
    """

    ca: str = ""
    """Certificates in PEM of the authorities that sign the registry's certificate; "": the authorities of the
    system."""
    certificate: str = ""
    """The client's certificate in PEM, and its key."""
    key: str = ""
    token: str = ""
    """A bearer token that does not change."""
    oauth: OAuth | None = None


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """How a record's value becomes columns."""

    format: str = "raw"
    evolve: str = "none"
    """`additive`: new fields become columns; `none`: records with new fields are dead letters."""
    schema: Mapping[str, str] = field(default_factory=dict)
    """For JSON: types by field, as Spark's DDL names them; empty: inferred from the first batch."""
    avro: str = ""
    """For Avro: the schema to which values are resolved, as JSON; empty: each value has the schema of its writer."""
    numbers: str = "exact"
    """For JSON: with `exact`, a number that its inferred column would round is a dead letter; with `double`, it is
    rounded."""
    registry: str = ""
    """URLs of a schema registry, separated by commas; empty: values have no schema id in front."""
    registry_auth: str = ""
    """user:password for it."""
    envelope: str = "none"
    """`debezium`: values are change events, which become rows of the database's table."""
    access: Access = Access()


@dataclass(frozen=True, slots=True)
class KeySpec:
    """How a record's key becomes its column."""

    format: str = "raw"
    """`raw`: bytes; `string`, `int`, `long`: as Kafka's serializers write them; others: by their fields."""
    fields: ValueSpec = ValueSpec()
    """For formats with fields: the schema, and a registry, which is the values' registry unless keys have their own."""
    single: bool = False
    """Whether the key is a single value (`singles`) and not a struct."""


@dataclass(frozen=True, slots=True)
class HeaderSpec:
    """How a record's headers become their column."""

    format: str = "list"
    """`list`: key and value of each header, in order; `map`: the last value of each key."""
    values: str = "raw"
    """For a map: `raw` (bytes) or `string`."""


def read_key(given: Section, value: ValueSpec, folder: Path) -> KeySpec:
    """Parse the section `key`. Keys have schema ids if they or the values have a registry. Raises SpecError."""
    kind, own = given.one_of("format", KEY_FORMATS, "raw"), given.section("registry")
    fields, types = {"json", "avro", *BY_REGISTRY}, {"json", "jsonschema"}
    for name, kinds in (("schema", fields), ("schemaFile", {"avro"}), ("type", types)):
        if given.get(name) and kind not in kinds:
            raise SpecError(
                f"{given.path}.{name}: {kind} keys cannot have it; set format to {' or '.join(sorted(kinds))}"
            )
    if value.format == "raw" and value.registry and kind not in {"avro", *BY_REGISTRY}:
        raise SpecError(f"spec.value.registry: neither raw values nor {kind} keys have a registry")
    if own.any() and kind not in {"avro", *BY_REGISTRY}:
        raise SpecError(f"{own.path}: {kind} keys have no registry; set the format of the keys")
    if kind not in fields:
        return KeySpec(kind)
    access: Any = {"registry": value.registry, "registry_auth": value.registry_auth, "access": value.access}
    if own.any():
        own.text("url")  # else keys would be read by the values' registry
        url, auth, other = _registry(own, folder)
        access = {"registry": url, "registry_auth": auth, "access": other}
    if kind in BY_REGISTRY and not access["registry"]:
        raise SpecError(
            f"{given.path}.format: {kind} keys name their schema by an id; give spec.value.registry.url, or "
            f"{own.path}.url"
        )
    if kind == "avro":
        avro = _avro_schema(given, folder)
        if not avro:
            raise SpecError(f"{given.path}.schema: is missing; avro keys need a schema or a schemaFile")
        return KeySpec(kind, ValueSpec(kind, avro=singles.as_record(avro), **access), not singles.is_record(avro))
    schema, single = given.mapping("schema"), str(given.get("type", ""))
    if bool(schema) == bool(single):
        remedy = "give either schema or type" if schema else f"is missing; {kind} keys need their fields and types"
        raise SpecError(f"{given.path}.schema: {remedy}" + ("" if schema or kind not in types else ", or a type"))
    declared = {singles.FIELD: single} if single else schema
    form = "json" if kind == "jsonschema" else kind
    return KeySpec(kind, ValueSpec(form, schema=declared, **(access if kind in BY_REGISTRY else {})), bool(single))


def read_headers(given: Section) -> HeaderSpec:
    """Parse the section `headers`. Raises SpecError."""
    found = HeaderSpec(
        given.one_of("format", ("list", "map"), "list"), given.one_of("values", ("raw", "string"), "raw")
    )
    if found.format == "list" and found.values != "raw":
        raise SpecError(f"{given.path}.values: only a map has texts; set format to map")
    return found


def read_value(given: Section, folder: Path) -> ValueSpec:
    """Parse the section `value`; paths of files are relative to `folder`. Raises SpecError."""
    kind = given.one_of("format", FORMATS, "raw")
    evolve = given.one_of("evolve", ("none", "additive"), "none")
    numbers = given.one_of("numbers", NUMBERS, "exact")
    envelope = given.one_of("envelope", ENVELOPES, "none")
    if envelope != "none" and kind not in {"json", "avro"}:
        raise SpecError(f"{given.path}.envelope: {envelope} is an envelope of json or avro values; set format")
    registry = given.section("registry")
    url, auth, access = _registry(registry, folder)
    if kind == "raw":  # a registry may have the schemas of keys
        schema = given.mapping("schema")
        return ValueSpec(kind, evolve, schema, numbers=numbers, registry=url, registry_auth=auth, access=access)
    if kind == "json":
        if url and envelope != "none":
            raise SpecError(f"{registry.path}: of change events only avro has a registry; json has its schema inside")
        schema = given.mapping("schema")
        return ValueSpec(
            kind, evolve, schema, numbers=numbers, registry=url, registry_auth=auth, envelope=envelope, access=access
        )
    if kind == "protobuf":
        if not url:
            raise SpecError(f"{registry.path}.url: protobuf values name their schema by a registry's id; give its URL")
        return ValueSpec(kind, evolve, registry=url, registry_auth=auth, access=access)
    avro = _avro_schema(given, folder)
    if not avro and not url:
        raise SpecError(f"{given.path}: avro needs a schema, a schemaFile or a registry.url")
    return ValueSpec(kind, evolve, avro=avro, registry=url, registry_auth=auth, envelope=envelope, access=access)


def _registry(given: Section, folder: Path) -> tuple[str, str, Access]:
    """URLs, user:password, and the rest."""
    url, user = str(given.get("url", "")), given.get("user", "")
    password = _secret(given, "password")
    if any(not re.match(r"https?://[^/]", one.strip()) for one in url.split(",") if url):
        raise SpecError(f"{given.path}.url: {url!r} is not an http or https URL")
    auth = f"{user}:{password}" if user else ""
    tls, oauth = given.section("tls"), given.section("oauth")
    ca, certificate, key = (_file(tls, name, folder) for name in ("caFile", "certificateFile", "keyFile"))
    if bool(certificate) != bool(key):
        raise SpecError(f"{tls.path}: certificateFile and keyFile belong together; give both")
    if (ca or certificate) and not url.startswith("https://"):
        raise SpecError(f"{tls.path}: {url or 'no URL'} does not use https")
    access = Access(ca, certificate, key, _secret(given, "token"), _oauth(oauth))
    ways = {"user": auth, "token": access.token, "oauth": access.oauth}
    chosen = [name for name, value in ways.items() if value]
    if len(chosen) > 1:
        raise SpecError(f"{given.path}: {' and '.join(chosen)} are ways to log in; give one of them")
    if (chosen or ca or certificate) and not url:
        raise SpecError(f"{given.path}.url: is missing")
    for section in (tls, oauth, given):
        section.done()
    return url, auth, access


def _oauth(given: Section) -> OAuth | None:
    if not given.any():
        return None
    url = given.text("tokenUrl")
    if not re.match(r"https?://[^/]", url):
        raise SpecError(f"{given.path}.tokenUrl: {url!r} is not an http or https URL")
    secret = _secret(given, "clientSecret")
    if not secret:
        raise SpecError(f"{given.path}.clientSecret: is missing (or clientSecretEnv, the variable that has it)")
    rest = (str(given.get(name, "")) for name in ("scope", "logicalCluster", "identityPool"))
    return OAuth(url, given.text("clientId"), secret, *rest)


def _secret(given: Section, name: str) -> str:
    """A field's value, or the value of its environment variable; "" if neither is given."""
    plain = str(given.get(name, ""))
    if given.get(f"{name}Env") is None:
        return plain
    if plain:
        raise SpecError(f"{given.path}: give either {name} or {name}Env")
    variable = given.text(f"{name}Env")
    if variable not in os.environ:
        raise SpecError(f"{given.path}.{name}Env: environment variable {variable} does not exist")
    return os.environ[variable]


def _file(given: Section, name: str, folder: Path) -> str:
    """The text of a PEM file; "" without a file."""
    if given.get(name) is None:
        return ""
    try:
        found = (folder / given.text(name)).read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise SpecError(f"{given.path}.{name}: {e}") from None
    if "-----BEGIN " not in found:
        raise SpecError(f"{given.path}.{name}: {given.text(name)} has no PEM block")
    return found


def _avro_schema(given: Section, folder: Path) -> str:
    inline, file = given.get("schema"), given.get("schemaFile")
    if inline and file:
        raise SpecError(f"{given.path}: give either schema or schemaFile")
    if file:
        try:
            inline = (folder / str(file)).read_text()
        except (OSError, UnicodeDecodeError) as e:
            raise SpecError(f"{given.path}.schemaFile: {e}") from None
    try:
        found: Any = json.loads(inline) if isinstance(inline, str) else inline
        text = json.dumps(found)
    except (ValueError, TypeError) as e:  # TypeError: YAML's dates
        raise SpecError(f"{given.path}.{'schemaFile' if file else 'schema'}: this is not JSON: {e}") from None
    return text if inline else ""
