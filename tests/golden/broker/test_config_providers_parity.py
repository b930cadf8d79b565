"""Variables in `server.properties` (`config.providers`) beside Apache Kafka: which texts they replace, and by what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_protocol.wire import messages as m
from tests.compat.targets import Apache, Ours, Target, all_running
from tests.golden.broker.pair import Pair, Side

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("config-providers")]

BROKER = 4
PACKAGE = "org.apache.kafka.common.config.provider."


def configuration(folder: Path) -> dict[str, str]:
    """Variables of all providers, alone and within a text, and texts that look like variables."""
    secrets = folder / "secrets"
    secrets.mkdir()
    (secrets / "segment").write_text("2097152")
    (secrets / "spaced").write_text("4194304\n")
    (folder / "a.properties").write_text("retention=3600000\nlist = 300:400 \n")
    return {
        "config.providers": "env,files,folder",
        "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "KRAFT_PARITY_.*",
        "config.providers.files.class": f"{PACKAGE}FileConfigProvider",
        "config.providers.files.param.allowed.paths": str(folder),
        "config.providers.folder.class": f"{PACKAGE}DirectoryConfigProvider",
        "log.retention.ms": f"${{files:{folder}/a.properties:retention}}",
        "log.segment.bytes": f"${{folder:{secrets}:segment}}",
        "message.max.bytes": f"${{folder:{secrets}:spaced}}",
        "log.cleanup.policy": "${env:KRAFT_PARITY_FIRST},${env:KRAFT_PARITY_SECOND}",
        "broker.rack": "${other:x}-${env}-$${env:KRAFT_PARITY_FIRST}",
        "log.roll.ms": "1${env:KRAFT_PARITY_ZEROS}",
    }


class FreshApache(Apache):
    """Apache Kafka with a storage tool in a process of its own, which has the environment of this test."""

    def _storage(self, *args: str) -> None:
        Target._storage(self, *args)


KEYS = (
    "log.retention.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "log.cleanup.policy",
    "broker.rack",
    "log.roll.ms",
)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Both servers with variables in their files."""
    monkeypatch.setenv("KRAFT_PARITY_FIRST", "compact")
    monkeypatch.setenv("KRAFT_PARITY_SECOND", "delete")
    monkeypatch.setenv("KRAFT_PARITY_ZEROS", "000000")
    overrides = configuration(tmp_path)
    targets = FreshApache("apache", tmp_path / "apache", overrides), Ours("kraftcluster", tmp_path / "ours", overrides)
    with all_running(targets):
        made = Pair(Side("Kafka", targets[0]), Side("ours", targets[1]))
        yield made
        for side in made.sides:
            side.close()
        made.verdict()


def test_variables_have_the_values_that_apache_kafka_gives_them(pair: Pair) -> None:
    row = m.DescribeConfigsRequest.DescribeConfigsResource(BROKER, "1", list(KEYS))
    answer, _ = pair.same(m.DescribeConfigsRequest([row], include_synonyms=True), 4)
    values = {one.name: one.value for one in answer.results[0].configs}
    assert values == {
        "log.retention.ms": "3600000",
        "log.segment.bytes": "2097152",
        "message.max.bytes": "4194304",
        "log.cleanup.policy": "compact,delete",
        "broker.rack": "${other:x}-${env}-$compact",
        "log.roll.ms": "1000000",
    }
