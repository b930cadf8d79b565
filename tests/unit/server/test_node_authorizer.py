"""A node with an authorizer: when its listeners open, what it refuses to start with."""

from __future__ import annotations

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.server.node import Node, StartRefused
from kraft_node.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.broker.world import Loop, make_env

STANDARD = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
OPEN = {**STANDARD, "allow.everyone.if.no.acl.found": "true"}


def test_a_node_that_judges_does_not_judge_itself() -> None:
    """Nobody has any right, and still the broker registers with its own controller."""
    cluster = Cluster(combined=1, overrides=STANDARD)
    assert not cluster.image.brokers.get(1).fenced
    assert cluster.ask("k1", m.DescribeQuorumRequest()).error_code == 31


@pytest.mark.parametrize("early", ["CONTROLLER", "PLAINTEXT"])
def test_a_listener_that_does_not_start_early_opens_once_the_acls_are_known(early: str) -> None:
    cluster = Cluster(combined=1, overrides={**OPEN, "early.start.listeners": early})
    assert len(cluster.node("k1")._late_listeners) == (early == "PLAINTEXT")
    answer = cluster.ask("k1", m.DescribeClusterRequest(endpoint_type=2), controller=True)
    assert answer.error_code == 0


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"authorizer.class.name": "com.example.Mine"}, "com.example.Mine"),
        ({**STANDARD, "super.users": "root"}, "super.users"),
    ],
)
def test_the_start_is_refused_with_the_reason(keys: dict[str, str], words: str) -> None:
    cluster = Cluster(combined=1, start=False)
    node = Node(make_env(Loop()), NodeConfig.parse({**cluster["k1"].config.texts, **keys}))
    with pytest.raises(StartRefused, match=words):
        node.start()
