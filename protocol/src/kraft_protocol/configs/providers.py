"""Variables in configurations (KIP-297, KIP-421): `config.providers` names who knows their values.

    config.providers=env,files
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.files.class=org.apache.kafka.common.config.provider.FileConfigProvider
    delegation.token.secret.key=${env:TOKEN_KEY}
    ssl.key.password=${files:/etc/kafka/secrets.properties:key.password}

Kafka leaves a variable without a value in its place, as a text; here it is an error, because the text might become a
password. A variable of a provider that `config.providers` does not name is a text, as in Kafka.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from kraft_protocol.configs.own import PROVIDERS_PREFIX
from kraft_protocol.configs.properties import decode_properties, parse_properties

PROVIDERS_KEY: Final = "config.providers"
ALLOWED_PATHS: Final = "allowed.paths"
ALLOWED_NAMES: Final = "allowlist.pattern"
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_PACKAGE: Final = "org.apache.kafka.common.config.provider."

Look: TypeAlias = Callable[[Mapping[str, str], str, str], str]
"""Parameters of a provider, path and key of a variable -> its value. Raises ProviderError, OSError."""


class ProviderError(ValueError):
    """A variable has no value, or a provider cannot be used. The message has no values."""


def resolved(texts: Mapping[str, str], needed: Container[str] | None = None) -> dict[str, str]:
    """The entries with values for their variables.

    `needed`: the keys that a program needs; None: all. Other keys are left out if a variable has no value. Raises
    ProviderError, which names the key and the variable.
    """
    names = [name for part in texts.get(PROVIDERS_KEY, "").split(",") if (name := part.strip())]
    if not names:
        return dict(texts)
    looks = {name: _look(texts, name) for name in names}
    params = {name: _params(texts, name) for name in names}
    found = dict(texts)
    for key, text in texts.items():
        if not key.startswith(PROVIDERS_PREFIX):
            try:
                found[key] = _replaced(key, text, looks, params)
            except ProviderError:
                if needed is None or key in needed:
                    raise
                del found[key]
    return found


def _look(texts: Mapping[str, str], name: str) -> Look:
    key = f"{PROVIDERS_PREFIX}{name}.class"
    given = texts.get(key, "").strip()
    if not given:
        raise ProviderError(f"{key} is missing, because {PROVIDERS_KEY} names {name}")
    found = _CLASSES.get(given.removeprefix(_PACKAGE))
    if found is None:
        known = ", ".join(_PACKAGE + one for one in _CLASSES)
        raise ProviderError(f"{key}: {given} is not one of {known}; others need a JVM")
    return found


def _params(texts: Mapping[str, str], name: str) -> dict[str, str]:
    prefix = f"{PROVIDERS_PREFIX}{name}.param."
    return {key.removeprefix(prefix): text.strip() for key, text in texts.items() if key.startswith(prefix)}


def _replaced(key: str, text: str, looks: Mapping[str, Look], params: Mapping[str, Mapping[str, str]]) -> str:
    def value(found: re.Match[str]) -> str:
        name, path, variable = found[1], found[2] or "", found[3]
        look = looks.get(name)
        if look is None:
            return found[0]
        try:
            return look(params[name], path, variable)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ProviderError(f"{key}: {found[0]} has no value: {reason}") from None

    return _VARIABLE.sub(value, text)


def _of_environment(params: Mapping[str, str], path: str, name: str) -> str:
    """EnvVarConfigProvider: `${env:NAME}`."""
    if path:
        raise ProviderError(f"variables of the environment have no path, here {path!r}")
    pattern = params.get(ALLOWED_NAMES)
    try:
        allows = pattern is None or re.fullmatch(pattern, name)
    except re.error as error:
        raise ProviderError(f"{ALLOWED_NAMES} {pattern!r} is no regular expression: {error}") from None
    if not allows:
        raise ProviderError(f"{ALLOWED_NAMES} does not allow it")
    found = os.environ.get(name)
    if found is None:
        raise ProviderError("the environment does not have it")
    return found


def _of_file(params: Mapping[str, str], path: str, key: str) -> str:
    """FileConfigProvider: `${file:PATH:KEY}`, a file of properties."""
    entries = parse_properties(decode_properties(_allowed(params, path).read_bytes()))
    if key not in entries:
        raise ProviderError(f"the file has no key {key}")
    return entries[key]


def _of_directory(params: Mapping[str, str], path: str, name: str) -> str:
    """DirectoryConfigProvider: `${directory:PATH:NAME}`, the text of the file NAME."""
    if not name or Path(name).name != name:
        raise ProviderError(f"{name!r} is no name of a file")
    return (_allowed(params, path) / name).read_bytes().decode()


def _allowed(params: Mapping[str, str], path: str) -> Path:
    """The path, if `allowed.paths` has it or a folder above it. Raises ProviderError."""
    if not path:
        raise ProviderError("the path is missing")
    found = Path(os.path.normpath(Path(path).absolute()))
    allowed = [Path(part.strip()) for part in params.get(ALLOWED_PATHS, "").split(",") if part.strip()]
    if allowed and not any(found.is_relative_to(one) for one in allowed):
        raise ProviderError(f"{ALLOWED_PATHS} does not have it")
    return found


_CLASSES: Final[Mapping[str, Look]] = {
    "EnvVarConfigProvider": _of_environment,
    "FileConfigProvider": _of_file,
    "DirectoryConfigProvider": _of_directory,
}
"""Kafka's classes, without their package."""
