"""Specifications with many tables: `routes`, and paths with `{topic}`, which give each topic a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kraft_pipeline.tables.specs.sections import read_document
from kraft_pipeline.tables.specs.table_spec import TOPIC, SpecError, TableSpec, parse

WHOLE: Final = ("topics", "key", "headers", "value", "transform", "functions")
"""Fields of a route that replace the specification's field as a whole; other sections are merged field by field."""
ROUTED: Final = ("name", *WHOLE, "table", "commit", "deadLetter", "maintenance")
"""Fields of a route."""


def load_all(path: Path) -> list[TableSpec]:
    """Load the specs of all tables in a file. Raises SpecError, and OSError if the file cannot be read."""
    return parse_all(read_document(path), path.parent)


def parse_all(document: Any, folder: Path | None = None) -> list[TableSpec]:
    """Parse a document to one spec per route, or to a single spec if it has no routes. Raises SpecError."""
    given = document.get("spec") if isinstance(document, Mapping) else None
    if not isinstance(given, Mapping) or not given.get("routes"):
        return [parse(document, folder)]
    routes = given["routes"]
    if not isinstance(routes, list) or not all(isinstance(route, Mapping) for route in routes):
        raise SpecError("spec.routes: expected a list of mappings")
    if given.get("topics"):
        raise SpecError("spec.topics: each of spec.routes has topics of its own")
    found: list[TableSpec] = []
    for number, route in enumerate(routes):
        try:
            table = parse({**document, "spec": _routed(given, route)}, folder)
            label = route.get("name") or table.path.rstrip("/").rpartition("/")[2]
            table = replace(table, label=f"{table.name}/{label}")
            check_place(table, found)
        except SpecError as e:
            raise SpecError(f"spec.routes[{number}]: {e}") from None
        found.append(table)
    return found


def _routed(given: Mapping[str, Any], route: Mapping[str, Any]) -> dict[str, Any]:
    """The specification of one route."""
    for name in route:
        if name not in ROUTED:
            raise SpecError(f"{name}: unknown field; a route has {', '.join(ROUTED)}")
    found = {name: value for name, value in given.items() if name != "routes"}
    for name, value in route.items():
        if name != "name":
            by_field = name not in WHOLE and isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
            found[name] = {**found[name], **value} if by_field else value
    return found


def check_place(table: TableSpec, others: Iterable[TableSpec]) -> None:
    """Raise SpecError if a table, or its dead letters, would be in the folder of another table."""
    for other in others:
        one, two = (f"{path.rstrip('/')}/" for path in (table.path, other.path))
        letters = {other.dead_letter_path, table.dead_letter_path} & {table.path.rstrip("/"), other.path.rstrip("/")}
        if one.startswith(two) or two.startswith(one) or letters:
            raise SpecError(f"spec.table.path: {table.path!r} is within {other.path!r} of {other.label}, or around it")


def of_topic(spec: TableSpec, topic: str) -> TableSpec:
    """The spec of one topic's table, with `{topic}` replaced."""
    catalog = {name: value.replace(TOPIC, topic) if name == "name" else value for name, value in spec.catalog.items()}
    path, label = spec.path.replace(TOPIC, topic), f"{spec.name}/{topic}"
    return replace(spec, topics=(topic,), pattern=None, path=path, catalog=catalog, label=label)
