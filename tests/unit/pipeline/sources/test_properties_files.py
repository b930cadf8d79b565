"""Files of client properties that options and specifications name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_pipeline.cli.main import main
from kraft_pipeline.sources.options import settings_of
from kraft_pipeline.sources.security import security_of_file
from kraft_protocol.client.security import NO_SECURITY

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="planted";'


def options(file: Path | str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "a:1", "kafka.properties.file": str(file), **more}


def test_keys_of_other_parts_of_a_client_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=b:2\nclient.id=x\nacks=all\n")
    assert security_of_file(str(file)) is NO_SECURITY
    file.write_text(f"client.id=x\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n")
    assert settings_of(options(file)).security.protocol == "SASL_PLAINTEXT"
    assert "planted" not in repr(settings_of(options(file)))


def test_options_replace_entries_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n")
    given = options(file, **{"kafka.security.protocol": "SASL_PLAINTEXT"})
    assert settings_of(given).security.protocol == "SASL_PLAINTEXT"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("security.protocl=SSL", "security.protocl is not a key of Kafka's clients; is security.protocol meant"),
        ("config.providers=file\nssl.key.password=${file:/a:b}", "config.providers.file.class is missing"),
        ("ssl.truststore.type=PEM", "ssl.truststore.type has no effect with security.protocol=PLAINTEXT"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem", "{tmp}/ca.pem"),
        ("client.id=\\u12", "line 1: a \\u escape"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    for read in (lambda: security_of_file(str(file)), lambda: settings_of(options(file))):
        with pytest.raises(ValueError, match=r"client\.properties: ") as refused:
            read()
        assert message.format(tmp=tmp_path) in str(refused.value)


def test_an_empty_name_of_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable of a shell must not open a connection in the clear."""
    with pytest.raises(ValueError, match=r"option kafka\.properties\.file is empty"):
        settings_of(options(""))
    for command in (["meta", "report"], ["scrub", "run"]):
        assert main([*command, "--bootstrap-server", "localhost:1", "--command-config", ""]) == 2
        assert "Is a directory" in capsys.readouterr().err
