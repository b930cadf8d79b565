"""kafka-consumer-groups.sh, kafka-groups.sh and kafka-configs.sh on consumer groups of KIP-848."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compat.clients.test_java_tools import CONSUMER, TOOLS, console_produce, create_topic, eventually, shows, tool
from tests.compat.targets import Target
from tests.peer import QUICK_JVM, require_peer

CLIENT = "Apache Kafka's Java tools"
pytestmark = pytest.mark.peer

GROUPS = f"{CONSUMER}.group.ConsumerGroupCommand"


def rows(text: str, first: str) -> list[list[str]]:
    return [line.split() for line in text.split("\n") if line.startswith(first)]


def test_tools_show_and_alter_groups_of_the_consumer_protocol(cluster: Target, name: str, tmp_path: Path) -> None:
    create_topic(cluster, name, 2)
    console_produce(cluster, name, [str(i) for i in range(10)])
    command = [
        *("java", *QUICK_JVM, "-cp", f"{require_peer()}/*", f"{CONSUMER}.ConsoleConsumer"),
        *("--bootstrap-server", cluster.bootstrap, "--topic", name, "--group", name),
        *("--command-property", "group.protocol=consumer", "--command-property", "auto.offset.reset=earliest"),
    ]
    out = tmp_path / "out"
    with out.open("wb") as file:
        consumer = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: len(out.read_bytes().split()) == 10)
        eventually(lambda: "Stable" in tool(cluster, GROUPS, "--describe", "--group", name, "--state"))
        (state,) = rows(tool(cluster, GROUPS, "--describe", "--group", name, "--state", "--verbose"), name)
        assert state[3:5] == ["uniform", "Stable"], state
        (member,) = rows(tool(cluster, GROUPS, "--describe", "--group", name, "--members", "--verbose"), name)
        assert "console-consumer" in member, member
        assert f"{name}:0,1" in " ".join(member), member
        eventually(lambda: sum(int(r[3]) for r in offsets(cluster, name) if r[3] != "-") == 10)
        listed = rows(tool(cluster, f"{TOOLS}.GroupsCommand", "--list"), name)
        assert listed == [[name, "Consumer", "consumer"]]
        assert name in tool(cluster, GROUPS, "--list", "--type", "consumer", "--state", "stable")
        assert name not in tool(cluster, GROUPS, "--list", "--type", "classic")
        refused = tool(cluster, GROUPS, "--delete", "--group", name, check=False)
        assert "GroupNotEmptyException" in refused
    finally:
        consumer.terminate()
        consumer.wait(30)
    eventually(lambda: "Empty" in tool(cluster, GROUPS, "--describe", "--group", name, "--state"))
    tool(cluster, GROUPS, "--reset-offsets", "--group", name, "--topic", name, "--to-earliest", "--execute")
    assert sum(int(row[3]) for row in offsets(cluster, name)) == 0
    entity = ("--entity-type", "groups", "--entity-name", name)
    config = "consumer.session.timeout.ms=46000"
    tool(cluster, "kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", config)
    shows(cluster, config, *entity)
    tool(cluster, GROUPS, "--delete", "--group", name)
    assert name not in tool(cluster, GROUPS, "--list").split()


def offsets(cluster: Target, name: str) -> list[list[str]]:
    return rows(tool(cluster, GROUPS, "--describe", "--group", name), name)
