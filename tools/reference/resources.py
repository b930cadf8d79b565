"""A page for each custom resource, from the schema of its CustomResourceDefinition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from kraft_operator.api.crd import crds
from tools.reference.text import cell, code, generated, table

FOLDER: Final = "docs/reference/resources"
BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
}


def pages() -> dict[str, str]:
    """Path -> text, one page per kind."""
    return {f"{FOLDER}/{crd['spec']['names']['singular']}.md": _page(crd) for crd in crds()}


def _page(crd: dict[str, Any]) -> str:
    names, group = crd["spec"]["names"], crd["spec"]["group"]
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(code(name) for name in names.get("shortNames", ()))
    parts = [
        generated(names["kind"], "the models in `kraft_operator.api`"),
        f"{schema.get('description', '')}\n\n",
        f"`apiVersion: {group}/{version['name']}`, `kind: {names['kind']}`; short names for kubectl: {short}.\n\n",
    ]
    for part, title in (("spec", "Specification"), ("status", "Status")):
        parts.append(f"## {title}\n\n")
        for path, node in _objects(schema["properties"][part], part):
            parts.append(f"### `{path}`\n\n" if path != part else "")
            parts.append(table(("field", "type", "default", "meaning"), _rows(node)) + "\n")
    rules = [(code(path), cell(text)) for path, text in _rules(schema, "")]
    if rules:
        parts.append(
            "## Rules\n\nThe API server refuses a resource that breaks a rule, with this message.\n\n"
            + table(("field", "rule"), rules)
        )
    return "".join(parts).rstrip() + "\n"


def _objects(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object with named fields at or below `node`, with its path."""
    if node.get("type") == "array":
        yield from _objects(node["items"], path + "[]")
    elif isinstance(node.get("additionalProperties"), dict):
        yield from _objects(node["additionalProperties"], path + ".NAME")
    elif node.get("properties"):
        yield path, node
        for name, field in node["properties"].items():
            yield from _objects(field, f"{path}.{name}")


def _rows(node: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    required = set(node.get("required", ()))
    for name, field in node["properties"].items():
        yield code(name), _kind(field), _default(field, required=name in required), cell(_meaning(field))


def _kind(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_kind(field['items'])}"
    values = field.get("additionalProperties")
    if kind == "object" and isinstance(values, dict):
        return f"map of {_kind(values)}"
    return kind


def _default(field: dict[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    if "default" not in field:
        return ""
    value = field["default"]
    if isinstance(value, dict) and field.get("properties"):
        return ""  # its own table shows the defaults
    return code(value if isinstance(value, str) else json.dumps(value)) if value != "" else "empty"


def _meaning(field: dict[str, Any]) -> str:
    found = [str(field.get("description", ""))]
    if "enum" in field:
        found.append("one of " + ", ".join(f"`{value}`" for value in field["enum"]))
    found += [_bound(words, field[key]) for key, words in BOUNDS.items() if key in field]
    return "; ".join(filter(None, found))


def _bound(words: str, limit: int) -> str:
    text = words.format(limit)
    return {"at least 1 characters": "not empty", "at least 1 entries": "not empty"}.get(text, text)


def _rules(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for rule in node.get("x-kubernetes-validations", ()):
        yield path or "the resource", rule.get("message") or rule["rule"]
    for name, field in node.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}".lstrip("."))
    if "items" in node:
        yield from _rules(node["items"], path + "[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _rules(node["additionalProperties"], path + ".NAME")
