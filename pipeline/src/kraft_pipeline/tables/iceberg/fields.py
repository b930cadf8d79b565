"""Conversions of columns, partitions and bounds between Iceberg's forms and ours (Arrow types, texts, levels)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import BinaryType, IntegerType, LongType, PrimitiveType, StringType

from kraft_pipeline.tables.specs.partitions import FORMATS, By

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
        transform = TRANSFORMS[by.transform] if by.transform else IdentityTransform()
        source = schema.find_field(by.column).field_id
        fields.append(PartitionField(source, PARTITION_FIELD_ID_START + at, transform, by.name))
    return PartitionSpec(*fields)


def levels_of(spec: PartitionSpec, schema: Schema) -> list[By]:
    """Inverse of `spec_of`."""
    names = {transform: name for name, transform in TRANSFORMS.items()}
    return [By(f.name, schema.find_column_name(f.source_id) or "", names.get(f.transform)) for f in spec.fields]


def shown(spec: PartitionSpec) -> list[str]:
    """The fields of a partition spec as texts for messages."""
    return [f"{field.name} ({field.transform})" for field in spec.fields]


def bounds(schema: Schema, values: Mapping[str, Any]) -> dict[int, bytes]:
    """Encode minima or maxima of columns for a data file's entry: field id -> Iceberg's single-value bytes."""
    fields = [(schema.find_field(name), value) for name, value in values.items()]
    return {f.field_id: to_bytes(f.field_type, value) for f, value in fields if isinstance(f.field_type, PrimitiveType)}


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
            return at.strftime(FORMATS[name])
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
