"""Errors of a specification, for its author: the field, its value, the expected value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

EXPECTED: Final[Mapping[str, str]] = {
    "bool_parsing": "true or false is expected",
    "bool_type": "true or false is expected",
    "dict_type": "a mapping is expected",
    "enum": "{expected} is expected",
    "greater_than_equal": "at least {ge} is expected",
    "int_from_float": "a whole number is expected",
    "int_parsing": "a whole number is expected",
    "int_type": "a whole number is expected",
    "less_than_equal": "at most {le} is expected",
    "list_type": "a list is expected",
    "literal_error": "{expected} is expected",
    "model_attributes_type": "a mapping is expected",
    "model_type": "a mapping is expected",
    "string_pattern_mismatch": "it should match {pattern}",
    "string_too_long": "at most {max_length} characters are expected",
    "string_too_short": "at least {min_length} characters are expected",
    "string_type": "a text is expected",
    "too_long": "at most {max_length} entries are expected",
    "too_short": "at least {min_length} entries are expected",
}
VALUE_CHARS_MAX: Final = 80
VERSIONS: Final = "; correct it, or install the operator and the CustomResourceDefinitions (deploy/crds) of one version"
"""Added to the errors of a resource that the API server has accepted: then its definition has another version."""


def problems(error: ValidationError, root: str = "spec") -> list[str]:
    """One line for each error."""
    lines = []
    for item in error.errors():
        path = root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"])
        if item["type"] == "missing":
            lines.append(f"{path} is missing")
        elif item["type"] == "extra_forbidden":
            lines.append(f"{path}: unknown field")
        else:
            text = EXPECTED.get(item["type"])
            expected = item["msg"] if text is None else text.format(**item.get("ctx", {}))
            lines.append(f"{path}: {_shown(item.get('input'))} is not valid: {expected}")
    return lines


def pruned(model: type[BaseModel], spec: Mapping[str, Any]) -> list[str]:
    """Fields without the default that this version's definition sets: the API server's definition lacks them."""
    found = []
    for name, field in model.model_fields.items():
        alias = field.alias or name
        if alias not in spec and not field.is_required() and field.get_default(call_default_factory=True) is not None:
            found.append(f"spec.{alias} is unknown to the API server's definition")
    return found


def _shown(value: object) -> str:
    """A value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
