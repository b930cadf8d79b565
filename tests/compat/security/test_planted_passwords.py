"""Passwords never leave the node: not by DescribeConfigs, its log, or a refused start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kraft_node.cli.client import NodeClient
from kraft_protocol.sasl.properties import MODULES
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.compat.security.secured import java_client, lone
from tests.peer import require_program

CLIENT = "planted passwords"


def test_passwords_are_in_no_answer_and_no_line_of_the_log(tmp_path: Path) -> None:
    kcat = require_program("kcat")
    server = lone("kraftcluster", tmp_path, ["PLAIN", "SCRAM-SHA-256"])
    server.target.start()
    try:
        broker = DescribeConfigsRequest.DescribeConfigsResource(4, "1", None)
        with NodeClient("127.0.0.1", server.target.port, 30) as client:
            (result,) = client.request(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest([broker], True, True)).results
        options = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=ann")
        words = [part for word in (*options, "sasl.password=planted-wrong") for part in ("-X", word)]
        subprocess.run([kcat, "-b", server.bootstrap, "-L", "-m", "2", *words], capture_output=True, check=False)
    finally:
        server.target.stop()
    log = server.target.log.read_text()
    assert "authentication failed" in log
    assert "planted" not in log
    assert any("jaas" in entry.name for entry in result.configs)
    assert not [e.name for e in result.configs if any("planted" in str(v.value) for v in (e, *e.synonyms))]


def test_passwords_are_in_no_output_of_a_command_line(tmp_path: Path) -> None:
    """In the configuration of a running node, in arguments and files of tools, and in the files of a stopped node."""
    server = lone("kraftcluster", tmp_path, ["PLAIN", "SCRAM-SHA-256"])
    client = java_client(tmp_path, "PLAIN", username="ann", password="planted-ann")
    wrong = java_client(tmp_path, "PLAIN", username="wrong", password="planted-wrong")
    server.target.start()
    outputs = []
    try:
        iac = IncrementalAlterConfigsRequest
        row = [iac.AlterableConfig("listener.name.external.ssl.key.password", 0, "planted-key")]
        unknown = [iac.AlterableConfig("own.plugin.secret", 0, "planted-plugin")]
        resources = [iac.AlterConfigsResource(4, "1", row), iac.AlterConfigsResource(4, "", unknown)]
        with NodeClient("127.0.0.1", server.target.port, 30) as connection:
            done = connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, iac(resources, False))
        assert [one.error_code for one in done.responses] == [0, 0]
        controller = f"127.0.0.1:{server.target.controller_port}"
        for file in (client, wrong):
            outputs.append(output("cluster", "list-endpoints", "-b", server.bootstrap, "--command-config", file))
            outputs.append(output("metadata_shell", "-C", controller, "--command-config", file, "tree", "/image"))
    finally:
        server.target.stop()
    log = server.target.data / "__cluster_metadata-0" / f"{0:020}.log"
    argument = "SCRAM-SHA-256=[name=a,password=b,planted]"
    outputs += [
        output("metadata_shell", "--directory", str(server.target.data), "tree", "/image"),
        output("dump_log", "--cluster-metadata-decoder", "--files", str(log)),
        output("storage", "format", "-t", "x" * 22, "-c", str(server.target.properties()), "-S", argument),
        output("storage", "info", "-c", str(server.target.properties())),
        server.target.log.read_text(),
    ]
    assert "listener.name.external.ssl.key.password" in outputs[1] and "own.plugin.secret" in outputs[5]
    for text in outputs:
        assert text and "planted" not in text


def output(module: str, *arguments: str) -> str:
    """All that a command line of ours prints."""
    command = [sys.executable, "-m", f"kraft_node.cli.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "end", [' password="planted-x"', " password=12planted;", ' password="planted-x;', " 'planted'=;"]
)
def test_a_refused_start_names_the_key_and_no_password(tmp_path: Path, end: str) -> None:
    key = "listener.name.sasl.plain.sasl.jaas.config"
    server = lone("kraftcluster", tmp_path, ["PLAIN"], {key: f"{MODULES['PLAIN']} required{end}"})
    server.target.launch()
    assert server.target.process is not None
    assert server.target.process.wait(60) != 0
    log = server.target.log.read_text()
    assert key in log
    assert "planted-x" not in log and "12planted" not in log
