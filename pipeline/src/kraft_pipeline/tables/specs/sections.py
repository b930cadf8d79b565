"""Reads a YAML document, and its mappings field by field; errors name the file, or the field's path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml


class SpecError(ValueError):
    """A field is missing, unknown or malformed; the message begins with its path."""


def read_document(path: Path) -> Any:
    """The YAML document of a file. Raises SpecError, and OSError if the file cannot be read."""
    try:
        return yaml.safe_load(path.read_text())
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date that does not exist
        raise SpecError(f"{path}: {error}") from None
    except RecursionError:
        raise SpecError(f"{path}: the document is nested too deep") from None


class Section:
    """A mapping of the YAML with its path. It tracks which fields are read, for `done`. Methods raise SpecError."""

    def __init__(self, path: str, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise SpecError(f"{path}: expected a mapping, not {given!r}")
        self.path, self._given, self._asked = path, given, set[str]()

    def get(self, name: str, default: Any = None) -> Any:
        """A field without a check, or `default` if it is missing or null."""
        self._asked.add(name)
        found = self._given.get(name)
        return default if found is None else found

    def names(self) -> list[str]:
        """The names of all fields, for a mapping with names that the user chooses."""
        return [str(name) for name in self._given]

    def section(self, name: str) -> Section:
        """A nested mapping, empty if it is missing."""
        return Section(f"{self.path}.{name}", self.get(name, {}))

    def text(self, name: str, default: str | None = None) -> str:
        """A text that must not be empty."""
        found = self.get(name, default)
        if not isinstance(found, str) or not found:
            raise SpecError(f"{self.path}.{name}: " + ("is missing" if found is None else f"{found!r} is not a string"))
        return found

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Return the value if it is one of the allowed texts."""
        found = self.text(name, default)
        if found not in allowed:
            near = get_close_matches(found.lower(), allowed, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SpecError(f"{self.path}.{name}: {found!r} is not one of {', '.join(allowed)}{hint}")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, empty if it is missing."""
        found = self.get(name, [])
        if not isinstance(found, list) or not all(isinstance(item, str) and item for item in found):
            raise SpecError(f"{self.path}.{name}: {found!r} is not a list of strings")
        return tuple(found)

    def mapping(self, name: str) -> dict[str, str]:
        """A mapping of names to texts, numbers and booleans, all as texts; empty if it is missing."""
        found = self.get(name, {})
        if not isinstance(found, Mapping):
            raise SpecError(f"{self.path}.{name}: expected a mapping, not {found!r}")
        return {str(key): self._scalar(f"{name}.{key}", value) for key, value in found.items()}

    def _scalar(self, name: str, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float):
            raise SpecError(f"{self.path}.{name}: {value!r} is not a text, a number, true or false")
        return str(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        found = self.get(name, default)
        if not isinstance(found, bool):
            raise SpecError(f"{self.path}.{name}: {found!r} is not true or false")
        return found

    def count(self, name: str, default: int) -> int:
        """An integer of at least 1."""
        found = self.get(name, default)
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise SpecError(f"{self.path}.{name}: {found!r} is not an integer of at least 1")
        return found

    def quantity(self, name: str, default: str, units: Mapping[str, float]) -> float:
        """An integer with a unit, multiplied by the unit's factor in `units`."""
        found = str(self.get(name, default))
        parts = re.fullmatch(r"(\d+)([A-Za-z]*)", found)
        unit = units.get(parts[2].lower()) if parts else None
        if parts is None or unit is None:
            raise SpecError(f"{self.path}.{name}: {found!r} is not valid; an example is {default}")
        return int(parts[1]) * unit

    def any(self) -> bool:
        """Whether the mapping has any field."""
        return bool(self._given)

    def done(self) -> None:
        """Raise SpecError if the mapping has a field that nothing has read."""
        for name in self._given:
            if name not in self._asked:
                near = get_close_matches(str(name), self._asked, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise SpecError(f"{self.path}.{name}: unknown field{hint}")
