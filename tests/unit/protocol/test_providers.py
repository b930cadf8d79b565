"""Variables in configurations (`config.providers`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_protocol.configs.providers import ProviderError, resolved

PACKAGE = "org.apache.kafka.common.config.provider."
ALL = {
    "config.providers": "env,files, folder",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.files.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.folder.class": f"{PACKAGE}DirectoryConfigProvider",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of properties, a folder with a secret, and a variable of the environment."""
    (tmp_path / "a.properties").write_text("key.password=from a file\nother=x\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "token").write_text("from a folder\n")
    monkeypatch.setenv("PLANTED", "from the environment")
    return tmp_path


def test_variables_get_their_values_wherever_they_are_in_a_text(folder: Path) -> None:
    found = resolved(
        {
            **ALL,
            "a": "${env:PLANTED}",
            "b": f"<${{files:{folder}/a.properties:key.password}}, ${{env:PLANTED}}>",
            "c": f"${{folder:{folder}/secrets:token}}",
            "d": "${other:x} ${env} $ {env:PLANTED} ${USER}",
        }
    )
    assert found == {
        **ALL,
        "a": "from the environment",
        "b": "<from a file, from the environment>",
        "c": "from a folder\n",
        "d": "${other:x} ${env} $ {env:PLANTED} ${USER}",
    }


def test_without_providers_a_text_stays_as_it_is() -> None:
    assert resolved({"a": "${env:PLANTED}"}) == {"a": "${env:PLANTED}"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:MISSING}", "the environment does not have it"),
        ("${env:/a:PLANTED}", "variables of the environment have no path"),
        ("${files:{folder}/a.properties:missing}", "the file has no key missing"),
        ("${files:{folder}/b.properties:other}", "No such file"),
        ("${files:other}", "the path is missing"),
        ("${folder:{folder}/secrets:../a.properties}", "is no name of a file"),
        ("${folder:{folder}/secrets:missing}", "No such file"),
    ],
)
def test_a_variable_without_a_value_is_refused_if_its_key_is_needed(text: str, reason: str, folder: Path) -> None:
    given = {**ALL, "ssl.key.password": text.replace("{folder}", str(folder))}
    with pytest.raises(ProviderError, match=rf"^ssl\.key\.password: \$\{{.*has no value: .*{reason}") as refused:
        resolved(given)
    assert "from" not in str(refused.value).replace(str(folder), "")
    assert resolved(given, {"log.dirs"}) == ALL
    with pytest.raises(ProviderError, match=reason):
        resolved(given, {"ssl.key.password"})


@pytest.mark.parametrize(
    ("params", "text", "allowed"),
    [
        ({"env.param.allowlist.pattern": "PLAN.*"}, "${env:PLANTED}", True),
        ({"env.param.allowlist.pattern": "PLAN"}, "${env:PLANTED}", False),
        ({"files.param.allowed.paths": "/nowhere,{folder}"}, "${files:{folder}/a.properties:other}", True),
        ({"files.param.allowed.paths": "{folder}/secrets"}, "${files:{folder}/a.properties:other}", False),
        ({"files.param.allowed.paths": "{folder}/secrets"}, "${files:{folder}/secrets/../a.properties:other}", False),
        ({"folder.param.allowed.paths": "{folder}"}, "${folder:{folder}/secrets:token}", True),
        ({"folder.param.allowed.paths": "{folder}/secret"}, "${folder:{folder}/secrets:token}", False),
    ],
)
def test_parameters_bound_what_a_provider_reads(params: dict[str, str], text: str, allowed: bool, folder: Path) -> None:
    given = {f"config.providers.{name}": value.replace("{folder}", str(folder)) for name, value in params.items()}
    texts = {**ALL, **given, "a": text.replace("{folder}", str(folder))}
    if allowed:
        assert "${" not in resolved(texts)["a"]
    else:
        with pytest.raises(ProviderError, match=r"allow"):
            resolved(texts)


def test_a_pattern_that_cannot_be_read_is_named() -> None:
    given = {**ALL, "config.providers.env.param.allowlist.pattern": "PLAN(", "a": "${env:PLANTED}"}
    with pytest.raises(ProviderError, match=r"^a: .*allowlist\.pattern 'PLAN\(' is no regular expression"):
        resolved(given)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config.providers.env.class": ""}, r"config\.providers\.env\.class is missing"),
        ({"config.providers.env.class": "org.example.Vault"}, r"org\.example\.Vault is not one of"),
    ],
)
def test_a_provider_that_cannot_be_used_is_refused(change: dict[str, str], reason: str) -> None:
    for needed in (None, ()):
        with pytest.raises(ProviderError, match=reason):
            resolved({**ALL, **change}, needed)
