"""The servers that command lines are given: `host:port,…`."""

from __future__ import annotations

import pytest

from kraft_node.cli import cluster
from kraft_node.cli.client import connect
from kraft_node.cli.common import ToolError


@pytest.mark.parametrize("server", ["h", "h:", "h:65536", "h:-1", "h:1:2x", ""])
def test_a_server_without_a_possible_port_is_named(server: str) -> None:
    """For 65536 + 9092, a tool talked to whatever listened at 9092."""
    with pytest.raises(ToolError, match=f"'{server}' does not have the form host:port"):
        connect(server)


@pytest.mark.parametrize("option", ["--bootstrap-server", "--bootstrap-controller"])
def test_an_empty_server_is_refused_in_words(option: str) -> None:
    """The command ended with a traceback, or answered for controllers when asked for brokers."""
    with pytest.raises(ToolError, match="'' does not have the form host:port"):
        cluster.main(["cluster-id", option, ""])
