"""Pydantic's JSON Schema as a structural schema of Kubernetes: no references, no `anyOf` with null, no titles.

A value that may be left out has no default and is not required, so CEL needs `has(…)`; maps carry their bounds as
`maxProperties`. CEL rules of the models (`Model.RULES`) are added where their object is.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from kraft_operator.api.base import Model, rules_of

_DROPPED: Final = ("title", "$defs", "examples")


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of `model`, with all references resolved."""
    raw = model.model_json_schema(by_alias=True, mode="validation", schema_generator=GenerateJsonSchema)
    return _shaped(raw, raw.get("$defs", {}), _models(model))


def _models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Every model below and including `model`, by class name."""
    found: dict[str, type[BaseModel]] = {}
    queue: list[Any] = [model]
    while queue:
        item = queue.pop()
        if isinstance(item, type) and issubclass(item, BaseModel):
            if item.__name__ not in found:
                found[item.__name__] = item
                queue += [field.annotation for field in item.model_fields.values()]
        else:
            queue += getattr(item, "__args__", ())
    return found


def _shaped(node: dict[str, Any], defs: dict[str, Any], models: dict[str, type[BaseModel]]) -> dict[str, Any]:
    name = node.get("title", "")
    node = dict(node)
    if "$ref" in node:
        target = node.pop("$ref").rpartition("/")[2]
        name = target
        node = {**defs[target], **node}
    if "anyOf" in node:
        (only,) = [branch for branch in node.pop("anyOf") if branch != {"type": "null"}]
        description = node.get("description")
        node = {**only, **node}
        node.pop("default", None)
        if "$ref" in node:
            return _shaped(node, defs, models)
        if description:
            node["description"] = description
    shaped = {key: value for key, value in node.items() if key not in _DROPPED}
    if "default" in shaped:
        shaped["default"] = _without_nulls(shaped["default"])
    if "properties" in shaped:
        return _object(shaped, name, defs, models)
    if shaped.get("type") == "array":
        shaped["items"] = _shaped(shaped["items"], defs, models)
    if shaped.get("type") == "object":
        values = shaped.pop("additionalProperties", None)
        if isinstance(values, dict):
            shaped["additionalProperties"] = _shaped(values, defs, models)
    if "const" in shaped:
        shaped["enum"] = [shaped.pop("const")]
    return _ordered(shaped)


def _without_nulls(value: Any) -> Any:
    """A default in the form of the API server: without null fields."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _object(
    shaped: dict[str, Any], name: str, defs: dict[str, Any], models: dict[str, type[BaseModel]]
) -> dict[str, Any]:
    shaped.pop("additionalProperties", None)  # the API server itself prunes or refuses fields without a name here
    shaped["properties"] = {key: _shaped(value, defs, models) for key, value in shaped["properties"].items()}
    model = models.get(name)
    if model is not None and issubclass(model, Model):
        for key, value in rules_of(model.RULES).items():
            shaped[key] = [*shaped.get(key, ()), *value]
    return _ordered(shaped)


_ORDER: Final = ("description", "type", "format", "default", "enum", "pattern", "required", "items", "properties")


def _ordered(shaped: dict[str, Any]) -> dict[str, Any]:
    """Sort the keys into a fixed, readable order, and put descriptions on one line."""
    if "description" in shaped:
        shaped["description"] = " ".join(str(shaped["description"]).split())
    first: dict[str, Any] = {key: shaped[key] for key in _ORDER if key in shaped and key not in {"items", "properties"}}
    rest = {key: shaped[key] for key in sorted(shaped) if key not in _ORDER}
    last: dict[str, Any] = {key: shaped[key] for key in ("items", "properties") if key in shaped}
    return {**first, **rest, **last}
