"""Configuration files as the programs read them."""

from __future__ import annotations

from pathlib import Path

from kraft_node.cli.common import read_config

MINIMUM = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\nlisteners=A://:1,C://:2\n"
MINIMUM += "listener.security.protocol.map=A:PLAINTEXT,C:PLAINTEXT\ninter.broker.listener.name=A\n"
MINIMUM += "controller.quorum.voters=1@localhost:2\n"


def test_a_configuration_in_latin_1_is_read_like_java(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    for encoding in ("utf-8", "iso-8859-1"):
        path.write_bytes((MINIMUM + "# Größe\nbroker.rack=é\n").encode(encoding))
        assert read_config(str(path)).rack == "é"
