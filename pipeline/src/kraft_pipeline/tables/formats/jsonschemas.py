"""JSON with a JSON Schema from a registry: values are checked against their schema, which determines the columns.

An `integer` becomes a long, a `number` a double (exact, or the record is a dead letter), an object a struct, an array
a list. An object becomes a map if its `additionalProperties` have one schema. A union of null and another type becomes
that type. If the schema of a property has no type, the values determine it, as without a schema. Columns that
`value.schema` declares keep their type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin

import numpy as np
import pyarrow as pa
from jsonschema import SchemaError, validators
from jsonschema.exceptions import best_match
from jsonschema.validators import Draft7Validator
from referencing import Registry as Resources
from referencing import Resource
from referencing.exceptions import CannotDetermineSpecification, Unresolvable
from referencing.jsonschema import DRAFT7

from kraft_pipeline.tables.errors import REASON_CHARACTERS, Bad, RecordError
from kraft_pipeline.tables.formats.byschema import NO_ID, PREFIX_BYTES, Schemas, ids_of
from kraft_pipeline.tables.formats.jsonvalues import JsonParser, Parsed
from kraft_pipeline.tables.formats.registry import Registered, Registry, UnknownSchemaError
from kraft_pipeline.tables.formats.singles import as_object
from kraft_pipeline.tables.formats.valuespec import ValueSpec
from kraft_pipeline.tables.schemas import DEPTH_MAX

SIMPLE: Final = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


class NoJsonSchemaError(Exception):
    """The schema is not a JSON Schema, or has an unresolved reference; the message has the reason."""


class JsonSchemaParser(Schemas["SchemaWay"]):
    """Parses the values of a table. Not thread-safe."""

    def __init__(
        self, spec: ValueSpec, settled: pa.Schema, *, retry_s: float, promotes: bool = False, single: bool = False
    ) -> None:
        """`settled`: the columns of the table; their types stay. `single`: each value is a single value without
        fields."""
        super().__init__("jsonschema.schema", promotes=promotes)
        self._registry, self._plain = Registry.of(spec, retry_s=retry_s), JsonParser(spec, settled)
        self._declared, self._single = frozenset(spec.schema), single

    def __call__(
        self, values: pa.Array, fields: pa.Schema, *, additive: bool, reserved: frozenset[str] = frozenset()
    ) -> Parsed:
        """Parse the non-null values like `jsonvalues.parse`. Raises ClientError if the registry is unreachable."""
        ids, bad, additive = ids_of(values), dict[int, Bad](), additive or not len(fields)
        rows: list[bytes | None] = [None] * len(values)
        given = values.to_pylist()
        for number in np.unique(ids[np.asarray(values.is_valid())]).tolist():
            reason, fields = self.fields(number, fields, additive=additive, reserved=reserved)
            way = self.way(number)
            for place in np.flatnonzero(ids == number).tolist():
                if given[place] is None:
                    continue
                if reason or not isinstance(way, SchemaWay):
                    bad[place] = Bad("jsonschema.schema", reason[:REASON_CHARACTERS])
                    continue
                try:
                    payload = way.checked(given[place][PREFIX_BYTES:])
                    rows[place] = as_object(payload) if self._single else payload
                except RecordError as e:
                    bad[place] = e.bad
        found = self._plain(pa.array(rows, pa.binary()), fields, additive=additive, reserved=reserved)
        return found._replace(bad=found.bad | bad)

    def found(self, number: int) -> SchemaWay | str:
        """How to read values of this schema, or why that is impossible."""
        if number == NO_ID:
            return "the value does not begin with a schema id"
        try:
            return SchemaWay(self._registry.schema(number, "JSON"), self._declared)
        except UnknownSchemaError as e:
            return str(e)
        except NoJsonSchemaError as e:
            return f"schema {number}: {e}"


class SchemaWay:
    """Reads values of a schema."""

    def __init__(self, found: Registered, declared: frozenset[str]) -> None:
        """`declared`: columns with types that the specification declares. Raises NoJsonSchemaError."""
        try:
            schema = json.loads(found.schema)
            kind = validators.validator_for(schema, default=Draft7Validator)
            kind.check_schema(schema)
            base = schema.get("$id", "") if isinstance(schema, Mapping) else ""
            resources: Any = Resources()
            for name, text in zip(found.names, found.references, strict=True):
                one = Resource.from_contents(json.loads(text), default_specification=DRAFT7)
                resources = resources.with_resource(name, one).with_resource(urljoin(base, name), one)
            self._checks = kind(schema, registry=resources)
            root = Resource.from_contents(schema, default_specification=DRAFT7)
            resolver = resources.with_resource(base, root).resolver(base)
            columns = _Types(declared).columns(schema, resolver)
        except (ValueError, SchemaError, Unresolvable, CannotDetermineSpecification, RecursionError) as e:
            text = " ".join(str(getattr(e, "message", e)).split())
            raise NoJsonSchemaError(f"the schema is not a JSON Schema: {text[:120]}") from None
        self.columns = pa.schema(columns)

    def checked(self, payload: bytes) -> bytes:
        """Parse a value and check it against its schema. Raises RecordError."""
        try:
            value = json.loads(payload.decode("utf-8-sig"))
        except (ValueError, RecursionError) as e:
            raise RecordError("json.syntax", f"JSON parse error: {e}") from None
        try:
            error: Any = best_match(self._checks.iter_errors(value))
        except Exception as e:  # an unresolved reference, an invalid pattern
            raise RecordError("jsonschema.schema", f"the schema cannot be applied: {e}") from None
        if error is not None:
            place = "/".join(str(part) for part in error.absolute_path)
            raise RecordError("jsonschema.value", f"/{place}: {' '.join(error.message.split())}")
        return payload


class _Types:
    def __init__(self, declared: frozenset[str]) -> None:
        self._declared = declared

    def columns(self, schema: Any, resolver: Any) -> list[pa.Field]:
        """The columns of an object's schema."""
        kind = self._of(schema, resolver, 0)
        fields = list(kind) if kind is not None and pa.types.is_struct(kind) else []
        return [field for field in fields if field.name not in self._declared]

    def _of(self, schema: Any, resolver: Any, depth: int) -> pa.DataType | None:
        """The type of a schema; None if the schema has no type."""
        if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
            return None
        if "$ref" in schema:
            found = resolver.lookup(schema["$ref"])
            return self._of(found.contents, found.resolver, depth + 1)
        for name in ("oneOf", "anyOf", "allOf"):
            if isinstance(schema.get(name), list) and "type" not in schema:
                parts = [one for one in schema[name] if not (isinstance(one, Mapping) and one.get("type") == "null")]
                return self._of(parts[0], resolver, depth + 1) if len(parts) == 1 else None
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            parts = [one for one in kind if one != "null"]
            kind = parts[0] if len(parts) == 1 else None
        if kind == "array":
            inner = self._of(schema.get("items"), resolver, depth + 1)
            return None if inner is None else pa.list_(inner)
        if kind == "object":
            return self._object(schema, resolver, depth)
        return SIMPLE.get(kind) if isinstance(kind, str) else None

    def _object(self, schema: Mapping[str, Any], resolver: Any, depth: int) -> pa.DataType | None:
        properties = schema.get("properties")
        if not properties:
            inner = self._of(schema.get("additionalProperties"), resolver, depth + 1)
            return None if inner is None else pa.map_(pa.string(), inner)
        kinds = {name: self._of(one, resolver, depth + 1) for name, one in properties.items()}
        known = [pa.field(name, kind) for name, kind in kinds.items() if kind is not None]
        return pa.struct(known) if known else None
