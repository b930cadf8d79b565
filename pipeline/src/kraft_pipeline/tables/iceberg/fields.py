"""Conversions of columns, partitions and bounds between Iceberg's forms and ours (Arrow types, texts, levels)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
    parse_transform,
)
from pyiceberg.types import BinaryType, DoubleType, FloatType, IntegerType, LongType, PrimitiveType, StringType

from kraft_pipeline.tables.specs.partitions import FORMATS, By
from kraft_pipeline.tables.stores.committer import Added

_FLOATING: Final = (FloatType, DoubleType)

TRANSFORMS: Final[Mapping[str, Transform[Any, Any]]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "date": DayTransform(),
    "hour": HourTransform(),
}


def spec_of(schema: Schema, levels: Sequence[By]) -> PartitionSpec:
    """Iceberg's partition spec for `levels`."""
    fields = []
    for at, by in enumerate(levels):
        transform = IdentityTransform() if by.transform is None else _transform(by.transform)
        source = schema.find_field(by.column).field_id
        fields.append(PartitionField(source, PARTITION_FIELD_ID_START + at, transform, by.name))
    return PartitionSpec(*fields)


def _transform(name: str) -> Transform[Any, Any]:
    return TRANSFORMS[name] if name in TRANSFORMS else parse_transform(name)


def levels_of(spec: PartitionSpec, schema: Schema) -> list[By]:
    """Inverse of `spec_of`."""
    names: dict[Any, str | None] = {transform: name for name, transform in TRANSFORMS.items()}
    names[IdentityTransform()] = None
    columns = [schema.find_column_name(field.source_id) or "" for field in spec.fields]
    return [
        By(f.name, column, names.get(f.transform, str(f.transform)))
        for f, column in zip(spec.fields, columns, strict=True)
    ]


def shown(spec: PartitionSpec) -> list[str]:
    """The fields of a partition spec as texts for messages."""
    return [f"{field.name} ({field.transform})" for field in spec.fields]


def metrics(schema: Schema, file: Added) -> dict[str, dict[int, Any]]:
    """The metrics of a data file's entry by field id: numbers of values, nulls and NaN, and bounds as bytes."""
    nulls = {field.field_id: count for field, count in _primitive(schema, file.nulls)}
    whole = {
        field.field_id: 0 for field, _ in _primitive(schema, file.minima) if isinstance(field.field_type, _FLOATING)
    }
    return {
        "value_counts": dict.fromkeys(nulls, file.rows),
        "null_value_counts": nulls,
        "nan_value_counts": whole,  # a column with NaN has no bounds
        "lower_bounds": _bounds(schema, file.minima),
        "upper_bounds": _bounds(schema, file.maxima),
    }


def _bounds(schema: Schema, values: Mapping[str, Any]) -> dict[int, bytes]:
    return {field.field_id: to_bytes(field.field_type, value) for field, value in _primitive(schema, values)}


def _primitive(schema: Schema, values: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    for name, value in values.items():
        field = schema.find_field(name)
        if isinstance(field.field_type, PrimitiveType):
            yield field, value


def bounds_of(schema: Schema, file: DataFile, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Minima and maxima of the named integer, text and binary columns, as far as a data file's entry has them."""
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for name in names:
        field = schema.find_field(name)
        for values, given in zip(found, (file.lower_bounds, file.upper_bounds), strict=True):
            value = (given or {}).get(field.field_id)
            if value is not None and isinstance(field.field_type, IntegerType | LongType | StringType | BinaryType):
                values[name] = from_bytes(field.field_type, value)
    return found


EPOCH: Final = date(1970, 1, 1)


def number(field: PartitionField, schema: Schema, text: str | None) -> Any:
    """Convert the text of a partition value, such as 2024-02-29-10, to Iceberg's value, such as hours since 1970."""
    if text is None:
        return None
    for name, transform in TRANSFORMS.items():
        if field.transform == transform:
            at = datetime.strptime(text, FORMATS[name]).replace(tzinfo=UTC)
            return {
                "year": at.year - EPOCH.year,
                "month": (at.year - EPOCH.year) * 12 + at.month - 1,
                "date": (at.date() - EPOCH).days,
                "hour": int(at.timestamp()) // 3600,
            }[name]
    if isinstance(field.transform, BucketTransform):
        return int(text)
    found = pa.array([text]).cast(_arrow(schema, field))
    return (found.cast(_stored(found.type)) if pa.types.is_temporal(found.type) else found)[0].as_py()


def text_of(field: PartitionField, schema: Schema, value: Any) -> str | None:
    """Inverse of `number`."""
    if value is None:
        return None
    for name, transform in TRANSFORMS.items():
        if field.transform == transform:
            months = value * 12 if name == "year" else value if name == "month" else 0
            hours = value * 24 if name == "date" else value if name == "hour" else 0
            at = datetime(EPOCH.year + months // 12, months % 12 + 1, 1, tzinfo=UTC) + timedelta(hours=hours)
            return at.strftime(FORMATS[name].replace("%Y", f"{at.year:04}"))  # C libraries write year 1 as 1
    if isinstance(field.transform, BucketTransform):
        return str(value)
    kind = _arrow(schema, field)
    found = pa.array([value], _stored(kind)).cast(kind) if pa.types.is_temporal(kind) else pa.array([value], kind)
    text: str = found.cast(pa.string())[0].as_py()
    return text


def _arrow(schema: Schema, field: PartitionField) -> pa.DataType:
    return small(schema_to_pyarrow(schema.find_field(field.source_id).field_type))


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def small(kind: pa.DataType) -> pa.DataType:
    """The same type with 32-bit offsets and without field ids; PyIceberg uses 64-bit offsets for texts and lists."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(small(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, small(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(small(kind.key_type), small(kind.item_type))
    return kind
